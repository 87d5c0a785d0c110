//! Functions that are too long to be read in one go.
//!
//! A heuristic, good enough for code that rustfmt has formatted: a function ends at the first line
//! that is a closing brace at the indentation of its `fn`. Tests in `tests/` folders are exempt,
//! because a scenario told from start to end is clearer than one cut into pieces.

/// Longest function, from the line with `fn` to the closing brace, both included.
const LINES: usize = 70;
/// What may stand before `fn`.
const QUALIFIERS: [&str; 5] = ["pub", "const", "async", "unsafe", "extern"];

pub(crate) fn long_functions(path: &str, text: &str) -> Vec<(usize, String)> {
    if !path.ends_with(".rs") || path.split('/').any(|part| part == "tests") {
        return Vec::new();
    }
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let Some(length) = length(&lines[start..]) else { continue };
        if length > LINES {
            found.push((start + 1, format!("`{name}` has {length} lines, at most {LINES}")));
        }
    }
    found
}

/// The name of the function that starts on this line, if one does.
fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.trim_start().split_once("fn ")?;
    let qualifies = |word: &str| {
        let is_abi = word.starts_with('"');
        is_abi || QUALIFIERS.iter().any(|known| word == *known || word.starts_with("pub("))
    };
    // `pub(in path)` is two words; nobody here writes it.
    before.split_whitespace().all(qualifies).then(|| after.split(['(', '<']).next())?
}

/// How many lines the function that starts on the first line has; `None` if it has no body, or
/// the body is on that line.
fn length(lines: &[&str]) -> Option<usize> {
    let first = lines.first()?;
    let indent = &first[..first.len() - first.trim_start().len()];
    let has_body = lines.iter().find_map(|line| match line.trim_end().chars().last() {
        Some('{') => Some(true),
        Some(';' | '}') => Some(false),
        _ => None,
    });
    if has_body != Some(true) {
        return None;
    }
    let is_end = |line: &&str| line.strip_prefix(indent).is_some_and(|rest| rest == "}");
    lines.iter().position(is_end).map(|last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(head: &str, indent: &str, lines: usize) -> String {
        let body = format!("{indent}    step();\n").repeat(lines - 2);
        format!("{indent}{head} {{\n{body}{indent}}}\n")
    }

    #[test]
    fn a_function_of_71_lines_is_caught_and_one_of_70_is_not() {
        let text = function("pub(crate) async fn far(&self)", "    ", 71);
        let found = long_functions("crates/core/src/a.rs", &format!("impl X {{\n{text}}}\n"));
        assert_eq!(found, [(2, "`far` has 71 lines, at most 70".to_owned())]);
        assert!(long_functions("a.rs", &function("fn near()", "", 70)).is_empty());
    }

    #[test]
    fn tests_are_exempt() {
        let text = function("fn story()", "", 200);
        assert!(long_functions("crates/core/tests/it/main.rs", &text).is_empty());
        assert_eq!(long_functions("crates/core/src/main.rs", &text).len(), 1);
    }

    #[test]
    fn a_declaration_without_body_does_not_count_what_follows() {
        let long = function("if true", "    ", 100);
        let text = format!("trait T {{\n    fn a(&self);\n    fn b() {{}}\n{long}}}\n");
        assert!(long_functions("a.rs", &text).is_empty());
    }

    #[test]
    fn a_signature_over_several_lines_counts() {
        let body = "    step();\n".repeat(70);
        let text = format!("fn wide(\n    a: u32,\n) -> u32 {{\n{body}}}\n");
        assert_eq!(long_functions("a.rs", &text)[0].0, 1);
    }
}
