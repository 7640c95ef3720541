//! The times of further lists for a server of copies that lacks objects, because it had no space or does not accept the
//! last list.

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
        // At least half of it: space rarely becomes available at once.
        Self { backoff: Backoff::new(first / 2, first, max), due: None }
    }

    /// Waits until a list is due. Cancelling and waiting again does not extend the delay. `draw` is a random number.
    pub(super) async fn wait(&mut self, tee: &Tee, draw: u64) {
        if self.due.is_none() {
            tee.lacking().await;
        }
        let due = *self.due.get_or_insert_with(|| clock::now() + self.backoff.next(draw));
        sleep_until(due.into()).await;
    }

    /// Records that a list was made, for any reason.
    pub(super) fn listed(&mut self, tee: &Tee) {
        self.due = None;
        if !tee.lacks() {
            self.backoff.reset();
        }
    }
}
