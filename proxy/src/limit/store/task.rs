//! The task that has the connection to the store: it asks what traffic threads want to know, gives back what they do
//! not use, says that this replica is there, and connects again after a failure.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::future::{BoxFuture, join_all};
use futures::stream::FuturesUnordered;
use redis::RedisError;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{ANSWER_MAX, Connection};
use super::lease::Grant;
use super::replicas::{GONE_AFTER, PRESENT_EVERY, Replicas};
use super::script::{self, Granted, Return, Wanted};
use super::watched::{Unused, Watched};
use super::{Ask, Lease, Store};
use crate::clock;
use crate::limit::counter::Tick;
use crate::observe::limit_store_metrics::StoreCall;

/// The calls that wait for an answer. Further questions wait in the queue.
const IN_FLIGHT_MAX: usize = 512;

/// The pauses before a new connection: doubled after each failure.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The time for which an exhausted store is not asked about a counter again, at most; it is a tenth of the window.
const RECHECK_MAX_MS: u64 = 100;

/// The task of the store; see [`LimitStoreTask::run`].
#[derive(Clone, Debug)]
pub struct LimitStoreTask(Arc<Store>);

/// The answer to a call.
enum Answer {
    Granted(Ask, Result<Granted, RedisError>),
    GaveBack(Result<u32, RedisError>),
    Present(Result<u32, RedisError>),
}

/// A call with its answer, and when it was made.
struct Called {
    at: Instant,
    answer: Answer,
}

/// One connection, as long as it lasts.
struct Session<'s> {
    store: &'s Store,
    connection: Connection,
    replica: &'s str,
    calls: FuturesUnordered<BoxFuture<'static, Called>>,
    watched: &'s mut Watched,
    replicas: &'s mut Replicas,
}

/// Why a session has ended.
enum SessionEnd {
    Stopped,
    Failed(String),
}

impl LimitStoreTask {
    pub(crate) const fn new(store: Arc<Store>) -> Self {
        Self(store)
    }

    /// Keeps a connection to the store, until it is told to stop; then unused requests are given back. If this is
    /// called twice, the second call waits for the first one to end.
    pub async fn run(self, stop: CancellationToken) {
        let store = &*self.0;
        let mut asked = store.asked.lock().await;
        let replica = format!("{:016x}", fastrand::u64(..));
        let (mut replicas, mut watched, mut failures) = (Replicas::new(), Watched::default(), 0_u32);
        let mut is_told = false;
        loop {
            let opening = Session::open(store, &replica, &mut watched, &mut replicas);
            let connected = stop.run_until_cancelled(opening).await;
            let Some(connected) = connected else { return };
            let why = match connected {
                Ok(session) => {
                    tracing::info!(replicas = session.replicas.count(), "the store of limits answers");
                    (is_told, failures) = (false, 0);
                    store.is_up.store(true, Ordering::Relaxed);
                    store.metrics.up.set(1);
                    let end = session.serve(&mut asked, &stop).await;
                    store.is_up.store(false, Ordering::Relaxed);
                    store.metrics.up.set(0);
                    match end {
                        SessionEnd::Stopped => return,
                        SessionEnd::Failed(why) => why,
                    }
                }
                Err(why) => why,
            };
            if !std::mem::replace(&mut is_told, true) {
                let away = store.away();
                tracing::warn!(why, replicas = replicas.count(), ?away, "the store of limits is away");
            }
            // Nobody waits for what was asked before.
            while asked.try_recv().is_ok() {}
            let pause = PAUSE_MIN.saturating_mul(1 << failures.min(16)).min(PAUSE_MAX);
            failures = failures.saturating_add(1);
            if stop.run_until_cancelled(sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0))).await.is_none() {
                return;
            }
        }
    }
}

impl<'s> Session<'s> {
    async fn open(
        store: &'s Store,
        replica: &'s str,
        watched: &'s mut Watched,
        replicas: &'s mut Replicas,
    ) -> Result<Self, String> {
        let mut connection = Connection::open(&store.options).await?;
        let life = u64::try_from(GONE_AFTER.as_millis()).unwrap_or(u64::MAX);
        let counted = script::present(&mut connection, &store.replicas_key(), replica, life).await;
        let count = counted.map_err(|error| error.to_string())?;
        replicas.connected(clock::now());
        let mut session = Self { store, connection, replica, calls: FuturesUnordered::new(), watched, replicas };
        session.counted(count);
        Ok(session)
    }

    /// Serves until the connection fails, or the task is told to stop.
    async fn serve(mut self, asked: &mut mpsc::Receiver<Ask>, stop: &CancellationToken) -> SessionEnd {
        let mut presence = tokio::time::interval(PRESENT_EVERY);
        presence.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let next_due = self.watched.next_due();
            let due = async {
                match next_due {
                    Some(due) => sleep_until(due.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => {
                    self.leave().await;
                    return SessionEnd::Stopped;
                }
                Some(called) = self.calls.next() => {
                    if let Err(error) = self.answered(called) {
                        return SessionEnd::Failed(error.to_string());
                    }
                }
                Some(ask) = asked.recv(), if self.calls.len() < IN_FLIGHT_MAX => self.ask(ask),
                _ = presence.tick() => self.present(),
                () = due => self.give_back_unused(),
            }
        }
    }

    fn ask(&mut self, ask: Ask) {
        let wanted = Wanted {
            max: ask.max,
            window_ms: ask.lease.window_ms,
            replicas: self.replicas.count(),
            alone: ask.lease.unreported(ask.alone),
        };
        let (mut at, key) = (self.connection.clone(), ask.lease.key.name(&self.store.options.prefix));
        self.call(async move { Answer::Granted(ask, script::grant(&mut at, &key, wanted).await) });
    }

    fn present(&mut self) {
        let (mut at, key, replica) = (self.connection.clone(), self.store.replicas_key(), self.replica.to_owned());
        let life = u64::try_from(GONE_AFTER.as_millis()).unwrap_or(u64::MAX);
        self.call(async move { Answer::Present(script::present(&mut at, &key, &replica, life).await) });
    }

    fn give_back_unused(&mut self) {
        let now = clock::now();
        while let Some(unused) = self.watched.take_unused(now, |lease| self.store.tick(lease, now)) {
            if let Some(unused) = unused {
                let call = self.giving_back(unused);
                self.call(async move { Answer::GaveBack(call.await) });
            }
        }
    }

    fn giving_back(&self, unused: Unused) -> impl Future<Output = Result<u32, RedisError>> + use<> {
        let Unused { lease, began, count, number } = unused;
        let (mut at, key) = (self.connection.clone(), lease.key.name(&self.store.options.prefix));
        let replica = self.replica.to_owned();
        async move { script::give_back(&mut at, &key, Return { began, count, replica: &replica, number }).await }
    }

    fn call(&self, call: impl Future<Output = Answer> + Send + 'static) {
        let at = clock::now();
        self.calls.push(Box::pin(async move { Called { at, answer: call.await } }));
    }

    fn answered(&mut self, called: Called) -> Result<(), RedisError> {
        let (Called { at, answer }, now) = (called, clock::now());
        let (call, failed) = match answer {
            Answer::Granted(ask, Ok(granted)) => {
                self.granted(ask, &granted, at, now);
                (StoreCall::Grant, None)
            }
            Answer::GaveBack(Ok(count)) => {
                self.store.metrics.returned.inc_by(u64::from(count));
                (StoreCall::GiveBack, None)
            }
            Answer::Present(Ok(count)) => {
                self.counted(count);
                (StoreCall::Present, None)
            }
            Answer::Granted(_, Err(error)) => (StoreCall::Grant, Some(error)),
            Answer::GaveBack(Err(error)) => (StoreCall::GiveBack, Some(error)),
            Answer::Present(Err(error)) => (StoreCall::Present, Some(error)),
        };
        let took = failed.is_none().then(|| now.saturating_duration_since(at));
        self.store.metrics.called(call, took);
        failed.map_or(Ok(()), Err)
    }

    fn granted(&mut self, ask: Ask, granted: &Granted, at: Instant, now: Instant) {
        let lease = &ask.lease;
        // The window ends at the store so long after the question was executed there, which is later than `at`.
        let end_ms = self.store.millis(at).saturating_add(granted.ends_in_ms.min(lease.window_ms));
        let (end, tick) = (lease.window.tick(end_ms), self.store.tick(lease, now));
        let recheck = lease.window.ticks_of(RECHECK_MAX_MS.min(lease.window_ms / 10));
        lease.began.store(granted.began, Ordering::Relaxed);
        lease.reported.store(ask.alone, Ordering::Relaxed);
        lease.words.add(Grant { granted: granted.count, beyond: granted.beyond, end }, tick, recheck);
        self.store.metrics.granted.inc_by(u64::from(granted.count));
        self.watched.add(lease, now, tick);
    }

    fn counted(&mut self, count: u32) {
        let count = self.replicas.counted(count, clock::now());
        self.store.replicas.store(count, Ordering::Relaxed);
        self.store.metrics.replicas.set(count.into());
    }

    /// Gives everything back and signs off.
    async fn leave(self) {
        let now = clock::now();
        let unused = self.watched.take_all(|lease| self.store.tick(lease, now));
        let given_back: Vec<_> = unused.into_iter().map(|unused| self.giving_back(unused)).collect();
        let (mut at, key) = (self.connection.clone(), self.store.replicas_key());
        let leaving = async {
            join_all(given_back).await;
            script::present(&mut at, &key, self.replica, 0).await.ok();
        };
        // What is not given back in time ends with its window, and the entry of this replica soon.
        timeout(ANSWER_MAX, leaving).await.ok();
    }
}

impl Store {
    fn replicas_key(&self) -> String {
        format!("{}:replicas", self.options.prefix)
    }

    fn tick(&self, lease: &Lease, at: Instant) -> Tick {
        lease.window.tick(self.millis(at))
    }
}
