//! How many replicas share the store.

use std::time::{Duration, Instant};

/// The interval at which a replica says that it is there.
pub(super) const PRESENT_EVERY: Duration = Duration::from_secs(1);

/// The time after which a replica that says nothing counts as gone.
pub(super) const GONE_AFTER: Duration = Duration::from_secs(5);

/// The last known number of replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Replicas {
    count: u32,
    /// The number from before the store was away, until when it is not gone below: a store that has lost its data
    /// counts the replicas as they come back to it, and their parts must not be larger meanwhile.
    at_least: Option<(u32, Instant)>,
}

impl Replicas {
    /// One replica that knows nobody.
    pub(super) const fn new() -> Self {
        Self { count: 1, at_least: None }
    }

    /// The store answers again.
    pub(super) fn connected(&mut self, now: Instant) {
        self.at_least = Some((self.count, now + GONE_AFTER));
    }

    /// The store has counted so many. Returns the number that is in use from now on.
    pub(super) fn counted(&mut self, count: u32, now: Instant) -> u32 {
        let floor = self.at_least.filter(|(_, until)| now < *until).map_or(1, |(count, _)| count);
        self.count = count.max(floor);
        self.count
    }

    /// The number that is in use.
    pub(super) const fn count(self) -> u32 {
        self.count
    }
}
