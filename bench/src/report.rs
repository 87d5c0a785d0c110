//! The table. A row is ours, a peer, the ratio of the two, and the bound that decides.

use std::fmt;

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    name: String,
    ours: f64,
    unit: &'static str,
    peer: Option<f64>,
    /// On the ratio if there is a peer, on our own figure if there is none.
    bound: Option<f64>,
}

impl Row {
    /// Times in nanoseconds, ours against a peer's.
    pub(crate) fn compared(name: impl Into<String>, ours: f64, peer: f64) -> Self {
        Self { name: name.into(), ours, unit: "ns", peer: Some(peer), bound: None }
    }

    /// A figure that stands by itself.
    pub(crate) fn alone(name: impl Into<String>, ours: f64, unit: &'static str) -> Self {
        Self { name: name.into(), ours, unit, peer: None, bound: None }
    }

    /// What the ratio, or the figure, may be at most.
    pub(crate) const fn at_most(mut self, bound: f64) -> Self {
        self.bound = Some(bound);
        self
    }

    /// Whether there is a bound and it is not kept. A figure that is not a number keeps no bound.
    pub(crate) fn is_missed(&self) -> bool {
        let decisive = self.peer.map_or(self.ours, |peer| self.ours / peer);
        self.bound.is_some_and(|bound| decisive.is_nan() || decisive > bound)
    }
}

/// The head of the table.
pub(crate) fn heading() -> String {
    line("", "ours", "peer", "ratio", "bound", "")
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ours = format!("{:.1} {}", self.ours, self.unit);
        let peer = self.peer.map(|peer| format!("{peer:.1} {}", self.unit)).unwrap_or_default();
        let ratio = self.peer.map(|peer| format!("{:.2}", self.ours / peer)).unwrap_or_default();
        let bound = self.bound.map(|bound| format!("<= {bound}")).unwrap_or_default();
        let verdict = match (self.bound, self.is_missed()) {
            (None, _) => "",
            (Some(_), false) => "ok",
            (Some(_), true) => "MISSED",
        };
        f.write_str(&line(&self.name, &ours, &peer, &ratio, &bound, verdict))
    }
}

fn line(name: &str, ours: &str, peer: &str, ratio: &str, bound: &str, verdict: &str) -> String {
    format!("{name:<80} {ours:>10} {peer:>10} {ratio:>6} {bound:>7}  {verdict}")
        .trim_end()
        .to_owned()
}

/// How busy the machine is: figures from a busy one are to be taken again.
pub(crate) fn load_average() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    match std::fs::read_to_string("/proc/loadavg") {
        Ok(text) => {
            let averages: Vec<&str> = text.split(' ').take(3).collect();
            format!("{} on {cores} cores", averages.join(" "))
        }
        Err(_) => format!("unknown, on {cores} cores"),
    }
}
