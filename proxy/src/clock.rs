//! The only place in this crate that reads a clock; all decisions get the time as an argument.

#![allow(clippy::disallowed_methods, reason = "this is the shell that reads the clock")]

use std::time::{Instant, SystemTime};

/// The monotonic time, for durations and deadlines.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The wall-clock time, for log lines and expressions of policies.
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}
