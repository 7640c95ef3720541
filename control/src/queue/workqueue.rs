//! The queue for several workers: [`Queue`] behind a lock, and the tasks that wait for it. The only decision made here
//! is which task to wake.

#![allow(clippy::disallowed_types, reason = "several workers share one queue; no traffic thread comes here")]

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep_until};

use super::{Lane, LaneShares, Queue};
use crate::clock;
use crate::sync::{Arc, Mutex};

/// A queue that workers share, each of which takes a key at a time. Clones are the same queue.
///
/// Adding never blocks on anything but the lock, which is held for one step of the queue.
pub struct Workqueue<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    state: Mutex<State<K>>,
    share: LaneShares,
    order: Order<K>,
}

/// The rank of a key in the slow lane; the lowest goes first.
type Order<K> = Box<dyn Fn(&K) -> u64 + Send + Sync>;

struct State<K> {
    queue: Queue<K>,
    /// Tasks that wait for a key, the longest waiting first. All of them have timers for the next delayed key.
    getters: BTreeMap<u64, Waker>,
    /// Tasks that wait for the end.
    drainers: BTreeMap<u64, Waker>,
    /// Tasks to wake after the lock is released.
    woken: Vec<Waker>,
    tickets: u64,
    /// The number of shutdowns: after each, tasks that wait for the end stop waiting.
    shutdowns: u64,
}

impl<K> Clone for Workqueue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K> fmt::Debug for Workqueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workqueue").field("share", &self.shared.share).finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash> Workqueue<K> {
    /// Shares a queue. `order` returns the rank of a key in the slow lane, where the lowest goes first; it is called
    /// when a key is added.
    #[must_use]
    pub fn new(queue: Queue<K>, share: LaneShares, order: impl Fn(&K) -> u64 + Send + Sync + 'static) -> Self {
        let (getters, drainers, woken) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let state = State { queue, getters, drainers, woken, tickets: 0, shutdowns: 0 };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), share, order: Box::new(order) }) }
    }

    /// Adds a key; see [`Queue::add`].
    pub fn add(&self, key: K, lane: Lane) {
        let rank = self.rank(&key, lane);
        self.change(|state, now| state.queue.add(key, lane, rank, now));
    }

    /// Adds a key after a delay; see [`Queue::add_after`].
    pub fn add_after(&self, key: K, delay: Duration, lane: Lane) {
        let rank = self.rank(&key, lane);
        self.change(|state, now| state.queue.add_after(key, delay, lane, rank, now));
    }

    /// Adds a failed key after a delay that grows with its failures; see [`Queue::retry`].
    pub fn retry(&self, key: K) -> Duration {
        let rank = self.rank(&key, Lane::Slow);
        self.change(|state, now| state.queue.retry(key, rank, now, fastrand::u64(..)))
    }

    /// Resets the failures of a key.
    pub fn forget(&self, key: &K) {
        self.change(|state, _| state.queue.forget(key));
    }

    /// The next key; `None` after the end of the queue, when none waits. Dropping the future before it is ready takes
    /// no key.
    pub fn get(&self) -> Get<'_, K> {
        Get { queue: self, ticket: None, timer: None }
    }

    /// The number of keys in a lane.
    #[must_use]
    pub fn depth(&self, lane: Lane) -> usize {
        self.change(|state, _| state.queue.depth(lane))
    }

    /// Ends the queue: waiting keys are still taken, delayed ones are dropped. [`Workqueue::drain`] stops waiting.
    pub fn shutdown(&self) {
        self.change(|state, _| {
            state.queue.shutdown();
            state.shutdowns += 1;
            state.call(usize::MAX);
        });
    }

    /// Ends the queue, and waits until no key waits or is in work, or until [`Workqueue::shutdown`]. Workers must take
    /// the waiting keys; a deadline is up to the caller.
    pub async fn drain(&self) {
        let begin = |state: &mut State<K>, _| {
            state.queue.shutdown();
            state.call(usize::MAX);
            state.tickets += 1;
            (state.tickets, state.shutdowns)
        };
        let (ticket, shutdowns) = self.change(begin);
        let ended = |context: &mut Context<'_>| {
            self.change(|state, _| {
                if state.queue.drained() || state.shutdowns != shutdowns {
                    return Poll::Ready(());
                }
                state.drainers.insert(ticket, context.waker().clone());
                Poll::Pending
            })
        };
        std::future::poll_fn(ended).await;
    }

    fn rank(&self, key: &K, lane: Lane) -> u64 {
        if lane == Lane::Slow { (self.shared.order)(key) } else { 0 }
    }

    /// Makes one step under the lock, with the time, and then wakes the affected tasks.
    ///
    /// For each new key in the lanes one getter is woken; a getter that was woken and is dropped wakes the next one.
    /// Whenever the next delayed key has become earlier, all getters are woken and reset their timers, so that any of
    /// them may be dropped.
    fn change<T>(&self, step: impl FnOnce(&mut State<K>, Instant) -> T) -> T {
        let now = clock::now();
        let mut locked = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *locked;
        let due = state.queue.fire(now);
        let (len, next_due, shutdowns) = (state.queue.len(), state.queue.next_due(), state.shutdowns);
        let result = step(state, now);
        state.call(due + state.queue.len().saturating_sub(len));
        if state.queue.next_due().is_some_and(|due| next_due.is_none_or(|before| due < before)) {
            state.call(usize::MAX);
        }
        if state.queue.drained() || state.shutdowns != shutdowns {
            state.woken.extend(std::mem::take(&mut state.drainers).into_values());
        }
        let woken = std::mem::take(&mut state.woken);
        drop(locked);
        woken.into_iter().for_each(Waker::wake);
        result
    }
}

impl<K> State<K> {
    /// Wakes up to this number of getters.
    fn call(&mut self, getters: usize) {
        for _ in 0..getters.min(self.getters.len()) {
            self.woken.extend(self.getters.pop_first().map(|(_, getter)| getter));
        }
    }
}

/// A future that waits for a key.
#[must_use = "a future does nothing by itself"]
pub struct Get<'a, K: Clone + Eq + Hash> {
    queue: &'a Workqueue<K>,
    /// Its ticket while it waits, or until it is woken.
    ticket: Option<u64>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<K: Clone + Eq + Hash> fmt::Debug for Get<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Get").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash> Get<'_, K> {
    /// Takes a key, or none because the queue has ended; otherwise waits with a ticket and returns the time of the next
    /// delayed key.
    fn attempt(&mut self, waker: &Waker) -> Result<Option<K>, Option<Instant>> {
        let (share, ticket) = (self.queue.shared.share, &mut self.ticket);
        self.queue.change(|state, now| {
            // A getter that takes a key must not be woken for another.
            if let Some(ticket) = *ticket {
                state.getters.remove(&ticket);
            }
            let key = state.queue.get(share, now);
            if key.is_some() || state.queue.ending() {
                *ticket = None;
                return Ok(key);
            }
            let ticket = *ticket.get_or_insert_with(|| {
                state.tickets += 1;
                state.tickets
            });
            state.getters.insert(ticket, waker.clone());
            Err(state.queue.next_due())
        })
    }
}

impl<K: Clone + Eq + Hash> Future for Get<'_, K> {
    type Output = Option<WorkItem<K>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let due = match self.attempt(context.waker()) {
                Ok(key) => return Poll::Ready(key.map(|key| WorkItem { queue: self.queue.clone(), key })),
                Err(None) => {
                    self.timer = None;
                    return Poll::Pending;
                }
                Err(Some(due)) => due.into(),
            };
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
            if timer.deadline() != due {
                timer.as_mut().reset(due);
            }
            ready!(timer.as_mut().poll(context));
        }
    }
}

impl<K: Clone + Eq + Hash> Drop for Get<'_, K> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        self.queue.change(|state, _| {
            if state.getters.remove(&ticket).is_none() && !state.queue.is_empty() {
                state.call(1);
            }
        });
    }
}

/// A key in work: no other worker gets it meanwhile. Dropping it ends the work, even if the worker panics.
pub struct WorkItem<K: Clone + Eq + Hash> {
    queue: Workqueue<K>,
    key: K,
}

impl<K: Clone + Eq + Hash + fmt::Debug> fmt::Debug for WorkItem<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkItem").field(&self.key).finish()
    }
}

impl<K: Clone + Eq + Hash> WorkItem<K> {
    /// Ends the work with a failure: the key is added again after a delay that grows with its failures. Returns the
    /// delay.
    pub fn retry(self) -> Duration {
        self.queue.retry(self.key.clone())
    }

    /// Ends the work with success: earlier failures are reset.
    pub fn succeeded(self) {
        self.queue.forget(&self.key);
    }
}

impl<K: Clone + Eq + Hash> Deref for WorkItem<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: Clone + Eq + Hash> Drop for WorkItem<K> {
    fn drop(&mut self) {
        self.queue.change(|state, now| state.queue.done(&self.key, now));
    }
}
