//! Counts of the allocator: every binary that links this crate counts its allocations. Counts, unlike times, are the
//! same on every machine.

use std::alloc::System;

use serde::{Deserialize, Serialize};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The allocations made while something ran.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Allocations {
    /// Blocks that were allocated, or grown or shrunk in place.
    pub count: usize,
    /// Bytes that were requested.
    pub bytes: usize,
}

impl std::ops::AddAssign for Allocations {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.bytes += other.bytes;
    }
}

/// Runs it and counts what it allocates on any thread.
pub fn counted<T>(work: impl FnOnce() -> T) -> (T, Allocations) {
    let region = Region::new(COUNTED);
    let value = work();
    let change = region.change();
    let count = change.allocations + change.reallocations;
    (value, Allocations { count, bytes: change.bytes_allocated })
}

/// All allocations since the process began, by any thread.
#[must_use]
pub fn total() -> Allocations {
    let stats = COUNTED.stats();
    Allocations { count: stats.allocations + stats.reallocations, bytes: stats.bytes_allocated }
}

/// Bytes that are allocated now.
#[must_use]
pub fn live_bytes() -> usize {
    let stats = COUNTED.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_allocations_are_counted_but_not_live() {
        // Untouched memory costs nothing. It is far more than the other tests of this process allocate and free
        // meanwhile.
        let before = live_bytes();
        let (kept, allocations) = counted(|| {
            drop(vec![0u8; 500_000_000]);
            vec![0u8; 300_000_000]
        });
        assert!(allocations.count >= 2 && allocations.bytes >= 800_000_000, "{allocations:?}");
        let live = live_bytes().saturating_sub(before);
        assert!((200_000_000..400_000_000).contains(&live), "{live} of {}", kept.len());
    }
}
