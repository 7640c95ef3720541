//! The phases of a request before anything is decided about it: validation and routing give a [`Routed`], by which the
//! driver is chosen. They have no side effects, so that each can be repeated by the other driver.

use std::sync::Arc;

use http::HeaderValue;
use tidegate_config::model::{Head, ListenerName, PathPolicies, Route, Snapshot};

use crate::connection::ConnectionFacts;
use crate::reason::Reason;
use crate::request::client::{Client, client};
use crate::request::validate::{self, HeadFacts, Protocol, ValidRequest};
use crate::request::{rewrite, route};
use crate::shared::Shared;

/// The facts about a well-formed request.
#[derive(Clone, Debug)]
pub(crate) struct RequestFacts {
    /// The client.
    pub(crate) client: Client,
    /// The HTTP version.
    pub(crate) protocol: Protocol,
    /// Whether its path has dot segments, which are removed before forwarding.
    pub(crate) had_dot_segments: bool,
    /// Whether it came before the TLS handshake was complete, and so may be a replay.
    pub(crate) early: bool,
    /// Whether its target is in absolute form, which is for proxies.
    pub(crate) absolute: bool,
    /// Whether it has passed an edge of the same name before, as every copy for a mirror has.
    pub(crate) has_passed: bool,
    /// The upgrade that it requests and may have. Boxed, because few do.
    pub(crate) upgrade: Option<Box<HeaderValue>>,
}

/// A request with its route.
#[derive(Clone, Debug)]
pub(crate) struct Routed<'h> {
    /// The facts about it.
    pub(crate) request: RequestFacts,
    /// The validated host, path and length.
    pub(crate) valid: ValidRequest<'h>,
    /// The listener that it came to.
    pub(crate) listener: ListenerName,
    /// The route.
    pub(crate) route: Arc<Route>,
    /// The policies of the path over the listener to the route, if there are any.
    pub(crate) policies: Option<Arc<PathPolicies>>,
}

/// A request that is malformed, or without a route.
#[derive(Clone, Debug)]
pub(crate) struct Unrouted {
    /// The facts about it, unless it is malformed.
    pub(crate) request: Option<RequestFacts>,
    /// The reason.
    pub(crate) reason: Reason,
}

impl From<Reason> for Unrouted {
    fn from(reason: Reason) -> Self {
        Self { request: None, reason }
    }
}

impl Routed<'_> {
    /// Returns `true` if all endpoints of the route use HTTP/1.1, so that the choice of the driver does not depend on
    /// chance.
    pub(crate) fn is_http1(&self) -> bool {
        self.route.action.targets().all(|target| !target.protocol.is_http2())
    }
}

/// Validation, then the route.
///
/// # Errors
/// The fault of the request, or that no route matches.
pub(crate) fn route<'h, H: Head>(
    snapshot: &Snapshot,
    shared: &Shared,
    facts: &ConnectionFacts,
    head: &'h H,
    line: &HeadFacts<'_>,
) -> Result<Routed<'h>, Unrouted> {
    let valid = validate::check(head, line, &shared.options, snapshot.edge().request_head)?;
    let request = RequestFacts {
        client: client(head, facts.peer, facts.tls.is_some(), facts.trusted(snapshot)),
        protocol: line.protocol,
        had_dot_segments: valid.path.had_dot_segments,
        early: facts.is_early(),
        absolute: line.target_authority.is_some(),
        has_passed: valid.has_passed,
        upgrade: rewrite::upgrade(head, line.protocol, &shared.options.upgrade_tokens).map(Box::new),
    };
    if request.early && !takes_early(snapshot, head.method()) {
        return Err(Unrouted { request: Some(request), reason: Reason::TooEarly });
    }
    let handshake_listener = facts.tls.as_ref().map(|tls| &tls.listener);
    match route::find(snapshot, (&facts.bind, handshake_listener), &valid.host, &valid.path.path, head) {
        Ok(found) => {
            let (listener, route) = (found.listener.name.clone(), Arc::clone(found.route));
            let policies = snapshot.policies(found.listener, found.route).cloned();
            Ok(Routed { request, valid, listener, route, policies })
        }
        Err(reason) => Err(Unrouted { request: Some(request), reason }),
    }
}

/// Returns `true` if a request with a method may be accepted before the handshake is complete.
fn takes_early(snapshot: &Snapshot, method: &str) -> bool {
    let methods = snapshot.edge().tls.early_data.as_deref().unwrap_or_default();
    methods.iter().any(|taken| **taken == *method)
}
