//! The only place in this crate that reads a clock; all decisions get the time as an argument.

#![allow(clippy::disallowed_methods, reason = "this is the shell that reads the clock")]

use std::time::{Instant, SystemTime};

/// The monotonic time, for durations and deadlines. It is that of the runtime's timers, which a test may run faster.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The wall-clock time, for log lines, the end of credentials and expressions of policies.
pub(crate) fn wall() -> SystemTime {
    let wall = SystemTime::now();
    // A unit test that moves the time of the runtime moves this one too.
    #[cfg(test)]
    let wall = wall + now().saturating_duration_since(Instant::now());
    wall
}
