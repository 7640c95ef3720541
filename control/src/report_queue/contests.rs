//! Objects whose status another client keeps overwriting, such as a second edge of the same class with a Lease of its
//! own. Each repair waits twice as long as the one before, so that neither they nor the readers of the status, such as
//! the writers of DNS records, are kept busy.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tidegate_config::object::ObjectRef;

/// The delay before the first repair of a status that another client has overwritten.
pub(super) const REPAIR_AFTER: Duration = Duration::from_secs(2);
/// The longest delay.
const REPAIR_AFTER_MAX: Duration = Duration::from_secs(600);
/// The number of overwritten values in a row from which on it is no accident.
const CONTESTED_AFTER: u32 = 3;
/// A contest is over when nothing has been overwritten for this long after the last repair.
const OVER_AFTER: Duration = Duration::from_secs(120);

/// The contests about status. Pure: the caller provides the time.
#[derive(Debug, Default)]
pub(crate) struct Contests {
    objects: BTreeMap<ObjectRef, Contest>,
    /// No contest ends before this time.
    first_end: Option<Instant>,
    /// Whether anything has changed since [`Contests::take_changed`].
    changed: bool,
}

#[derive(Debug)]
struct Contest {
    /// The number of overwritten values.
    times: u32,
    over_at: Instant,
}

impl Contests {
    /// The delay before the status of an object is repaired that another client has just overwritten.
    pub(crate) fn overwritten(&mut self, object: ObjectRef, now: Instant) -> Duration {
        self.forget(now);
        let contest = self.objects.entry(object).or_insert(Contest { times: 0, over_at: now });
        let doubled = REPAIR_AFTER.saturating_mul(1_u32.checked_shl(contest.times).unwrap_or(u32::MAX));
        let delay = doubled.min(REPAIR_AFTER_MAX);
        contest.times = contest.times.saturating_add(1);
        // The other side waits as long before it answers.
        contest.over_at = now + 2 * delay + OVER_AFTER;
        let end = self.first_end.map_or(contest.over_at, |end| end.min(contest.over_at));
        (self.first_end, self.changed) = (Some(end), true);
        delay
    }

    /// Returns `true` if a value was overwritten or a contest ended since the last call.
    pub(crate) fn take_changed(&mut self, now: Instant) -> bool {
        self.forget(now);
        std::mem::take(&mut self.changed)
    }

    /// The contested objects, as of the last call of another function.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &ObjectRef> {
        self.objects.iter().filter(|(_, contest)| contest.times >= CONTESTED_AFTER).map(|(object, _)| object)
    }

    fn forget(&mut self, now: Instant) {
        if self.first_end.is_none_or(|end| end > now) {
            return;
        }
        let before = self.objects.len();
        self.objects.retain(|_, contest| contest.over_at > now);
        self.changed |= self.objects.len() < before;
        self.first_end = self.objects.values().map(|contest| contest.over_at).min();
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the beginning of a test")]
mod tests {
    use tidegate_config::object::{Kind, ObjectName};

    use super::*;

    fn object(name: &str) -> ObjectRef {
        ObjectRef::new(Kind::Ingress, ObjectName::new("shop", name))
    }

    #[test]
    fn each_repair_waits_twice_as_long_up_to_a_limit() {
        let (mut contests, mut now) = (Contests::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..40 {
            let wait = contests.overwritten(object("a"), now);
            waits.push(wait.as_secs());
            now += 2 * wait;
        }
        assert_eq!(waits[..5], [2, 4, 8, 16, 32]);
        assert!(waits[9..].iter().all(|wait| *wait == 600), "{waits:?}");
        assert_eq!(contests.overwritten(object("b"), now), REPAIR_AFTER, "each object for itself");
    }

    #[test]
    fn a_contest_begins_with_the_third_value_and_ends_without_another_writer() {
        let (mut contests, now) = (Contests::default(), Instant::now());
        assert!(!contests.take_changed(now));
        for want in [0, 0, 1] {
            contests.overwritten(object("a"), now);
            assert_eq!((contests.take_changed(now), contests.objects().count()), (true, want));
        }
        let later = now + Duration::from_secs(100);
        contests.overwritten(object("b"), later);
        assert_eq!(contests.objects().collect::<Vec<_>>(), [&object("a")]);
        assert_eq!((contests.take_changed(later), contests.take_changed(later)), (true, false));
        let ended = now + Duration::from_secs(137);
        assert_eq!((contests.take_changed(ended), contests.objects().count()), (true, 0));
        assert!(!contests.take_changed(ended), "the contest about b has not ended");
        assert!(contests.take_changed(now + Duration::from_secs(600)));
        assert_eq!(contests.overwritten(object("a"), now + Duration::from_secs(600)), REPAIR_AFTER);
    }
}
