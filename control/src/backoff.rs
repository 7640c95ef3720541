//! Delays before retries. Pure: the caller provides the random number and does the waiting.

use std::time::Duration;

use http::header::{HeaderMap, RETRY_AFTER};

/// Delays that double from attempt to attempt, each drawn evenly between a floor and the doubled bound ("full jitter"),
/// so that clients that failed together do not retry together.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    floor: Duration,
    first: Duration,
    max: Duration,
    attempts: u32,
}

impl Backoff {
    /// No delay is shorter than `floor`; the first is at most `first`, each further bound is twice the one before, and
    /// none is above `max`. A `first` below the floor, or a `max` below `first`, is raised to it.
    #[must_use]
    pub(crate) fn new(floor: Duration, first: Duration, max: Duration) -> Self {
        let first = first.max(floor);
        Self { floor, first, max: max.max(first), attempts: 0 }
    }

    /// The delay before the next attempt. `draw` is a random number; uniform numbers give uniform delays.
    pub(crate) fn next(&mut self, draw: u64) -> Duration {
        let bound = self.first.saturating_mul(1_u32.checked_shl(self.attempts).unwrap_or(u32::MAX)).min(self.max);
        self.attempts = self.attempts.saturating_add(1);
        self.floor + share(bound.saturating_sub(self.floor), draw)
    }

    /// Resets the delays, because the operation has worked for a while.
    pub(crate) const fn reset(&mut self) {
        self.attempts = 0;
    }
}

/// `Retry-After` in seconds, the form that API servers send (RFC 9110, 10.2.3).
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// The fraction `draw / 2^64` of `whole`.
#[must_use]
pub(crate) fn share(whole: Duration, draw: u64) -> Duration {
    let nanos = whole.as_nanos().min(u128::from(u64::MAX));
    Duration::from_nanos(u64::try_from((nanos * u128::from(draw)) >> 64).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[track_caller]
    fn check(floor_ms: u64, first_ms: u64, max_ms: u64, draw: u64, expected_ms: &[u64]) {
        let mut backoff = Backoff::new(MS(floor_ms), MS(first_ms), MS(max_ms));
        for (attempt, expected) in expected_ms.iter().enumerate() {
            let delay = backoff.next(draw);
            let off = delay.abs_diff(MS(*expected));
            assert!(off < Duration::from_micros(10), "attempt {attempt}: {delay:?}, not {expected} ms");
        }
        backoff.reset();
        assert!(backoff.next(draw).abs_diff(MS(expected_ms[0])) < Duration::from_micros(10), "reset starts over");
    }

    #[test]
    fn the_bound_doubles_up_to_the_maximum() {
        check(0, 250, 30_000, u64::MAX, &[250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
    }

    #[test]
    fn the_draw_picks_between_floor_and_bound() {
        check(0, 250, 1000, 0, &[0, 0, 0]);
        check(0, 250, 1000, u64::MAX / 2, &[125, 250, 500, 500]);
        check(5000, 5000, 60_000, 0, &[5000, 5000, 5000]);
        check(5000, 5000, 60_000, u64::MAX / 2, &[5000, 7500, 12_500, 22_500, 32_500, 32_500]);
    }

    #[test]
    fn inconsistent_limits_are_raised() {
        check(100, 10, 1, u64::MAX, &[100, 100]);
    }

    #[test]
    fn a_thousand_failures_do_not_overflow() {
        let mut backoff = Backoff::new(Duration::ZERO, MS(250), MS(30_000));
        for _ in 0..1000 {
            assert!(backoff.next(u64::MAX) <= MS(30_000));
        }
    }
}
