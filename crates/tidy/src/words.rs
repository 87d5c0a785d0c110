//! Words that must not be left behind. Every banned word is written in two halves here, so that
//! this file passes its own rule.

/// Left-overs of work in progress, and tests that nobody runs.
const BANNED: [&str; 5] = [
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("FIX", "ME"),
    concat!("db", "g!"),
    concat!("#[", "ignore"),
];

/// Folders that exist on one machine only.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/fa", "rm/")];

pub(crate) fn banned_words(_path: &str, text: &str) -> Vec<(usize, String)> {
    (1..)
        .zip(text.lines())
        .flat_map(|(number, line)| {
            let is_in_line = move |word: &&str| line.contains(word);
            BANNED.into_iter().filter(is_in_line).map(move |word| (number, format!("`{word}`")))
        })
        .collect()
}

pub(crate) fn machine_paths(_path: &str, text: &str) -> Vec<(usize, String)> {
    (1..)
        .zip(text.lines())
        .flat_map(|(number, line)| {
            let is_in_line = move |folder: &&str| starts_a_path(line, folder);
            MACHINE_PATHS
                .into_iter()
                .filter(is_in_line)
                .map(move |folder| (number, format!("`{folder}`")))
        })
        .collect()
}

/// Whether a path in `line` starts with `folder`; one that only contains it, as a module folder
/// may, is relative and does no harm.
fn starts_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().last();
        !before.is_some_and(|letter| letter.is_alphanumeric() || "._-~}*)".contains(letter))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_banned_word_is_caught_in_every_kind_of_file() {
        for word in BANNED {
            for path in ["crates/core/src/lib.rs", "README.md", "Makefile"] {
                let found = banned_words(path, &format!("fine\nsome {word} here\n"));
                assert_eq!(found, [(2, format!("`{word}`"))], "{path}");
            }
        }
    }

    #[test]
    fn every_machine_path_is_caught_where_it_starts_a_path() {
        for folder in MACHINE_PATHS {
            let quoted = format!("see `{folder}x`");
            for line in [format!("{folder}x"), quoted, format!("dir://{folder}")] {
                assert_eq!(machine_paths("README.md", &line).len(), 1, "{line}");
            }
            let relative = format!("crates/mailbox/src{folder}mod.rs");
            assert!(machine_paths("README.md", &relative).is_empty(), "{relative}");
        }
    }
}
