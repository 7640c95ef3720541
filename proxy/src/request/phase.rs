//! The phases of a request before anything is sent. Each takes what the one before it gave, so that none can be left out:
//! hygiene and route give a [`Routed`], by which the driver is chosen; its guards give an [`Admitted`], and the choice of a
//! target gives an [`Aimed`]. Up to the choice of the driver nothing has an effect, so that nothing is decided twice.

use std::sync::Arc;

use http::HeaderValue;
use tidegate_config::model::{Backend, Head, ListenerName, Route, Snapshot, Target};

use crate::connection::ConnectionFacts;
use crate::reason::Reason;
use crate::request::client::{Client, client};
use crate::request::guard::Admitted;
use crate::request::hygiene::{self, Line, Protocol, Sound};
use crate::request::{rewrite, route};
use crate::shared::Shared;

/// What a request that is well-formed asks for.
#[derive(Clone, Debug)]
pub(crate) struct RequestFacts {
    /// Who sent it.
    pub(crate) client: Client,
    /// What the client speaks.
    pub(crate) protocol: Protocol,
    /// Whether its path has dot segments, which no endpoint gets to see.
    pub(crate) had_dot_segments: bool,
    /// Whether it came before the TLS handshake was over, and so may come again from somebody who has it copied.
    pub(crate) early: bool,
    /// Whether its target is in absolute form, which only proxies are sent.
    pub(crate) absolute: bool,
    /// The upgrade that it asks for and may have.
    pub(crate) upgrade: Option<HeaderValue>,
}

/// A request that a route takes.
#[derive(Clone, Debug)]
pub(crate) struct Routed<'h> {
    /// What it asks for.
    pub(crate) request: RequestFacts,
    /// What guards and rewrites go by.
    pub(crate) sound: Sound<'h>,
    /// The listener that it came to.
    pub(crate) listener: ListenerName,
    /// The route.
    pub(crate) route: Arc<Route>,
}

/// A request that is malformed, or that no route takes.
#[derive(Clone, Debug)]
pub(crate) struct Unrouted {
    /// What it asks for, unless it is malformed.
    pub(crate) request: Option<RequestFacts>,
    /// What is wrong.
    pub(crate) reason: Reason,
}

impl From<Reason> for Unrouted {
    fn from(reason: Reason) -> Self {
        Self { request: None, reason }
    }
}

/// A request that has passed its guards, and the backend that has an endpoint for it: what all its tries have in common.
#[derive(Debug)]
pub(crate) struct Aimed {
    /// What it asks for.
    pub(crate) request: RequestFacts,
    /// The witness of its guards.
    pub(crate) admitted: Admitted,
    /// Where it goes.
    pub(crate) target: Arc<Target>,
    /// The endpoints there.
    pub(crate) backend: Arc<Backend>,
    /// The connection that it came over.
    pub(crate) facts: Arc<ConnectionFacts>,
}

impl Routed<'_> {
    /// Whether every endpoint that the route may lead to is spoken to in HTTP/1.1: chance has no part in who drives.
    pub(crate) fn is_http1(&self) -> bool {
        self.route.action.targets().all(|target| !target.protocol.is_http2())
    }
}

/// Hygiene, then the route.
///
/// # Errors
/// What is wrong with the request, or that nothing takes it.
pub(crate) fn route<'h, H: Head>(
    snapshot: &Snapshot,
    shared: &Shared,
    facts: &ConnectionFacts,
    head: &'h H,
    line: &Line<'_>,
) -> Result<Routed<'h>, Unrouted> {
    let sound = hygiene::check(head, line, &shared.head_limits, snapshot.edge().request_head)?;
    let request = RequestFacts {
        client: client(head, facts.peer, facts.tls.is_some(), facts.trusted(snapshot)),
        protocol: line.protocol,
        had_dot_segments: sound.path.had_dot_segments,
        early: facts.is_early(),
        absolute: line.target_authority.is_some(),
        upgrade: rewrite::upgrade(head, line.protocol, &shared.options.upgrade_tokens),
    };
    if request.early && !takes_early(snapshot, head.method()) {
        return Err(Unrouted { request: Some(request), reason: Reason::TooEarly });
    }
    let shaken = facts.tls.as_ref().map(|tls| &tls.listener);
    match route::find(snapshot, (&facts.bind, shaken), &sound.host, &sound.path.path, head) {
        Ok(found) => {
            let (listener, route) = (found.listener.clone(), Arc::clone(found.route));
            Ok(Routed { request, sound, listener, route })
        }
        Err(reason) => Err(Unrouted { request: Some(request), reason }),
    }
}

/// Whether a request with a method may be taken before the handshake is over.
fn takes_early(snapshot: &Snapshot, method: &str) -> bool {
    let methods = snapshot.edge().tls.early_data.as_deref().unwrap_or_default();
    methods.iter().any(|taken| **taken == *method)
}
