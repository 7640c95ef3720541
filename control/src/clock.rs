//! The only place of this crate that reads a clock; everything that decides takes the time as an argument.

#![allow(clippy::disallowed_methods, reason = "this is the shell that reads the clock")]

use std::time::{Instant, SystemTime};

/// The monotonic time, for durations and deadlines: the one that timers go by, which a test may let run faster.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The wall-clock time, for log lines.
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}
