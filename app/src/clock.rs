//! The only place of this crate that reads a clock or draws at random; everything that decides takes them as arguments.

#![allow(clippy::disallowed_methods, reason = "this is the shell that reads the clock")]

use std::time::SystemTime;

/// The wall-clock time.
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// A number from 0 to 1.
pub(crate) fn draw() -> f64 {
    fastrand::f64()
}

/// A number of 128 random bits.
pub(crate) fn draw_bits() -> u128 {
    fastrand::u128(..)
}
