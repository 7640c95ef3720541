//! Deadlines and pauses of tests.

#![allow(clippy::disallowed_methods, reason = "this is the shell that reads the clock")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The time in seconds since the Unix epoch.
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Blocks, for destructors that cannot wait for a runtime.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
