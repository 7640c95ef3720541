//! The state that a request has from its head to its end, whatever is decided about it: the part that its entry in the
//! access log and a local reply need.

mod replied;
mod record;
mod rendering;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::HeaderValue;
use tidegate_config::model::{ListenerName, PathPolicies, Route, Snapshot};

use crate::budget::Cost;
use crate::connection::ConnectionFacts;
use crate::observe::connection_metrics::RefusalReason;
use crate::observe::metrics::DriverUsed;
use crate::request::phase::RequestFacts;
use crate::request::policy::PolicyOutcome;
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
    /// What its policies have added to it.
    pub(super) outcome: PolicyOutcome,
    recorded: bool,
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
            outcome: PolicyOutcome::NOTHING,
            recorded: false,
        }
    }

    /// The state that all requests share.
    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.arrived.shared
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
