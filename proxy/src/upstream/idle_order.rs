//! The order in which the connections of a pool became idle, to find the one that has been idle for longest.

use std::collections::VecDeque;

use super::connection::ConnectionKey;

/// The idle connections, the one that has been idle for longest first. A connection that is used again keeps its place,
/// which is skipped later, so that a request needs no search here.
#[derive(Default)]
pub(super) struct IdleOrder {
    queue: VecDeque<(ConnectionKey, u64)>,
    /// The number of the last one.
    last: u64,
}

impl IdleOrder {
    /// Adds a connection as the one that became idle last, and returns its number. `max` is the maximum number of idle
    /// connections; `is_idle` says whether one with this number is still idle.
    pub(super) fn add(
        &mut self,
        key: ConnectionKey,
        max: usize,
        is_idle: impl FnMut(&ConnectionKey, u64) -> bool,
    ) -> u64 {
        // At the latest after `max` insertions, so that the amortised cost of each is constant.
        if self.queue.len() >= 2 * (max + 1) {
            self.tidy(is_idle);
        }
        self.last += 1;
        self.queue.push_back((key, self.last));
        self.last
    }

    /// Offers the connections to `close`, the one that has been idle for longest first, until it closes one. Each is
    /// offered once.
    pub(super) fn close_first(&mut self, mut close: impl FnMut(&ConnectionKey, u64) -> bool) {
        while let Some((key, number)) = self.queue.pop_front() {
            if close(&key, number) {
                return;
            }
        }
    }

    /// Removes the connections that are no longer idle.
    pub(super) fn tidy(&mut self, mut is_idle: impl FnMut(&ConnectionKey, u64) -> bool) {
        self.queue.retain(|(key, number)| is_idle(key, *number));
    }

    /// The number of places, including those of connections that are no longer idle.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}
