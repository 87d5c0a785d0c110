//! The tables notice what they are there to notice.

use mailbox_conformance::report::{Sheet, conformance_md, missing_links, not_listed};
use mailbox_conformance::{Case, cases, subjects};

const CONTRACT: &str = "\
# Contract
- **D1** one.
- **V1** two.
- **Zz** no clause.
  - **D9** no clause either.
## Shown elsewhere
| clause | where |
|---|---|
| V1 | in a test of its own |
## Something else
| D7 | not in the table |
";

fn case(id: &'static str) -> Case {
    let mut case = cases::all()[0];
    case.id = id;
    case
}

#[test]
fn a_clause_without_a_case_is_noticed() {
    assert_eq!(missing_links(CONTRACT, &[case("D1")]), [""; 0]);
    let without = CONTRACT.replace("| V1 | in a test of its own |", "");
    let faults = missing_links(&without, &[case("D1")]);
    assert_eq!(faults, ["clause V1 has no case and is not shown elsewhere"]);
}

#[test]
fn a_case_without_a_clause_is_noticed() {
    let faults = missing_links(CONTRACT, &[case("D1"), case("D2")]);
    assert_eq!(faults, ["D2 is no clause of the contract"]);
}

#[test]
fn a_case_that_is_there_twice_is_noticed() {
    let faults = missing_links(CONTRACT, &[case("D1"), case("D1")]);
    assert_eq!(faults.len(), 1);
    assert!(faults[0].ends_with("is there twice"), "{faults:?}");
}

#[test]
fn a_case_that_stops_running_changes_the_table() {
    let (subject, all) = (subjects::memory(), cases::all());
    let table = |cases: &[Case]| conformance_md(&[Sheet::new(&subject, cases)]);
    assert_ne!(table(&all), table(&all[1..]));
    let mut narrowed = all.clone();
    narrowed[0].needs = &[|_, _| Err("nobody can do this")];
    let narrowed = table(&narrowed);
    assert_ne!(table(&all), narrowed);
    assert!(narrowed.contains("nobody can do this"));
}

#[test]
fn a_subject_that_runs_other_cases_elsewhere_is_noticed() {
    let all = cases::all();
    let sheet = |subject: &mailbox_conformance::Subject| Sheet::new(subject, &all);
    let [listed] = &subjects::elsewhere()[..] else { panic!("one is built elsewhere") };
    let table = conformance_md(&[sheet(&subjects::memory()), sheet(listed)]);
    assert_eq!(not_listed(&table, &[sheet(listed)]), [""; 0]);
    let narrowed = listed.clone().with(|info| info.restart = false);
    assert_eq!(not_listed(&table, &[sheet(&narrowed)]).len(), 1);
    assert_eq!(not_listed(&table, &[sheet(&subjects::dir())]).len(), 1);
}
