//! The lists of an informer, each of them counted; and those that are only due, which are made beside a watch.
//!
//! A list beside a watch is of one moment, while the watch goes on to tell. So what the watch has told since the list began
//! takes the place of what the list says of the same objects, and the next watch goes on from where that one had come: each
//! object is then known up to that resourceVersion at least, and nothing that was told is undone. Where nothing was told
//! meanwhile, not even a bookmark, the next watch goes on from the list, as after any other one; and so it does where the watch lags behind the list.
//! All of it rests on lists that are asked for without a resourceVersion, which are no older than the moment in which they were
//! asked for.

use std::collections::BTreeMap;
use std::time::Instant;

use tidegate_config::object::ObjectRef;
use tidegate_config::project::Projected;
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::time::sleep_until;

use super::Reported;
use super::api::Api;
use super::failure::{Failure, ListReason};
use super::lacking::Lacking;
use super::list::{List, list};
use super::pauses::Pauses;
use super::tee::Tee;
use crate::clock;
use crate::source_metrics::SourceSeries;

/// Makes the lists of one collection.
#[derive(Clone)]
pub(super) struct Lister {
    pub(super) api: Api,
    pub(super) series: SourceSeries,
    /// Has news when a list was asked for since the last one began, and why it was.
    pub(super) asked: Receiver<ListReason>,
    pub(super) page_objects: u32,
    /// Where the bytes of objects are told.
    pub(super) tee: Tee,
    /// When a list is due for whoever is told there.
    pub(super) lacking: Lacking,
}

impl Lister {
    /// Makes one list.
    pub(super) async fn list(&mut self, reason: ListReason) -> Result<List, Failure> {
        // What was asked for until now is this list.
        self.asked.mark_unchanged();
        let started = clock::now();
        self.series.list_begins(reason.as_str());
        self.tee.list_begins();
        let made = list(&self.api, self.page_objects, &self.tee).await;
        match &made {
            Ok(list) => {
                self.series.list_done(clock::now().saturating_duration_since(started), list.objects.len());
                self.series.unidentified(list.unidentified);
            }
            Err(failure) => {
                self.series.list_failed(failure.reason());
                self.tee.list_failed();
                if matches!(failure, Failure::PageTooLong) {
                    self.page_objects = (self.page_objects / 2).max(1);
                }
            }
        }
        made
    }

    /// Waits until a list is due or asked for, and makes it as often as it takes until one comes in whole, while a watch goes
    /// on. That one fails is no failure of the source, which is followed by its watch. Says whenever a list begins, so that
    /// what is [`WatchOverlay`] from then on is kept, and when it has failed. Gives itself back with the list.
    pub(super) async fn beside(
        mut self,
        (due, mut reason): (Instant, ListReason),
        listing: Sender<bool>,
        mut chance: fastrand::Rng,
    ) -> (Self, List) {
        tokio::select! {
            biased;
            // An error would mean that no handle is left; the informer holds one.
            _ = self.asked.changed() => reason = *self.asked.borrow_and_update(),
            () = self.lacking.wait(&self.tee, chance.u64(..)) => reason = ListReason::Lacking,
            () = sleep_until(due.into()) => {}
        }
        let (mut pauses, mut reported) = (Pauses::new(&self.api.limits), None);
        loop {
            listing.send_replace(true);
            let failure = match self.list(reason).await {
                Ok(list) => return (self, list),
                Err(failure) => failure,
            };
            listing.send_replace(false);
            let pause = pauses.after(&failure, chance.u64(..));
            let (source, length) = (self.api.source(), pause.length);
            if Reported::is_news(reported, failure.reason(), self.api.limits.failing_again) {
                reported = Some(Reported::now(failure.reason()));
                tracing::warn!(%source, %failure, pause = ?length, "a list beside the watch failed; the watch goes on");
            } else {
                tracing::debug!(%source, %failure, pause = ?length, "a list beside the watch failed; the watch goes on");
            }
            pauses.wait(pause, chance.u64(..)).await;
            reason = ListReason::Retry;
        }
    }
}

/// Whether a resourceVersion is no older than another one of the same collection. They may be compared where they are numbers
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>); where not, nothing is known of it.
pub(super) fn no_older(version: &str, than: &str) -> bool {
    let numbers = [version, than].map(|version| version.parse::<u64>().ok());
    matches!(numbers, [Some(version), Some(than)] if version >= than)
}

/// What watches have told since the list beside them began.
pub(super) struct WatchOverlay {
    /// Whether a list is made now; has news when one has begun or failed since.
    listing: Receiver<bool>,
    /// What was told last of each object: what it is, or that it is gone.
    last: BTreeMap<ObjectRef, Option<Projected>>,
    /// Whether a watch told by a bookmark that it had come further.
    passed: bool,
}

impl WatchOverlay {
    /// Nothing, and what says to it whether a list is made.
    pub(super) fn new() -> (Sender<bool>, Self) {
        let (listing, receiver) = channel(false);
        (listing, Self { listing: receiver, last: BTreeMap::new(), passed: false })
    }

    /// Whether what is told now is to be kept. What was kept for an earlier list is dropped.
    pub(super) fn keeps(&mut self) -> bool {
        let listing = self.listing.borrow_and_update();
        if listing.has_changed() {
            self.last.clear();
            self.passed = false;
        }
        *listing
    }

    /// Notes a bookmark. One that is newer than the list beside it was sent after everything that the list tells: to go on from the list
    /// would be to go back.
    pub(super) fn pass(&mut self) {
        self.passed = true;
    }

    /// Keeps what has been told of an object.
    pub(super) fn keep(&mut self, object: ObjectRef, is: Option<Projected>) {
        self.last.insert(object, is);
    }

    /// Puts what was told into the place of what a list says of it. Gives whether that was nothing.
    pub(super) fn overtake(mut self, objects: &mut Vec<Projected>) -> bool {
        self.keeps();
        objects.retain(|object| !self.last.contains_key(&object.meta.object));
        let nothing = self.last.is_empty() && !self.passed;
        objects.extend(self.last.into_values().flatten());
        nothing
    }
}
