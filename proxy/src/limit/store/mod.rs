//! One count for all replicas of the edge, in a store: a server that speaks the protocol of Redis.
//!
//! A replica does not ask the store about each request. It asks for a *lease*: a number of requests of one counter, in
//! one round trip, and then admits that many by itself ([`lease`]). The store grants half of the replica's part of what
//! is left in the window ([`script`]), so that leases become smaller as the limit comes closer, and the last requests
//! are granted one by one. A lease is refilled before it is empty, gives back what it does not use, and ends with its
//! window, which is the store's. So no window of the store has more than the maximum, and a request is refused too
//! early only while other replicas hold requests that they have not used, for a second at most.
//!
//! A request whose lease is empty waits for the answer of the store, for [`WAIT_MAX`]. After that, and while the store
//! is away, [`StoreAway`] decides: the replica counts by itself, up to its part of the maximum, or refuses. What it
//! admits so is reported to the store with the next lease.
//!
//! Requests only use atomics and a bounded queue. The connection belongs to one [`task`] beside the traffic threads.

mod connection;
mod evicted;
mod key;
mod lease;
mod replicas;
mod script;
mod task;
mod watched;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ring::hmac;
use smallvec::SmallVec;
use tidegate_config::model::Limit;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::time::timeout_at;

pub(super) use self::evicted::{Carried, EvictedUse};
use self::key::CounterKey;
pub(super) use self::key::{CounterValues, LimitKey};
use self::lease::LeaseWords;
pub(super) use self::lease::{LeaseReceipt, LeaseState};
pub use self::task::LimitStoreTask;
use super::counter::{Left, Tick, Window};
use crate::observe::limit_store_metrics::LimitStoreMetrics;
use crate::options::{LimitStore, StoreAway};

/// The longest time that a request waits for the store, less a millisecond by which timers are late.
const WAIT_MAX: Duration = Duration::from_millis(4);

/// The shortest window that is counted in the store. A shorter one would be over before its lease is used; each replica
/// counts its part of it.
const SHARED_WINDOW_MIN: Duration = Duration::from_millis(100);

/// The questions that wait for the task of the store. More are not asked.
const QUEUE_MAX: usize = 4096;

/// The store as traffic threads see it.
#[derive(Debug)]
pub(crate) struct Store {
    options: LimitStore,
    hash: hmac::Key,
    start: Instant,
    /// Whether it answers.
    is_up: AtomicBool,
    /// The last known number of replicas, at least 1.
    replicas: AtomicU32,
    asks: mpsc::Sender<Ask>,
    /// The other end, which the task that runs has.
    asked: Mutex<mpsc::Receiver<Ask>>,
    pub(super) metrics: LimitStoreMetrics,
}

/// The lease of one counter.
#[derive(Debug)]
pub(crate) struct Lease {
    words: LeaseWords,
    window: Window,
    window_ms: u64,
    key: CounterKey,
    /// The count of this replica alone, as far as it was reported.
    reported: AtomicU64,
    /// What its values may have used before it was made.
    carried: Carried,
    /// The identity of the window at the store. Only the task of the store uses it.
    began: AtomicU64,
    /// Whether the task of the store looks after it.
    is_watched: AtomicBool,
    refilled: Notify,
}

/// The question of a lease for more. When it is dropped, nobody waits for it any longer.
#[derive(Debug)]
struct Ask {
    lease: Arc<Lease>,
    max: u32,
    /// What this replica has counted alone; see [`Counter::running`](super::counter::Counter::running).
    alone: u64,
}

impl Drop for Ask {
    fn drop(&mut self) {
        self.lease.words.end_asking();
        self.lease.refilled.notify_waiters();
    }
}

/// The leases that a request waits for, and until when.
#[derive(Clone, Debug)]
pub(crate) struct LeaseWait {
    leases: SmallVec<[Arc<Lease>; 2]>,
    until: Instant,
}

/// The leases of a limit and window.
#[derive(Clone, Debug)]
pub(super) struct Leases {
    pub(super) store: Arc<Store>,
    /// `None` if the window is too short for a lease.
    limit: Option<(LimitKey, Duration)>,
}

impl Store {
    /// A store that has not answered yet. `start` is that of the counters.
    pub(crate) fn new(options: LimitStore, start: Instant, metrics: LimitStoreMetrics) -> Self {
        let (asks, asked) = mpsc::channel(QUEUE_MAX);
        let hash = hmac::Key::new(hmac::HMAC_SHA256, &options.hash_key.0);
        metrics.replicas.set(1);
        Self {
            options,
            hash,
            start,
            is_up: AtomicBool::new(false),
            replicas: AtomicU32::new(1),
            asks,
            asked: Mutex::new(asked),
            metrics,
        }
    }

    /// The hash of values and of limits, the same in all replicas.
    pub(super) const fn hash(&self) -> &hmac::Key {
        &self.hash
    }

    /// What happens while it is away.
    pub(super) const fn away(&self) -> StoreAway {
        self.options.away
    }

    /// The part of a maximum that this replica may admit by itself: at least one request, unless the maximum is 0.
    pub(super) fn part(&self, max: u32) -> u32 {
        (max / self.replicas.load(Ordering::Relaxed).max(1)).max(max.min(1))
    }

    /// Asks for more requests of a lease, unless that is being done. `alone` is what this replica has counted by
    /// itself. Returns `true` if an answer can be waited for.
    pub(super) fn ask(&self, lease: &Arc<Lease>, max: u32, alone: u64) -> bool {
        if !self.is_up.load(Ordering::Relaxed) {
            return false;
        }
        // If the queue is full, the question is dropped.
        !lease.words.begin_asking() || self.asks.try_send(Ask { lease: Arc::clone(lease), max, alone }).is_ok()
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.start).as_millis()).unwrap_or(u64::MAX)
    }
}

impl Leases {
    /// Those of a limit and one of its windows.
    pub(super) fn new(store: &Arc<Store>, limit: &Limit, window: Duration) -> Self {
        let key = || (LimitKey::new(&store.hash, limit, window), window);
        Self { store: Arc::clone(store), limit: (window >= SHARED_WINDOW_MIN).then(key) }
    }

    /// Returns `true` if the window is long enough for leases.
    pub(super) const fn are_shared(&self) -> bool {
        self.limit.is_some()
    }

    /// An empty lease of a counter; `None` if each replica counts its part.
    pub(super) fn lease(&self, values: CounterValues, carried: Carried) -> Option<Arc<Lease>> {
        let (limit, length) = self.limit?;
        Some(Arc::new(Lease {
            words: LeaseWords::new(),
            window: Window::new(length),
            window_ms: u64::try_from(length.as_millis()).unwrap_or(u64::MAX),
            key: CounterKey { limit, values },
            reported: AtomicU64::new(0),
            carried,
            began: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            refilled: Notify::new(),
        }))
    }
}

impl Lease {
    /// What is left, without charging.
    pub(super) fn state(&self, now: Tick) -> LeaseState {
        self.words.state(self.window, now)
    }

    /// Charges a request; see [`LeaseWords::charge`].
    pub(super) fn charge(&self, now: Tick) -> Option<(LeaseReceipt, Left)> {
        self.words.charge(self.window, now)
    }

    /// Takes a request back.
    pub(super) fn take_back(&self, receipt: LeaseReceipt) {
        self.words.take_back(receipt);
    }

    /// The requests that this replica has admitted by leases in the window that runs.
    pub(super) fn used(&self, now: Tick) -> u32 {
        self.words.used(now).saturating_add(self.carried.used(now))
    }

    /// Those that it has admitted by this one.
    pub(super) fn own_used(&self, now: Tick) -> u32 {
        self.words.used(now)
    }

    /// Returns `true` if it should be refilled, and nobody does it.
    pub(super) fn wants_more(&self, now: Tick) -> bool {
        self.words.is_low(now) && !self.words.is_asking()
    }

    /// Returns `true` while its window runs.
    pub(super) fn runs(&self, now: Tick) -> bool {
        self.words.runs(now)
    }

    /// Forgets a window that has ended, so that ticks can wrap.
    pub(super) fn reset_if_expired(&self, now: Tick) {
        self.words.reset_if_expired(now);
        self.carried.reset_if_expired(now);
    }

    /// So many of the requests that this replica has counted alone were reported.
    pub(super) fn reported(&self, alone: u64) -> u32 {
        let reported = self.reported.load(Ordering::Relaxed);
        if alone >> u32::BITS == reported >> u32::BITS { reported as u32 } else { 0 }
    }

    /// The part of what this replica has counted alone that was not reported.
    fn unreported(&self, alone: u64) -> u32 {
        (alone as u32).saturating_sub(self.reported(alone))
    }

    async fn refill_ends(&self) {
        let refilled = self.refilled.notified();
        tokio::pin!(refilled);
        // From here on it is told; a refill that has ended before is seen by the flag.
        refilled.as_mut().enable();
        if self.words.is_asking() {
            refilled.await;
        }
    }
}

impl LeaseWait {
    /// A request that waits for these leases, from now on or since it began.
    pub(super) fn new(leases: SmallVec<[Arc<Lease>; 2]>, now: Instant, until: Option<Instant>) -> Self {
        Self { leases, until: until.unwrap_or(now + WAIT_MAX) }
    }

    /// The end of the wait. After that, the request goes on without the store.
    pub(crate) const fn until(&self) -> Instant {
        self.until
    }

    /// Waits until the store has answered for all leases, or until the end of the wait.
    pub(crate) async fn refilled(&self) {
        let all = async {
            for lease in &self.leases {
                lease.refill_ends().await;
            }
        };
        // Whoever decides then sees what is there.
        timeout_at(self.until.into(), all).await.ok();
    }
}
