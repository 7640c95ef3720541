//! The recent changes of one kind: enough of them that a client can resume after 75 s.

use std::collections::VecDeque;
use std::time::Duration;

/// Entries kept at least, however old they are.
const CAPACITY_MIN: usize = 100;
/// Entries kept at most, however young they are.
const CAPACITY_MAX: usize = 102_400;
/// An entry younger than this is kept if the upper bound allows: a bookmark's interval and some more.
const FRESH: Duration = Duration::from_secs(75);

/// A bounded history that grows and shrinks with the rate of changes.
pub(crate) struct Ring<T> {
    entries: VecDeque<Entry<T>>,
    /// Everything after this version is in the ring.
    complete_after: u64,
    /// The size of the entries, and their limit, however young they are.
    bytes: usize,
    bytes_max: usize,
}

struct Entry<T> {
    at: Duration,
    version: u64,
    bytes: usize,
    item: T,
}

/// The requested version has left the history.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    /// The oldest version from which a watch can resume.
    pub(crate) complete_after: u64,
}

impl<T> Ring<T> {
    /// An empty history of everything after `version`.
    pub(crate) fn after_version(version: u64) -> Self {
        Self { entries: VecDeque::new(), complete_after: version, bytes: 0, bytes_max: usize::MAX }
    }

    /// The same, within a limit of bytes.
    pub(crate) fn within(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    /// Adds a change that happened at `at` and has this size. Versions must not decrease.
    pub(crate) fn push(&mut self, at: Duration, version: u64, bytes: usize, item: T) {
        self.entries.push_back(Entry { at, version, bytes, item });
        self.bytes += bytes;
        self.trim(at);
    }

    /// Drops entries that need not be kept.
    pub(crate) fn trim(&mut self, now: Duration) {
        let old = |entry: &Entry<T>| now.saturating_sub(entry.at) >= FRESH;
        while self.entries.len() > CAPACITY_MIN
            && (self.entries.len() > CAPACITY_MAX || self.entries.front().is_some_and(old))
        {
            self.evict();
        }
        while self.bytes > self.bytes_max && self.entries.len() > 1 {
            self.evict();
        }
        if self.entries.capacity() / 4 > self.entries.len().max(CAPACITY_MIN) {
            self.entries.shrink_to_fit();
        }
    }

    /// Every change after `version`, in order.
    pub(crate) fn after(&self, version: u64) -> Result<impl Iterator<Item = &T>, Gone> {
        if version < self.complete_after {
            return Err(Gone { complete_after: self.complete_after });
        }
        let first = self.entries.partition_point(|entry| entry.version <= version);
        Ok(self.entries.range(first..).map(|entry| &entry.item))
    }

    fn evict(&mut self) {
        // One less than the oldest entry left, so that resuming at the version before it still works.
        let gone = self.entries.pop_front();
        self.bytes -= gone.map_or(0, |entry| entry.bytes);
        if let Some(oldest) = self.entries.front() {
            self.complete_after = self.complete_after.max(oldest.version - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring of `count` changes, one each `step`, numbered from 11.
    fn ring(count: u64, step: Duration) -> Ring<u64> {
        let mut ring = Ring::after_version(10);
        for nth in 0..count {
            ring.push(step * u32::try_from(nth).unwrap(), 11 + nth, 1, 11 + nth);
        }
        ring
    }

    #[track_caller]
    fn check(ring: &Ring<u64>, version: u64, expected: Result<usize, u64>) {
        let found = ring.after(version).map(Iterator::count).map_err(|gone| gone.complete_after);
        assert_eq!(found, expected);
    }

    #[test]
    fn an_empty_ring_knows_only_the_version_it_began_at() {
        check(&ring(0, FRESH), 10, Ok(0));
        check(&ring(0, FRESH), 9, Err(10));
    }

    #[test]
    fn resuming_gives_the_later_changes() {
        check(&ring(5, FRESH), 10, Ok(5));
        check(&ring(5, FRESH), 13, Ok(2));
        check(&ring(5, FRESH), 15, Ok(0));
        check(&ring(5, FRESH), 9, Err(10));
    }

    #[test]
    fn old_entries_are_dropped_at_the_lower_bound() {
        let slow = ring(150, Duration::from_secs(60));
        assert_eq!(slow.entries.len(), 100);
        check(&slow, 60, Ok(100));
        check(&slow, 59, Err(60));
    }

    #[test]
    fn young_entries_stay_up_to_the_upper_bound() {
        let busy = ring(5_000, Duration::from_millis(1));
        assert_eq!(busy.entries.len(), 5_000);
        let flood = ring(110_000, Duration::ZERO);
        assert_eq!(flood.entries.len(), CAPACITY_MAX);
        check(&flood, 10, Err(11 + 110_000 - 102_400 - 1));
    }

    #[test]
    fn the_ring_shrinks_when_it_is_quiet() {
        let mut ring = ring(6_400, Duration::from_millis(1));
        ring.trim(FRESH);
        assert_eq!(ring.entries.len(), 6_399, "all but the first are young");
        ring.trim(FRESH + Duration::from_secs(3));
        assert_eq!(ring.entries.len(), 3_399);
        ring.trim(FRESH * 10);
        assert_eq!(ring.entries.len(), CAPACITY_MIN);
        assert!(ring.entries.capacity() < 6_400, "its memory as well");
        check(&ring, 10 + 6_300, Ok(CAPACITY_MIN));
        check(&ring, 10 + 6_299, Err(10 + 6_300));
    }

    #[test]
    fn young_entries_are_dropped_when_they_use_too_much_memory() {
        let mut ring = Ring::after_version(10).within(30);
        for version in 11..=20 {
            ring.push(Duration::ZERO, version, 10, version);
        }
        check(&ring, 17, Ok(3));
        check(&ring, 16, Err(17));
        ring.push(Duration::ZERO, 21, 100, 21);
        check(&ring, 20, Ok(1));
    }
}
