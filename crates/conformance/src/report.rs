//! What runs where, as data and as the tables in `docs/`. Worked out without running anything, so
//! that it is the same however the tests are run; the tables are compared with what is checked in.

use std::fmt::Write;
use std::path::PathBuf;

use libtest_mimic::{Failed, Trial};

use crate::case::Case;
use crate::subject::Subject;
use crate::subjects;

/// What runs on one subject, and what does not.
#[derive(Debug, Clone)]
pub struct Sheet {
    /// The subject's name.
    pub subject: &'static str,
    /// Cases that run.
    pub applicable: Vec<Case>,
    /// Cases that do not, each with the reason.
    pub not_applicable: Vec<(Case, &'static str)>,
}

impl Sheet {
    /// Which of `cases` run on `subject`.
    #[must_use]
    pub fn new(subject: &Subject, cases: &[Case]) -> Self {
        let (mut applicable, mut not_applicable) = (Vec::new(), Vec::new());
        for case in cases {
            match case.applies(&subject.abilities, &subject.info) {
                Ok(()) => applicable.push(*case),
                Err(why) => not_applicable.push((*case, why)),
            }
        }
        Self { subject: subject.info.name, applicable, not_applicable }
    }

    /// Its line in the table of all.
    fn row(&self) -> String {
        let (run, not) = (self.applicable.len(), self.not_applicable.len());
        format!("| {} | {run} | {not} |\n", self.subject)
    }

    /// What does not run on it, and why; nothing if everything does.
    fn section(&self) -> String {
        let mut text = String::new();
        if !self.not_applicable.is_empty() {
            let _ = write!(text, "\n## Not applicable to {}\n\n| clause | case", self.subject);
            text.push_str(" | why |\n|---|---|---|\n");
        }
        for (case, why) in &self.not_applicable {
            let _ = writeln!(text, "| {} | {} | {why} |", case.id, case.sentence());
        }
        text
    }

    /// One line: how many ran, and which clauses were left out why.
    #[must_use]
    pub fn summary(&self, ran: usize) -> String {
        let mut line = format!("{}: {ran} ran", self.subject);
        if ran != self.applicable.len() {
            let _ = write!(line, " of {}", self.applicable.len());
        }
        let _ = write!(line, ", {} not applicable", self.not_applicable.len());
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (case, why) in &self.not_applicable {
            match reasons.iter_mut().find(|(known, _)| known == why) {
                Some((_, ids)) if ids.contains(&case.id) => {}
                Some((_, ids)) => ids.push(case.id),
                None => reasons.push((why, vec![case.id])),
            }
        }
        let reasons: Vec<String> =
            reasons.into_iter().map(|(why, ids)| format!("{} {why}", ids.join(" "))).collect();
        if !reasons.is_empty() {
            let _ = write!(line, " ({})", reasons.join("; "));
        }
        line
    }
}

/// The tests of the tables themselves. Where only some subjects run, those must be in the table.
pub(crate) fn checks(sheets: &[Sheet], cases: &[Case]) -> Vec<Trial> {
    let sheets = sheets.to_vec();
    let is_some =
        |sheet: &Sheet| subjects::elsewhere().iter().any(|it| it.info.name == sheet.subject);
    if sheets.iter().any(is_some) {
        return vec![Trial::test("table::conformance_md_lists_what_runs_here", move || {
            let text = std::fs::read_to_string(in_repository("docs/conformance.md"))?;
            let faults = not_listed(&text, &sheets);
            if faults.is_empty() { Ok(()) } else { Err(Failed::from(faults.join("\n"))) }
        })];
    }
    let elsewhere = subjects::elsewhere();
    let elsewhere = elsewhere.iter().map(|subject| Sheet::new(subject, cases));
    let sheets: Vec<Sheet> = sheets.into_iter().chain(elsewhere).collect();
    let (all, cited) = (cases.to_vec(), cases.to_vec());
    vec![
        Trial::test("table::conformance_md_lists_what_runs_where", move || {
            checked_in("docs/conformance.md", |_| Ok(conformance_md(&sheets)))
        }),
        Trial::test("table::contract_md_lists_the_cases_of_each_clause", move || {
            checked_in("docs/contract.md", |text| with_case_table(text, &all))
        }),
        Trial::test("table::every_clause_has_a_case_and_every_case_a_clause", move || {
            let text = std::fs::read_to_string(in_repository("docs/contract.md"))?;
            let faults = missing_links(&text, &cited);
            if faults.is_empty() { Ok(()) } else { Err(Failed::from(faults.join("\n"))) }
        }),
    ]
}

const HEAD: &str = "\
# Conformance

Which cases of the contract run on which subject. Generated: after adding a case or a subject run
`UPDATE=1 cargo test -p mailbox-conformance --test conformance` and look at the difference. A run
fails if this page does not say what ran, so no case can stop running unnoticed. What is built
elsewhere runs there: `cli` with `cargo test -p mailbox-cli --test conformance`.

| subject | run | not applicable |
|---|---:|---:|
";

/// `docs/conformance.md`, as it should be.
#[must_use]
pub fn conformance_md(sheets: &[Sheet]) -> String {
    let mut text = String::from(HEAD);
    for sheet in sheets {
        text.push_str(&sheet.row());
    }
    for sheet in sheets {
        text.push_str(&sheet.section());
    }
    text
}

/// Subjects that a table does not have as they are.
#[must_use]
pub fn not_listed(table: &str, sheets: &[Sheet]) -> Vec<String> {
    let is_listed =
        |sheet: &&Sheet| table.contains(&sheet.row()) && table.contains(&sheet.section());
    let missing = sheets.iter().filter(|sheet| !is_listed(sheet));
    missing
        .map(|sheet| format!("docs/conformance.md: {} runs other cases", sheet.subject))
        .collect()
}

const TABLE_STARTS: &str = "<!-- cases: generated, see docs/conformance.md -->\n";
const TABLE_ENDS: &str = "<!-- end of cases -->\n";

/// `docs/contract.md`, with its table of cases as it should be.
fn with_case_table(text: &str, cases: &[Case]) -> Result<String, String> {
    let (before, rest) = text.split_once(TABLE_STARTS).ok_or("no start of the table of cases")?;
    let (_, after) = rest.split_once(TABLE_ENDS).ok_or("no end of the table of cases")?;
    let mut table = String::from("\n| clause | cases |\n|---|---|\n");
    for clause in clauses(text) {
        let names: Vec<String> =
            cases.iter().filter(|case| case.id == clause).map(Case::sentence).collect();
        if !names.is_empty() {
            let _ = writeln!(table, "| {clause} | {} |", names.join("<br>"));
        }
    }
    Ok(format!("{before}{TABLE_STARTS}{table}\n{TABLE_ENDS}{after}"))
}

/// The clauses of a contract: what stands in bold at the start of a list item.
fn clauses(contract: &str) -> Vec<&str> {
    let id = |line: &'_ str| -> Option<(usize, usize)> {
        let rest = line.strip_prefix("- **")?;
        rest.find("**").map(|end| (4, 4 + end))
    };
    contract
        .lines()
        .filter_map(|line| id(line).map(|(start, end)| &line[start..end]))
        .filter(|id| {
            id.starts_with(|first: char| first.is_ascii_uppercase())
                && id.len() <= 2
                && id.chars().skip(1).all(|c| c.is_ascii_digit())
        })
        .collect()
}

/// Clauses shown elsewhere: rows of the table under that heading.
fn shown_elsewhere(contract: &str) -> Vec<&str> {
    let part = contract.split("## Shown elsewhere\n").nth(1).unwrap_or_default();
    let part = part.split("\n## ").next().unwrap_or_default();
    let row = |line: &'_ str| line.strip_prefix("| ").is_some().then_some(());
    part.lines()
        .filter(|line| row(line).is_some())
        .filter_map(|line| line.trim_start_matches("| ").split(" |").next())
        .filter(|cell| *cell != "clause")
        .collect()
}

/// Clauses without a case, and cases without a clause.
#[must_use]
pub fn missing_links(contract: &str, cases: &[Case]) -> Vec<String> {
    let (clauses, elsewhere) = (clauses(contract), shown_elsewhere(contract));
    let mut faults = Vec::new();
    for clause in &clauses {
        let shown = cases.iter().any(|case| case.id == *clause) || elsewhere.contains(clause);
        if !shown {
            faults.push(format!("clause {clause} has no case and is not shown elsewhere"));
        }
    }
    for id in cases.iter().map(|case| case.id).chain(elsewhere.iter().copied()) {
        if !clauses.contains(&id) {
            faults.push(format!("{id} is no clause of the contract"));
        }
    }
    let mut names: Vec<(&str, &str)> = cases.iter().map(|case| (case.id, case.name)).collect();
    names.sort_unstable();
    faults.extend(names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| {
        let (id, name) = pair[0];
        format!("{id} {name} is there twice")
    }));
    faults
}

/// That a file says what it should; with `UPDATE=1` in the environment it is made to.
fn checked_in(
    path: &str,
    wanted: impl FnOnce(&str) -> Result<String, String>,
) -> Result<(), Failed> {
    let file = in_repository(path);
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let wanted = wanted(&found)?;
    if found == wanted {
        return Ok(());
    }
    if std::env::var_os("UPDATE").is_some_and(|update| update == "1") {
        // In one step: another test may be reading it.
        let written = file.with_extension("md.new");
        std::fs::write(&written, wanted)?;
        return Ok(std::fs::rename(&written, &file)?);
    }
    let differing = wanted.lines().find(|line| !found.lines().any(|known| known == *line));
    let first = differing.unwrap_or("(something has to go)");
    Err(format!("{path} is out of date, from: {first}\nrun again with UPDATE=1").into())
}

fn in_repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
