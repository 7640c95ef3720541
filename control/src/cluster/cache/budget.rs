//! The write budget of the disk, in bytes per minute, of which at most one minute's bytes accumulate. A larger batch,
//! such as the first copy of a cluster, costs one minute's bytes. Pure.

use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// The remaining budget.
#[derive(Debug)]
pub(super) struct Budget {
    per_minute: u64,
    /// The bytes that may be written now; negative after writes in advance.
    left: f64,
    as_of: Instant,
}

impl Budget {
    /// A budget that starts with one minute's bytes.
    pub(super) fn new(per_minute: u64, now: Instant) -> Self {
        let per_minute = per_minute.max(1);
        Self { per_minute, left: as_float(per_minute), as_of: now }
    }

    /// Records that `bytes` were written.
    pub(super) fn spend(&mut self, bytes: u64, now: Instant) {
        self.earn(now);
        self.left -= as_float(bytes.min(self.per_minute));
    }

    /// The time when the next write is allowed: `now`, unless the budget is used up.
    pub(super) fn ready(&mut self, now: Instant) -> Instant {
        self.earn(now);
        if self.left > 0.0 {
            return now;
        }
        let wait = MINUTE.mul_f64(-self.left / as_float(self.per_minute));
        now + wait.saturating_add(Duration::from_millis(1))
    }

    fn earn(&mut self, now: Instant) {
        let minutes = now.saturating_duration_since(self.as_of).as_secs_f64() / MINUTE.as_secs_f64();
        let bytes = as_float(self.per_minute);
        self.left = minutes.mul_add(bytes, self.left).min(bytes);
        self.as_of = self.as_of.max(now);
    }
}

#[allow(clippy::cast_precision_loss, reason = "a budget needs no single bytes")]
const fn as_float(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn average_writes_stay_within_the_budget() {
        let begun = clock::now();
        let mut budget = Budget::new(1000, begun);
        let (mut now, mut written) = (begun, 0);
        for bytes in [100, 1000, 1, 700, 1000, 1, 1, 900].into_iter().cycle().take(80) {
            now = budget.ready(now);
            budget.spend(bytes, now);
            written += bytes;
            let minutes = now.saturating_duration_since(begun).as_secs_f64() / 60.0;
            let may = minutes.mul_add(1000.0, 1000.0);
            assert!(as_float(written) <= may + as_float(bytes), "{written} bytes in {minutes} minutes");
        }
        let whole = as_float(written - 1000) / 1000.0 * 60.0;
        let took = now.saturating_duration_since(begun).as_secs_f64();
        assert!(took <= whole, "it waits no longer than it must: {took} s for {whole}");
    }

    #[test]
    fn unused_budget_is_kept_for_a_minute() {
        let mut now = clock::now();
        let mut budget = Budget::new(1000, now);
        now += MINUTE * 10;
        budget.spend(999, now);
        assert_eq!(budget.ready(now), now);
        budget.spend(1_000_000, now);
        let wait = budget.ready(now).saturating_duration_since(now);
        assert!(wait > MINUTE * 99 / 100 && wait < MINUTE * 101 / 100, "{wait:?}");
    }
}
