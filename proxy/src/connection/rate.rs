//! The rate limit of slow clients: the rate of one direction, averaged over the time in which the edge waited for the
//! client.

use std::time::{Duration, Instant};

use crate::budget::Budget;
use crate::options::{Enforce, RateLimits};

/// The time after which the budget is checked again for a slow client.
const RECHECK: Duration = Duration::from_secs(5);

/// The minimum rate, and the budget that decides whether it is enforced.
pub(crate) type Rule<'a> = (&'a RateLimits, &'a Budget);

/// The rate of one direction of one request. It measures in periods, each with at least [`RateLimits::grace`] of
/// waiting, so that an early burst does not make up for a later trickle. Bytes before the first wait do not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RateMeter {
    /// The waiting time of this period, without the current wait.
    waited: Duration,
    /// The beginning of the current wait.
    since: Option<Instant>,
    /// The number of bytes at the beginning of this period.
    before: u64,
}

impl RateMeter {
    /// A meter before the first measurement.
    pub(crate) const DEFAULT: Self = Self { waited: Duration::ZERO, since: None, before: 0 };

    /// Returns `true` while the edge waits for the client.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// Records whether the edge waits for the client from now on, and the number of bytes since the meter was new.
    /// Returns the time of the next check if nothing moves until then; if it is not after `now`, the client must be
    /// disconnected.
    pub(crate) fn until(
        &mut self,
        waits: bool,
        moved: u64,
        limits: &RateLimits,
        budget: &Budget,
        now: Instant,
    ) -> Option<Instant> {
        // Most requests never wait for their client.
        if !waits && self.since.is_none() {
            return None;
        }
        let at = self.too_slow_at(waits, moved, limits, now)?;
        let enforced = match limits.enforce {
            Enforce::Never => return None,
            Enforce::Always => true,
            Enforce::UnderPressure => budget.is_pressed(),
        };
        Some(if at > now || enforced { at } else { now + RECHECK })
    }

    /// Records the same, and returns the time at which the client is too slow if it moves nothing until then; `None`
    /// while the edge does not wait for it.
    fn too_slow_at(&mut self, waits: bool, moved: u64, limits: &RateLimits, now: Instant) -> Option<Instant> {
        if limits.bytes_per_second == 0 {
            return None;
        }
        match self.since {
            Some(since) => self.waited += now.saturating_duration_since(since),
            None if self.waited.is_zero() => self.before = moved,
            None => {}
        }
        self.since = waits.then_some(now);
        let period = moved.saturating_sub(self.before);
        let mut allowed = allowed(period, limits);
        if self.waited >= limits.grace {
            if self.waited < allowed {
                (self.waited, self.before, allowed) = (Duration::ZERO, moved, limits.grace);
            } else if self.waited >= 2 * limits.grace {
                // The limit was not enforced; the recent rate must weigh more than that of long ago.
                self.waited /= 2;
                self.before += period / 2;
                allowed = self::allowed(period / 2, limits);
            }
        }
        waits.then(|| now + allowed.saturating_sub(self.waited))
    }
}

/// The waiting time that is allowed for a number of bytes.
fn allowed(bytes: u64, limits: &RateLimits) -> Duration {
    let millis = bytes.saturating_mul(1000) / u64::from(limits.bytes_per_second.max(1));
    Duration::from_millis(millis).max(limits.grace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{BudgetLimits, Cost};

    const LIMITS: RateLimits =
        RateLimits { bytes_per_second: 500, grace: Duration::from_secs(60), enforce: Enforce::Always };

    /// A measurement: the second, whether the edge waits from now on, the bytes so far, and the time of the next check.
    type Seen = (u64, bool, u64, Option<u64>);

    #[track_caller]
    fn check(limits: &RateLimits, budget: &Budget, seen: &[Seen]) {
        let start = crate::clock::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut meter = RateMeter::DEFAULT;
        for (second, waits, moved, until) in seen {
            let got = meter.until(*waits, *moved, limits, budget, at(*second));
            assert_eq!(got.map(|got| got.duration_since(start).as_secs()), *until, "at second {second}");
            assert_eq!(meter.is_waiting(), *waits, "at second {second}");
        }
    }

    fn free() -> Budget {
        Budget::new(&BudgetLimits::default())
    }

    fn pressed() -> Budget {
        let budget = Budget::new(&BudgetLimits { files: 2, ..BudgetLimits::default() });
        assert!(budget.charge(Cost::new(1, 0)));
        budget
    }

    #[test]
    fn silence_is_too_slow_after_the_grace_period() {
        check(&LIMITS, &free(), &[(0, true, 0, Some(60)), (30, true, 0, Some(60)), (60, true, 0, Some(60))]);
    }

    #[test]
    fn a_trickle_is_too_slow_although_each_piece_comes_in_time() {
        check(
            &LIMITS,
            &free(),
            &[(0, true, 0, Some(60)), (20, true, 1, Some(60)), (40, true, 2, Some(60)), (60, true, 3, Some(60))],
        );
    }

    #[test]
    fn time_in_which_nobody_waits_for_the_client_does_not_count() {
        // A log line every twenty seconds, which the client reads within a second.
        let mut seen = Vec::new();
        for line in 0..50 {
            seen.push((20 * line, true, 100 * line, Some(20 * line + 60 - line)));
            seen.push((20 * line + 1, false, 100 * line + 100, None));
        }
        check(&LIMITS, &free(), &seen);
        check(&LIMITS, &free(), &[(0, false, 0, None), (1000, false, 0, None), (1001, true, 0, Some(1061))]);
    }

    #[test]
    fn each_period_is_judged_by_its_own_average() {
        check(
            &LIMITS,
            &free(),
            &[
                // Bytes before the first wait do not count.
                (0, true, 1_000_000, Some(60)),
                (10, true, 1_050_000, Some(100)),
                // Fast enough for a whole period; the next one begins.
                (60, true, 1_050_000, Some(120)),
                (100, true, 1_060_000, Some(120)),
                (120, true, 1_060_000, Some(120)),
            ],
        );
    }

    #[test]
    fn the_rate_is_enforced_always_under_pressure_or_never() {
        let under_pressure = RateLimits { enforce: Enforce::UnderPressure, ..LIMITS };
        let never = RateLimits { enforce: Enforce::Never, ..LIMITS };
        let zero = RateLimits { bytes_per_second: 0, ..LIMITS };
        let late = |until| [(0, true, 0, Some(60)), (61, true, 0, until)];
        check(&LIMITS, &free(), &late(Some(61)));
        check(&under_pressure, &pressed(), &late(Some(61)));
        check(&under_pressure, &free(), &late(Some(66)));
        check(&never, &pressed(), &[(0, true, 0, None), (61, true, 0, None)]);
        let mut meter = RateMeter::DEFAULT;
        assert_eq!(meter.until(true, 0, &zero, &pressed(), crate::clock::now()), None);
    }

    #[test]
    fn a_client_that_becomes_fast_enough_is_kept() {
        let limits = RateLimits { enforce: Enforce::UnderPressure, ..LIMITS };
        check(
            &limits,
            &free(),
            &[
                (0, true, 0, Some(60)),
                (3600, true, 0, Some(3605)),
                // Enough for the half of that hour that still counts, but not for all of it.
                (3660, true, 1_000_000, Some(3720)),
            ],
        );
    }
}
