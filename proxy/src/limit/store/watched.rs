//! The leases with requests that are not used yet: after a time, each gives back what it does not need.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Lease;
use crate::limit::counter::Tick;

/// The time for which a lease keeps requests that are not used, at most and at least. In between it is a tenth of the
/// window.
const KEPT_MAX: Duration = Duration::from_secs(1);
const KEPT_MIN: Duration = Duration::from_millis(20);

/// The leases to look at, in the order of the times at which they are due.
#[derive(Debug, Default)]
pub(super) struct Watched {
    due: BTreeMap<(Instant, u64), WatchedLease>,
    sequence: u64,
    returns: u64,
}

/// A lease as it was when it was looked at.
#[derive(Debug)]
struct WatchedLease {
    lease: Arc<Lease>,
    began: u64,
    left: u32,
    granted: u32,
}

/// The leases are free to be looked after by somebody else.
impl Drop for Watched {
    fn drop(&mut self) {
        self.due.values().for_each(|watched| watched.lease.is_watched.store(false, Ordering::Relaxed));
    }
}

/// Requests to give back.
#[derive(Debug)]
pub(super) struct Unused {
    pub(super) lease: Arc<Lease>,
    /// The window in which they were granted.
    pub(super) began: u64,
    pub(super) count: u32,
    /// The number of this return; see [`Return::number`](super::script::Return::number).
    pub(super) number: u64,
}

impl Watched {
    /// Looks after a lease that has been refilled, unless it does so already.
    pub(super) fn add(&mut self, lease: &Arc<Lease>, now: Instant, tick: Tick) {
        if !lease.is_watched.swap(true, Ordering::Relaxed) {
            self.watch(Arc::clone(lease), now, tick);
        }
    }

    fn watch(&mut self, lease: Arc<Lease>, now: Instant, tick: Tick) {
        match lease.words.left_and_granted(tick).filter(|(left, _)| *left > 0) {
            Some((left, granted)) => {
                let kept = (Duration::from_millis(lease.window_ms) / 10).clamp(KEPT_MIN, KEPT_MAX);
                let began = lease.began.load(Ordering::Relaxed);
                self.sequence += 1;
                self.due.insert((now + kept, self.sequence), WatchedLease { lease, began, left, granted });
            }
            None => lease.is_watched.store(false, Ordering::Relaxed),
        }
    }

    /// The time at which the next lease is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((due, _), _)| *due)
    }

    /// Takes what the next lease has more than it has used since it was looked at last; `None` if none is due.
    pub(super) fn take_unused(&mut self, now: Instant, tick: impl Fn(&Lease) -> Tick) -> Option<Option<Unused>> {
        let entry = self.due.first_entry().filter(|entry| entry.key().0 <= now)?;
        let WatchedLease { lease, began, left: left_before, granted: granted_before } = entry.remove();
        let tick = tick(&lease);
        let state = lease.words.left_and_granted(tick).filter(|_| lease.began.load(Ordering::Relaxed) == began);
        let unused = state.and_then(|(left, granted)| {
            // Nobody else has it any more if its counter was removed.
            let is_in_use = Arc::strong_count(&lease) > 1;
            let used = (left_before + granted.saturating_sub(granted_before)).saturating_sub(left);
            let count = lease.words.take_out(left.saturating_sub(if is_in_use { used } else { 0 }), tick);
            self.returns += u64::from(count > 0);
            let number = self.returns;
            (count > 0).then(|| Unused { lease: Arc::clone(&lease), began, count, number })
        });
        self.watch(lease, now, tick);
        Some(unused)
    }

    /// Takes everything that is not used.
    pub(super) fn take_all(&mut self, tick: impl Fn(&Lease) -> Tick) -> Vec<Unused> {
        let all = std::mem::take(&mut self.due).into_values();
        let unused = all.filter_map(|WatchedLease { lease, began, .. }| {
            lease.is_watched.store(false, Ordering::Relaxed);
            let count = lease.words.take_out(u32::MAX, tick(&lease));
            self.returns += 1;
            (count > 0).then_some(Unused { lease, began, count, number: self.returns })
        });
        unused.collect()
    }
}
