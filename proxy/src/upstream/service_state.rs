//! The state of a Service port: requests in flight to its endpoints, and the retries among them. Like Envoy's circuit
//! breaker it has a retry budget, so that retries do not multiply the load of a Service that fails under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The maximum share of retries in the requests in flight, in percent.
const RETRIES_PERCENT: u64 = 20;

/// The number of retries under way that is always allowed.
const RETRIES_MIN: u64 = 3;

/// The state of one Service port.
#[derive(Debug, Default)]
pub(crate) struct ServiceState {
    in_flight: AtomicU32,
    retries: AtomicU32,
}

/// One request in flight at a Service port, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct AtService(Arc<ServiceState>);

/// One retry under way at a Service port, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Retrying(Arc<ServiceState>);

impl AtService {
    /// Counts a request; `None` if there are `max` already.
    pub(crate) fn enter(state: &Arc<ServiceState>, max: u32) -> Option<Self> {
        let at = Self(Arc::clone(state));
        (at.0.in_flight.fetch_add(1, Relaxed) < max).then_some(at)
    }

    /// Counts a retry of a request; `None` if the retries under way have used up the budget.
    pub(crate) fn begin_retry(&self) -> Option<Retrying> {
        let share = u64::from(self.0.in_flight.load(Relaxed)) * RETRIES_PERCENT / 100;
        let retrying = Retrying(Arc::clone(&self.0));
        (u64::from(self.0.retries.fetch_add(1, Relaxed)) < share.max(RETRIES_MIN)).then_some(retrying)
    }
}

impl Drop for AtService {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
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

    #[track_caller]
    fn check_budget(in_flight: usize, want: usize) {
        let state = Arc::default();
        let requests: Vec<AtService> = (0..in_flight).filter_map(|_| AtService::enter(&state, u32::MAX)).collect();
        let mut retries: Vec<Retrying> = (0..in_flight).filter_map(|_| requests[0].begin_retry()).collect();
        assert_eq!(retries.len(), want, "{in_flight}");
        // A retry that has ended makes room for another one.
        retries.pop();
        retries.extend((0..2).filter_map(|_| requests[0].begin_retry()));
        assert_eq!(retries.len(), want, "{in_flight}");
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
