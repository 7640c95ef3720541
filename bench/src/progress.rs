//! A progress line on the terminal while something runs; no output without a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The line.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A line for this number of steps.
    #[must_use]
    pub(crate) fn new(steps: usize) -> Self {
        let bar = ProgressBar::new(u64::try_from(steps).unwrap_or(u64::MAX));
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Self(bar)
    }

    /// Begins a step.
    pub(crate) fn say(&self, what: String) {
        self.0.set_message(what);
        self.0.inc(1);
    }

    /// Removes the line.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
