//! The policies of a request. The proxy and `explain` run them with the same functions, so that an explanation is true of
//! the proxy.

mod cors;
mod external_auth;
mod guard;

use std::net::IpAddr;
use std::sync::Arc;

pub use cors::{AnyOr, Cors};
pub use external_auth::{AuthProtocol, ExternalAuth};
pub use guard::Guard;

use super::backend::{Destination, Target, WeightedTarget};
use super::filter::{DirectResponse, Redirect};
use super::listener::ListenerName;
use super::route::{Action, Route};
use super::settings::Effective;

/// The facts about a client and its request that a decision needs besides the route.
#[derive(Clone, Copy, Debug)]
pub struct RequestAttributes<'a> {
    /// The client's address; `None` for one that every route allows.
    pub address: Option<IpAddr>,
    /// Whether the request came over TLS, here or to a trusted proxy.
    pub secure: bool,
    /// The listener that the request came to.
    pub listener: &'a ListenerName,
    /// The length of its body in bytes, if it announces one.
    pub body_bytes: Option<u64>,
}

/// The outcome of [`decide`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision<'r> {
    /// The request goes to an endpoint.
    Forward,
    /// The request is refused.
    Refused(Refusal),
    /// The authorisation service of the guard at this place decides. If it allows the request, the decision continues
    /// after that guard.
    Asks(usize, &'r Arc<ExternalAuth>),
    /// The client is redirected to the same URL over TLS with this status.
    ToTls(u16),
    /// The client is redirected as the route says.
    Redirected(&'r Redirect),
    /// The route answers by itself.
    Responded(&'r Arc<DirectResponse>),
}

/// The reason of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Its body is larger than the route allows.
    BodyTooLarge,
    /// The client is not allowed.
    Denied,
    /// The route does not serve the listener.
    NotHere,
    /// There is no endpoint, and the route requires one before any other check.
    NoEndpoints,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::BodyTooLarge, Self::Denied, Self::NotHere, Self::NoEndpoints];

    /// The status of the answer.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::BodyTooLarge => 413,
            Self::Denied => 403,
            Self::NotHere => 404,
            Self::NoEndpoints => 503,
        }
    }
}

/// Decides by the route's guards in their order, beginning at `from`, and then by its own redirect or response.
/// `has_endpoint` returns `true` if a share of the route has an endpoint.
pub fn decide<'r>(
    route: &'r Route,
    from: usize,
    effective: &Effective,
    attributes: &RequestAttributes<'_>,
    has_endpoint: impl Fn(&Route) -> bool,
) -> Decision<'r> {
    // First, as in nginx: a request that is too large for the route need not be redirected before it is refused.
    if effective.body_bytes_max.zip(attributes.body_bytes).is_some_and(|(max, bytes)| bytes > max) {
        return Decision::Refused(Refusal::BodyTooLarge);
    }
    for (index, guard) in route.guards.iter().enumerate().skip(from) {
        match guard {
            Guard::ExternalAuth(service) => return Decision::Asks(index, service),
            Guard::AllowSources(networks) if attributes.address.is_none_or(|address| networks.contains(address)) => {}
            Guard::AllowSources(_) | Guard::DenyAll => return Decision::Refused(Refusal::Denied),
            Guard::Listeners(names) if names.contains(attributes.listener) => {}
            Guard::Listeners(_) => return Decision::Refused(Refusal::NotHere),
            Guard::RequireEndpoints if has_endpoint(route) => {}
            Guard::RequireEndpoints => return Decision::Refused(Refusal::NoEndpoints),
            Guard::RequireTls { .. } if attributes.secure => {}
            Guard::RequireTls { status } => return Decision::ToTls(*status),
        }
    }
    match &route.action {
        Action::Redirect(redirect) => Decision::Redirected(redirect),
        Action::Respond(response) => Decision::Responded(response),
        Action::Forward(_) => Decision::Forward,
    }
}

/// The refusal or redirect of a CORS preflight by the guards of its route, beginning at `from`; `None` if it passes;
/// see [`decide`]. Authorisation services are not asked about it, because it comes without the credentials that they
/// would judge by. All other guards apply to it, also those after a guard that asks a service.
pub fn stops_preflight<'r>(
    route: &'r Route,
    mut from: usize,
    effective: &Effective,
    attributes: &RequestAttributes<'_>,
    has_endpoint: impl Fn(&Route) -> bool,
) -> Option<Decision<'r>> {
    loop {
        match decide(route, from, effective, attributes, &has_endpoint) {
            Decision::Asks(index, _) => from = index + 1,
            decision @ (Decision::Refused(_) | Decision::ToTls(_)) => return Some(decision),
            Decision::Forward | Decision::Redirected(_) | Decision::Responded(_) => return None,
        }
    }
}

/// The outcome of [`decide_share`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShareDecision<'r, B> {
    /// The authorisation service of the share decides.
    Asks(&'r Arc<ExternalAuth>),
    /// The request goes to an endpoint of this backend.
    Forward(&'r Arc<Target>, B),
    /// The share has no usable backend, or a filter that cannot be applied, and answers with this status.
    Responded(u16),
    /// The request is refused.
    Refused(Refusal),
}

/// Decides about a request that its route forwards, by the share that it goes to. `is_allowed` is true once the
/// authorisation service of the share, if it has one, has allowed the request. `backend` returns the backend of a
/// target that has an endpoint.
pub fn decide_share<'r, B>(
    share: &'r WeightedTarget,
    is_allowed: bool,
    backend: impl FnOnce(&'r Target) -> Option<B>,
) -> ShareDecision<'r, B> {
    if let Some(service) = share.external_auth.as_ref().filter(|_| !is_allowed) {
        return ShareDecision::Asks(service);
    }
    match &share.to {
        Destination::Status(status) => ShareDecision::Responded(*status),
        Destination::Target(target) => match backend(target) {
            Some(backend) => ShareDecision::Forward(target, backend),
            None => ShareDecision::Refused(Refusal::NoEndpoints),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::backend::{AppProtocol, BackendKey};
    use super::*;
    use crate::object::ObjectName;

    #[test]
    fn a_share_asks_its_service_first_and_answers_without_a_backend() {
        let backend = BackendKey::tcp(ObjectName::new("shop", "web"), 80);
        let target = Arc::new(Target { backend, protocol: AppProtocol::Http, tls: None, fixed: None });
        let protocol = AuthProtocol::Grpc { request_headers: Box::default() };
        let service = Arc::new(ExternalAuth { target: Arc::clone(&target), protocol, body_bytes_max: 0 });
        let share = |to: &Destination, external_auth| WeightedTarget {
            to: to.clone(),
            weight: 1,
            filters: [].into(),
            external_auth,
        };
        let (to_target, invalid) = (Destination::Target(Arc::clone(&target)), Destination::Status(500));
        let (forward, no_endpoints) =
            (ShareDecision::Forward(&target, 7), ShareDecision::Refused(Refusal::NoEndpoints));
        for (to, backend, want) in [
            (&to_target, Some(7), forward),
            (&to_target, None, no_endpoints),
            (&invalid, Some(7), ShareDecision::Responded(500)),
        ] {
            let (open, guarded) = (share(to, None), share(to, Some(Arc::clone(&service))));
            assert_eq!(decide_share(&open, false, |_| backend), want);
            assert_eq!(decide_share(&guarded, true, |_| backend), want);
            assert_eq!(decide_share(&guarded, false, |_| backend), ShareDecision::Asks(&service));
        }
    }
}
