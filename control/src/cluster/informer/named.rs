//! Secrets read by name: only those of interest, one request for each, repeated periodically. Changes are found later
//! than with a watch; in return a Role needs to allow only `get`.
//!
//! [`PollState`] makes the decisions, without a clock and without requests. After a failure a Secret stays as it was,
//! and it is removed only after the server has twice answered that it does not exist.

mod ask;
mod failing;
mod metrics;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::Projected;
use tokio::sync::mpsc;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::failure::{About, Failure};
use super::{Limits, Recovery};
use crate::backoff::share;
use crate::clock;
use crate::cluster::cache::Sink;
use crate::event::{Collection, Event};
use crate::interest::SecretInterest;
use crate::queue::{Lane, LaneShares, Meter, Queue, Retries};
use ask::ask;
use failing::Failing;
pub use metrics::SecretPollerMetrics;

/// The limit of concurrent requests.
const ASKED_MAX: usize = 8;
/// The delay before a Secret that does not exist is requested again, to confirm that.
const CONFIRM_AFTER: Duration = Duration::from_secs(1);
/// The upper bound of the first delay after a failure; the longest delay is the refresh interval.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The number of consecutive failures, which take up to half a minute, after which neither the first model nor reports
/// wait for a Secret: it affects its own hosts only.
const FAILURES_MAX: u32 = 6;
/// The same if the last failure is a denial: an API server that has just started denies requests at first.
const DENIALS_MAX: u32 = 2;
/// New references go before periodic refreshes.
const SHARE: LaneShares = LaneShares {
    batch_max: 1,
    slow_batch_max: 1,
    fast_turns_max: 8,
    slow_age_max: Duration::from_secs(10),
    aged_every: 2,
};

/// Polls Secrets by name, if the permissions do not allow listing them.
pub struct SecretPoller {
    client: kube::Client,
    limits: Limits,
    changes: mpsc::UnboundedReceiver<Vec<SecretInterest>>,
    events: mpsc::Sender<Event>,
    metrics: SecretPollerMetrics,
    following: PollState,
    recovery: Recovery,
    rng: fastrand::Rng,
    /// The sink for Secrets in the cache on disk.
    sink: Option<Sink>,
}

impl fmt::Debug for SecretPoller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretPoller").field("following", &self.following).finish_non_exhaustive()
    }
}

impl SecretPoller {
    /// A poller that has not started. Each Secret is requested again after `refresh`, or up to half as long again. The
    /// first set of changes is needed for the first model: [`Event::Listed`] is sent once all of them have an answer.
    #[must_use]
    pub fn new(
        client: kube::Client,
        (refresh, limits): (Duration, Limits),
        changes: mpsc::UnboundedReceiver<Vec<SecretInterest>>,
        events: mpsc::Sender<Event>,
        metrics: SecretPollerMetrics,
        seed: u64,
    ) -> Self {
        let following = PollState::new(refresh, metrics.meter.clone());
        let (recovery, rng) = (Recovery::default(), fastrand::Rng::with_seed(seed));
        Self { client, limits, changes, events, metrics, following, recovery, rng, sink: None }
    }

    /// The same, sharing the state of the API server with the informers: the first one that finds it available again
    /// notifies the others.
    #[must_use]
    pub fn sharing(mut self, recovery: &Recovery) -> Self {
        self.recovery = recovery.clone();
        self
    }

    /// The same, with Secrets written to the cache on disk. `restored` means that the control loop starts with its
    /// content.
    #[must_use]
    pub fn keeping(mut self, sink: Option<Sink>, restored: bool) -> Self {
        (self.sink, self.following.restored) = (sink, restored);
        self
    }

    /// Runs until `stop` is cancelled, or the other end of a channel is gone.
    pub async fn run(self, stop: CancellationToken) {
        let _done: Option<()> = stop.run_until_cancelled(self.follow()).await;
    }

    async fn follow(mut self) {
        let mut asked = FuturesUnordered::new();
        let mut recovered = self.recovery.subscribe();
        loop {
            let mut news = Vec::new();
            while asked.len() < ASKED_MAX
                && let Some(name) = self.following.next(clock::now(), &mut news)
            {
                asked.push(ask(self.client.clone(), self.limits.clone(), name, self.sink.clone()));
            }
            let count = |len| i64::try_from(len).unwrap_or(i64::MAX);
            self.metrics.polled.set(count(self.following.known.len()));
            self.metrics.failing.set(count(self.following.failing.len()));
            let due = self.following.queue.next_due().filter(|_| asked.len() < ASKED_MAX);
            if news.is_empty() {
                tokio::select! {
                    changes = self.changes.recv() => match changes {
                        Some(changes) => {
                            let begins = self.following.first.is_none();
                            self.following.follow(changes, clock::now(), &mut news);
                            if let Some(sink) = self.sink.as_ref().filter(|_| begins) {
                                sink.retain(self.following.known.keys().map(ToString::to_string));
                            }
                        }
                        None => return,
                    },
                    Some((name, answer)) = asked.next(), if !asked.is_empty() => {
                        self.metrics.reads.with_label_values(&[answer.outcome()]).inc();
                        let (delay_max, time) = (self.limits.retry_after_max, (clock::now(), self.rng.u64(..)));
                        if self.following.take(&name, answer, delay_max, time, &mut news) {
                            self.recovery.signal();
                        }
                    }
                    // Never an error: the sender is held here.
                    _ = recovered.changed() => {
                        self.following.recovered(self.limits.recovery_spread, clock::now(), &mut self.rng);
                    }
                    () = sleep_until(due.unwrap_or_else(clock::now).into()), if due.is_some() => {}
                }
            }
            for event in news {
                if let (Event::Deleted { object, .. }, Some(sink)) = (&event, &self.sink) {
                    sink.event(&object.name, None, None);
                }
                if self.events.send(event).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The result of a GET of one Secret.
#[derive(Debug)]
enum GetResult {
    Found(Box<Projected>),
    /// The Secret does not exist.
    Gone,
    Failed(Failure),
}

impl GetResult {
    const fn outcome(&self) -> &'static str {
        match self {
            Self::Found(_) => "found",
            Self::Gone => "gone",
            Self::Failed(_) => "failed",
        }
    }
}

/// The state of all polled Secrets.
#[derive(Debug)]
struct PollState {
    refresh: Duration,
    queue: Queue<ObjectName>,
    known: BTreeMap<ObjectName, SecretState>,
    /// The Secrets of the first changes without an answer; `None` before the first changes.
    first: Option<BTreeSet<ObjectName>>,
    /// Whether [`Event::Listed`] was sent for them.
    settled: bool,
    /// The Secrets whose last request failed.
    failing: Failing,
    /// Whether the last event about the collection was a failure.
    failed: bool,
    /// Whether restored Secrets serve: the first model then does not wait for answers, and failures of the server do
    /// not count as answers.
    restored: bool,
}

/// The state of one Secret.
#[derive(Clone, Copy, Debug)]
struct SecretState {
    /// Whether any object refers to it.
    wanted: bool,
    /// Whether it exists, as of the last event.
    there: Option<bool>,
    /// Whether the last answer was that it does not exist, which another one must confirm.
    missed: bool,
}

impl PollState {
    const fn collection() -> Collection {
        Collection { kind: Kind::Secret, namespace: None }
    }

    fn new(refresh: Duration, meter: Meter) -> Self {
        let queue = Queue::new(meter, Retries { first: RETRY_FIRST, max: refresh.max(RETRY_FIRST) });
        let (known, failing) = (BTreeMap::new(), Failing::default());
        Self { refresh, queue, known, first: None, settled: false, failing, failed: false, restored: false }
    }

    /// Applies changes to the set of Secrets.
    fn follow(&mut self, changes: Vec<SecretInterest>, now: Instant, news: &mut Vec<Event>) {
        let begins = |change: &SecretInterest| match change {
            SecretInterest::Add(name) => Some(name.clone()),
            SecretInterest::Remove(_) => None,
        };
        self.first.get_or_insert_with(|| changes.iter().filter_map(begins).collect());
        for change in changes {
            match change {
                SecretInterest::Add(name) => {
                    let unknown = SecretState { wanted: true, there: None, missed: false };
                    self.known.entry(name.clone()).or_insert(unknown).wanted = true;
                    self.queue.add(name, Lane::Fast, 0, now);
                }
                // It is kept until its next refresh, in case it is referred to again soon.
                SecretInterest::Remove(name) => {
                    if let Some(known) = self.known.get_mut(&name) {
                        known.wanted = false;
                    }
                }
            }
        }
        self.settle(now, news);
    }

    /// The next Secret to request. Those without references are dropped instead.
    fn next(&mut self, now: Instant, news: &mut Vec<Event>) -> Option<ObjectName> {
        loop {
            let name = self.queue.get(SHARE, now)?;
            if self.known.get(&name).is_some_and(|known| known.wanted) {
                return Some(name);
            }
            self.queue.done(&name, now);
            self.queue.forget(&name);
            if self.known.remove(&name).is_some_and(|known| known.there != Some(false)) {
                news.push(gone(name.clone(), now));
            }
            self.answered(&name, None, now, news);
        }
    }

    /// The server answers again: requests that wait for this are made within the spread.
    fn recovered(&mut self, spread: Duration, now: Instant, rng: &mut fastrand::Rng) {
        for name in self.failing.hurry() {
            self.queue.add_after(name, share(spread, rng.u64(..)), Lane::Slow, 0, now);
        }
    }

    /// Applies an answer. `delay_max` limits the delay that a server may request. Returns `true` if the server has
    /// recovered.
    fn take(
        &mut self,
        name: &ObjectName,
        answer: GetResult,
        delay_max: Duration,
        (now, draw): (Instant, u64),
        news: &mut Vec<Event>,
    ) -> bool {
        self.queue.done(name, now);
        let Some(known) = self.known.get_mut(name) else { return false };
        let mut failed = None;
        let delay = match answer {
            GetResult::Found(projected) => {
                (known.there, known.missed) = (Some(true), false);
                news.push(Event::Applied { projected, received: now });
                Some(self.refresh + share(self.refresh / 2, draw))
            }
            GetResult::Gone if known.there != Some(false) && !known.missed => {
                known.missed = true;
                Some(CONFIRM_AFTER)
            }
            GetResult::Gone => {
                if known.there != Some(false) {
                    news.push(gone(name.clone(), now));
                }
                (known.there, known.missed) = (Some(false), false);
                Some(self.refresh + share(self.refresh / 2, draw))
            }
            GetResult::Failed(failure) => {
                let least = failure.retry_after().unwrap_or_default().min(delay_max);
                self.queue.retry_after(name.clone(), least, 0, now, draw);
                failed = Some(failure);
                None
            }
        };
        if let Some(delay) = delay {
            self.queue.forget(name);
            self.queue.add_after(name.clone(), delay, Lane::Slow, 0, now);
        }
        self.answered(name, failed, now, news)
    }

    /// Updates the failure of the collection if all Secrets fail or no longer do, and the set of first answers; a
    /// number of consecutive failures counts as an answer. Returns `true` if a Secret that failed because of the server
    /// was answered.
    fn answered(&mut self, name: &ObjectName, failed: Option<Failure>, now: Instant, news: &mut Vec<Event>) -> bool {
        let mut recovered = false;
        let waits = match &failed {
            Some(failure) => {
                if self.failing.is_empty() {
                    tracing::warn!(secret = %name, error = %failure, "a Secret cannot be read; its last state stays in effect, and the read is retried");
                }
                let times = self.failing.failed(name, failure.about());
                match failure.about() {
                    _ if failure.is_denied() => times < DENIALS_MAX,
                    // An unavailable API server is no answer for a Secret whose restored state serves.
                    About::Server if self.restored => true,
                    About::Server | About::Request | About::Version => times < FAILURES_MAX,
                }
            }
            None => {
                recovered = self.failing.remove(name);
                false
            }
        };
        if let Some(first) = self.first.as_mut().filter(|_| !waits) {
            first.remove(name);
        }
        // A failure of one Secret while others can be read is not a failure of the collection.
        let none = !self.failing.is_empty() && self.failing.len() == self.known.len();
        let collection = Self::collection();
        if let Some(failure) = failed.filter(|_| none && !self.failed) {
            self.failed = true;
            let (why, denied) = (format!("Secret {name}: {failure}"), failure.is_denied());
            news.push(Event::Failing { collection, why, denied });
        } else if self.failed && !none {
            self.failed = false;
            news.push(Event::Watching { collection });
        }
        self.settle(now, news);
        recovered
    }

    fn settle(&mut self, now: Instant, news: &mut Vec<Event>) {
        if !self.settled && self.first.as_ref().is_some_and(BTreeSet::is_empty) {
            self.settled = true;
            // Incomplete: Secrets that are not in it are not removed.
            let (objects, resource_version) = (Vec::new(), Arc::default());
            news.push(Event::Listed {
                collection: Self::collection(),
                objects,
                complete: false,
                resource_version,
                received: now,
            });
        }
    }
}

fn gone(name: ObjectName, now: Instant) -> Event {
    let object = ObjectRef::new(Kind::Secret, name);
    Event::Deleted { object, resource_version: Arc::default(), received: now }
}

#[cfg(test)]
mod tests;
