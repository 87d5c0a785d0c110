//! What a rule is, and what it finds. Rules never read files: they get path and text.

use std::fmt;

use crate::RULES;

/// Looks at one file and returns the lines that break the rule, counted from 1, each with a remark.
pub type Rule = fn(path: &str, text: &str) -> Vec<(usize, String)>;

/// One violation, printed the way editors can jump to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the root of the repository, with `/` between its parts.
    pub path: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The name of the rule.
    pub rule: &'static str,
    /// What exactly was found.
    pub remark: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.remark)
    }
}

/// Everything that any rule finds in one file.
#[must_use]
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let found_by = |(name, rule): &(&'static str, Rule)| {
        let rule_name: &'static str = name;
        rule(path, text)
            .into_iter()
            .map(|(line, remark)| Finding { path: path.to_owned(), line, rule: rule_name, remark })
            .collect::<Vec<_>>()
    };
    RULES.iter().flat_map(found_by).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_file_line_rule_and_remark() {
        let text = format!("//! Fine.\n\n// {}\n", "x".repeat(100));
        let found = check("crates/core/src/lib.rs", &text);
        let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["crates/core/src/lib.rs:3: long line: 103 columns, at most 100"]);
    }
}
