//! When another list is made for whoever serves what is read, because it has less than it was told: the kind had no room, or the last
//! list is not believed.

use std::time::Instant;

use tokio::time::sleep_until;

use super::Limits;
use super::tee::Tee;
use crate::backoff::Backoff;
use crate::clock;

/// The lists that are due for that reason.
#[derive(Clone, Debug)]
pub(super) struct Lacking {
    backoff: Backoff,
    due: Option<Instant>,
}

impl Lacking {
    pub(super) fn new(limits: &Limits) -> Self {
        let (first, max) = (*limits.list_lacking.start(), *limits.list_lacking.end());
        // Half of it at least: a kind that has no room now rarely has some at once.
        Self { backoff: Backoff::new(first / 2, first, max), due: None }
    }

    /// Waits until a list is due. Whoever stops waiting and waits again does not wait for longer. `draw` is any number.
    pub(super) async fn wait(&mut self, tee: &Tee, draw: u64) {
        if self.due.is_none() {
            tee.lacking().await;
        }
        let due = *self.due.get_or_insert_with(|| clock::now() + self.backoff.next(draw));
        sleep_until(due.into()).await;
    }

    /// Notes that a list was made, for whatever reason.
    pub(super) fn listed(&mut self, tee: &Tee) {
        self.due = None;
        if !tee.lacks() {
            self.backoff.reset();
        }
    }
}
