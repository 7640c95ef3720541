//! Deadlines of tests.

#![allow(clippy::disallowed_methods, reason = "this is the shell that reads the clock")]

use std::time::Instant;

pub(crate) fn now() -> Instant {
    Instant::now()
}
