//! The tries of one request: which endpoints have been tried, and how the present try goes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidegate_config::model::{Backend, Balance, Endpoint, EndpointId};

use crate::balance::{self, Draw, Known};
use crate::endpoint_state::{EndpointState, EndpointStates, InFlight, Moment};

/// All tries of one request.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// Endpoints that took no connection.
    refused: Vec<EndpointId>,
    count: usize,
    last: Option<Attempt>,
}

/// One try.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// Where to.
    pub(crate) address: SocketAddr,
    /// The time to open the connection; `None` while there is none, or when it came from the pool.
    pub(crate) connect: Option<Duration>,
    /// The time from the connection to the response's head.
    pub(crate) first_byte: Option<Duration>,
    id: EndpointId,
    began: Instant,
    connected: Option<Instant>,
    in_flight: Option<InFlight>,
}

/// What a choice may know.
struct Facts<'a> {
    states: &'a EndpointStates,
    refused: &'a [EndpointId],
    local: SocketAddr,
    now: Moment,
}

impl Known for Facts<'_> {
    fn usable(&self, endpoint: &Endpoint) -> bool {
        usable(endpoint, self.refused, Some(self.local))
    }

    fn rests(&self, id: EndpointId) -> bool {
        self.states.peek(id, |state| state.rests(self.now)).unwrap_or(false)
    }

    fn load(&self, id: EndpointId) -> f64 {
        self.states.peek(id, |state| state.load(self.now)).unwrap_or_else(|| EndpointState::default().load(self.now))
    }
}

/// Whether an endpoint has not refused before and is not the very address that the request came in over, which would
/// go round for ever.
fn usable(endpoint: &Endpoint, refused: &[EndpointId], local: Option<SocketAddr>) -> bool {
    Some(endpoint.address) != local && !refused.contains(&endpoint.id)
}

impl Attempts {
    /// Begins the next try with an endpoint of a backend; `None` when none is left.
    pub(crate) fn next<'b>(
        &mut self,
        backend: &'b Backend,
        balance: Balance,
        local: SocketAddr,
        states: &EndpointStates,
        (now, draw): (Instant, &mut Draw),
    ) -> Option<&'b Endpoint> {
        self.leave();
        let facts = Facts { states, refused: &self.refused, local, now: states.moment(now) };
        let turn = if balance == Balance::RoundRobin { states.turn(&backend.key) } else { 0 };
        let endpoint = balance::endpoint(&backend.endpoints, balance, &facts, turn, draw)?;
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

    /// Notes that the connection is there; the time it took, unless it came from the pool.
    pub(crate) fn connected(&mut self, reused: bool, now: Instant) -> Option<Duration> {
        let attempt = self.last.as_mut()?;
        attempt.connected = Some(now);
        if !reused {
            attempt.connect = Some(now.saturating_duration_since(attempt.began));
            attempt.state()?.connected();
        }
        attempt.connect
    }

    /// Notes that no connection could be made.
    pub(crate) fn refused(&mut self, now: Moment) {
        if let Some(attempt) = &self.last {
            self.refused.push(attempt.id);
            if let Some(state) = attempt.state() {
                state.refused(now);
            }
        }
        self.leave();
    }

    /// Notes the response's head.
    pub(crate) fn first_byte(&mut self, now: Instant, moment: Moment) {
        let Some(attempt) = self.last.as_mut().filter(|attempt| attempt.first_byte.is_none()) else { return };
        let latency = attempt.connected.map(|connected| now.saturating_duration_since(connected));
        attempt.first_byte = latency;
        if let (Some(latency), Some(state)) = (latency, attempt.state()) {
            state.measured(latency, moment);
        }
    }

    /// Whether a backend has an endpoint that has not refused.
    pub(crate) fn leaves(&self, backend: &Backend, local: Option<SocketAddr>) -> bool {
        backend.endpoints.iter().any(|endpoint| usable(endpoint, &self.refused, local))
    }

    /// No longer counts as in flight anywhere.
    pub(crate) fn leave(&mut self) {
        if let Some(attempt) = &mut self.last {
            attempt.in_flight = None;
        }
    }

    /// How many tries there were.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// The last of them.
    pub(crate) const fn last(&self) -> Option<&Attempt> {
        self.last.as_ref()
    }
}

impl Attempt {
    fn state(&self) -> Option<&EndpointState> {
        self.in_flight.as_ref().map(InFlight::state)
    }
}
