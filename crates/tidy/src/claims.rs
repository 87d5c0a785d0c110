//! A promise that no message queue can keep (D1). The words may be used to say that it is not made.
//!
//! Works on sentences, because docs are wrapped. In code only the fixed phrases count: an element
//! may well be in a list once and no more often.

/// The two ways of writing it, in halves: this file obeys its own rule.
const ONCE: [&str; 2] = [concat!("exactly ", "once"), concat!("exactly-", "once")];
/// What follows it when it is a promise.
const PROMISES: [&str; 4] = ["delivery", "semantic", "processing", "guarantee"];
/// What makes it the opposite. Words are compared as a whole.
const NEGATIONS: [&str; 7] = ["no", "not", "never", "nobody", "nothing", "without", "cannot"];

pub(crate) fn impossible_claims(path: &str, text: &str) -> Vec<(usize, String)> {
    let is_prose = path.ends_with(".md");
    if !is_prose && !path.ends_with(".rs") {
        return Vec::new();
    }
    sentences(text)
        .into_iter()
        .filter(|(_, sentence)| is_claim(&sentence.to_lowercase(), is_prose))
        .map(|(line, sentence)| (line, format!("`{}`", sentence.trim())))
        .collect()
}

fn is_claim(sentence: &str, is_prose: bool) -> bool {
    let promised = ONCE.iter().any(|once| {
        sentence.match_indices(once).any(|(at, _)| {
            let after = sentence[at + once.len()..].trim_start();
            PROMISES.iter().any(|promise| after.starts_with(promise))
                || (is_prose && sentence.contains("deliver"))
        })
    });
    let mut words = sentence.split(|letter: char| !letter.is_alphabetic() && letter != '\'');
    promised && !words.any(|word| NEGATIONS.contains(&word) || word.ends_with("n't"))
}

/// The sentences of a text, each with the line it starts on, comment marks left out.
fn sentences(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start().trim_start_matches(['/', '!', '#', '*', '-', '>', ' ']);
        if line.is_empty() {
            found.extend(open.take());
        }
        for part in line.split_inclusive(". ") {
            let (_, sentence) = open.get_or_insert((number, String::new()));
            sentence.push_str(part);
            sentence.push(' ');
            if part.trim_end().ends_with('.') {
                found.extend(open.take());
            }
        }
    }
    found.extend(open);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_caught_also_over_a_line_break() {
        for once in ONCE {
            let text = format!("Fine.\n\nOffers {once}\ndelivery of all. Fine.\n");
            assert_eq!(impossible_claims("README.md", &text)[0].0, 3);
            let code = format!("//! Fine. It has {once}\n//! semantics.\n");
            assert_eq!(impossible_claims("a.rs", &code).len(), 1);
            let prose = format!("It delivers each message {once}.");
            assert_eq!(impossible_claims("docs/a.md", &prose).len(), 1);
        }
    }

    #[test]
    fn a_denial_and_an_ordinary_use_are_not() {
        for once in ONCE {
            let denial = format!("It is at least once. There is no {once} delivery.\n");
            assert!(impossible_claims("README.md", &denial).is_empty());
            let list = format!("// A slot is in the free list {once}. Delivery is elsewhere.\n");
            assert!(impossible_claims("a.rs", &list).is_empty());
        }
    }
}
