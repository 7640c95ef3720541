//! What is told to the cluster, after it is in effect and by one replica only: publish first, report later. The loop names
//! the Ingresses whose status is not what it ought to be; here they wait, and the leader writes them at its own pace. Nothing
//! here can make the loop wait.

mod election;
mod ingress;
mod lease;
mod metrics;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use prometheus::Registry;
use tidegate_config::object::ObjectName;
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use self::ingress::Outcome;
use self::lease::Campaign;
use self::metrics::StatusMetrics;
use crate::clock;
use crate::queue::{Held, Lane, Meter, Queue, Retries, Share, Workqueue};
use crate::reconcile::Amiss;
use crate::view::View;
pub use election::Terms;

/// Who the API server notes as the owner of the fields that are written.
const FIELD_MANAGER: &str = "tidegate";
/// Writes under way at a time.
const WRITERS: usize = 4;
/// The pause of a writer after each write: all together make at most 40 writes a second.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a write may take.
const WRITE_MAX: Duration = Duration::from_secs(15);
/// What somebody else has written over is repaired after this long, so that two who disagree do not keep the API server busy.
const REPAIR_AFTER: Duration = Duration::from_secs(2);
/// Failed writes are tried again after as much as a second at first, and as much as five minutes at last.
const RETRIES: Retries = Retries { first: Duration::from_secs(1), max: Duration::from_secs(300) };

/// Where the loop names what has to be written. Cloning it is cheap and gives the same one.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    queue: Workqueue<ObjectName>,
    /// Whether anybody here writes. Otherwise nothing is kept.
    wanted: Arc<AtomicBool>,
}

impl Reports {
    pub(crate) fn new(meter: Meter) -> Self {
        let (fast_turns_max, slow_age_max) = (8, Duration::from_secs(30));
        let share = Share { batch_max: 1, slow_batch_max: 1, fast_turns_max, slow_age_max, aged_every: 2 };
        Self { queue: Workqueue::new(Queue::new(meter, RETRIES), share, |_| 0), wanted: Arc::default() }
    }

    /// Whether to name anything at all.
    pub(crate) fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    pub(crate) fn name(&self, Amiss { all, changed, rewritten }: Amiss) {
        all.into_iter().for_each(|ingress| self.queue.add(ingress, Lane::Slow));
        changed.into_iter().for_each(|ingress| self.queue.add(ingress, Lane::Fast));
        rewritten.into_iter().for_each(|ingress| self.queue.add_after(ingress, REPAIR_AFTER, Lane::Fast));
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
    metrics: StatusMetrics,
    /// Whether the last write failed, so that the first failure is logged and not each.
    failing: Arc<AtomicBool>,
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
        let (terms, metrics) = (Terms::default(), StatusMetrics::register(registry)?);
        Ok(Self { view, client, lease, identity, terms, metrics, failing: Arc::default() })
    }

    /// The same, with another pace of the election.
    #[must_use]
    pub fn paced(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// Runs until it is stopped; then it steps down and leaves what is written to the next leader.
    pub async fn run(self, stop: CancellationToken) {
        let (leads, lead) = watch::channel(None);
        let mut campaign = Campaign::new(self.client.clone(), &self.lease, self.identity.clone(), self.terms, leads);
        let writers = (0..WRITERS).map(|_| self.write(&lead));
        tokio::select! {
            () = stop.cancelled() => {}
            () = campaign.run() => {}
            () = self.follow(lead.clone()) => {}
            _ = join_all(writers) => {}
        }
        // Writes that were under way are given up by now, so that none comes after those of the next leader.
        self.begin(false);
        campaign.release().await;
    }

    /// Has everything looked at whenever the lead is gained, and nothing kept while it is not ours.
    async fn follow(&self, mut lead: watch::Receiver<Option<Instant>>) {
        loop {
            self.begin(false);
            if lead.wait_for(|until| leads(*until)).await.is_err() {
                return;
            }
            // From now on the loop names what changes, and then, once, all that is not as it ought to be.
            self.begin(true);
            if self.view.look_again().await.is_none() {
                return;
            }
            loop {
                let until = *lead.borrow_and_update();
                let Some(until) = until.filter(|until| leads(Some(*until))) else { break };
                tokio::select! {
                    moved = lead.changed() => if moved.is_err() { return },
                    () = sleep_until(until.into()) => {}
                }
            }
        }
    }

    fn begin(&self, leading: bool) {
        if self.view.reports.wanted.swap(leading, Ordering::AcqRel) != leading {
            tracing::info!(leading, lease = %self.lease, "who writes status");
        }
        self.metrics.leader.set(i64::from(leading));
    }

    /// One writer, for as long as the queue lives.
    async fn write(&self, lead: &watch::Receiver<Option<Instant>>) {
        while let Some(held) = self.view.reports.queue.get().await {
            if self.write_one(held, lead).await {
                sleep(PAUSE).await;
            }
        }
    }

    /// Whether a request was sent. What the loop says at this moment is written, whatever it was when the key was added.
    async fn write_one(&self, held: Held<ObjectName>, lead: &watch::Receiver<Option<Instant>>) -> bool {
        let wanted = self.view.amiss_in(held.clone()).await.flatten();
        let until = *lead.borrow();
        let (Some(addresses), Some(until)) = (wanted, until.filter(|until| leads(Some(*until)))) else {
            // Whoever gains the lead looks at everything.
            held.succeeded();
            return false;
        };
        let write = ingress::write(&self.client, &held, &addresses);
        // A write that could come after our time as a leader is given up; the next leader does it.
        let deadline = until.min(clock::now() + WRITE_MAX);
        let outcome = timeout_at(deadline.into(), write).await.unwrap_or(Outcome::Failed("no answer".to_owned()));
        self.metrics.writes.with_label_values(&[outcome.as_str()]).inc();
        match outcome {
            Outcome::Written | Outcome::Gone => {
                self.failing.store(false, Ordering::Relaxed);
                held.succeeded();
            }
            Outcome::Refused(why) | Outcome::Failed(why) => {
                if self.failing.swap(true, Ordering::Relaxed) {
                    tracing::debug!(ingress = %*held, why, "a status could not be written");
                } else {
                    tracing::warn!(ingress = %*held, why, "a status could not be written; it is tried again");
                }
                held.retry();
            }
        }
        true
    }
}

/// Whether this is still to come.
fn leads(until: Option<Instant>) -> bool {
    until.is_some_and(|until| clock::now() < until)
}
