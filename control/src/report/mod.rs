//! Reports to the cluster, written after a change is in effect and by one replica only. The loop queues the objects
//! whose status differs from the desired one, and the objects whose findings have changed; the leader writes them at
//! its own pace. Nothing here can block the loop.

mod conditions;
mod contest;
mod election;
mod event;
mod events;
mod finalizer;
mod ingress;
mod lease;
mod infrastructure;
mod metrics;
mod pace;
mod send;
mod service;
mod correlator;

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use prometheus::Registry;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tidegate_config::object::{ObjectName, ObjectRef};
use tidegate_config::project::gateway::OwnStatus;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use self::conditions::Current;
use self::lease::Campaign;
use self::metrics::ReportMetrics;
use self::pace::{WRITERS_MAX, WriterPace};
use self::send::{NotWritten, Prepared, outcome};
use crate::clock;
use crate::queue::{Lane, WorkItem, Workqueue};
use crate::reconcile::{Desired, KnownStatus};
use crate::report_queue::Reports;
use crate::view::{Readiness, View};
pub use election::ElectionTiming;

/// The field manager of our writes, except those of status ([`contest::status_manager`]).
const FIELD_MANAGER: &str = "tidegate";
/// The number of concurrent writes of addresses. There is one of Events.
const ADDRESS_WRITES: usize = 4;
/// The pause after a write of an address: all writers together make at most 40 such writes a second; Events are limited
/// to 10.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause of a writer after it has written conditions, which people and programs wait for. An overloaded API server
/// answers with Retry-After.
const CONDITIONS_PAUSE: Duration = Duration::from_millis(1);
/// The maximum number of attempts of one write after conflicts with other writers.
const READINGS_MAX: usize = 5;
/// The pause of a writer before each check of an object: most have nothing to write, and each check takes time of the
/// loop.
const LOOK_PAUSE: Duration = Duration::from_millis(1);
/// The timeout of a write.
const WRITE_MAX: Duration = Duration::from_secs(15);
/// The maximum time for which all writers respect a Retry-After of the API server; the rejected write itself waits for
/// the whole time.
const LATER_MAX: Duration = Duration::from_secs(10);

/// The end of this process's leadership, if it leads.
#[derive(Clone, Debug)]
struct Leadership(watch::Receiver<Option<Instant>>);

impl Leadership {
    /// The end of the leadership, if this process leads now.
    fn until(&self) -> Option<Instant> {
        self.0.borrow().filter(|until| clock::now() < *until)
    }

    /// Waits until this process leads. `false` if the election has ended.
    async fn gained(&mut self) -> bool {
        self.0.wait_for(|until| until.is_some_and(|until| clock::now() < until)).await.is_ok()
    }

    /// Waits until this process no longer leads. `false` if the election has ended.
    async fn lost(&mut self) -> bool {
        loop {
            self.0.borrow_and_update();
            let Some(until) = self.until() else { return true };
            tokio::select! {
                moved = self.0.changed() => if moved.is_err() { return false },
                () = sleep_until(until.into()) => {}
            }
        }
    }
}

/// Whether the last write of a kind failed, so that only the first failure is logged as a warning.
#[derive(Clone, Debug, Default)]
struct LogFirstFailure(Arc<AtomicBool>);

impl LogFirstFailure {
    fn over(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    fn again(&self, what: &str, object: &dyn fmt::Debug, refusal: &NotWritten) {
        if self.0.swap(true, Ordering::Relaxed) {
            tracing::debug!(?object, error = refusal.why(), "{what}");
        } else {
            tracing::warn!(?object, error = refusal.why(), "{what}; it is retried");
        }
    }
}

/// The end of a pause that the API server has requested. Clones share it.
#[derive(Clone, Debug, Default)]
struct RetryAfterGate(Arc<watch::Sender<Option<Instant>>>);

impl RetryAfterGate {
    /// The API server requests this pause.
    fn begin(&self, time: Duration) {
        self.0.send_replace(Some(clock::now() + time.min(LATER_MAX)));
    }

    /// Waits until the pause is over.
    async fn over(&self) {
        loop {
            let until = self.0.borrow().filter(|until| clock::now() < *until);
            let Some(until) = until else { return };
            sleep_until(until.into()).await;
        }
    }
}

/// A status to write; see [`Desired::Status`].
struct StatusWrite<'a> {
    object: &'a ObjectRef,
    controller: &'a str,
    generation: i64,
    status: &'a OwnStatus,
    only_in_place_of_ours: bool,
    known: Option<KnownStatus>,
}

/// Takes part in the election, and writes while it leads.
#[derive(Clone)]
pub struct Reporter {
    view: View,
    client: kube::Client,
    lease: ObjectName,
    /// The field manager of our writes of status.
    manager: String,
    identity: String,
    timing: ElectionTiming,
    metrics: ReportMetrics,
    /// Failed writes of status.
    unwritten: LogFirstFailure,
    /// Failed writes of Events.
    unwritten_events: LogFirstFailure,
    /// Failed writes of Gateways' infrastructure.
    unwritten_infrastructure: LogFirstFailure,
    retry_after: RetryAfterGate,
    /// The number of writers of status that may write now, and what it follows from.
    pace: Arc<watch::Sender<WriterPace>>,
    /// One for each write of an address.
    addresses: Arc<Semaphore>,
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl Reporter {
    /// A reporter for the loop behind a view. Its client should have the deadlines
    /// [`crate::cluster::client::Deadlines::WRITE`]; its identity must be unique, also among earlier processes in the
    /// same pod.
    ///
    /// # Errors
    /// Returns an error if its metrics are already registered.
    pub fn new(
        view: View,
        client: kube::Client,
        lease: ObjectName,
        identity: String,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        let (timing, metrics) = (ElectionTiming::default(), ReportMetrics::register(registry)?);
        let manager = contest::status_manager(&lease);
        let ([unwritten, unwritten_events, unwritten_infrastructure], retry_after) =
            <([LogFirstFailure; 3], RetryAfterGate)>::default();
        Ok(Self {
            view,
            client,
            lease,
            manager,
            identity,
            timing,
            metrics,
            unwritten,
            unwritten_events,
            unwritten_infrastructure,
            retry_after,
            pace: Arc::new(watch::Sender::new(WriterPace::default())),
            addresses: Arc::new(Semaphore::new(ADDRESS_WRITES)),
        })
    }

    /// The same, with other durations of the election.
    #[must_use]
    pub fn paced(mut self, timing: ElectionTiming) -> Self {
        self.timing = timing;
        self
    }

    /// Starts once the state of the cluster is current, and runs until `stop` is cancelled; then it releases the Lease
    /// and leaves pending writes to the next leader.
    pub async fn run(self, stop: CancellationToken) {
        let mut readiness = self.view.readiness();
        let known = readiness.wait_for(Readiness::may_report);
        if !matches!(stop.run_until_cancelled(known).await, Some(Ok(_))) {
            return;
        }
        let (leads, lead) = watch::channel(None);
        let mut campaign = Campaign::new(self.client.clone(), &self.lease, self.identity.clone(), self.timing, leads);
        tokio::select! {
            () = stop.cancelled() => {}
            () = campaign.run() => {}
            () = self.follow(Leadership(lead)) => {}
        }
        // Pending writes are cancelled by now, so that none follows those of the next leader.
        self.begin(false);
        campaign.release().await;
    }

    /// Queues all objects when the leadership is gained, writes while it lasts, and drops the queues otherwise.
    async fn follow(&self, mut lead: Leadership) {
        loop {
            self.begin(false);
            tokio::select! {
                gained = lead.gained() => if !gained { return },
                () = self.idle() => return,
            }
            // From now on the loop queues changes, and then, once, all objects.
            self.begin(true);
            if self.view.look_again().await.is_none() {
                return;
            }
            let writing = lead.clone();
            tokio::select! {
                biased;
                known = lead.lost() => if !known { return },
                () = self.write(&writing) => return,
            }
        }
    }

    fn begin(&self, leading: bool) {
        if self.view.reports.wanted.swap(leading, Ordering::AcqRel) != leading {
            tracing::info!(leading, lease = %self.lease, "leadership changed");
        }
        self.metrics.leader.set(i64::from(leading));
    }

    /// Drops queued keys while the queues exist: the leadership starts with a check of all objects.
    async fn idle(&self) {
        async fn leave<K: Clone + Eq + Hash>(queue: &Workqueue<K>) {
            while let Some(item) = queue.get().await {
                item.succeeded();
            }
        }
        let Reports { statuses, events, gateways, contested, .. } = &self.view.reports;
        tokio::join!(leave(statuses), leave(events), leave(gateways), leave(contested));
    }

    /// Runs all writers while the queues exist.
    async fn write(&self, lead: &Leadership) {
        let statuses = join_all((0..WRITERS_MAX).map(|number| self.write_statuses(number, lead)));
        tokio::join!(statuses, self.write_events(lead), self.make(lead), self.identify_writers(lead));
    }

    /// One writer of statuses. It pauses while its number is beyond the width of the pace.
    async fn write_statuses(&self, number: usize, lead: &Leadership) {
        let mut pace = self.pace.subscribe();
        loop {
            // The sender is ours, so the wait has no other end.
            if pace.wait_for(|pace| number < pace.width()).await.is_err() {
                return;
            }
            let Some(item) = self.view.reports.statuses.get().await else { return };
            self.write_status(item, lead).await;
        }
    }

    /// Writes the status that is desired now, independently of when the key was queued.
    async fn write_status(&self, item: WorkItem<ObjectRef>, lead: &Leadership) {
        self.retry_after.over().await;
        sleep(LOOK_PAUSE).await;
        let Some(desired) = self.view.desired_status(item.clone()).await.flatten() else {
            item.succeeded();
            return;
        };
        // Held over the pause.
        let mut _address = None;
        let (written, pause) = match desired {
            Desired::Addresses { uid, addresses } => {
                _address = self.addresses.acquire().await.ok();
                let patch = ingress::patch(&item.name, uid, &addresses, &self.manager);
                let written = self.send_paced::<IgnoredAny>(lead, patch).await;
                (written.map(|IgnoredAny| ()), PAUSE)
            }
            Desired::Status { controller, generation, status, only_in_place_of_ours, known } => {
                let write = StatusWrite {
                    object: &item,
                    controller: &controller,
                    generation,
                    status: &status,
                    only_in_place_of_ours,
                    known,
                };
                let mut written = self.write_conditions(write, lead).await;
                if let (Ok(()), Some(in_use)) = (&written, status.in_use) {
                    written = self.hold_class(&item, in_use, lead).await;
                }
                (written, CONDITIONS_PAUSE)
            }
        };
        self.metrics.statuses.with_label_values(&[outcome(&written)]).inc();
        if let Err(NotWritten::Throttled(time)) = written {
            self.retry_after.begin(time);
            self.view.reports.statuses.add_after(item.clone(), time, Lane::Slow);
            item.succeeded();
            return;
        }
        // The key is held over the pause. If it is queued again before the watch reports the write, it is not checked
        // earlier either.
        sleep(pause).await;
        match written {
            Ok(()) | Err(NotWritten::Gone) => {
                self.unwritten.over();
                item.succeeded();
            }
            Err(refusal) => {
                self.unwritten.again("a status could not be written", &*item, &refusal);
                item.retry();
            }
        }
    }

    /// Writes our part of the status if it differs; repeated after a conflict with another write. The object is read
    /// before, unless all that has to be known is.
    async fn write_conditions(&self, write: StatusWrite<'_>, lead: &Leadership) -> Result<(), NotWritten> {
        let mut refusal = NotWritten::Failed("other clients keep changing it".to_owned());
        let author = (write.controller, write.generation);
        // Whose status it is, only the object itself says.
        let known = write.known.filter(|_| !write.only_in_place_of_ours);
        let mut known = known.map(|known| Current::known(write.object, &known, author, write.status));
        for _ in 0..READINGS_MAX {
            let current = match known.take() {
                Some(current) => current,
                None => {
                    let read = self.send_paced::<Value>(lead, conditions::get(write.object)).await?;
                    Current::of(read).ok_or_else(|| NotWritten::Failed("the object cannot be read".to_owned()))?
                }
            };
            if write.only_in_place_of_ours && !current.is_ours {
                return Ok(());
            }
            let now = Timestamp::try_from(clock::wall()).unwrap_or(Timestamp::UNIX_EPOCH);
            let Some(status) = current.merged(write.object, author, write.status, now) else { return Ok(()) };
            let patch = conditions::patch(write.object, &current.resource_version, status, &self.manager);
            match self.send_paced::<IgnoredAny>(lead, patch).await {
                Ok(IgnoredAny) => return Ok(()),
                Err(NotWritten::Conflict) => refusal = NotWritten::Conflict,
                Err(other) => return Err(other),
            }
        }
        Err(refusal)
    }

    /// Sends a request about a status, whose answer determines how many may be in flight.
    async fn send_paced<T: DeserializeOwned>(&self, lead: &Leadership, request: Prepared) -> Result<T, NotWritten> {
        let began = clock::now();
        let answer = self.send(lead, request).await;
        let after = clock::now().saturating_duration_since(began);
        self.pace.send_if_modified(|pace| {
            let before = pace.width();
            match &answer {
                Err(NotWritten::Throttled(_) | NotWritten::Failed(_)) => pace.refused(),
                Ok(_) | Err(_) => pace.answered(after),
            }
            before != pace.width()
        });
        answer
    }

    /// Sends a write. A write that could arrive after the end of our leadership is cancelled; the next leader repeats
    /// it.
    async fn send<T: DeserializeOwned>(&self, lead: &Leadership, request: Prepared) -> Result<T, NotWritten> {
        let failed = |why: &str| Err(NotWritten::Failed(why.to_owned()));
        let Some(until) = lead.until() else { return failed("the lead is lost") };
        let deadline = until.min(clock::now() + WRITE_MAX);
        let answer = timeout_at(deadline.into(), send::send(&self.client, request)).await;
        answer.unwrap_or_else(|_elapsed| failed("no answer"))
    }
}
