//! The rules of this repository that neither rustfmt nor clippy knows, as ordinary tests.
//!
//! A rule is a pure function over a path and a text, so each has a test that plants a violation and
//! sees it caught. `tests/repository.rs` runs all of them over every file that git knows or would
//! add.

mod claims;
mod files;
mod finding;
mod functions;
mod layout;
mod words;

pub use files::repository;
pub use finding::{Finding, Rule, check};
pub use layout::{NOTED_LINES, line_count_noted, missing_licences};

/// Every rule that looks at one file, by name.
pub const RULES: &[(&str, Rule)] = &[
    ("long line", layout::long_lines),
    ("long file", layout::long_files),
    ("long function", functions::long_functions),
    ("banned word", words::banned_words),
    ("path of a machine", words::machine_paths),
    ("claim that no queue can keep", claims::impossible_claims),
    ("no opening paragraph", layout::missing_module_docs),
    ("name that says nothing", layout::empty_names),
    ("workspace lints not taken", layout::missing_workspace_lints),
];
