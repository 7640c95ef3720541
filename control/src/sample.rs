//! The first few of many items.

use serde::Serialize;

/// The maximum number of recorded items of a list: a relist may change thousands at once.
pub(crate) const SHOWN_MAX: usize = 8;

/// The first few items, and the total number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Sample<T> {
    /// The first few, in order of arrival.
    pub first: Vec<T>,
    /// The total number.
    pub total: usize,
}

impl<T> Default for Sample<T> {
    fn default() -> Self {
        Self { first: Vec::new(), total: 0 }
    }
}

impl<T> Sample<T> {
    /// Adds an item; it is created only if it is recorded.
    pub(crate) fn add(&mut self, make: impl FnOnce() -> T) {
        self.total += 1;
        if self.first.len() < SHOWN_MAX {
            self.first.push(make());
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.total += other.total;
        self.first.extend(other.first.into_iter().take(SHOWN_MAX.saturating_sub(self.first.len())));
    }
}
