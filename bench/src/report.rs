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
    bound: Option<Bound>,
}

#[derive(Debug, Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
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

    /// The figures are not nanoseconds but these.
    pub(crate) const fn in_unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// What the ratio, or the figure, may be at most.
    pub(crate) const fn at_most(mut self, bound: f64) -> Self {
        self.bound = Some(Bound::AtMost(bound));
        self
    }

    /// What the ratio, or the figure, must be at least.
    pub(crate) const fn at_least(mut self, bound: f64) -> Self {
        self.bound = Some(Bound::AtLeast(bound));
        self
    }

    /// Whether there is a bound and it is not kept. A figure that is not a number keeps no bound,
    /// and one without end neither: it is what comes of dividing by what was not measured.
    pub(crate) fn is_missed(&self) -> bool {
        let decisive = self.peer.map_or(self.ours, |peer| self.ours / peer);
        self.bound.is_some_and(|bound| match bound {
            Bound::AtMost(bound) => !decisive.is_finite() || decisive > bound,
            Bound::AtLeast(bound) => !decisive.is_finite() || decisive < bound,
        })
    }

    fn figure(&self, figure: f64) -> String {
        // A tenth says nothing about a large figure.
        let decimals = if figure.abs() < 10_000.0 { 1 } else { 0 };
        format!("{figure:.decimals$} {}", self.unit)
    }
}

/// The head of the table.
pub(crate) fn heading() -> String {
    line("", "ours", "peer", "ratio", "bound", "")
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ours = self.figure(self.ours);
        let peer = self.peer.map(|peer| self.figure(peer)).unwrap_or_default();
        let ratio = self.peer.map(|peer| format!("{:.2}", self.ours / peer)).unwrap_or_default();
        let bound = match self.bound {
            None => String::new(),
            Some(Bound::AtMost(bound)) => format!("<= {bound}"),
            Some(Bound::AtLeast(bound)) => format!(">= {bound}"),
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_held_against_the_side_that_its_bound_is_on() {
        assert!(Row::compared("slower", 3.0, 2.0).at_most(1.4).is_missed());
        assert!(!Row::compared("as slow", 3.0, 2.0).at_most(1.5).is_missed());
        assert!(Row::compared("fewer", 3.0, 2.0).at_least(1.6).is_missed());
        assert!(!Row::compared("as many", 3.0, 2.0).at_least(1.5).is_missed());
    }

    #[test]
    fn what_could_not_be_measured_keeps_no_bound() {
        assert!(Row::alone("nothing", f64::NAN, "B").at_most(1.0).is_missed());
        assert!(Row::alone("nothing", f64::NAN, "B").at_least(1.0).is_missed());
        assert!(!Row::alone("nothing", f64::NAN, "B").is_missed());
        assert!(Row::alone("by nothing", 1.0 / 0.0, "/s").at_least(1.0).is_missed());
        assert!(Row::compared("to nothing", 1.0, 0.0).at_least(1.0).is_missed());
        assert!(Row::compared("to nothing", 1.0, f64::NAN).at_least(1.0).is_missed());
        assert!(Row::compared("nothing to nothing", 0.0, 0.0).at_most(1.0).is_missed());
    }
}
