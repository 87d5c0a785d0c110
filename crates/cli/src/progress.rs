//! Progress of long work, for people who wait at a terminal. Invariant: it goes to stderr, and only
//! if that is a terminal.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How far it is.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Of work on this many things; none if nobody knows how many.
    pub(crate) fn new(doing: &'static str, of: Option<u64>) -> Self {
        if !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let target = ProgressDrawTarget::stderr();
        let template = if of.is_some() {
            "{msg} [{bar:30}] {human_pos}/{human_len} {per_sec} {eta}"
        } else {
            "{msg} {spinner} {human_pos} {per_sec}"
        };
        let style = ProgressStyle::with_template(template).expect("the template is written above");
        let bar = ProgressBar::with_draw_target(of, target)
            .with_style(style.progress_chars("=> "))
            .with_message(doing);
        bar.tick();
        Self(bar)
    }

    /// So many more are done.
    pub(crate) fn advance(&self, by: u64) {
        self.0.inc(by);
    }

    /// It is over: what was shown is left standing.
    pub(crate) fn finish(&self) {
        self.0.abandon();
    }
}
