//! The list/watch loop: follows one collection of the cluster for ever and tells the control loop of every change. One
//! loop for all kinds; it projects the objects but never looks into them.
//!
//! It lists, page by page, and watches from the resourceVersion of the list. A watch that ends goes on from the last
//! resourceVersion seen on an object or a bookmark; only when the server no longer has what happened since, or an event
//! could not be read, it lists again. Nothing that fails becomes an event that removes an object, nothing ends the
//! loop, and everything that waits has a deadline.

mod api;
mod failure;
mod frames;
mod items;
mod limits;
mod list;
mod named;
mod pauses;
mod resource;
mod served;
mod watch;
mod wire;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio_util::sync::CancellationToken;

pub use limits::Limits;
pub use named::{Follow, Named, NamedMetrics};
pub use pauses::Recovery;
pub use resource::Resource;
pub use served::WhileServed;

use crate::clock;
use crate::event::{Event, Source};
use crate::source_metrics::{SourceMetrics, SourceSeries};
use api::Api;
use failure::{Failure, ListReason};
use list::List;
use pauses::Pauses;
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
pub struct Relist(Sender<()>);

impl Relist {
    /// The informer lists once more: at once when it watches, else when what it does is done. Asking again before that
    /// list has begun changes nothing.
    pub fn ask(&self) {
        self.0.send_replace(());
    }
}

/// Follows one collection. Clones share the handle to ask for a list, so that a supervisor can start a loop that ended
/// by a panic again from a clone.
#[derive(Clone)]
pub struct Informer {
    api: Api,
    events: mpsc::Sender<Event>,
    series: SourceSeries,
    relist: Relist,
    asked: Receiver<()>,
    chance: fastrand::Rng,
    pauses: Pauses,
    page_objects: u32,
    /// Whether the last list may have lacked objects.
    incomplete: bool,
    /// When a list is made even if nothing calls for it.
    list_due: Instant,
    /// Whether a resourceVersion has expired since a watch settled.
    expired: bool,
    reported: Option<Reported>,
    /// Whether the last that the control loop was told is that this source fails.
    failing: bool,
}

/// The receiver of the events is gone.
struct Closed;

/// The failure that was last reported.
#[derive(Clone, Copy)]
struct Reported {
    reason: &'static str,
    at: Instant,
}

/// What the loop does next.
enum Step {
    List(ListReason),
    WatchAfter(Arc<str>),
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
        let (relist, asked) = channel(());
        Self {
            series: metrics.of(&interest.source),
            relist: Relist(relist),
            asked,
            chance: fastrand::Rng::with_seed(seed),
            pauses: Pauses::new(&limits),
            page_objects: limits.page_objects.max(1),
            incomplete: false,
            list_due: clock::now(),
            expired: false,
            reported: None,
            failing: false,
            api: Api::new(client, interest, limits),
            events,
        }
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

    async fn follow(&mut self) -> Result<Infallible, Closed> {
        let mut step = Step::List(ListReason::Start);
        loop {
            step = match step {
                Step::List(reason) => self.list(reason).await?,
                Step::WatchAfter(version) => self.watch(version).await?,
            };
        }
    }

    async fn list(&mut self, reason: ListReason) -> Result<Step, Closed> {
        // What was asked for until now is this list.
        self.asked.mark_unchanged();
        let started = clock::now();
        self.series.list_begins(reason.as_str());
        self.pauses.begin();
        match list::list(&self.api, self.page_objects).await {
            Ok(list) => {
                let received = clock::now();
                self.pauses.answered();
                self.series.list_done(received.saturating_duration_since(started), list.objects.len());
                self.series.unidentified(list.unidentified);
                let List { objects, resource_version, unidentified } = list;
                let version = Arc::clone(&resource_version);
                let (source, complete) = (self.api.source().clone(), unidentified == 0);
                self.incomplete = !complete;
                self.list_due = received + self.api.limits.listed_again(self.chance.u64(..));
                self.send(Event::Listed { source, objects, complete, resource_version, received }).await?;
                Ok(Step::WatchAfter(version))
            }
            Err(failure) => {
                self.series.list_failed(failure.reason());
                if matches!(failure, Failure::PageTooLong) {
                    self.page_objects = (self.page_objects / 2).max(1);
                }
                self.wait_after(&failure).await?;
                Ok(Step::List(ListReason::Retry))
            }
        }
    }

    async fn watch(&mut self, version: Arc<str>) -> Result<Step, Closed> {
        let lasting = self.api.limits.lasting(self.chance.u64(..));
        let Self { api, events, series, failing, pauses, .. } = self;
        pauses.begin();
        let mut watch = Watch { api, events, series, failing, reached: Arc::clone(&version), told: 0, opened: None };
        let end = tokio::select! {
            biased;
            // An error would mean that no handle is left; this value holds one.
            _ = self.asked.changed() => {
                self.series.watch_ended("asked");
                return Ok(Step::List(ListReason::Asked));
            }
            end = watch.follow(lasting, pauses) => end,
        };
        let Watch { reached, told, opened, .. } = watch;
        let lived = opened.map(|opened| clock::now().saturating_duration_since(opened)).unwrap_or_default();
        if opened.is_some() && self.pauses.closed(lived) {
            self.expired = false;
            self.reported = None;
        }
        let failure = match end {
            Err(Stop::Closed) => return Err(Closed),
            Err(Stop::Failed(failure)) => failure,
            // A server that tells the same at each watch brings nobody further.
            Ok(()) if (told == 0 || reached == version) && lived < self.api.limits.short_watch => Failure::Short,
            Ok(()) => {
                self.series.watch_ended("over");
                return Ok(self.go_on(reached));
            }
        };
        self.series.watch_ended(failure.reason());
        if matches!(failure, Failure::Unidentified(_)) {
            self.series.unidentified(1);
        }
        self.wait_after(&failure).await?;
        Ok(failure.calls_for_list().map_or_else(|| self.go_on(reached), Step::List))
    }

    /// What follows a watch that lost nothing it knows of, however it ended. What was deleted before a list that may have
    /// lacked objects is told by no watch, so that list is made again.
    fn go_on(&self, reached: Arc<str>) -> Step {
        if self.incomplete {
            Step::List(ListReason::Incomplete)
        } else if clock::now() >= self.list_due {
            Step::List(ListReason::Drift)
        } else {
            Step::WatchAfter(reached)
        }
    }

    /// Reports a failure and waits for as long as the back-off and the server want.
    async fn wait_after(&mut self, failure: &Failure) -> Result<(), Closed> {
        let pause = self.pauses.after(failure, self.chance.u64(..));
        let source = self.api.source();
        let again = self.worth_reporting(failure.reason());
        let routine = failure.is_expired() && !self.expired;
        self.expired |= failure.is_expired();
        if routine || !again {
            tracing::debug!(%source, %failure, pause = ?pause.length, "list or watch failed");
        } else {
            tracing::warn!(%source, %failure, pause = ?pause.length, "list or watch failed");
            self.reported = Some(Reported { reason: failure.reason(), at: clock::now() });
        }
        if !routine && (again || !self.failing) {
            let (why, denied) = (failure.to_string(), failure.is_denied());
            self.send(Event::Failing { source: source.clone(), why, denied }).await?;
            self.failing = true;
        }
        self.pauses.wait(pause, self.chance.u64(..)).await;
        Ok(())
    }

    /// The same failure is reported again only after a while.
    fn worth_reporting(&self, reason: &str) -> bool {
        self.reported.is_none_or(|last| {
            last.reason != reason || clock::now().saturating_duration_since(last.at) >= self.api.limits.failing_again
        })
    }

    async fn send(&self, event: Event) -> Result<(), Closed> {
        self.events.send(event).await.map_err(|_unsent| Closed)
    }
}

impl fmt::Debug for Informer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("source", self.api.source()).finish_non_exhaustive()
    }
}
