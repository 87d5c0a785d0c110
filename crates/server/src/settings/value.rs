//! What a setting can be set to. Invariant: a value out of its bounds is refused, never changed to
//! one within.

use std::fmt;
use std::time::Duration;

use super::units::{shown_size, shown_time, size, time};

/// Longest text.
const TEXT_LEN: usize = 4096;
/// Most addresses to listen on.
const LISTENERS: usize = 16;

/// What kind of value a setting has, and its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Words, a path or an address; nothing if it is empty.
    Text,
    /// `host:port`, or several with commas between them.
    Listen,
    /// The same, or `off`.
    ListenOrOff,
    /// One of these.
    Word(&'static [&'static str]),
    /// `true` or `false`.
    Switch,
    /// A number from here to there.
    Count(u64, u64),
    /// A number of bytes from here to there.
    Size(u64, u64),
    /// A time from here to there, in milliseconds.
    Time(u64, u64),
}

/// What a setting is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Switch(bool),
    Count(u64),
    Size(u64),
    Time(Duration),
}

impl Value {
    /// How much it is: a count, bytes or nanoseconds; nothing if it is no number.
    pub(super) fn number(&self) -> u128 {
        match self {
            Self::Count(number) | Self::Size(number) => u128::from(*number),
            Self::Time(time) => time.as_nanos(),
            Self::Text(_) | Self::Switch(_) => 0,
        }
    }
}

impl Kind {
    /// Reads a value.
    pub(super) fn read(self, text: &str) -> Result<Value, String> {
        match self {
            Self::Text if text.len() > TEXT_LEN || text.contains(char::is_control) => {
                Err(format!("write at most {TEXT_LEN} bytes, on one line"))
            }
            Self::Text => Ok(Value::Text(text.to_owned())),
            Self::Listen => listen(text, 7600),
            Self::ListenOrOff if text == "off" => Ok(Value::Text(String::new())),
            Self::ListenOrOff => listen(text, 7601).map_err(|why| format!("{why}; or off")),
            Self::Word(words) if words.contains(&text) => Ok(Value::Text(text.to_owned())),
            Self::Word(words) => Err(format!("write {}", words.join(" or "))),
            Self::Switch => match text {
                "true" => Ok(Value::Switch(true)),
                "false" => Ok(Value::Switch(false)),
                _ => Err("write true or false".to_owned()),
            },
            Self::Count(least, most) => {
                let count = text.parse().ok().filter(|count| (least..=most).contains(count));
                count.map(Value::Count).ok_or_else(|| format!("allowed are {least}..={most}"))
            }
            Self::Size(least, most) => match size(text)? {
                bytes if (least..=most).contains(&bytes) => Ok(Value::Size(bytes)),
                _ => Err(format!("allowed are {}..={}", shown_size(least), shown_size(most))),
            },
            Self::Time(least, most) => {
                let bounds = Duration::from_millis(least)..=Duration::from_millis(most);
                match time(text)? {
                    time if bounds.contains(&time) => Ok(Value::Time(time)),
                    _ => {
                        let (least, most) =
                            (shown_time(*bounds.start()), shown_time(*bounds.end()));
                        Err(format!("allowed are {least}..={most}"))
                    }
                }
            }
        }
    }
}

/// Reads where to listen; the port is for the example.
fn listen(text: &str, port: u16) -> Result<Value, String> {
    let addresses: Vec<&str> = text.split(',').map(str::trim).collect();
    if addresses.len() > LISTENERS {
        return Err(format!("at most {LISTENERS} addresses"));
    }
    let is_good = |address: &&str| {
        address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && host.len() <= 255 && port.parse::<u16>().is_ok()
        })
    };
    match addresses.iter().all(is_good) {
        true => Ok(Value::Text(addresses.join(","))),
        false => Err(format!("write host:port, such as 127.0.0.1:{port} or [::1]:0")),
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Switch(is_on) => write!(f, "{is_on}"),
            Self::Count(count) => write!(f, "{count}"),
            Self::Size(bytes) => f.write_str(&shown_size(*bytes)),
            Self::Time(time) => f.write_str(&shown_time(*time)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive_and_said() {
        let count = Kind::Count(1, 1024);
        assert_eq!(count.read("1024"), Ok(Value::Count(1024)));
        for text in ["0", "1025", "-1", "", "1.0", "18446744073709551616"] {
            assert_eq!(count.read(text), Err("allowed are 1..=1024".to_owned()), "{text}");
        }
        let time = Kind::Time(5_000, 120_000);
        assert_eq!(time.read("2m"), Ok(Value::Time(Duration::from_secs(120))));
        assert_eq!(time.read("4999ms"), Err("allowed are 5s..=2m".to_owned()));
        assert_eq!(time.read("120.001s"), Err("allowed are 5s..=2m".to_owned()));
        let size = Kind::Size(1 << 10, 1 << 20);
        assert_eq!(size.read("1MiB"), Ok(Value::Size(1 << 20)));
        assert_eq!(size.read("1023"), Err("allowed are 1KiB..=1MiB".to_owned()));
    }

    #[test]
    fn addresses_to_listen_on_have_a_port() {
        for text in ["127.0.0.1:0", "[::1]:7600", "localhost:80", "127.0.0.1:1, [::1]:1"] {
            assert!(Kind::Listen.read(text).is_ok(), "{text}");
        }
        for text in ["", "7600", ":7600", "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:1,"] {
            assert!(Kind::Listen.read(text).is_err(), "{text}");
        }
        assert!(Kind::Listen.read("1").unwrap_err().contains("127.0.0.1:7600"));
        assert!(Kind::ListenOrOff.read("1").unwrap_err().contains("127.0.0.1:7601"));
        assert!(Kind::Listen.read("off").is_err() && Kind::ListenOrOff.read("off").is_ok());
    }
}
