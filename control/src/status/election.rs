//! Who leads: one Lease (`coordination.k8s.io/v1`), by the rules of client-go, so that other tools read it as they read
//! any other. Pure: time is an argument, and what is to be sent comes out as data.
//!
//! No clock is compared with another one. A candidate takes the Lease of a silent leader only after it has itself seen
//! the same version for the whole duration of the Lease, by its own monotonic clock; a leader stops before that long
//! has passed since it began to send its last renewal that was confirmed. Wall-clock times are written for people, and
//! no decision reads them.

#[cfg(test)]
mod simulation;

use std::time::{Duration, Instant};

/// How long each step of an election lasts. The defaults are those of client-go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// How long a Lease stands that nobody renews.
    pub lease: Duration,
    /// How long a leader leads from the beginning of its last confirmed renewal; less than the above by what a write
    /// that is already under way may take, and by what clocks may differ in speed.
    pub lead: Duration,
    /// The pause between two attempts.
    pub retry: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        let [lease, lead, retry] = [15, 10, 2].map(Duration::from_secs);
        Self { lease, lead, retry }
    }
}

/// No Lease of another is believed to stand for longer than this without a renewal.
const LEASE_MAX: Duration = Duration::from_secs(3600);

/// What a Lease says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    /// `holderIdentity`; empty when its holder has stepped down.
    pub(crate) holder: String,
    /// `leaseDurationSeconds`; `None` where it says nothing that can be.
    pub(crate) duration: Option<Duration>,
    /// `acquireTime`, in µs since the Unix epoch.
    pub(crate) acquired_us: i64,
    /// `renewTime`, in µs since the Unix epoch.
    pub(crate) renewed_us: i64,
    /// `leaseTransitions`.
    pub(crate) transitions: i32,
}

/// A Lease as the API server holds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// Its resourceVersion.
    pub(crate) version: String,
    pub(crate) claim: Claim,
}

/// A Lease to be written: created, or put in the place of one version and no other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bid {
    /// The version that it replaces; `None` to create it.
    pub(crate) over: Option<String>,
    pub(crate) claim: Claim,
    /// When sending it began.
    begun: Instant,
}

/// One candidate's view of the election.
#[derive(Debug)]
pub(crate) struct Election {
    identity: String,
    terms: Terms,
    /// The Lease as it was last known, and since when it has been known so.
    known: Option<(Seen, Instant)>,
    /// Whether that is how it was in this round: nothing has been sent since.
    fresh: bool,
    /// Until when we lead.
    until: Option<Instant>,
}

impl Election {
    /// A candidate that knows nothing yet. Its identity must be that of no other candidate, also not of an earlier process.
    pub(crate) fn new(identity: String, terms: Terms) -> Self {
        Self { identity, terms, known: None, fresh: false, until: None }
    }

    /// Whether the Lease has to be read before there can be a bid.
    pub(crate) fn must_read(&self) -> bool {
        !self.fresh
    }

    /// Takes what was read; `None` when there is no Lease.
    pub(crate) fn read(&mut self, seen: Option<Seen>, now: Instant) {
        self.fresh = true;
        let Some(seen) = seen else {
            self.known = None;
            return;
        };
        if seen.claim.holder != self.identity {
            self.until = None;
        }
        // Only another version shows that its holder lives.
        if self.known.as_ref().is_none_or(|(known, _)| known.version != seen.version) {
            self.known = Some((seen, now));
        }
    }

    /// What to send now: a renewal, or a claim to a Lease that nobody holds any more. It is one attempt: whatever becomes
    /// of it, unless it is [`Election::won`] the Lease is read again before the next.
    pub(crate) fn bid(&mut self, now: Instant, wall_us: i64) -> Option<Bid> {
        if !std::mem::take(&mut self.fresh) {
            return None;
        }
        let (holder, duration) = (self.identity.clone(), Some(self.terms.lease));
        let first = Claim { holder, duration, acquired_us: wall_us, renewed_us: wall_us, transitions: 0 };
        let Some((known, since)) = &self.known else { return Some(Bid { over: None, claim: first, begun: now }) };
        let old = &known.claim;
        let claim = if old.holder == self.identity {
            // A write that changes nothing makes no new version, and then nobody would see it; the clock may stand still.
            let renewed_us = if wall_us == old.renewed_us { wall_us.saturating_add(1) } else { wall_us };
            Claim { acquired_us: old.acquired_us, renewed_us, transitions: old.transitions, ..first }
        } else {
            let stands = old.duration.unwrap_or(self.terms.lease).min(LEASE_MAX);
            if !old.holder.is_empty() && now.saturating_duration_since(*since) < stands {
                return None;
            }
            Claim { transitions: old.transitions.saturating_add(1), ..first }
        };
        Some(Bid { over: Some(known.version.clone()), claim, begun: now })
    }

    /// The API server has taken a bid, and this is the version it made of it.
    pub(crate) fn won(&mut self, bid: Bid, version: String, now: Instant) {
        self.until = Some(bid.begun + self.terms.lead);
        self.known = Some((Seen { version, claim: bid.claim }, now));
        self.fresh = true;
    }

    /// Until when we lead, if we do or did.
    pub(crate) const fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Steps down at once. What to send, so that the next leader need not wait; nothing when the Lease is not ours.
    pub(crate) fn release(&mut self, now: Instant, wall_us: i64) -> Option<Bid> {
        self.until = None;
        self.fresh = false;
        let (known, _) = self.known.as_ref().filter(|(known, _)| known.claim.holder == self.identity)?;
        let duration = Some(Duration::from_secs(1));
        let claim = Claim { holder: String::new(), duration, renewed_us: wall_us, ..known.claim.clone() };
        Some(Bid { over: Some(known.version.clone()), claim, begun: now })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a candidate named `a` sends that reads this Lease (holder, seconds, transitions) and reads it again, unchanged,
    /// so many seconds later: what it replaces, and the transitions it writes.
    #[track_caller]
    fn check(lease: Option<(&str, Option<u64>, i32)>, later_s: u64, want: Option<(Option<&str>, i32)>) {
        let begin = crate::clock::now();
        let mut election = Election::new("a".to_owned(), Terms::default());
        let seen = lease.map(|(holder, seconds, transitions)| Seen {
            version: "7".to_owned(),
            claim: Claim {
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
        let bid = election.bid(now, 0);
        assert_eq!(bid.as_ref().map(|bid| (bid.over.as_deref(), bid.claim.transitions)), want);
        assert!(bid.is_none_or(|bid| bid.claim.holder == "a"));
        assert_eq!(election.bid(now, 0), None, "without another look");
    }

    #[test]
    fn a_lease_is_taken_when_nobody_holds_it() {
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
    fn a_leader_steps_down_and_says_so() {
        let now = crate::clock::now();
        let mut election = Election::new("a".to_owned(), Terms::default());
        assert_eq!(election.release(now, 9), None, "there is nothing to release");
        election.read(None, now);
        let bid = election.bid(now, 5).unwrap();
        election.won(bid, "1".to_owned(), now);
        assert_eq!(election.until(), Some(now + Duration::from_secs(10)));
        let bid = election.release(now, 9).unwrap();
        assert_eq!((election.until(), bid.over.as_deref()), (None, Some("1")));
        let duration = Some(Duration::from_secs(1));
        let want = Claim { holder: String::new(), duration, acquired_us: 5, renewed_us: 9, transitions: 0 };
        assert_eq!(bid.claim, want);
    }
}
