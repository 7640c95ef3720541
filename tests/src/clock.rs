//! Deadlines and pauses of tests.

#![allow(clippy::disallowed_methods, reason = "this is the shell that reads the clock")]

use std::time::{Duration, Instant};

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Blocks, for destructors that cannot wait for a runtime.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
