//! What is told to the cluster, after it is in effect and by one replica only: publish first, report later. The loop names
//! the objects whose status is not what it ought to be, and the objects about which something else is found than before;
//! here they wait, and the leader writes at its own pace. Nothing here can make the loop wait.

mod conditions;
mod election;
mod event;
mod events;
mod finalizer;
mod ingress;
mod lease;
mod making;
mod metrics;
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
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use self::conditions::Stands;
use self::lease::Campaign;
use self::metrics::ReportMetrics;
use self::send::{Prepared, Refusal, outcome};
use crate::clock;
use crate::queue::{Held, Lane, Meter, Queue, Retries, Share, Workqueue};
use crate::reconcile::{ChangedFindings, Desired, PendingStatusUpdates};
use crate::view::{Readiness, View};
pub use election::Terms;

/// Who the API server notes as the owner of the fields that are written.
const FIELD_MANAGER: &str = "tidegate";
/// Writes of status under way at a time. Of Events there is one.
const WRITERS: usize = 4;
/// The pause of a writer after it has written an address: all together make at most 40 such writes a second, and Events 10.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause of a writer after it has written conditions, which people and programs wait for. An API server that finds them too
/// many says so.
const CONDITIONS_PAUSE: Duration = Duration::from_millis(1);
/// How many routes are attached to a listener is written after this long: a thousand routes that come together are one number.
const COUNT_AFTER: Duration = Duration::from_millis(200);
/// Readings of an object for one write: others write into its status as well, and may do so in between.
const READINGS_MAX: usize = 5;
/// The pause of a writer before each look at an object: most have nothing to write, and each look takes a turn of the loop.
const LOOK_PAUSE: Duration = Duration::from_millis(1);
/// How long a write may take.
const WRITE_MAX: Duration = Duration::from_secs(15);
/// What somebody else has written over is repaired after this long, so that two who disagree do not keep the API server busy.
const REPAIR_AFTER: Duration = Duration::from_secs(2);
/// What is found is told after this long, if it is so still: the objects of an application come one after the other, and
/// what is missing until they are all there is nothing to tell.
const TELL_AFTER: Duration = Duration::from_secs(2);
/// An API server that wants to be left alone is, by all writers, for no longer than this; by what it did not take, for as long as
/// it wants.
const LATER_MAX: Duration = Duration::from_secs(10);
/// Failed writes are tried again after as much as a second at first, and as much as five minutes at last.
const RETRIES: Retries = Retries { first: Duration::from_secs(1), max: Duration::from_secs(300) };

/// Where the loop names what has to be written. Cloning it is cheap and gives the same one.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    /// Objects whose status may have to be written.
    statuses: Workqueue<ObjectRef>,
    /// Objects about which something may have to be told.
    events: Workqueue<ObjectRef>,
    /// Gateways for which something may have to be made.
    gateways: Workqueue<ObjectRef>,
    /// Whether anybody here writes. Otherwise nothing is kept.
    wanted: Arc<AtomicBool>,
}

impl Reports {
    pub(crate) fn new([statuses, events, gateways]: [Meter; 3]) -> Self {
        let [statuses, events, gateways] = [statuses, events, gateways].map(queue);
        Self { statuses, events, gateways, wanted: Arc::default() }
    }

    /// Whether to name anything at all.
    pub(crate) fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    pub(crate) fn make(&self, gateways: Vec<ObjectRef>) {
        gateways.into_iter().for_each(|gateway| self.gateways.add(gateway, Lane::Fast));
    }

    pub(crate) fn name(
        &self,
        PendingStatusUpdates { all, changed, counting, rewritten }: PendingStatusUpdates,
        found: ChangedFindings,
    ) {
        all.into_iter().for_each(|object| self.statuses.add(object, Lane::Slow));
        changed.into_iter().for_each(|object| self.statuses.add(object, Lane::Fast));
        counting.into_iter().for_each(|object| self.statuses.add_after(object, COUNT_AFTER, Lane::Fast));
        rewritten.into_iter().for_each(|object| self.statuses.add_after(object, REPAIR_AFTER, Lane::Fast));
        found.all.into_iter().for_each(|object| self.events.add(object, Lane::Slow));
        found.changed.into_iter().for_each(|object| self.events.add_after(object, TELL_AFTER, Lane::Fast));
    }
}

fn queue<K: Clone + Eq + Hash>(meter: Meter) -> Workqueue<K> {
    let (fast_turns_max, slow_age_max) = (8, Duration::from_secs(30));
    let share = Share { batch_max: 1, slow_batch_max: 1, fast_turns_max, slow_age_max, aged_every: 2 };
    Workqueue::new(Queue::new(meter, RETRIES), share, |_| 0)
}

/// Until when this process leads, as far as it does.
#[derive(Clone, Debug)]
struct Lead(watch::Receiver<Option<Instant>>);

impl Lead {
    /// Until when, if we lead now.
    fn until(&self) -> Option<Instant> {
        self.0.borrow().filter(|until| clock::now() < *until)
    }

    /// Waits until we lead. `false` when we never will.
    async fn gained(&mut self) -> bool {
        self.0.wait_for(|until| until.is_some_and(|until| clock::now() < until)).await.is_ok()
    }

    /// Waits until we lead no more. `false` when it is not known any more.
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

/// Whether the last write of a kind failed, so that the first failure is logged loudly and not each.
#[derive(Clone, Debug, Default)]
struct LogFirstFailure(Arc<AtomicBool>);

impl LogFirstFailure {
    fn over(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    fn again(&self, what: &str, object: &dyn fmt::Debug, refusal: &Refusal) {
        if self.0.swap(true, Ordering::Relaxed) {
            tracing::debug!(?object, why = refusal.why(), "{what}");
        } else {
            tracing::warn!(?object, why = refusal.why(), "{what}; it is tried again");
        }
    }
}

/// Until when the API server is left alone because it wants to be. Clones are the same one.
#[derive(Clone, Debug, Default)]
struct RetryAfterGate(Arc<watch::Sender<Option<Instant>>>);

impl RetryAfterGate {
    /// The API server wants to be left alone for so long.
    fn begin(&self, time: Duration) {
        self.0.send_replace(Some(clock::now() + time.min(LATER_MAX)));
    }

    /// Waits until it is over.
    async fn over(&self) {
        loop {
            let until = self.0.borrow().filter(|until| clock::now() < *until);
            let Some(until) = until else { return };
            sleep_until(until.into()).await;
        }
    }
}

/// Takes part in the election, and writes while it leads.
#[derive(Clone)]
pub struct Reporter {
    view: View,
    client: kube::Client,
    lease: ObjectName,
    identity: String,
    terms: Terms,
    metrics: ReportMetrics,
    /// Statuses that are not written.
    unwritten: LogFirstFailure,
    /// Events that are not written.
    untold: LogFirstFailure,
    /// What is not made for Gateways.
    unmade: LogFirstFailure,
    retry_after: RetryAfterGate,
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl Reporter {
    /// A reporter for the loop behind a view. Its client's deadlines are best [`crate::client::Deadlines::WRITE`]; its
    /// identity must be that of no other process, also not of an earlier one in the same pod.
    ///
    /// # Errors
    /// When its metrics are registered already.
    pub fn new(
        view: View,
        client: kube::Client,
        lease: ObjectName,
        identity: String,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        let (terms, metrics) = (Terms::default(), ReportMetrics::register(registry)?);
        let ([unwritten, untold, unmade], retry_after) = <([LogFirstFailure; 3], RetryAfterGate)>::default();
        Ok(Self { view, client, lease, identity, terms, metrics, unwritten, untold, unmade, retry_after })
    }

    /// The same, with another pace of the election.
    #[must_use]
    pub fn paced(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// Runs until it is stopped, once the cluster is known as it is now and not as it was kept over a restart; then it steps down and leaves what is written to the next leader.
    pub async fn run(self, stop: CancellationToken) {
        let mut readiness = self.view.readiness();
        let known = readiness.wait_for(Readiness::may_report);
        if !matches!(stop.run_until_cancelled(known).await, Some(Ok(_))) {
            return;
        }
        let (leads, lead) = watch::channel(None);
        let mut campaign = Campaign::new(self.client.clone(), &self.lease, self.identity.clone(), self.terms, leads);
        tokio::select! {
            () = stop.cancelled() => {}
            () = campaign.run() => {}
            () = self.follow(Lead(lead)) => {}
        }
        // Writes that were under way are given up by now, so that none comes after those of the next leader.
        self.begin(false);
        campaign.release().await;
    }

    /// Has everything looked at whenever the lead is gained, writes while it is ours, and keeps nothing while it is not.
    async fn follow(&self, mut lead: Lead) {
        loop {
            self.begin(false);
            tokio::select! {
                gained = lead.gained() => if !gained { return },
                () = self.idle() => return,
            }
            // From now on the loop names what changes, and then, once, all there is.
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
            tracing::info!(leading, lease = %self.lease, "who writes to the cluster");
        }
        self.metrics.leader.set(i64::from(leading));
    }

    /// Takes what still waits and leaves it, for as long as the queues live: who gains the lead looks at everything.
    async fn idle(&self) {
        async fn leave<K: Clone + Eq + Hash>(queue: &Workqueue<K>) {
            while let Some(held) = queue.get().await {
                held.succeeded();
            }
        }
        let Reports { statuses, events, gateways, .. } = &self.view.reports;
        tokio::join!(leave(statuses), leave(events), leave(gateways));
    }

    /// All writers, for as long as the queues live.
    async fn write(&self, lead: &Lead) {
        let statuses = join_all((0..WRITERS).map(|_| self.write_statuses(lead)));
        tokio::join!(statuses, self.tell(lead), self.make(lead));
    }

    /// One writer of statuses.
    async fn write_statuses(&self, lead: &Lead) {
        while let Some(held) = self.view.reports.statuses.get().await {
            self.write_status(held, lead).await;
        }
    }

    /// What the loop says at this moment is written, whatever it was when the key was added.
    async fn write_status(&self, held: Held<ObjectRef>, lead: &Lead) {
        self.retry_after.over().await;
        sleep(LOOK_PAUSE).await;
        let Some(desired) = self.view.desired_status(held.clone()).await.flatten() else {
            held.succeeded();
            return;
        };
        let (written, pause) = match desired {
            Desired::Addresses(addresses) => {
                let written = self.send::<IgnoredAny>(lead, ingress::patch(&held.name, &addresses)).await;
                (written.map(|IgnoredAny| ()), PAUSE)
            }
            Desired::Status { controller, generation, status } => {
                let mut written = self.write_conditions(&held, (&controller, generation), &status, lead).await;
                if let (Ok(()), Some(in_use)) = (&written, status.in_use) {
                    written = self.hold_class(&held, in_use, lead).await;
                }
                (written, CONDITIONS_PAUSE)
            }
        };
        self.metrics.statuses.with_label_values(&[outcome(&written)]).inc();
        if let Err(Refusal::Later(time)) = written {
            self.retry_after.begin(time);
            self.view.reports.statuses.add_after(held.clone(), time, Lane::Slow);
            held.succeeded();
            return;
        }
        // The object is held over the pause. If it is named again before the watch tells what was written, it is not looked at
        // before that either.
        sleep(pause).await;
        match written {
            Ok(()) | Err(Refusal::Gone) => {
                self.unwritten.over();
                held.succeeded();
            }
            Err(refusal) => {
                self.unwritten.again("a status could not be written", &*held, &refusal);
                held.retry();
            }
        }
    }

    /// Reads the object, and writes of its status what is ours and differs; again where somebody else wrote in between.
    async fn write_conditions(
        &self,
        object: &ObjectRef,
        said_by: (&str, i64),
        own: &OwnStatus,
        lead: &Lead,
    ) -> Result<(), Refusal> {
        let mut refusal = Refusal::Failed("others write it all the time".to_owned());
        for _ in 0..READINGS_MAX {
            let read = self.send::<Value>(lead, conditions::get(object)).await?;
            let stands = Stands::of(read).ok_or_else(|| Refusal::Failed("no object that can be read".to_owned()))?;
            let now = Timestamp::try_from(clock::wall()).unwrap_or(Timestamp::UNIX_EPOCH);
            let Some(status) = stands.merged(object, said_by, own, now) else { return Ok(()) };
            let patch = conditions::patch(object, &stands.resource_version, status);
            match self.send::<IgnoredAny>(lead, patch).await {
                Ok(IgnoredAny) => return Ok(()),
                Err(Refusal::Conflict) => refusal = Refusal::Conflict,
                Err(other) => return Err(other),
            }
        }
        Err(refusal)
    }

    /// Sends a write. One that could come after our time as the leader is given up; the next leader does it.
    async fn send<T: DeserializeOwned>(&self, lead: &Lead, request: Prepared) -> Result<T, Refusal> {
        let failed = |why: &str| Err(Refusal::Failed(why.to_owned()));
        let Some(until) = lead.until() else { return failed("the lead is lost") };
        let deadline = until.min(clock::now() + WRITE_MAX);
        let answer = timeout_at(deadline.into(), send::send(&self.client, request)).await;
        answer.unwrap_or_else(|_elapsed| failed("no answer"))
    }
}
