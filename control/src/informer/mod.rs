//! The list/watch loop: follows one collection of the cluster for ever and tells the control loop of every change. One
//! loop for all kinds; it projects the objects but never looks into them.
//!
//! It lists, page by page, and watches from the resourceVersion of the list. A watch that ends goes on from the last
//! resourceVersion seen on an object or a bookmark; only when the server no longer has what happened since, or an event
//! could not be read, it lists instead. A list that is made for any other reason is made beside the watch, so that neither the
//! time it takes nor its failure keeps anything from being followed. Nothing that fails becomes an event that removes an
//! object, nothing ends the loop, and everything that waits has a deadline.

mod api;
mod cached;
mod compare;
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

pub(crate) use api::document;
pub(crate) use cached::{CachedInformer, Restarted};
pub use compare::Identity;
pub(crate) use failure::Failure;
pub use limits::Limits;
pub use named::{SecretInterest, SecretPoller, SecretPollerMetrics};
pub use pauses::Recovery;
pub use resource::Resource;
pub use served::WhileServed;

use crate::clock;
use crate::cluster_cache::Sink;
use crate::copies::Copies;
use crate::event::{Event, Source};
use crate::source_metrics::SourceMetrics;
use api::Api;
use failure::ListReason;
use lacking::Lacking;
use list::List;
use lister::{Lister, WatchOverlay, no_older};
use pauses::Pauses;
use tee::Tee;
use watch::{Stop, Watch};

/// Which objects an informer follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interest {
    /// The kind, and the namespace if not all of them.
    pub source: Source,
    /// Where the API server has them.
    pub resource: Resource,
    /// A label selector, as the API takes it.
    pub label_selector: Option<String>,
    /// A field selector, as the API takes it, such as `type=kubernetes.io/tls`.
    pub field_selector: Option<String>,
}

impl Interest {
    /// All objects of a source.
    #[must_use]
    pub fn in_all_of(source: Source) -> Self {
        Self { resource: Resource::of(source.kind), source, label_selector: None, field_selector: None }
    }
}

/// Asks an informer for a list; can be cloned and kept.
#[derive(Clone, Debug)]
pub struct Relist(Sender<ListReason>);

impl Relist {
    /// The informer lists once more: at once and beside its watch, or when the list that it is making is done. Asking again
    /// before that list has begun changes nothing.
    pub fn ask(&self) {
        self.0.send_replace(ListReason::Asked);
    }
}

/// Follows one collection. Clones share the handle to ask for a list, so that a supervisor can start a loop that ended
/// by a panic again from a clone.
#[derive(Clone)]
pub struct Informer {
    lister: Lister,
    events: mpsc::Sender<Event>,
    relist: Relist,
    chance: fastrand::Rng,
    pauses: Pauses,
    /// The resourceVersion up to which everything has been told; empty before the first list.
    reached: Arc<str>,
    /// When the watch that is open was opened.
    opened: Option<Instant>,
    /// When the next list is made even if nothing calls for it, and why.
    due: (Instant, ListReason),
    /// How many watches in a row the server has ended with an error at the same resourceVersion.
    stuck: u32,
    /// Whether a resourceVersion has expired since a watch settled.
    expired: bool,
    reported: Option<Reported>,
    /// Whether the last that the control loop was told is that this source fails.
    failing: bool,
    /// Whether the resourceVersion is that of an earlier life, and nobody knows yet whether it is any good.
    resumes: bool,
    /// Which cluster that resourceVersion must be of.
    identity: Option<Identity>,
}

/// The receiver of the events is gone.
struct Closed;

/// The failure that was last reported.
#[derive(Clone, Copy)]
struct Reported {
    reason: &'static str,
    at: Instant,
}

impl Reported {
    fn now(reason: &'static str) -> Self {
        Self { reason, at: clock::now() }
    }

    /// Whether a failure is to be reported after the last one that was: the same one is so only after a while.
    fn is_news(last: Option<Self>, reason: &str, again: Duration) -> bool {
        last.is_none_or(|last| last.reason != reason || clock::now().saturating_duration_since(last.at) >= again)
    }
}

impl Informer {
    /// An informer that has not begun. `seed` decides its delays and the lengths of its watches: give each its own.
    #[must_use]
    pub fn new(
        client: kube::Client,
        interest: Interest,
        limits: Limits,
        events: mpsc::Sender<Event>,
        metrics: &SourceMetrics,
        seed: u64,
    ) -> Self {
        let (relist, asked) = channel(ListReason::Start);
        let (series, page_objects) = (metrics.of(&interest.source), limits.page_objects.max(1));
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
            chance: fastrand::Rng::with_seed(seed),
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

    /// The same, keeping on disk what it is told.
    #[must_use]
    pub fn keeping(mut self, sink: Option<Sink>) -> Self {
        self.lister.tee.sink = sink;
        self
    }

    /// The same, handing copies of what it is told to whoever serves them.
    #[must_use]
    pub fn copying(mut self, copies: Option<Copies>) -> Self {
        self.lister.tee.copies = copies.map(|copies| copies.of(self.api().source()));
        self
    }

    /// The same, beginning with a watch that goes on from a resourceVersion of an earlier life of the process, whose objects the
    /// control loop has. That it can is told by [`Event::Resumed`]; where it cannot, a list comes first.
    #[must_use]
    pub fn resuming(mut self, version: Arc<str>) -> Self {
        let limits = &self.lister.api.limits;
        self.due = (clock::now() + limits.listed_again(self.chance.u64(..)), ListReason::Drift);
        (self.reached, self.resumes) = (version, true);
        self
    }

    /// The same, going on from a kept resourceVersion only where the API server serves the cluster of before.
    #[must_use]
    pub fn of_cluster(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// The same, sharing this with others of the same API server: the first of them that finds it well again tells the rest.
    #[must_use]
    pub fn sharing(mut self, recovery: &Recovery) -> Self {
        self.pauses.share(recovery);
        self
    }

    /// The handle to ask for a list.
    #[must_use]
    pub fn relist(&self) -> Relist {
        self.relist.clone()
    }

    /// Lists and watches until told to stop, or until nobody receives the events any more. The first event is a
    /// [`Event::Listed`], unless failures come before it.
    pub async fn run(mut self, stop: CancellationToken) {
        // Each step can be dropped at any point: whatever it had begun is begun again from what has been told.
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

    /// Lists until that succeeds: there is nothing that a watch could go on from.
    async fn list(&mut self, mut reason: ListReason) -> Result<(), Closed> {
        loop {
            self.pauses.begin();
            match self.lister.list(reason).await {
                Ok(list) => {
                    self.reached = Arc::clone(&list.resource_version);
                    return self.tell(list, true).await;
                }
                Err(failure) => self.wait_after(&failure).await?,
            }
            reason = ListReason::Retry;
        }
    }

    /// Watches, one watch after the other, until only a list can say what there is. Beside them lists are made that are due or
    /// asked for; each that comes in whole is told, and ends the watch beside it: only the next one knows where to go on.
    async fn watch_on(&mut self) -> Result<ListReason, Closed> {
        loop {
            let (listing, mut told) = WatchOverlay::new();
            let mut beside = pin!(self.lister.clone().beside(self.due, listing, self.chance.fork()));
            let (lister, mut list) = loop {
                tokio::select! {
                    biased;
                    made = &mut beside => break made,
                    ended = self.watch(&mut told) => if let Some(reason) = ended? {
                        return Ok(reason);
                    },
                }
            };
            self.lister = lister;
            if self.closed().is_some() {
                self.lister.series.watch_ended("listed");
            }
            // A watch that lags behind the list has nothing to add to it, and would go on with what the list has told already.
            let wins = no_older(&list.resource_version, &self.reached);
            if wins || told.overtake(&mut list.objects) {
                self.reached = Arc::clone(&list.resource_version);
            }
            self.tell(list, wins).await?;
        }
    }

    /// Tells of a list, and sets when the next one is due: what was deleted before one that may have lacked objects is told by no
    /// watch, so that one is made again after as long as a watch may last.
    async fn tell(&mut self, list: List, wins: bool) -> Result<(), Closed> {
        self.pauses.answered();
        let List { objects, resource_version, unidentified } = list;
        let (received, draw, complete) = (clock::now(), self.chance.u64(..), unidentified == 0);
        let limits = &self.api().limits;
        self.due = if complete {
            (received + limits.listed_again(draw), ListReason::Drift)
        } else {
            (received + limits.lasting(draw), ListReason::Incomplete)
        };
        self.stuck = 0;
        self.resumes = false;
        let source = self.api().source().clone();
        self.send(Event::Listed { source, objects, complete, resource_version, received }).await?;
        self.lister.tee.list_done(&self.reached, complete, wins);
        self.lister.lacking.listed(&self.lister.tee);
        Ok(())
    }

    /// Watches until the watch ends, and waits if it has failed. Gives whether only a list can say what there is, and why.
    async fn watch(&mut self, told: &mut WatchOverlay) -> Result<Option<ListReason>, Closed> {
        let lasting = self.lister.api.limits.lasting(self.chance.u64(..));
        let from = Arc::clone(&self.reached);
        let Self { lister: Lister { api, series, tee, .. }, events, failing, pauses, reached, opened, resumes, .. } =
            self;
        pauses.begin();
        let mut watch = Watch { api, events, series, failing, reached, told, resumes, tee, objects: 0, opened };
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
            // A server that tells the same at each watch brings nobody further.
            Ok(()) if (objects == 0 || self.reached == from) && short => Failure::Short,
            Ok(()) => {
                self.lister.series.watch_ended("over");
                return Ok(None);
            }
        };
        self.lister.series.watch_ended(failure.reason());
        if matches!(failure, Failure::Unidentified(_)) {
            self.lister.series.unidentified(1);
        }
        // What comes after the headers is said by an event.
        self.stuck += u32::from(lived.is_some() && failure.is_internal());
        if self.stuck >= self.api().limits.stuck_max {
            // No watch may ever get past that event. If a list does not either, the watch is tried on beside it.
            self.stuck = 0;
            self.relist.0.send_replace(ListReason::Refused);
        }
        self.wait_after(&failure).await?;
        Ok(failure.calls_for_list())
    }

    /// The watch is over. Gives how long it was open, if it was.
    fn closed(&mut self) -> Option<Duration> {
        let lived = clock::now().saturating_duration_since(self.opened.take()?);
        if self.pauses.closed(lived) {
            self.expired = false;
            self.reported = None;
        }
        Some(lived)
    }

    /// Reports a failure and waits for as long as the back-off and the server want.
    async fn wait_after(&mut self, failure: &Failure) -> Result<(), Closed> {
        self.lister.tee.interrupted();
        let pause = self.pauses.after(failure, self.chance.u64(..));
        let Api { interest: Interest { source, .. }, limits, .. } = &self.lister.api;
        let again = Reported::is_news(self.reported, failure.reason(), limits.failing_again);
        let routine = failure.is_expired() && !self.expired;
        if routine || !again {
            tracing::debug!(%source, %failure, pause = ?pause.length, "list or watch failed");
        } else {
            tracing::warn!(%source, %failure, pause = ?pause.length, "list or watch failed");
            self.reported = Some(Reported::now(failure.reason()));
        }
        self.expired |= failure.is_expired();
        if !routine && (again || !self.failing) {
            let (why, denied) = (failure.to_string(), failure.is_denied());
            self.send(Event::Failing { source: source.clone(), why, denied }).await?;
            self.failing = true;
        }
        self.pauses.wait(pause, self.chance.u64(..)).await;
        Ok(())
    }

    async fn send(&self, event: Event) -> Result<(), Closed> {
        self.events.send(event).await.map_err(|_unsent| Closed)
    }
}

impl fmt::Debug for Informer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("source", self.api().source()).finish_non_exhaustive()
    }
}
