//! The attempts of one request: the endpoints tried, and the state of the current attempt.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tidegate_config::model::{Backend, Balance, Endpoint, EndpointId, Transport};

use crate::upstream::balance::{self, EndpointFacts, Random};
use crate::upstream::endpoint_state::{EndpointState, EndpointStates, InFlight, Load, Moment};
use crate::upstream::own_addresses::Listening;
use crate::upstream::probe::probe;

/// The minimum latency of a failure. Otherwise an endpoint that fails at once would seem the fastest, and attract the
/// requests of the others.
const FAILURE_LATENCY: Duration = Duration::from_secs(1);

/// The time within which a refused connection does not count as an attempt, because a client would not notice it.
const AT_ONCE: Duration = Duration::from_millis(100);

/// The number of attempts that do not count because the endpoint ended their connection before them, and did not
/// process them. One that does so again and again would get the request without end.
pub(crate) const UNPROCESSED_MAX: usize = 4;

/// The same for attempts whose streams the endpoint refused: it may be overloaded.
const STREAM_REFUSED_MAX: usize = 1;

/// The assessment of an endpoint by the beginning of its response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AttemptOutcome {
    /// It answered in time.
    Response,
    /// It answered, but the client's own body may have caused the delay.
    Slowed,
    /// It answered that it cannot serve.
    Unable,
    /// It broke the connection or did not answer.
    Broken,
}

/// All attempts of one request.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// Endpoints that refused a connection.
    refused: Vec<EndpointId>,
    /// The number of those that refused at once.
    refused_at_once: usize,
    /// The number of attempts whose streams their endpoint refused unprocessed.
    stream_refused: usize,
    /// The number of attempts whose endpoint ended their connection before them.
    excluded: usize,
    /// Endpoints that took a connection and sent no response.
    broke: Vec<EndpointId>,
    /// The endpoint of the request's session.
    session: Option<EndpointId>,
    /// Whether the next attempt may use it again.
    excused: bool,
    count: usize,
    last: Option<Attempt>,
}

/// One attempt.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// The endpoint's address.
    pub(crate) address: SocketAddr,
    /// The time to open the connection; `None` before that, and for one from the pool.
    pub(crate) connect: Option<Duration>,
    /// The time from the connection to the response's head.
    pub(crate) first_byte: Option<Duration>,
    id: EndpointId,
    began: Instant,
    connected: Option<Instant>,
    in_flight: Option<InFlight>,
}

/// The facts for detecting a way back to the edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnAddresses<'a> {
    /// The addresses on which the process listens.
    pub(crate) listening: &'a Listening,
    /// The address that the request came in over.
    pub(crate) local: Option<IpAddr>,
}

/// The facts for a choice.
struct AttemptFacts<'a> {
    states: &'a EndpointStates,
    /// The transport of the endpoints.
    transport: Transport,
    /// An endpoint that has to be probed.
    due: Cell<Option<(EndpointId, SocketAddr)>>,
    refused: &'a [EndpointId],
    broke: &'a [EndpointId],
    here: OwnAddresses<'a>,
    now: Moment,
}

impl EndpointFacts for AttemptFacts<'_> {
    fn usable(&self, endpoint: &Endpoint) -> bool {
        usable(endpoint, self.refused, self.here)
    }

    fn is_ejected(&self, endpoint: &Endpoint) -> bool {
        let is_skipped = |state: &EndpointState| match self.transport {
            // There is no connection that could show anything.
            Transport::Udp => state.is_ejected(self.now),
            Transport::Tcp => state.is_ejected(self.now) || self.waits(endpoint, state),
        };
        self.broke.contains(&endpoint.id) || self.states.peek(endpoint.id, is_skipped).unwrap_or(false)
    }

    fn load(&self, id: EndpointId) -> Load {
        self.states.peek(id, |state| state.load(self.now)).unwrap_or_default()
    }
}

impl AttemptFacts<'_> {
    /// Returns `true` for an endpoint that waits for a probe. This request probes at most one.
    fn waits(&self, endpoint: &Endpoint, state: &EndpointState) -> bool {
        let waits = state.awaits_probe(self.now);
        if waits && self.due.get().is_none() && state.claims_probe(self.now) {
            self.due.set(Some((endpoint.id, endpoint.address)));
        }
        waits
    }

    /// Probes the endpoint that waits for it. It may be the chosen one, if there is no other; its request may use an
    /// open connection, which shows nothing.
    fn probe(&self) {
        if let Some((id, address)) = self.due.take()
            && let Some(state) = self.states.state(id)
        {
            probe(state, address, self.states.moments());
        }
    }
}

/// Returns `true` if an endpoint has not refused before and is not an address of the edge.
fn usable(endpoint: &Endpoint, refused: &[EndpointId], here: OwnAddresses<'_>) -> bool {
    !refused.contains(&endpoint.id) && !here.listening.leads_back(endpoint.address, here.local)
}

/// Returns `true` if a backend has an endpoint that is not among the refused ones and not an address of the edge.
pub(crate) fn has_usable(backend: &Backend, refused: &[EndpointId], here: OwnAddresses<'_>) -> bool {
    backend.endpoints.iter().any(|endpoint| usable(endpoint, refused, here))
}

impl Attempts {
    /// None yet. The first one is pinned to the endpoint of a session, if there is one, even if that is ejected: only
    /// its own failure moves the session.
    pub(crate) fn of_session(session: Option<EndpointId>) -> Self {
        Self { session, ..Self::default() }
    }

    /// Begins the next attempt with an endpoint of a backend; `None` if none is left.
    pub(crate) fn next<'b>(
        &mut self,
        backend: &'b Backend,
        balance: Balance,
        here: OwnAddresses<'_>,
        states: &EndpointStates,
        (now, draw): (Instant, &mut Random),
    ) -> Option<&'b Endpoint> {
        self.leave();
        let broke = self.last.as_ref().filter(|attempt| attempt.connected.is_some());
        self.broke.extend(broke.map(|attempt| attempt.id));
        let goes_back = std::mem::take(&mut self.excused) || self.count == 0;
        let facts = AttemptFacts {
            states,
            transport: backend.key.transport,
            due: Cell::new(None),
            refused: &self.refused,
            broke: &self.broke,
            here,
            now: states.moment(now),
        };
        let kept = self.session.filter(|_| goes_back).and_then(|id| backend.of_session(id));
        let kept = kept.filter(|endpoint| facts.usable(endpoint));
        let drawn = || {
            let turn = if balance == Balance::RoundRobin { states.turn(&backend.key) } else { 0 };
            balance::endpoint(&backend.endpoints, balance, &facts, turn, draw)
        };
        let chosen = kept.or_else(drawn);
        facts.probe();
        let endpoint = chosen?;
        self.count += 1;
        self.last = Some(Attempt {
            address: endpoint.address,
            connect: None,
            first_byte: None,
            id: endpoint.id,
            began: now,
            connected: None,
            in_flight: Some(states.enter(endpoint.id)),
        });
        Some(endpoint)
    }

    /// The failure of an attempt is not its endpoint's fault. After the first attempt a session is tried there again.
    pub(crate) const fn excuse(&mut self) {
        self.excused = self.count == 1;
    }

    /// The endpoint says that it has not processed an attempt; `excluded` if it ended the connection before it.
    pub(crate) fn unprocessed(&mut self, excluded: bool) {
        *if excluded { &mut self.excluded } else { &mut self.stream_refused } += 1;
    }

    /// Whether the next attempt needs a connection of its own. The requests that one GOAWAY excluded share the next
    /// connection; an endpoint that ends this one as well may serve few requests of each connection.
    pub(crate) const fn needs_own_connection(&self) -> bool {
        self.excluded > 1
    }

    /// The connection is open. Returns the time it took, unless it came from the pool.
    pub(crate) fn connected(&mut self, reused: bool, now: Instant) -> Option<Duration> {
        let attempt = self.last.as_mut()?;
        attempt.connected = Some(now);
        if !reused {
            attempt.connect = Some(now.saturating_duration_since(attempt.began));
            attempt.state()?.connected();
        }
        attempt.connect
    }

    /// No connection could be opened. `moment` is set if that is the endpoint's fault.
    pub(crate) fn refused(&mut self, now: Instant, moment: Option<Moment>) {
        if let Some(attempt) = &self.last {
            self.refused.push(attempt.id);
            self.refused_at_once += usize::from(now.saturating_duration_since(attempt.began) < AT_ONCE);
            if let (Some(state), Some(moment)) = (attempt.state(), moment) {
                state.refused(moment);
            }
        }
        self.leave();
    }

    /// The response's head has arrived, or will not, with the assessment of the endpoint.
    pub(crate) fn first_byte(&mut self, outcome: AttemptOutcome, now: Instant, moment: Moment) {
        let Some(attempt) = self.last.as_mut().filter(|attempt| attempt.first_byte.is_none()) else { return };
        let Some(latency) = attempt.connected.map(|connected| now.saturating_duration_since(connected)) else { return };
        attempt.first_byte = (outcome != AttemptOutcome::Broken).then_some(latency);
        let Some(state) = attempt.state() else { return };
        match outcome {
            AttemptOutcome::Response => state.measured(latency, moment),
            AttemptOutcome::Unable | AttemptOutcome::Broken => state.measured(latency.max(FAILURE_LATENCY), moment),
            AttemptOutcome::Slowed => {}
        }
    }

    /// Returns `true` if a backend has an endpoint that has not refused.
    pub(crate) fn leaves(&self, backend: &Backend, here: OwnAddresses<'_>) -> bool {
        has_usable(backend, &self.refused, here)
    }

    /// The request no longer counts as in flight.
    pub(crate) fn leave(&mut self) {
        if let Some(attempt) = &mut self.last {
            attempt.in_flight = None;
        }
    }

    /// The number of attempts.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// The number of attempts that count: terminating pods refuse connections at once, all of them, until their removal
    /// is known, and a request that an endpoint has not processed is as one that was not sent (RFC 9113 section 8.7).
    pub(crate) fn waited_for(&self) -> usize {
        let unprocessed = self.excluded.min(UNPROCESSED_MAX) + self.stream_refused.min(STREAM_REFUSED_MAX);
        self.count.saturating_sub(self.refused_at_once + unprocessed)
    }

    /// The last attempt.
    pub(crate) const fn last(&self) -> Option<&Attempt> {
        self.last.as_ref()
    }
}

impl Attempt {
    /// The endpoint.
    pub(crate) const fn id(&self) -> EndpointId {
        self.id
    }

    /// When it began.
    pub(crate) const fn began(&self) -> Instant {
        self.began
    }

    fn state(&self) -> Option<&EndpointState> {
        self.in_flight.as_ref().map(InFlight::state)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock;
    use crate::sample_model::backend_key;

    const LOCAL: ([u8; 4], u16) = ([10, 0, 0, 9], 80);

    fn backend(addresses: &[([u8; 4], u16)]) -> Backend {
        let endpoints = addresses.iter().map(|address| Endpoint::tcp((*address).into(), None)).collect();
        Backend::new(backend_key("web"), endpoints)
    }

    fn listening() -> Listening {
        let listening = Listening::default();
        listening.add(LOCAL.into());
        listening
    }

    const fn own_addresses(listening: &Listening) -> OwnAddresses<'_> {
        OwnAddresses { listening, local: None }
    }

    fn next(attempts: &mut Attempts, backend: &Backend, states: &EndpointStates, seed: u64) -> Option<SocketAddr> {
        let random = (clock::now(), &mut Random::new(seed));
        let listening = listening();
        attempts
            .next(backend, Balance::PowerOfTwo, own_addresses(&listening), states, random)
            .map(|endpoint| endpoint.address)
    }

    #[test]
    fn no_attempt_leads_to_the_edge_itself() {
        let states = EndpointStates::new(clock::now(), Arc::default());
        let (loops, other) = (backend(&[LOCAL]), backend(&[LOCAL, ([10, 0, 0, 1], 80)]));
        assert!(!Attempts::default().leaves(&loops, own_addresses(&listening())));
        assert_eq!(next(&mut Attempts::default(), &loops, &states, 1), None);
        for seed in 0..50 {
            assert_eq!(next(&mut Attempts::default(), &other, &states, seed), Some(([10, 0, 0, 1], 80).into()));
        }
    }

    #[test]
    fn each_try_counts_as_in_flight_only_while_it_lasts() {
        let states = EndpointStates::new(clock::now(), Arc::default());
        let backend = backend(&[([10, 0, 0, 1], 80), ([10, 0, 0, 2], 80)]);
        let in_flight = || -> u32 {
            let ids = backend.endpoints.iter().map(|endpoint| endpoint.id);
            ids.filter_map(|id| states.peek(id, EndpointState::in_flight)).sum()
        };
        let mut attempts = Attempts::default();
        let first = next(&mut attempts, &backend, &states, 1);
        assert_eq!((in_flight(), attempts.leaves(&backend, own_addresses(&listening()))), (1, true));
        let now = clock::now();
        attempts.refused(now, Some(states.moment(now)));
        assert_eq!(in_flight(), 0);
        let second = next(&mut attempts, &backend, &states, 1);
        assert!(second.is_some() && second != first);
        assert_eq!((in_flight(), attempts.count()), (1, 2));
        drop(attempts);
        assert_eq!(in_flight(), 0);
    }

    #[test]
    fn a_broken_endpoint_is_tried_again_only_without_another_one() {
        let states = EndpointStates::new(clock::now(), Arc::default());
        let backend = backend(&[([10, 0, 0, 1], 80), ([10, 0, 0, 2], 80)]);
        for seed in 0..20 {
            let mut attempts = Attempts::default();
            let first = next(&mut attempts, &backend, &states, seed).unwrap();
            attempts.connected(seed % 2 == 0, clock::now());
            let second = next(&mut attempts, &backend, &states, seed).unwrap();
            assert_ne!(second, first, "{seed}");
            attempts.connected(false, clock::now());
            assert!(next(&mut attempts, &backend, &states, seed).is_some());
        }
    }

    #[track_caller]
    fn check_waited(millis: &[u64], want: usize) {
        let states = EndpointStates::new(clock::now(), Arc::default());
        let backend = backend(&[([10, 0, 0, 1], 80), ([10, 0, 0, 2], 80), ([10, 0, 0, 3], 80)]);
        let mut attempts = Attempts::default();
        for millis in millis {
            assert!(next(&mut attempts, &backend, &states, 1).is_some());
            let now = clock::now() + Duration::from_millis(*millis);
            attempts.refused(now, Some(states.moment(now)));
        }
        assert_eq!((attempts.waited_for(), attempts.count()), (want, millis.len()), "{millis:?}");
    }

    #[test]
    fn a_few_attempts_that_were_not_processed_do_not_count() {
        let states = EndpointStates::new(clock::now(), Arc::default());
        let backend = backend(&[([10, 0, 0, 1], 80)]);
        let mut attempts = Attempts::default();
        for (excluded, want) in [(1, 0), (2, 0), (3, 0), (4, 0), (5, 1), (6, 2)] {
            assert_eq!(attempts.needs_own_connection(), excluded > 2, "{excluded}");
            assert!(next(&mut attempts, &backend, &states, 1).is_some());
            attempts.connected(false, clock::now());
            attempts.unprocessed(true);
            assert_eq!((attempts.waited_for(), attempts.count()), (want, excluded));
        }
        for want in [2, 3] {
            assert!(next(&mut attempts, &backend, &states, 1).is_some());
            attempts.connected(false, clock::now());
            attempts.unprocessed(false);
            assert_eq!(attempts.waited_for(), want, "the first refused stream does not count either");
        }
    }

    #[test]
    fn a_connection_refused_at_once_does_not_count_as_a_try() {
        check_waited(&[], 0);
        check_waited(&[0], 0);
        check_waited(&[0, 0, 0], 0);
        check_waited(&[200], 1);
        check_waited(&[0, 200, 0], 1);
        check_waited(&[200, 0, 5000], 2);
    }

    #[test]
    fn an_endpoint_is_ejected_for_its_own_faults_only() {
        let states = EndpointStates::new(clock::now(), Arc::default());
        let backend = backend(&[([10, 0, 0, 1], 80)]);
        for (own, is_ejected) in [(false, false), (true, true)] {
            let mut attempts = Attempts::default();
            assert!(next(&mut attempts, &backend, &states, 1).is_some());
            let now = clock::now();
            attempts.refused(now, own.then(|| states.moment(now)));
            assert_eq!(
                states.peek(backend.endpoints[0].id, |state| state.is_ejected(states.moment(now))),
                Some(is_ejected)
            );
            // In either case this request does not try it again.
            assert_eq!(next(&mut attempts, &backend, &states, 1), None);
        }
    }

    /// Moves the clock beyond an ejection of the first endpoint, and tries two endpoints.
    fn passed_over(address: SocketAddr) -> EndpointStates {
        let states = EndpointStates::new(clock::now(), Arc::default());
        let endpoints = [Endpoint::tcp(address, None), Endpoint::tcp(([10, 0, 0, 2], 80).into(), None)];
        let backend = Backend::new(backend_key("web"), endpoints.into());
        let id = backend.endpoints[0].id;
        states.enter(id).state().refused(states.moment(clock::now()));
        let later = clock::now() + Duration::from_secs(2);
        let (listening, mut random) = (listening(), Random::new(1));
        for _ in 0..20 {
            let mut attempts = Attempts::default();
            let here = own_addresses(&listening);
            let next = attempts.next(&backend, Balance::PowerOfTwo, here, &states, (later, &mut random));
            assert_eq!(next.unwrap().address, backend.endpoints[1].address);
        }
        states
    }

    #[tokio::test]
    async fn an_ejected_endpoint_returns_after_a_probe_and_no_request_tries_it() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let states = passed_over(address);
        drop(listener.accept().await.unwrap());
        let state = states.state(Endpoint::tcp(address, None).id).unwrap();
        // The probe ends after the connection was accepted.
        while state.is_ejected(states.moment(clock::now())) {
            tokio::task::yield_now().await;
        }
        assert!(!state.awaits_probe(states.moment(clock::now() + Duration::from_secs(60))), "it has returned");
        // There was one probe.
        let more = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
        assert!(more.is_err(), "{more:?}");
    }

    #[tokio::test]
    async fn an_endpoint_that_refuses_its_probe_stays_ejected() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let states = passed_over(address);
        let state = states.state(Endpoint::tcp(address, None).id).unwrap();
        // Until the end of the claim, 8 s from now, it is ejected in any case; the refusal ends it after 2 s.
        while state.is_ejected(states.moment(clock::now() + Duration::from_secs(4))) {
            tokio::task::yield_now().await;
        }
        assert!(state.awaits_probe(states.moment(clock::now() + Duration::from_secs(60))), "it has not returned");
    }

    #[track_caller]
    fn check_latency(outcome: AttemptOutcome, want: Option<Duration>, shown: bool) {
        let states = EndpointStates::new(clock::now(), Arc::default());
        let backend = backend(&[([10, 0, 0, 1], 80)]);
        let mut attempts = Attempts::default();
        next(&mut attempts, &backend, &states, 1);
        let now = clock::now();
        attempts.connected(true, now);
        let later = now + Duration::from_millis(20);
        attempts.first_byte(outcome, later, states.moment(later));
        let load = states.peek(backend.endpoints[0].id, |state| state.load(states.moment(later))).unwrap();
        let latency = load.latency_us.map(|latency| Duration::from_micros(latency.round() as u64));
        assert_eq!((latency, attempts.last().unwrap().first_byte.is_some()), (want, shown), "{outcome:?}");
    }

    #[test]
    fn fast_failures_do_not_attract_requests() {
        check_latency(AttemptOutcome::Response, Some(Duration::from_millis(20)), true);
        check_latency(AttemptOutcome::Slowed, None, true);
        check_latency(AttemptOutcome::Unable, Some(FAILURE_LATENCY), true);
        check_latency(AttemptOutcome::Broken, Some(FAILURE_LATENCY), false);
    }
}
