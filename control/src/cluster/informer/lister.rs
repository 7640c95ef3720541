//! The lists of an informer, with metrics. Periodic lists are made concurrently with a watch.
//!
//! A concurrent list has the state of one moment, while the watch continues. So events since the list began replace the
//! list's items for the same objects, and the next watch resumes from the version of the previous one: each object is
//! then known at that resourceVersion or later, and no event is undone. Without any events meanwhile, not even a
//! bookmark, the next watch resumes from the list's version, as after any other list; likewise if the watch lags behind
//! the list. All of this relies on lists without a resourceVersion in the request, which are not older than the
//! request.

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
use crate::cluster::collection_metrics::CollectionSeries;

/// Makes the lists of one collection.
#[derive(Clone)]
pub(super) struct Lister {
    pub(super) api: Api,
    pub(super) series: CollectionSeries,
    /// Signals that a list was requested since the last one began, with the reason.
    pub(super) asked: Receiver<ListReason>,
    pub(super) page_objects: u32,
    /// The receivers of the objects' bytes.
    pub(super) tee: Tee,
    /// The time of the next list for a server of copies that lacks objects.
    pub(super) lacking: Lacking,
}

impl Lister {
    /// Makes one list.
    pub(super) async fn list(&mut self, reason: ListReason) -> Result<List, Failure> {
        // Earlier requests are satisfied by this list.
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

    /// Waits until a list is due or requested, and retries it until one succeeds, while a watch runs. A failure is not
    /// a failure of the collection, which is still watched. Sends `true` when a list begins, from which on the
    /// [`WatchOverlay`] keeps events, and `false` when it has failed. Returns the lister with the list.
    pub(super) async fn beside(
        mut self,
        (due, mut reason): (Instant, ListReason),
        listing: Sender<bool>,
        mut rng: fastrand::Rng,
    ) -> (Self, List) {
        tokio::select! {
            biased;
            // An error would mean that no handle exists; the informer holds one.
            _ = self.asked.changed() => reason = *self.asked.borrow_and_update(),
            () = self.lacking.wait(&self.tee, rng.u64(..)) => reason = ListReason::Lacking,
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
            let pause = pauses.after(&failure, rng.u64(..));
            let (collection, length) = (self.api.collection(), pause.length);
            if Reported::is_news(reported, failure.reason(), self.api.limits.failing_again) {
                reported = Some(Reported::now(failure.reason()));
                tracing::warn!(%collection, error = %failure, pause = ?length, "a relist failed; the watch continues");
            } else {
                tracing::debug!(%collection, error = %failure, pause = ?length, "a relist failed; the watch continues");
            }
            pauses.wait(pause, rng.u64(..)).await;
            reason = ListReason::Retry;
        }
    }
}

/// Whether a resourceVersion is known not to be older than another one of the same collection. They can be compared if
/// they are numbers (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>).
pub(super) fn no_older(version: &str, than: &str) -> bool {
    let numbers = [version, than].map(|version| version.parse::<u64>().ok());
    matches!(numbers, [Some(version), Some(than)] if version >= than)
}

/// The events of watches since the concurrent list began.
pub(super) struct WatchOverlay {
    /// Whether a list is in progress; signals each beginning and failure.
    listing: Receiver<bool>,
    /// The last event of each object: its new state, or `None` for a deletion.
    last: BTreeMap<ObjectRef, Option<Projected>>,
    /// Whether a watch sent a bookmark.
    passed: bool,
}

impl WatchOverlay {
    /// An empty overlay, with the sender of the list's progress.
    pub(super) fn new() -> (Sender<bool>, Self) {
        let (listing, receiver) = channel(false);
        (listing, Self { listing: receiver, last: BTreeMap::new(), passed: false })
    }

    /// Whether events must be kept now. Events kept for an earlier list are dropped.
    pub(super) fn keeps(&mut self) -> bool {
        let listing = self.listing.borrow_and_update();
        if listing.has_changed() {
            self.last.clear();
            self.passed = false;
        }
        *listing
    }

    /// Records a bookmark. One that is newer than the concurrent list was sent after all events in the list: resuming
    /// from the list would repeat events.
    pub(super) fn pass(&mut self) {
        self.passed = true;
    }

    /// Records the event of an object.
    pub(super) fn keep(&mut self, object: ObjectRef, is: Option<Projected>) {
        self.last.insert(object, is);
    }

    /// Replaces the items of a list with later events. Returns `true` if there were no events.
    pub(super) fn overtake(mut self, objects: &mut Vec<Projected>) -> bool {
        self.keeps();
        objects.retain(|object| !self.last.contains_key(&object.meta.object));
        let nothing = self.last.is_empty() && !self.passed;
        objects.extend(self.last.into_values().flatten());
        nothing
    }
}
