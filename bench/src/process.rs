//! What the kernel knows about a process. Where there is no /proc nothing is known, which is not
//! the same as a figure of nothing: a row about it has to be missed.

use std::path::Path;
use std::time::Duration;

/// A thread that does less than this part of the work of its process is not counted.
const SHARE: u64 = 20;

/// Processor time that it has used.
pub(crate) fn cpu_time(id: u32) -> Option<Duration> {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let ticks = ticks(&Path::new("/proc").join(id.to_string()))?;
    Some(Duration::from_millis(ticks * 1000 / per_second))
}

/// Memory that it has at the moment, in bytes.
pub(crate) fn resident(id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// How many threads have done its work so far: those that only wait for the end are none of them.
pub(crate) fn threads(id: u32) -> Option<usize> {
    let all = std::fs::read_dir(format!("/proc/{id}/task")).ok()?;
    working(&all.flatten().filter_map(|thread| ticks(&thread.path())).collect::<Vec<_>>())
}

fn working(ticks: &[u64]) -> Option<usize> {
    let all: u64 = ticks.iter().sum();
    let works = |ticks: &&u64| **ticks * SHARE >= all;
    (all > 0).then(|| ticks.iter().filter(works).count())
}

/// What a process or a thread has used of the processor, as the kernel counts.
fn ticks(folder: &Path) -> Option<u64> {
    used(&std::fs::read_to_string(folder.join("stat")).ok()?)
}

/// The 14th and the 15th field. Behind the name, which may have spaces, they are the 12th and 13th.
fn used(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11).map(|field| field.parse::<u64>().ok());
    Some(fields.next()?? + fields.next()??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_not_nothing() {
        // No process has this number.
        assert_eq!(cpu_time(u32::MAX), None);
        assert_eq!(resident(u32::MAX), None);
        assert_eq!(threads(u32::MAX), None);
        assert_eq!(used(""), None);
        assert_eq!(used("7 (a) S 1 2 3 4 5 6 7 8 9 10 11"), None);
        assert_eq!(used("7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13"), Some(23));
    }

    #[test]
    fn threads_that_do_next_to_nothing_are_not_counted() {
        assert_eq!(working(&[]), None);
        assert_eq!(working(&[0, 0]), None);
        assert_eq!(working(&[0, 400, 380, 3, 42]), Some(3));
        assert_eq!(working(&[1]), Some(1));
    }
}
