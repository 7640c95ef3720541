//! The state of endpoints in use: requests in flight, latency, failed connections. It outlives snapshots, is keyed by
//! stable identity, shared by all traffic threads, and swept when no route refers to it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use tidegate_config::model::{Backend, BackendKey, EndpointId, Snapshot};

use crate::budget::Cost;
use crate::sweep_trigger::SweepTrigger;
use crate::upstream::probe::CONNECT_MAX;
use crate::upstream::service_state::{CopyAtService, RequestAtService, ServiceState};

/// The time after which a latency counts half as much, so that an endpoint that was slow once is tried again.
const HALF_LIFE: Duration = Duration::from_secs(5);
/// The time after a first failed connection in which an endpoint is not tried; it doubles with each consecutive one.
const EJECTION_FIRST: Duration = Duration::from_secs(1);
/// The maximum time of an ejection.
const EJECTION_MAX: Duration = Duration::from_secs(16);
/// The minimum latency of an endpoint in microseconds, so that requests in flight always count.
const LATENCY_FLOOR_US: f64 = 100.0;

/// The state of one endpoint. Times are microseconds since the start of [`EndpointStates`]; 0 is never.
#[derive(Debug, Default)]
pub(crate) struct EndpointState {
    in_flight: AtomicU32,
    /// The bits of an `f64` in microseconds.
    latency: AtomicU64,
    measured_at: AtomicU64,
    failures_in_a_row: AtomicU32,
    /// 0 if it is not ejected. After this moment it is probed, or tried.
    ejected_until: AtomicU64,
}

/// The load of an endpoint.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Load {
    /// Requests in flight.
    pub(crate) in_flight: u32,
    /// The recent latency in microseconds; `None` before the first measurement.
    pub(crate) latency_us: Option<f64>,
}

impl Load {
    /// Returns `true` if it is less loaded than the other: the requests in flight plus the new one, times the latency.
    /// Against an unmeasured endpoint only requests in flight count, so that a new endpoint is not overloaded before
    /// its first response.
    pub(crate) fn is_below(self, other: Self) -> bool {
        let (own, others) = (f64::from(self.in_flight) + 1.0, f64::from(other.in_flight) + 1.0);
        match (self.latency_us, other.latency_us) {
            (Some(latency), Some(others_latency)) => own * latency < others * others_latency,
            (None, _) | (_, None) => own < others,
        }
    }
}

/// One request in flight at an endpoint, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<EndpointState>);

impl InFlight {
    /// Counts one more.
    pub(crate) fn enter(state: Arc<EndpointState>) -> Self {
        state.in_flight.fetch_add(1, Relaxed);
        Self(state)
    }

    /// The endpoint's state.
    pub(crate) fn state(&self) -> &EndpointState {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

impl EndpointState {
    /// The load. A higher latency counts at once, a lower one gradually (the peak-sensitive average of Finagle's
    /// balancer).
    pub(crate) fn load(&self, now: Moment) -> Load {
        let measured_at = self.measured_at.load(Relaxed);
        let latency = decayed(f64::from_bits(self.latency.load(Relaxed)), now.0.saturating_sub(measured_at));
        Load {
            in_flight: self.in_flight.load(Relaxed),
            latency_us: (measured_at > 0).then_some(latency.max(LATENCY_FLOOR_US)),
        }
    }

    /// Returns `true` if it is skipped for some time because it refused connections.
    pub(crate) fn is_ejected(&self, now: Moment) -> bool {
        self.ejected_until.load(Relaxed) > now.0
    }

    /// Returns `true` if it is still skipped after that time, until a connection shows that it accepts some again.
    pub(crate) fn awaits_probe(&self, now: Moment) -> bool {
        let until = self.ejected_until.load(Relaxed);
        until != 0 && until <= now.0
    }

    /// Returns `true` to one of the callers that see it wait for a probe. The others see it ejected until that is over.
    pub(crate) fn claims_probe(&self, now: Moment) -> bool {
        let until = self.ejected_until.load(Relaxed);
        let over = now.0 + micros(CONNECT_MAX) + micros(EJECTION_FIRST);
        let is_due = until != 0 && until <= now.0;
        is_due && self.ejected_until.compare_exchange(until, over, Relaxed, Relaxed).is_ok()
    }

    /// A probe has connected. Only a connection of a request ends the row of failures: TLS may fail still.
    pub(crate) fn accepts(&self) {
        self.ejected_until.store(0, Relaxed);
    }

    /// Requests in flight.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Records the time to a response's head. Concurrent measurements may be lost.
    pub(crate) fn measured(&self, latency: Duration, now: Moment) {
        let sample = latency.as_secs_f64() * 1e6;
        let age = now.0.saturating_sub(self.measured_at.swap(now.0, Relaxed));
        let before = f64::from_bits(self.latency.load(Relaxed));
        let after = if sample >= before { sample } else { sample + decayed(before - sample, age) };
        self.latency.store(after.to_bits(), Relaxed);
    }

    /// A connection was opened.
    pub(crate) fn connected(&self) {
        if self.failures_in_a_row.load(Relaxed) > 0 {
            self.failures_in_a_row.store(0, Relaxed);
            self.ejected_until.store(0, Relaxed);
        }
    }

    /// No connection could be opened: the endpoint is ejected, for longer with each consecutive failure.
    pub(crate) fn refused(&self, now: Moment) {
        let before = self.failures_in_a_row.fetch_add(1, Relaxed).min(8);
        let ejection = (EJECTION_FIRST * 2u32.pow(before)).min(EJECTION_MAX);
        self.ejected_until.store(now.0 + micros(ejection), Relaxed);
    }
}

fn decayed(value: f64, age_us: u64) -> f64 {
    // Ages and latencies are far below 2^52 microseconds, so the conversion is exact enough.
    value * (-(age_us as f64) / micros(HALF_LIFE) as f64).exp2()
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Tells the moment for an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MomentClock {
    start: Instant,
}

impl MomentClock {
    /// The moment for an instant.
    pub(crate) fn at(self, now: Instant) -> Moment {
        Moment(micros(now.saturating_duration_since(self.start)).max(1))
    }
}

/// A point in time, in microseconds since the start of [`EndpointStates`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment(u64);

/// The states of all endpoints, and the counters of round robin.
#[derive(Debug)]
pub(crate) struct EndpointStates {
    moments: MomentClock,
    /// Notified of every new state of an endpoint or backend.
    sweep_trigger: Arc<SweepTrigger>,
    states: papaya::HashMap<EndpointId, Arc<EndpointState>, RandomState>,
    turns: papaya::HashMap<BackendKey, Arc<AtomicU64>, RandomState>,
    services: papaya::HashMap<BackendKey, Arc<ServiceState>, RandomState>,
}

impl EndpointStates {
    /// No states.
    pub(crate) fn new(start: Instant, sweep_trigger: Arc<SweepTrigger>) -> Self {
        Self {
            moments: MomentClock { start },
            sweep_trigger,
            states: papaya::HashMap::with_hasher(RandomState::default()),
            turns: papaya::HashMap::with_hasher(RandomState::default()),
            services: papaya::HashMap::with_hasher(RandomState::default()),
        }
    }

    /// The moment for an instant.
    pub(crate) fn moment(&self, now: Instant) -> Moment {
        self.moments.at(now)
    }

    /// The clock of these moments.
    pub(crate) const fn moments(&self) -> MomentClock {
        self.moments
    }

    /// The state of an endpoint, if there is one.
    pub(crate) fn state(&self, id: EndpointId) -> Option<Arc<EndpointState>> {
        self.states.pin().get(&id).cloned()
    }

    /// Calls `ask` with an endpoint's state; `None` if there is none.
    pub(crate) fn peek<T>(&self, id: EndpointId, ask: impl FnOnce(&EndpointState) -> T) -> Option<T> {
        self.states.pin().get(&id).map(|state| ask(state))
    }

    /// Counts a request in flight at an endpoint.
    pub(crate) fn enter(&self, id: EndpointId) -> InFlight {
        let states = self.states.pin();
        if let Some(state) = states.get(&id) {
            return InFlight::enter(Arc::clone(state));
        }
        let in_flight = InFlight::enter(Arc::clone(states.get_or_insert_with(id, Arc::default)));
        self.sweep_trigger.mark();
        in_flight
    }

    /// The next number in the round robin of a backend.
    pub(crate) fn turn(&self, backend: &BackendKey) -> u64 {
        let turns = self.turns.pin();
        if let Some(turn) = turns.get(backend) {
            return turn.fetch_add(1, Relaxed);
        }
        let turn = turns.get_or_insert_with(backend.clone(), Arc::default).fetch_add(1, Relaxed);
        self.sweep_trigger.mark();
        turn
    }

    /// Counts a request in flight at a Service port; `None` if it may have no more, by [`RequestAtService::enter`].
    pub(crate) fn enter_service(&self, backend: &BackendKey, cost: Cost, max: (u32, Cost)) -> Option<RequestAtService> {
        self.of_service(backend, |service| RequestAtService::enter(service, cost, max))
    }

    /// Counts a copy for a mirror at a Service port; `None` if it may have no more, by [`CopyAtService::enter`].
    pub(crate) fn enter_copy(&self, backend: &BackendKey, free: u32) -> Option<CopyAtService> {
        self.of_service(backend, |service| CopyAtService::enter(service, free))
    }

    fn of_service<T>(&self, backend: &BackendKey, enter: impl FnOnce(&Arc<ServiceState>) -> T) -> T {
        let services = self.services.pin();
        if let Some(service) = services.get(backend) {
            return enter(service);
        }
        self.sweep_trigger.mark();
        enter(services.get_or_insert_with(backend.clone(), Arc::default))
    }

    /// The number of endpoints that are ejected now, or wait for a probe.
    pub(crate) fn ejected(&self, now: Instant) -> usize {
        let now = self.moment(now);
        self.states.pin().values().filter(|state| state.is_ejected(now) || state.awaits_probe(now)).count()
    }

    /// Removes the states that the snapshot does not refer to. A request in flight at a removed endpoint keeps its
    /// state alive.
    pub(crate) fn sweep(&self, snapshot: &Snapshot) {
        let fixed: Vec<&Arc<Backend>> = snapshot.fixed_backends().collect();
        let all = snapshot.backends().values().chain(fixed.iter().copied());
        let named: std::collections::BTreeSet<EndpointId> =
            all.flat_map(|backend| backend.endpoints.iter().chain(&backend.draining)).map(|it| it.id).collect();
        let is_named = |key: &BackendKey| snapshot.backend(key).is_some() || fixed.iter().any(|it| it.key == *key);
        self.states.pin().retain(|id, _| named.contains(id));
        self.turns.pin().retain(|key, _| is_named(key));
        self.services.pin().retain(|key, _| is_named(key));
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::{Action, AppProtocol, Endpoint, Route, Target, WeightedTarget};

    use super::*;
    use crate::clock;
    use crate::sample_model::{backend_key, endpoints, parts, path, published, to_backend};

    const fn at(seconds: f64) -> Moment {
        Moment((seconds * 1e6) as u64)
    }

    #[test]
    fn requests_in_flight_end_when_they_are_dropped() {
        let states = EndpointStates::new(clock::now(), Arc::default());
        let id = Endpoint::tcp(([10, 0, 0, 1], 80).into(), None).id;
        let first = states.enter(id);
        let second = states.enter(id);
        assert_eq!(first.state().in_flight(), 2);
        drop(second);
        assert_eq!(states.peek(id, EndpointState::in_flight), Some(1));
        drop(first);
        assert_eq!(states.peek(id, EndpointState::in_flight), Some(0));
    }

    #[test]
    fn the_requests_of_a_service_are_limited() {
        let states = EndpointStates::new(clock::now(), Arc::default());
        let (web, other) = (backend_key("web"), backend_key("other"));
        let enter = |service| states.enter_service(service, Cost::NATIVE_REQUEST, (2, Cost::new(9, 999)));
        let (first, _second) = (enter(&web).unwrap(), enter(&web).unwrap());
        assert!(enter(&web).is_none() && enter(&web).is_none());
        assert!(enter(&other).is_some());
        drop(first);
        assert!(enter(&web).is_some());
    }

    #[test]
    fn latency_rises_at_once_and_falls_slowly() {
        let state = EndpointState::default();
        let latency = |seconds| state.load(at(seconds)).latency_us.unwrap_or_default();
        assert_eq!(state.load(at(1.0)).latency_us, None);
        state.measured(Duration::from_millis(10), at(1.0));
        assert!((latency(1.0) - 10_000.0).abs() < 1.0);
        state.measured(Duration::from_millis(100), at(1.0));
        assert!((latency(1.0) - 100_000.0).abs() < 1.0);
        state.measured(Duration::from_millis(20), at(6.0));
        assert!((latency(6.0) - 60_000.0).abs() < 1.0);
        assert!(latency(11.0) < 31_000.0);
        assert!((latency(600.0) - LATENCY_FLOOR_US).abs() < 1.0);
    }

    #[track_caller]
    fn check_below(own: (u32, Option<f64>), other: (u32, Option<f64>), want: bool) {
        let load = |(in_flight, latency_us)| Load { in_flight, latency_us };
        assert_eq!(load(own).is_below(load(other)), want, "{own:?} {other:?}");
    }

    #[test]
    fn in_flight_counts_by_latency_where_it_is_known() {
        check_below((0, Some(10.0)), (0, Some(20.0)), true);
        check_below((1, Some(10.0)), (0, Some(20.0)), false);
        check_below((9, Some(1.0)), (0, Some(20.0)), true);
        check_below((0, None), (1, Some(1.0)), true);
        check_below((1, None), (0, Some(1000.0)), false);
        check_below((0, None), (0, None), false);
    }

    #[test]
    fn each_consecutive_failure_ejects_for_longer_up_to_a_limit() {
        let state = EndpointState::default();
        for (failed_at, ejection) in [(10.0, 1.0), (20.0, 2.0), (30.0, 4.0), (40.0, 8.0), (60.0, 16.0), (90.0, 16.0)] {
            state.refused(at(failed_at));
            assert!(state.is_ejected(at(failed_at + ejection - 0.1)), "{failed_at}");
            assert!(!state.is_ejected(at(failed_at + ejection)), "{failed_at}");
        }
        state.refused(at(200.0));
        state.connected();
        assert!(!state.is_ejected(at(200.0)));
        state.refused(at(300.0));
        assert!(!state.is_ejected(at(301.0)));
    }

    #[test]
    fn one_probe_at_a_time_ends_an_ejection() {
        let state = EndpointState::default();
        assert!(!state.awaits_probe(at(1.0)) && !state.claims_probe(at(1.0)), "it never failed");
        state.refused(at(10.0));
        assert!(!state.awaits_probe(at(10.9)) && !state.claims_probe(at(10.9)));
        assert!(state.awaits_probe(at(11.0)) && state.claims_probe(at(11.0)));
        assert!(!state.awaits_probe(at(12.0)) && !state.claims_probe(at(12.0)) && state.is_ejected(at(12.0)));
        // Its task may have been lost.
        assert!(state.claims_probe(at(17.0)));
        state.refused(at(18.0));
        assert!(state.is_ejected(at(19.9)), "the second failure in a row");
        assert!(state.claims_probe(at(20.0)));
        state.accepts();
        assert!(!state.is_ejected(at(20.0)) && !state.awaits_probe(at(99.0)));
        state.refused(at(100.0));
        assert!(state.is_ejected(at(103.9)), "the third failure in a row");
    }

    #[test]
    fn a_sweep_keeps_the_endpoints_of_backends() {
        let states = EndpointStates::new(clock::now(), Arc::default());
        let (kept, gone) = (([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], 80).into());
        let mut model = parts(vec![("a.test", vec![to_backend("web", path("/"), AppProtocol::Http)])], None);
        endpoints(&mut model, "web", &[kept]);
        let (kept, gone) = (Endpoint::tcp(kept, None).id, Endpoint::tcp(gone, None).id);
        drop((states.enter(kept), states.enter(gone)));
        assert_eq!((states.turn(&backend_key("web")), states.turn(&backend_key("old"))), (0, 0));
        states.sweep(&published(model).pin());
        assert!(states.peek(kept, |_| ()).is_some());
        assert!(states.peek(gone, |_| ()).is_none());
        assert_eq!((states.turn(&backend_key("web")), states.turn(&backend_key("old"))), (1, 0));
    }

    #[test]
    fn a_sweep_keeps_the_endpoints_that_a_route_names_by_address() {
        let states = EndpointStates::new(clock::now(), Arc::default());
        let endpoint = Endpoint::tcp(([10, 0, 0, 9], 80).into(), None);
        let id = endpoint.id;
        let fixed = Backend::new(backend_key("fixed"), [endpoint].into());
        let target = Target {
            backend: backend_key("fixed"),
            protocol: AppProtocol::Http,
            tls: None,
            fixed: Some(Arc::new(fixed)),
        };
        let route = to_backend("web", path("/"), AppProtocol::Http);
        let action = Action::Forward([WeightedTarget::new(Arc::new(target), 1)].into());
        let model = parts(Vec::new(), Some(Route { action, ..route }));
        drop(states.enter(id));
        assert_eq!(states.turn(&backend_key("fixed")), 0);
        states.sweep(&published(model).pin());
        assert!(states.peek(id, |_| ()).is_some());
        assert_eq!(states.turn(&backend_key("fixed")), 1);
    }
}
