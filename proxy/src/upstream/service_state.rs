//! The state of a Service port: requests in flight to its endpoints, and the retries among them. Like Envoy's circuit
//! breaker it has a retry budget, so that retries do not multiply the load of a Service that fails under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::budget::{Cost, Usage};

/// The maximum share of retries in the requests in flight, in percent.
const RETRIES_PERCENT: u64 = 20;

/// The number of retries under way that is always allowed.
const RETRIES_MIN: u64 = 3;

/// The state of one Service port.
#[derive(Debug, Default)]
pub(crate) struct ServiceState {
    /// The costs of the requests in flight. Each is one file, so that the files are their number.
    in_flight: Usage,
    retries: AtomicU32,
    /// Copies for mirrors in preparation and in flight.
    copies: AtomicU32,
}

/// One request in flight at a Service port, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct RequestAtService {
    state: Arc<ServiceState>,
    cost: Cost,
}

/// One retry under way at a Service port, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Retrying(Arc<ServiceState>);

/// One copy for a mirror at a Service port, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct CopyAtService(Arc<ServiceState>);

impl CopyAtService {
    /// Counts a copy; `None` if there would be more than places are free. So one Service never takes more than half of
    /// all places, n Services leave a share of 1/(n + 1), and none needs a limit of its own (dynamic thresholds, as in
    /// the shared buffers of switches: Choudhury and Hahne, 1998).
    pub(crate) fn enter(state: &Arc<ServiceState>, free: u32) -> Option<Self> {
        let copy = Self(Arc::clone(state));
        (state.copies.fetch_add(1, Relaxed) < free).then_some(copy)
    }
}

impl Drop for CopyAtService {
    fn drop(&mut self) {
        self.0.copies.fetch_sub(1, Relaxed);
    }
}

impl RequestAtService {
    /// Counts a request of this cost; `None` if there are `requests_max` already, or if all of them would cost more
    /// than `cost_max`. One request is always possible.
    pub(crate) fn enter(state: &Arc<ServiceState>, cost: Cost, (requests_max, cost_max): (u32, Cost)) -> Option<Self> {
        let at = Self { state: Arc::clone(state), cost };
        let all = state.in_flight.add(cost);
        let fits = all.files() == 1 || all.is_within(cost_max);
        (fits && all.files() <= u64::from(requests_max)).then_some(at)
    }

    /// Adds to the cost of the request, unless all of them would cost more than `cost_max`. Returns `true` if it was
    /// added.
    pub(crate) fn grow(&mut self, more: Cost, cost_max: Cost) -> bool {
        let fits = self.state.in_flight.add(more).is_within(cost_max);
        if fits {
            self.cost = self.cost.and(more);
        } else {
            self.state.in_flight.sub(more);
        }
        fits
    }

    /// Replaces the cost of the request by a smaller one, and returns the difference.
    pub(crate) fn shrink(&mut self, cost: Cost) -> Cost {
        let less = self.cost.beyond(cost);
        self.state.in_flight.sub(less);
        self.cost = cost;
        less
    }

    /// The cost of the request.
    pub(crate) const fn cost(&self) -> Cost {
        self.cost
    }

    /// Counts a retry of a request; `None` if the retries under way have used up the budget.
    pub(crate) fn begin_retry(&self) -> Option<Retrying> {
        let share = self.state.in_flight.now().files() * RETRIES_PERCENT / 100;
        let retrying = Retrying(Arc::clone(&self.state));
        (u64::from(self.state.retries.fetch_add(1, Relaxed)) < share.max(RETRIES_MIN)).then_some(retrying)
    }
}

impl Drop for RequestAtService {
    fn drop(&mut self) {
        self.state.in_flight.sub(self.cost);
    }
}

impl Drop for Retrying {
    fn drop(&mut self) {
        self.0.retries.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: (u32, Cost) = (u32::MAX, Cost::new(u32::MAX >> 9, u32::MAX));

    /// The number of requests of a cost that a Service may have.
    #[track_caller]
    fn check_places(cost: Cost, max: (u32, Cost), want: usize) {
        let state = Arc::default();
        let requests: Vec<RequestAtService> =
            (0..9).filter_map(|_| RequestAtService::enter(&state, cost, max)).collect();
        assert_eq!(requests.len(), want, "{cost:?} {max:?}");
    }

    #[test]
    fn requests_are_limited_by_their_number_and_by_their_cost() {
        let (native, full) = (Cost::NATIVE_REQUEST, Cost::PINGORA_REQUEST);
        check_places(native, (3, Cost::new(9, 9999)), 3);
        check_places(native, (8, Cost::new(4, 9999)), 4);
        check_places(native, (8, Cost::new(9, 512)), 8);
        check_places(full, (8, Cost::new(9, 512)), 2);
        check_places(full, (8, Cost::new(9, 1)), 1);
        check_places(full, (0, Cost::new(9, 9999)), 0);
    }

    #[test]
    fn a_tunnel_makes_room_for_requests() {
        let (state, max) = (Arc::default(), (8, Cost::new(8, 320)));
        let mut first = RequestAtService::enter(&state, Cost::PINGORA_REQUEST, max).unwrap();
        assert!(RequestAtService::enter(&state, Cost::PINGORA_REQUEST, max).is_none());
        first.shrink(Cost::TUNNEL);
        assert!(!first.grow(Cost::COMPRESSION, max.1) && first.grow(Cost::new(0, 256), max.1));
        first.shrink(Cost::TUNNEL);
        assert!(RequestAtService::enter(&state, Cost::PINGORA_REQUEST, max).is_some());
        drop(first);
        assert_eq!(state.in_flight.now(), Cost::default());
    }

    #[track_caller]
    fn check_budget(in_flight: usize, want: usize) {
        let state = Arc::default();
        let requests: Vec<RequestAtService> =
            (0..in_flight).filter_map(|_| RequestAtService::enter(&state, Cost::NATIVE_REQUEST, ALL)).collect();
        let mut retries: Vec<Retrying> = (0..in_flight).filter_map(|_| requests[0].begin_retry()).collect();
        assert_eq!(retries.len(), want, "{in_flight}");
        // A retry that has ended makes room for another one.
        retries.pop();
        retries.extend((0..2).filter_map(|_| requests[0].begin_retry()));
        assert_eq!(retries.len(), want, "{in_flight}");
    }

    #[test]
    fn a_service_has_no_more_copies_than_places_are_free() {
        let (greedy, other) = (Arc::default(), Arc::default());
        let mut copies: Vec<CopyAtService> = Vec::new();
        let fill = |copies: &mut Vec<CopyAtService>, state: &Arc<ServiceState>| {
            let before = copies.len();
            while let Some(copy) =
                u32::try_from(100 - copies.len()).ok().and_then(|free| CopyAtService::enter(state, free))
            {
                copies.push(copy);
            }
            copies.len() - before
        };
        assert_eq!(fill(&mut copies, &greedy), 50);
        assert_eq!(fill(&mut copies, &other), 25);
        assert_eq!(fill(&mut copies, &greedy), 0);
        copies.clear();
        assert_eq!(greedy.copies.load(Relaxed) + other.copies.load(Relaxed), 0);
        assert!(CopyAtService::enter(&greedy, 0).is_none());
        assert!(CopyAtService::enter(&greedy, 1).is_some());
    }

    #[test]
    fn retries_are_limited_to_a_share_of_the_requests_in_flight_and_at_least_three() {
        check_budget(3, 3);
        check_budget(4, 3);
        check_budget(19, 3);
        check_budget(20, 4);
        check_budget(24, 4);
        check_budget(25, 5);
        check_budget(1000, 200);
    }
}
