//! The state that a request has from its head to its end, whatever is decided about it: the part that its entry in the
//! access log and a local reply need.

mod replied;
mod record;
mod rendering;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::HeaderValue;
use tidegate_config::model::{HeaderEdits, ListenerName, PathPolicies, Route, Snapshot};

use crate::budget::Cost;
use crate::connection::ConnectionFacts;
use crate::limit::{LimitDecision, LimitName, LimitNotice};
use crate::observe::connection_metrics::RefusalReason;
use crate::observe::metrics::DriverUsed;
use crate::options::LimitHeaders;
use crate::request::phase::RequestFacts;
use crate::request::policy::external_auth::Grants;
use crate::request::request_id::RequestId;
use crate::shared::{ChargedCost, Shared};
use crate::upstream::attempt::OwnAddresses;

pub(crate) use record::End;
pub(super) use record::Ended;
pub(crate) use replied::Replied;

/// A request whose head has arrived. It counts as in flight until this is dropped.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(super) driver: DriverUsed,
    pub(super) shared: Arc<Shared>,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) began: Instant,
}

/// The listener and the route of a request.
#[derive(Clone, Debug)]
pub(super) struct Matched {
    pub(super) listener: ListenerName,
    pub(super) route: Arc<Route>,
    /// The policies of the path over the listener to the route, if there are any.
    pub(super) policies: Option<Arc<PathPolicies>>,
}

/// A request with its connection and its id. One that is dropped before it is recorded is recorded as abandoned.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(super) arrived: Arrived,
    pub(super) facts: Arc<ConnectionFacts>,
    pub(super) request_id: RequestId,
    /// The correlation ids, if its route forwards them.
    pub(super) correlation: Option<HeaderValue>,
    /// The arrival time, if its route sends it to the endpoint.
    pub(super) start: Option<SystemTime>,
    /// The facts about it, unless it is malformed.
    pub(super) request: Option<RequestFacts>,
    /// Its route, if it has one.
    pub(super) matched: Option<Matched>,
    /// The index of its share of the route, once that is chosen.
    pub(super) share: Option<usize>,
    /// The CORS headers of responses, if the route has a policy.
    pub(super) cors: Option<Box<HeaderEdits>>,
    /// The grants of authorisation services.
    pub(super) grants: Vec<Arc<Grants>>,
    /// What the limits decided about it.
    limits: NotedLimits,
    recorded: bool,
}

/// What is left of the decision of the limits about a request, for its response and its log line.
#[derive(Debug)]
struct NotedLimits {
    /// The tightest one, if clients are told.
    tightest: Option<Box<LimitNotice>>,
    /// The one in shadow mode that would have refused the request.
    shadow: Option<Box<LimitName>>,
}

impl Arrived {
    /// Begins with a request's head; the request uses this snapshot to its end.
    pub(crate) fn new(driver: DriverUsed, snapshot: Arc<Snapshot>, shared: Arc<Shared>, now: Instant) -> Self {
        shared.metrics.in_flight.inc();
        Self { driver, shared, snapshot, began: now }
    }

    /// The snapshot of the request.
    pub(crate) const fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        self.shared.metrics.in_flight.dec();
    }
}

impl Exchange {
    /// Without a route yet.
    pub(super) const fn new(arrived: Arrived, facts: Arc<ConnectionFacts>, request_id: RequestId) -> Self {
        Self {
            arrived,
            facts,
            request_id,
            correlation: None,
            start: None,
            request: None,
            matched: None,
            share: None,
            cors: None,
            grants: Vec::new(),
            limits: NotedLimits { tightest: None, shadow: None },
            recorded: false,
        }
    }

    /// The state that all requests share.
    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.arrived.shared
    }

    /// Notes what the limits decided, for the response and the log line.
    #[allow(dead_code, reason = "the chain of policies has no step for limits yet")]
    pub(super) fn note_limits(&mut self, decision: &LimitDecision<'_>) {
        let are_told = self.shared().options.limit_headers == LimitHeaders::Draft;
        self.limits = NotedLimits {
            tightest: decision.tightest.filter(|_| are_told).map(|state| Box::new(state.into())),
            shadow: decision.shadow.map(|state| Box::new(state.limit.into())),
        };
    }

    /// The addresses of this process, for its connection.
    pub(crate) fn own_addresses(&self) -> OwnAddresses<'_> {
        self.shared().own_addresses(self.facts.local.ip())
    }

    /// Returns `true` if it requests an upgrade and may have it.
    pub(crate) fn asks_upgrade(&self) -> bool {
        self.request.as_ref().is_some_and(|request| request.upgrade.is_some())
    }

    /// Charges a local reply that the client does not take at once, until the returned value is dropped.
    ///
    /// # Errors
    /// The process or the client has no room.
    pub(crate) fn room_for_reply(&self) -> Result<ChargedCost, RefusalReason> {
        self.shared().room_for(self.facts.client.as_ref(), Cost::LOCAL_REPLY)
    }
}
