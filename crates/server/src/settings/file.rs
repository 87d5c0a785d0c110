//! The settings file: TOML, one key a setting. Invariant: what nobody understands is refused, with
//! its line.

use mailbox::{Error, ErrorKind, Result};
use toml::de::{DeTable, DeValue};

use super::table::ALL;

/// A settings file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// How it is called in messages.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// One line of a file: which setting, what was written, and in which line.
pub(super) struct Written {
    pub(super) name: &'static str,
    pub(super) text: String,
    pub(super) line: usize,
}

impl File {
    pub(super) fn read(&self) -> Result<Vec<Written>> {
        let table = DeTable::parse(&self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.refuse(self.line(at), error.message())
        })?;
        let mut written = Vec::new();
        for (key, value) in table.get_ref() {
            let line = self.line(key.span().start);
            let name = key.get_ref().as_ref();
            let Some(setting) = ALL.iter().find(|setting| setting.name == name) else {
                let hint = nearest(name).map(|near| format!("; {near} is meant?"));
                let hint = hint.unwrap_or_default();
                return Err(self.refuse(line, &format!("there is no setting {name:?}{hint}")));
            };
            let text = plain(value.get_ref()).ok_or_else(|| {
                let kind = value.get_ref().type_str();
                self.refuse(line, &format!("{name}: {kind} makes no sense here"))
            })?;
            written.push(Written { name: setting.name, text, line });
        }
        Ok(written)
    }

    fn refuse(&self, line: usize, why: &str) -> Error {
        let message = format!("{} line {line}: {why}", self.path);
        Error::new(ErrorKind::InvalidParameter, message)
    }

    /// The line of a byte, from 1.
    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or(self.text.as_bytes());
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }
}

/// A value as it would be written on the command line.
fn plain(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => {
            // TOML allows 65_536.
            Some(number.as_str().replace('_', ""))
        }
        DeValue::Float(number) => Some(number.as_str().replace('_', "")),
        DeValue::Boolean(is_on) => Some(is_on.to_string()),
        DeValue::Array(values) => {
            let texts: Option<Vec<&str>> =
                values.iter().map(|value| value.get_ref().as_str()).collect();
            texts.map(|texts| texts.join(","))
        }
        _ => None,
    }
}

/// The setting that a misspelt name may have meant.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    // Longer names are no setting anyway, and cost more to compare.
    if name.len() > 40 {
        return None;
    }
    let most = if name.len() < 6 { 1 } else { 2 };
    let all = ALL.iter().map(|setting| (distance(setting.name, name), setting.name));
    all.filter(|(distance, _)| *distance <= most).min().map(|(_, name)| name)
}

/// How many letters have to be changed, added or taken away.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = before + usize::from(x != y);
            before = row[j + 1];
            row[j + 1] = changed.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(&'static str, String, usize)>> {
        let file = File { path: "mailbox.toml".to_owned(), text: text.to_owned() };
        let written = file.read()?;
        Ok(written.into_iter().map(|it| (it.name, it.text, it.line)).collect())
    }

    #[test]
    fn lines_and_values_are_found() {
        let text = "# a comment\nshards = 1_6\n\nt_replay = \"5m\"\n\
                    listen = [\n  \"127.0.0.1:1\",\n  \"[::1]:1\",\n]\ninsecure_plaintext = true\n";
        let mut read = read(text).unwrap();
        read.sort_by_key(|(_, _, line)| *line);
        let wanted = [
            ("shards", "16", 2),
            ("t_replay", "5m", 4),
            ("listen", "127.0.0.1:1,[::1]:1", 5),
            ("insecure_plaintext", "true", 9),
        ];
        let wanted = wanted.map(|(name, text, line)| (name, text.to_owned(), line));
        assert_eq!(read, wanted);
    }

    #[test]
    fn what_nobody_understands_is_refused_with_its_line() {
        for (text, wanted) in [
            (
                "shards = 8\n\nshard = 9\n",
                "line 3: there is no setting \"shard\"; shards is meant?",
            ),
            ("[limits]\nbody = 1\n", "line 1: there is no setting \"limits\""),
            ("\nshards = {a = 1}\n", "line 2: shards: table makes no sense here"),
            ("shards = 0x10\n", "line 1: shards: integer makes no sense here"),
            ("a = 1\nb = \n", "mailbox.toml line 2: "),
            ("shards = 1\nshards = 2\n", "line 2: duplicate key"),
            ("listen = [1]\n", "line 1: listen: array makes no sense here"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(wanted), "{text:?}: {message}");
        }
    }

    #[test]
    fn a_misspelt_name_is_told_what_it_may_have_meant() {
        for (name, wanted) in [
            ("shrads", Some("shards")),
            ("cap_cache_tll", Some("cap_cache_ttl")),
            ("lisen", Some("listen")),
            ("colour", None),
            ("id", None),
        ] {
            assert_eq!(nearest(name), wanted, "{name}");
        }
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
