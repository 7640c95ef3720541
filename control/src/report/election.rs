//! Leader election with one Lease (`coordination.k8s.io/v1`), by the rules of client-go, so that other tools can read
//! it. Pure: time is an argument, and requests are returned as data.
//!
//! Clocks of different processes are never compared. A candidate takes the Lease of a silent leader only after it has
//! itself observed the same version for the whole duration of the Lease, by its own monotonic clock; a leader stops
//! earlier, counted from the time before it sent its last confirmed renewal. Wall-clock times are written for people
//! only and never used for decisions.

#[cfg(test)]
mod simulation;

use std::time::{Duration, Instant};

/// The durations of an election. The defaults are those of client-go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ElectionTiming {
    /// The duration of a Lease without renewal.
    pub lease: Duration,
    /// The time for which a leader leads, from the start of its last confirmed renewal. It is less than `lease` by the
    /// duration of a write in progress and the difference in speed between clocks.
    pub lead: Duration,
    /// The pause between two attempts.
    pub retry: Duration,
}

impl Default for ElectionTiming {
    fn default() -> Self {
        let [lease, lead, retry] = [15, 10, 2].map(Duration::from_secs);
        Self { lease, lead, retry }
    }
}

/// The maximum duration for which another's Lease is respected without a renewal.
const LEASE_MAX: Duration = Duration::from_secs(3600);

/// The content of a Lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LeaseRecord {
    /// `holderIdentity`; empty after the holder has released it.
    pub(crate) holder: String,
    /// `leaseDurationSeconds`; `None` if it is missing or invalid.
    pub(crate) duration: Option<Duration>,
    /// `acquireTime`, in µs since the Unix epoch.
    pub(crate) acquired_us: i64,
    /// `renewTime`, in µs since the Unix epoch.
    pub(crate) renewed_us: i64,
    /// `leaseTransitions`.
    pub(crate) transitions: i32,
}

/// A Lease as read from the API server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ObservedLease {
    /// Its resourceVersion.
    pub(crate) version: String,
    pub(crate) record: LeaseRecord,
}

/// A Lease to write: created, or updated from one version only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LeaseWrite {
    /// The version to update; `None` to create it.
    pub(crate) over: Option<String>,
    pub(crate) record: LeaseRecord,
    /// When the request was started.
    begun: Instant,
}

/// One candidate's state of the election.
#[derive(Debug)]
pub(crate) struct Election {
    identity: String,
    timing: ElectionTiming,
    /// The Lease as last known, and since when that version is known.
    known: Option<(ObservedLease, Instant)>,
    /// Whether that was read in this round, with no request since.
    fresh: bool,
    /// The end of the leadership, if this candidate leads.
    until: Option<Instant>,
}

impl Election {
    /// A candidate without any knowledge. Its identity must be unique, also among earlier processes.
    pub(crate) fn new(identity: String, timing: ElectionTiming) -> Self {
        Self { identity, timing, known: None, fresh: false, until: None }
    }

    /// Whether the Lease must be read before the next bid.
    pub(crate) fn must_read(&self) -> bool {
        !self.fresh
    }

    /// Records the Lease as read; `None` if it does not exist.
    pub(crate) fn read(&mut self, seen: Option<ObservedLease>, now: Instant) {
        self.fresh = true;
        let Some(seen) = seen else {
            self.known = None;
            return;
        };
        if seen.record.holder != self.identity {
            self.until = None;
        }
        // Only a new version shows that the holder is alive.
        if self.known.as_ref().is_none_or(|(known, _)| known.version != seen.version) {
            self.known = Some((seen, now));
        }
    }

    /// The next write: a renewal, or an acquisition of a Lease that has no holder or has expired. Each bid is one
    /// attempt: unless it is followed by [`Election::won`], the Lease must be read again before the next.
    pub(crate) fn next_write(&mut self, now: Instant, wall_us: i64) -> Option<LeaseWrite> {
        if !std::mem::take(&mut self.fresh) {
            return None;
        }
        let (holder, duration) = (self.identity.clone(), Some(self.timing.lease));
        let first = LeaseRecord { holder, duration, acquired_us: wall_us, renewed_us: wall_us, transitions: 0 };
        let Some((known, since)) = &self.known else {
            return Some(LeaseWrite { over: None, record: first, begun: now });
        };
        let old = &known.record;
        let record = if old.holder == self.identity {
            // A write without changes creates no new version, and would not be observed; the clock may stand still.
            let renewed_us = if wall_us == old.renewed_us { wall_us.saturating_add(1) } else { wall_us };
            LeaseRecord { acquired_us: old.acquired_us, renewed_us, transitions: old.transitions, ..first }
        } else {
            let valid_for = old.duration.unwrap_or(self.timing.lease).min(LEASE_MAX);
            if !old.holder.is_empty() && now.saturating_duration_since(*since) < valid_for {
                return None;
            }
            LeaseRecord { transitions: old.transitions.saturating_add(1), ..first }
        };
        Some(LeaseWrite { over: Some(known.version.clone()), record, begun: now })
    }

    /// The API server has accepted a bid and created this version.
    pub(crate) fn won(&mut self, next_write: LeaseWrite, version: String, now: Instant) {
        self.until = Some(next_write.begun + self.timing.lead);
        self.known = Some((ObservedLease { version, record: next_write.record }, now));
        self.fresh = true;
    }

    /// The end of the current or last leadership.
    pub(crate) const fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Ends the leadership at once. Returns the write that releases the Lease, so that the next leader need not wait;
    /// `None` if the Lease is not ours.
    pub(crate) fn release(&mut self, now: Instant, wall_us: i64) -> Option<LeaseWrite> {
        self.until = None;
        self.fresh = false;
        let (known, _) = self.known.as_ref().filter(|(known, _)| known.record.holder == self.identity)?;
        let duration = Some(Duration::from_secs(1));
        let record = LeaseRecord { holder: String::new(), duration, renewed_us: wall_us, ..known.record.clone() };
        Some(LeaseWrite { over: Some(known.version.clone()), record, begun: now })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the bid of a candidate named `a` that reads this Lease (holder, seconds, transitions) and reads it
    /// again, unchanged, after so many seconds: the version to update, and the transitions.
    #[track_caller]
    fn check(lease: Option<(&str, Option<u64>, i32)>, later_s: u64, want: Option<(Option<&str>, i32)>) {
        let begin = crate::clock::now();
        let mut election = Election::new("a".to_owned(), ElectionTiming::default());
        let seen = lease.map(|(holder, seconds, transitions)| ObservedLease {
            version: "7".to_owned(),
            record: LeaseRecord {
                holder: holder.to_owned(),
                duration: seconds.map(Duration::from_secs),
                acquired_us: 1,
                renewed_us: i64::MAX,
                transitions,
            },
        });
        election.read(seen.clone(), begin);
        let now = begin + Duration::from_secs(later_s);
        election.read(seen, now);
        let next_write = election.next_write(now, 0);
        assert_eq!(
            next_write.as_ref().map(|next_write| (next_write.over.as_deref(), next_write.record.transitions)),
            want
        );
        assert!(next_write.is_none_or(|next_write| next_write.record.holder == "a"));
        assert_eq!(election.next_write(now, 0), None, "without another look");
    }

    #[test]
    fn a_free_or_expired_lease_is_acquired() {
        check(None, 0, Some((None, 0)));
        check(Some(("", Some(1), 4)), 0, Some((Some("7"), 5)));
        check(Some(("a", Some(15), 4)), 0, Some((Some("7"), 4)));
        check(Some(("b", Some(15), 4)), 0, None);
        check(Some(("b", Some(15), 4)), 14, None);
        check(Some(("b", Some(15), 4)), 15, Some((Some("7"), 5)));
        check(Some(("b", Some(60), 4)), 59, None);
        check(Some(("b", None, 4)), 14, None);
        check(Some(("b", None, 4)), 15, Some((Some("7"), 5)));
        check(Some(("b", Some(u64::MAX), i32::MAX)), 3599, None);
        check(Some(("b", Some(u64::MAX), i32::MAX)), 3600, Some((Some("7"), i32::MAX)));
    }

    #[test]
    fn a_leader_that_steps_down_releases_the_lease() {
        let now = crate::clock::now();
        let mut election = Election::new("a".to_owned(), ElectionTiming::default());
        assert_eq!(election.release(now, 9), None, "there is nothing to release");
        election.read(None, now);
        let next_write = election.next_write(now, 5).unwrap();
        election.won(next_write, "1".to_owned(), now);
        assert_eq!(election.until(), Some(now + Duration::from_secs(10)));
        let next_write = election.release(now, 9).unwrap();
        assert_eq!((election.until(), next_write.over.as_deref()), (None, Some("1")));
        let duration = Some(Duration::from_secs(1));
        let want = LeaseRecord { holder: String::new(), duration, acquired_us: 5, renewed_us: 9, transitions: 0 };
        assert_eq!(next_write.record, want);
    }
}
