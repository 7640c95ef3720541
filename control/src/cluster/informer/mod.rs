//! The list/watch loop: it watches one collection of the cluster permanently and sends the control loop an event for
//! each change. One loop for all kinds; it projects the objects but does not inspect them.
//!
//! It lists, page by page, and watches from the resourceVersion of the list. After a watch ends, the next one resumes
//! from the last resourceVersion of an object or a bookmark; a list replaces it only if the server no longer has the
//! events since then, or an event could not be decoded. A list for any other reason is made concurrently with the
//! watch, so that neither its duration nor its failure delays events. A failure never removes an object or ends the
//! loop, and every wait has a timeout.

mod api;
mod aside;
mod cached;
mod compare;
mod discovery;
mod failure;
mod frames;
mod items;
mod lacking;
mod limits;
mod list;
mod lister;
mod named;
mod pauses;
mod resource;
mod served;
mod tee;
mod watch;
mod wire;

use std::convert::Infallible;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::sync::watch::{Sender, channel};
use tokio_util::sync::CancellationToken;

pub(crate) use cached::{CachedInformer, Restarted};
pub use compare::Identity;
pub use limits::Limits;
pub use named::{SecretPoller, SecretPollerMetrics};
pub use pauses::Recovery;
pub use resource::Resource;
pub use served::WhileServed;

use crate::clock;
use crate::cluster::cache::Sink;
use crate::cluster::collection_metrics::CollectionMetrics;
use crate::cluster::copies::Copies;
use crate::event::{Collection, Event};
use api::Api;
use aside::Aside;
use failure::{Failure, ListReason};
use lacking::Lacking;
use list::List;
use lister::{Lister, WatchOverlay, no_older};
use pauses::Pauses;
use tee::Tee;
use watch::{Stop, Watch};

/// The objects that an informer watches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interest {
    /// The kind, and the namespace if not all of them.
    pub collection: Collection,
    /// The resource in the API server.
    pub resource: Resource,
    /// A label selector, as the API takes it.
    pub label_selector: Option<String>,
    /// A field selector, as the API takes it, such as `type=kubernetes.io/tls`.
    pub field_selector: Option<String>,
}

impl Interest {
    /// All objects of a collection.
    #[must_use]
    pub fn in_all_of(collection: Collection) -> Self {
        Self { resource: Resource::of(collection.kind), collection, label_selector: None, field_selector: None }
    }
}

/// A handle to request a list from an informer.
#[derive(Clone, Debug)]
pub struct Relist(Sender<ListReason>);

impl Relist {
    /// Requests a list: at once and beside the watch, or after a list in progress. Repeats before that are ignored.
    pub fn ask(&self) {
        self.0.send_replace(ListReason::Asked);
    }
}

/// Lists and watches one collection. Clones share the handle to request a list, so that a supervisor can restart a
/// panicked loop from a clone.
#[derive(Clone)]
pub struct Informer {
    lister: Lister,
    events: mpsc::Sender<Event>,
    relist: Relist,
    rng: fastrand::Rng,
    pauses: Pauses,
    /// The latest resourceVersion; empty before the first list.
    reached: Arc<str>,
    /// When the current watch was opened.
    opened: Option<Instant>,
    /// The time of the next periodic list, with its reason.
    due: (Instant, ListReason),
    /// The number of consecutive watches that the server ended with an error at the same resourceVersion.
    stuck: u32,
    /// Whether a resourceVersion has expired since a watch was stable.
    expired: bool,
    reported: Option<Reported>,
    /// Whether the last event about the collection's state was a failure.
    failing: bool,
    /// Whether the resourceVersion was restored, and it is not yet known whether a watch can be resumed from it.
    resumes: bool,
    /// The identity of the cluster that the restored resourceVersion belongs to.
    identity: Option<Identity>,
}

/// The receiver of the events is gone.
struct Closed;

/// The failure that was last logged.
#[derive(Clone, Copy)]
struct Reported {
    reason: &'static str,
    at: Instant,
}

impl Reported {
    fn now(reason: &'static str) -> Self {
        Self { reason, at: clock::now() }
    }

    /// Whether a failure must be logged: the same one only after `again`.
    fn is_news(last: Option<Self>, reason: &str, again: Duration) -> bool {
        last.is_none_or(|last| last.reason != reason || clock::now().saturating_duration_since(last.at) >= again)
    }
}

impl Informer {
    /// An informer that has not started. `seed` decides its random delays and should differ between informers.
    #[must_use]
    pub fn new(
        client: kube::Client,
        interest: Interest,
        limits: Limits,
        events: mpsc::Sender<Event>,
        metrics: &CollectionMetrics,
        seed: u64,
    ) -> Self {
        let (relist, asked) = channel(ListReason::Start);
        let (series, page_objects) = (metrics.of(&interest.collection), limits.page_objects.max(1));
        Self {
            pauses: Pauses::new(&limits),
            lister: Lister {
                lacking: Lacking::new(&limits),
                api: Api::new(client, interest, limits),
                series,
                asked,
                page_objects,
                tee: Tee::default(),
            },
            events,
            relist: Relist(relist),
            rng: fastrand::Rng::with_seed(seed),
            reached: Arc::default(),
            opened: None,
            due: (clock::now(), ListReason::Start),
            stuck: 0,
            expired: false,
            reported: None,
            failing: false,
            resumes: false,
            identity: None,
        }
    }

    /// The same, with events written to the cache on disk.
    #[must_use]
    pub fn keeping(mut self, sink: Option<Sink>) -> Self {
        self.lister.tee.sink = sink;
        self
    }

    /// The same, with copies for the server of the cached API.
    #[must_use]
    pub fn copying(mut self, copies: Option<Copies>) -> Self {
        self.lister.tee.copies = copies.map(|copies| copies.of(self.api().collection()));
        self
    }

    /// The same, starting with a watch that resumes from a restored resourceVersion, whose objects the control loop
    /// has. [`Event::Resumed`] reports success; otherwise a list comes first.
    #[must_use]
    pub fn resuming(mut self, version: Arc<str>) -> Self {
        let limits = &self.lister.api.limits;
        self.due = (clock::now() + limits.relist_after(self.rng.u64(..)), ListReason::Periodic);
        (self.reached, self.resumes) = (version, true);
        self
    }

    /// The same, resuming from the restored resourceVersion only if the API server serves the same cluster.
    #[must_use]
    pub fn of_cluster(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// The same; informers that share `recovery` notify each other when the API server is available again.
    #[must_use]
    pub fn sharing(mut self, recovery: &Recovery) -> Self {
        self.pauses.share(recovery);
        self
    }

    /// The handle to request a list.
    #[must_use]
    pub fn relist(&self) -> Relist {
        self.relist.clone()
    }

    /// Lists and watches until `stop` is cancelled, or the receiver of events is gone. The first event is an
    /// [`Event::Listed`], unless failures come before it.
    pub async fn run(mut self, stop: CancellationToken) {
        // Each step is cancel-safe: an interrupted one is repeated from the last known state.
        match stop.run_until_cancelled(self.follow()).await {
            None | Some(Err(Closed)) => {}
            Some(Ok(never)) => match never {},
        }
    }

    const fn api(&self) -> &Api {
        &self.lister.api
    }

    async fn follow(&mut self) -> Result<Infallible, Closed> {
        let mut reason = ListReason::Start;
        if self.resumes {
            reason = match self.compare().await? {
                Some(reason) => reason,
                None => self.watch_on().await?,
            };
        }
        loop {
            self.list(reason).await?;
            reason = self.watch_on().await?;
        }
    }

    /// Lists until it succeeds: there is no state that a watch could resume from.
    async fn list(&mut self, mut reason: ListReason) -> Result<(), Closed> {
        loop {
            self.pauses.begin();
            match self.lister.list(reason).await {
                Ok(list) => {
                    self.reached = Arc::clone(&list.resource_version);
                    return self.send_list(list, true).await;
                }
                Err(failure) => self.wait_after(&failure).await?,
            }
            reason = ListReason::Retry;
        }
    }

    /// Watches, one watch after the other, until a list is required. Periodic and requested lists are made
    /// concurrently; one that succeeds is sent and ends its watch, because the next may resume from another version.
    async fn watch_on(&mut self) -> Result<ListReason, Closed> {
        loop {
            let (listing, mut overlay) = WatchOverlay::new();
            let mut beside = pin!(self.lister.clone().beside(self.due, listing, self.rng.fork()));
            let (lister, mut list) = loop {
                tokio::select! {
                    biased;
                    made = &mut beside => break made,
                    ended = self.watch(&mut overlay) => if let Some(reason) = ended? {
                        return Ok(reason);
                    },
                }
            };
            self.lister = lister;
            if self.closed().is_some() {
                self.lister.series.watch_ended("relisted");
            }
            // A watch that lags behind the list adds nothing to it, and would repeat events that the list includes.
            let wins = no_older(&list.resource_version, &self.reached);
            if wins || overlay.overtake(&mut list.objects) {
                self.reached = Arc::clone(&list.resource_version);
            }
            self.send_list(list, wins).await?;
        }
    }

    /// Sends a list, and sets the time of the next one: an incomplete list may have missed deletions, which no watch
    /// reports, so another one follows within the duration of a watch.
    async fn send_list(&mut self, list: List, wins: bool) -> Result<(), Closed> {
        self.pauses.answered();
        let List { objects, resource_version, unidentified } = list;
        let (received, draw, complete) = (clock::now(), self.rng.u64(..), unidentified == 0);
        let limits = &self.api().limits;
        self.due = if complete {
            (received + limits.relist_after(draw), ListReason::Periodic)
        } else {
            (received + limits.lasting(draw), ListReason::Incomplete)
        };
        self.stuck = 0;
        self.resumes = false;
        let collection = self.api().collection().clone();
        self.send(Event::Listed { collection, objects, complete, resource_version, received }).await?;
        self.lister.tee.list_done(&self.reached, complete, wins);
        self.lister.lacking.listed(&self.lister.tee);
        Ok(())
    }

    /// Watches until the watch ends, and waits if it failed. Returns the reason for a list if one is required.
    async fn watch(&mut self, overlay: &mut WatchOverlay) -> Result<Option<ListReason>, Closed> {
        let lasting = self.lister.api.limits.lasting(self.rng.u64(..));
        let from = Arc::clone(&self.reached);
        let Self { lister: Lister { api, series, tee, .. }, events, failing, pauses, reached, opened, resumes, .. } =
            self;
        pauses.begin();
        let aside = Aside::default();
        let mut watch =
            Watch { api, events, series, failing, reached, overlay, resumes, tee, objects: 0, opened, aside };
        let end = watch.follow(lasting, pauses).await;
        let objects = watch.objects;
        let lived = self.closed();
        if self.reached != from || end.is_ok() {
            self.stuck = 0;
        }
        let short = lived.unwrap_or_default() < self.api().limits.short_watch;
        let failure = match end {
            Err(Stop::Closed) => return Err(Closed),
            Err(Stop::Failed(failure)) => failure,
            // Repeating the same events in each watch is no progress.
            Ok(()) if (objects == 0 || self.reached == from) && short => Failure::Short,
            Ok(()) => {
                self.lister.series.watch_ended("ended");
                return Ok(None);
            }
        };
        self.lister.series.watch_ended(failure.reason());
        if matches!(failure, Failure::Unidentified(_)) {
            self.lister.series.unidentified(1);
        }
        // Errors after the headers come as an event.
        self.stuck += u32::from(lived.is_some() && failure.is_internal());
        if self.stuck >= self.api().limits.stuck_max {
            // Perhaps no watch can get past that event. In case a list fails as well, watching continues concurrently.
            self.stuck = 0;
            self.relist.0.send_replace(ListReason::Refused);
        }
        self.wait_after(&failure).await?;
        Ok(failure.calls_for_list())
    }

    /// The watch has ended. Returns how long it was open, if it was.
    fn closed(&mut self) -> Option<Duration> {
        let lived = clock::now().saturating_duration_since(self.opened.take()?);
        if self.pauses.closed(lived) {
            self.expired = false;
            self.reported = None;
        }
        Some(lived)
    }

    /// Logs a failure and waits for the back-off or the delay that the server requests.
    async fn wait_after(&mut self, failure: &Failure) -> Result<(), Closed> {
        self.lister.tee.interrupted();
        let pause = self.pauses.after(failure, self.rng.u64(..));
        let Api { interest: Interest { collection, .. }, limits, .. } = &self.lister.api;
        let again = Reported::is_news(self.reported, failure.reason(), limits.failing_again);
        let routine = failure.is_expired() && !self.expired;
        if routine || !again {
            tracing::debug!(%collection, error = %failure, pause = ?pause.length, "list or watch failed");
        } else {
            tracing::warn!(%collection, error = %failure, pause = ?pause.length, "list or watch failed");
            self.reported = Some(Reported::now(failure.reason()));
        }
        self.expired |= failure.is_expired();
        if !routine && (again || !self.failing) {
            let (why, denied) = (failure.to_string(), failure.is_denied());
            self.send(Event::Failing { collection: collection.clone(), why, denied }).await?;
            self.failing = true;
        }
        self.pauses.wait(pause, self.rng.u64(..)).await;
        Ok(())
    }

    async fn send(&self, event: Event) -> Result<(), Closed> {
        self.events.send(event).await.map_err(|_unsent| Closed)
    }
}

impl fmt::Debug for Informer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("collection", self.api().collection()).finish_non_exhaustive()
    }
}
