//! The idle connections of a traffic thread, and its flows of datagrams. When files or memory run out, the one that has
//! been idle for longest is closed. Flows are closed only for new flows: a sender of forged addresses could otherwise
//! close the connections of all clients.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use crate::budget::{Budget, Cost};
use crate::flow_budget::FlowBudget;

/// The number of connections found by one search, so that the cost per closed connection is small however many there
/// are.
const FOUND_MAX: usize = 256;

thread_local! {
    static CONNECTIONS: RefCell<Connections> = RefCell::default();
    static FLOWS: RefCell<Connections> = RefCell::default();
}

/// A list of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum List {
    /// The list of connections.
    Connections,
    /// The list of datagram flows.
    Flows,
}

impl List {
    /// `None` at the end of the thread, when its lists may be gone.
    fn with<T>(self, act: impl FnOnce(&mut Connections) -> T) -> Option<T> {
        let list = match self {
            Self::Connections => &CONNECTIONS,
            Self::Flows => &FLOWS,
        };
        list.try_with(|list| act(&mut list.borrow_mut())).ok()
    }
}

/// The connections of a thread, or its flows.
#[derive(Debug, Default)]
struct Connections {
    open: HashMap<u64, OpenConnection, foldhash::fast::RandomState>,
    /// The last number given.
    numbers: u64,
    /// The longest idle ones at the last search: their numbers, and since when they were idle.
    found: VecDeque<(u64, u64)>,
}

#[derive(Debug)]
struct OpenConnection {
    activity: Arc<Activity>,
    task: AbortHandle,
    cost: Cost,
}

/// Whether a connection is idle.
#[derive(Debug)]
pub(crate) struct Activity {
    /// The epoch of `since`.
    epoch: Instant,
    /// Since when it is idle, in milliseconds since the epoch.
    since: AtomicU64,
    requests: AtomicU32,
}

/// A request of an HTTP/2 connection, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct ActiveRequest(Arc<Activity>);

/// The budget to which a cost was charged.
#[derive(Debug)]
pub(crate) enum ChargedTo {
    /// For a connection.
    Connection(Arc<Budget>),
    /// For a flow.
    Flow(Arc<FlowBudget>),
}

/// The entry of a connection or flow in the list of its thread. Dropping it removes the entry and returns the charge,
/// unless [`give_way`] has done so.
#[derive(Debug)]
pub(crate) struct Entry {
    number: u64,
    charged: ChargedTo,
}

/// The list and number of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryId(List, u64);

impl Activity {
    /// The activity of a connection that waits for its first request. All connections of a thread share one epoch.
    pub(crate) fn new(epoch: Instant, now: Instant) -> Arc<Self> {
        let activity = Self { epoch, since: AtomicU64::new(0), requests: AtomicU32::new(0) };
        activity.wait(now);
        Arc::new(activity)
    }

    /// The connection is idle from now on.
    pub(crate) fn wait(&self, now: Instant) {
        self.note(now);
        self.requests.store(0, Relaxed);
    }

    /// The time at which it has been idle for `long`.
    pub(crate) fn waited(&self, long: Duration) -> Instant {
        self.epoch + Duration::from_millis(self.since.load(Relaxed)) + long
    }

    fn note(&self, now: Instant) {
        let since = now.saturating_duration_since(self.epoch);
        self.since.store(since.as_secs() * 1000 + u64::from(since.subsec_millis()), Relaxed);
    }

    /// The connection has a request.
    pub(crate) fn begin(&self) {
        self.requests.store(1, Relaxed);
    }

    /// The connection has one more request, of several at the same time.
    pub(crate) fn enter(self: &Arc<Self>) -> ActiveRequest {
        self.requests.fetch_add(1, Relaxed);
        ActiveRequest(Arc::clone(self))
    }

    /// Since when it is idle; `None` while it has a request.
    fn waiting_since(&self) -> Option<u64> {
        (self.requests.load(Relaxed) == 0).then(|| self.since.load(Relaxed))
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.note(crate::clock::now());
        self.0.requests.fetch_sub(1, Relaxed);
    }
}

impl Entry {
    /// The entry of a connection or flow that is charged and about to be served.
    pub(crate) fn new(charged: ChargedTo) -> Self {
        let number = charged.list().with(|connections| {
            connections.numbers += 1;
            connections.numbers
        });
        Self { number: number.unwrap_or_default(), charged }
    }

    /// Its place.
    pub(crate) const fn place(&self) -> EntryId {
        EntryId(self.charged.list(), self.number)
    }

    /// Returns `true` if [`give_way`] has closed it.
    pub(crate) fn evicted(&self) -> bool {
        let there = self.charged.list().with(|connections| connections.open.contains_key(&self.number));
        there == Some(false)
    }
}

impl ChargedTo {
    const fn list(&self) -> List {
        match self {
            Self::Connection(_) => List::Connections,
            Self::Flow(_) => List::Flows,
        }
    }
}

/// Allows [`give_way`] to close the connection or flow of an entry of this thread while it is idle. It must be called
/// before its task runs. `cost` is the charged cost.
pub(crate) fn register(place: EntryId, activity: Arc<Activity>, task: AbortHandle, cost: Cost) {
    let EntryId(list, number) = place;
    list.with(|connections| connections.open.insert(number, OpenConnection { activity, task, cost }));
}

impl Drop for Entry {
    fn drop(&mut self) {
        let open = self.charged.list().with(|connections| connections.open.remove(&self.number)).flatten();
        match (&self.charged, open) {
            (ChargedTo::Connection(budget), Some(open)) => budget.release(open.cost),
            (ChargedTo::Flow(budget), Some(_)) => budget.release(),
            (_, None) => {}
        }
    }
}

/// Closes the longest idle connection or flow of this thread. Returns its charged cost, which the caller must return to
/// the budget, or `None` if none is idle.
pub(crate) fn evict(list: List) -> Option<Cost> {
    let freed = list.with(|connections| {
        if connections.found.is_empty() {
            connections.look();
        }
        while let Some((number, since)) = connections.found.pop_front() {
            let open = connections.open.get(&number);
            if open.is_some_and(|open| open.activity.waiting_since() == Some(since))
                && let Some(open) = connections.open.remove(&number)
            {
                open.task.abort();
                return Some(open.cost);
            }
            if connections.found.is_empty() {
                // All of them have had a request since.
                connections.look();
            }
        }
        None
    });
    freed.flatten()
}

impl Connections {
    /// Searches the longest idle ones.
    fn look(&mut self) {
        let waiting = |(number, open): (&u64, &OpenConnection)| Some((open.activity.waiting_since()?, *number));
        let mut waiting: Vec<(u64, u64)> = self.open.iter().filter_map(waiting).collect();
        if waiting.len() > FOUND_MAX {
            waiting.select_nth_unstable(FOUND_MAX);
            waiting.truncate(FOUND_MAX);
        }
        waiting.sort_unstable();
        self.found.extend(waiting.into_iter().map(|(since, number)| (number, since)));
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;

    use super::*;
    use crate::budget::BudgetLimits;
    use crate::clock;

    struct Connection {
        activity: Arc<Activity>,
        entry: Option<Entry>,
        task: JoinHandle<()>,
    }

    fn budget() -> Arc<Budget> {
        Arc::new(Budget::new(&BudgetLimits::default()))
    }

    fn connection(budget: &Arc<Budget>, epoch: Instant, seconds: u64) -> Connection {
        let activity = Activity::new(epoch, epoch + Duration::from_secs(seconds));
        let task = tokio::spawn(std::future::pending());
        let entry = Entry::new(ChargedTo::Connection(Arc::clone(budget)));
        budget.charge(Cost::PLAIN);
        register(entry.place(), Arc::clone(&activity), task.abort_handle(), Cost::PLAIN);
        Connection { activity, entry: Some(entry), task }
    }

    #[tokio::test]
    async fn the_longest_idle_connection_is_closed_and_none_with_a_request() {
        let (epoch, budget) = (clock::now(), budget());
        let at = |seconds| epoch + Duration::from_secs(seconds);
        let mut all: Vec<Connection> = (0..5).map(|number| connection(&budget, epoch, 10 - number)).collect();
        all[4].activity.begin();
        all[3].entry = None;
        let busy = all[1].activity.enter();
        assert_eq!(evict(List::Connections), Some(Cost::PLAIN));
        assert!((&mut all[2].task).await.unwrap_err().is_cancelled());
        // This one was found too, and has had a request since.
        all[0].activity.wait(at(20));
        assert_eq!(evict(List::Connections), Some(Cost::PLAIN));
        assert!((&mut all[0].task).await.unwrap_err().is_cancelled());
        assert_eq!(evict(List::Connections), None);
        drop(busy);
        all[4].activity.wait(at(30));
        assert!(
            evict(List::Connections).is_some()
                && evict(List::Connections).is_some()
                && evict(List::Connections).is_none()
        );
        assert!((&mut all[1].task).await.unwrap_err().is_cancelled());
        assert!((&mut all[4].task).await.unwrap_err().is_cancelled());
        assert!(!all[3].task.is_finished());
    }

    #[tokio::test]
    async fn a_connection_is_released_once() {
        let (epoch, budget) = (clock::now(), budget());
        let (one, other) = (connection(&budget, epoch, 1), connection(&budget, epoch, 2));
        let cost = evict(List::Connections).unwrap();
        budget.release(cost);
        drop(one);
        assert_eq!(budget.taken(), Cost::PLAIN);
        drop(other);
        assert_eq!((budget.taken(), evict(List::Connections)), (Cost::default(), None));
    }

    #[tokio::test]
    async fn more_connections_than_one_search_finds_are_closed_in_order() {
        let (epoch, budget) = (clock::now(), budget());
        let count = FOUND_MAX as u64 + 10;
        let mut all: Vec<Connection> = (0..count).map(|number| connection(&budget, epoch, count - number)).collect();
        while let Some(oldest) = all.pop() {
            assert_eq!(evict(List::Connections), Some(Cost::PLAIN));
            assert!(oldest.task.await.unwrap_err().is_cancelled());
            assert!(all.iter().all(|younger| !younger.task.is_finished()));
        }
        assert_eq!(evict(List::Connections), None);
    }
}
