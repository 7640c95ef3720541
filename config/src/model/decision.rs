//! The decision about a request: the route that takes it, and whether it may pass. The proxy and `explain` both call
//! these functions, so that an explanation is true of the proxy.

use std::net::IpAddr;
use std::sync::Arc;

use super::backend::{Destination, Target, WeightedTarget};
use super::bind::BindKey;
use super::condition::Head;
use super::expression::{Steps, Subject};
use super::external_auth::ExternalAuth;
use super::filter::{DirectResponse, Redirect};
use super::guard::Guard;
use super::host::HostPattern;
use super::host_routes::HostRoutes;
use super::listener::{Listener, ListenerName};
use super::preflight::Search;
use super::route::{Action, Route};
use super::settings::Effective;
use super::snapshot::Snapshot;

/// The listener, host and route of a request, as far as they exist.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found<'s> {
    /// The listener of the bind that takes the host.
    pub listener: Option<&'s Listener>,
    /// The virtual host in the listener's route table.
    pub host: Option<&'s Arc<HostRoutes>>,
    /// The route. It may be the last resort, which takes requests that other hosts leave.
    pub route: Option<&'s Arc<Route>>,
    /// The text that an expression could not be tried with, because it is too long, or because the expressions before
    /// had taken too many steps. The request must be refused: a route that guards it might have matched. There is no
    /// route then.
    pub untried: Option<Subject>,
}

impl Snapshot {
    /// Finds the route of a request by its bind, host in lower case, normalised path, and the other parts of its head
    /// that routes match on.
    ///
    /// The host is the most specific one of the listener's table. In the shared table a path that it does not take goes
    /// to its fallback or the last resort, never to a broader host. A host that belongs to a namespace has a last
    /// resort only where that is of the same namespace. In a table of a listener's own, a request that a host does not
    /// take goes to the next broader one: its hosts give the order in which the rules of all routes are tried (Gateway
    /// API, `HTTPRouteSpec.hostnames`).
    ///
    /// A preflight goes to the rule of the request that it asks about, if that rule answers preflights.
    #[must_use]
    pub fn find<'s, H: Head + ?Sized>(&'s self, bind: &BindKey, host: &str, path: &str, head: &H) -> Found<'s> {
        let Some(listener) = self.bind(bind).and_then(|bind| bind.listener(host)) else { return Found::default() };
        let steps = Steps::of_request();
        let (host, route) = self.taken_by(listener, host, path, Search::new(head, &steps));
        let untried = steps.untried();
        Found { listener: Some(listener), host, route: route.filter(|_| untried.is_none()), untried }
    }

    /// The virtual host and the route that take a request, if the steps suffice.
    fn taken_by<'s, H: Head + ?Sized>(
        &'s self,
        listener: &Listener,
        host: &str,
        path: &str,
        mut search: Search<'_, 's, &'s Arc<HostRoutes>, H>,
    ) -> (Option<&'s Arc<HostRoutes>>, Option<&'s Arc<Route>>) {
        let Some(table) = self.hosts().table(&listener.table) else { return (None, None) };
        let mut hosts = table.matching(host);
        if listener.table.is_shared() {
            let routes = hosts.next();
            let own = routes.and_then(|routes| routes.find_by(&mut search, path, routes));
            let by_names = || search.by_names().map(|(_, route)| route);
            let last_resort = || self.last_resort(routes).map(|(_, route)| route);
            return (routes, own.or_else(by_names).or_else(last_resort));
        }
        let own = hosts.find_map(|routes| Some((routes, routes.find_by(&mut search, path, routes)?)));
        let found = own.or_else(|| search.by_names());
        let host = found.map(|(host, _)| host).or_else(|| table.matching(host).next());
        (host, found.map(|(_, route)| route))
    }
}

impl Snapshot {
    /// The routes that [`Snapshot::find`] tries in turn for a listener, each with its virtual host: those that match
    /// the host and path of a request, whatever their other conditions. The first that takes it serves it; see
    /// [`Route::takes`].
    #[must_use]
    pub fn in_turn<'s>(
        &'s self,
        listener: &Listener,
        host: &str,
        path: &str,
    ) -> Vec<(&'s Arc<HostRoutes>, &'s Arc<Route>)> {
        let Some(table) = self.hosts().table(&listener.table) else { return Vec::new() };
        let steps = &Steps::of_request();
        let of_host = |routes: &'s Arc<HostRoutes>| {
            routes.in_turn(path, steps).map(move |route| (routes, route)).collect::<Vec<_>>()
        };
        if !listener.table.is_shared() {
            return table.matching(host).flat_map(of_host).collect();
        }
        let routes = table.matching(host).next();
        let last_resort = self.last_resort(routes);
        routes.into_iter().flat_map(of_host).chain(last_resort).collect()
    }

    /// The route for requests that a host of the shared table leaves, with the host that has it.
    fn last_resort<'s>(&'s self, left_by: Option<&Arc<HostRoutes>>) -> Option<(&'s Arc<HostRoutes>, &'s Arc<Route>)> {
        let any = self.hosts().shared().get(&HostPattern::Any)?;
        let route = any.last_resort.as_ref()?;
        let owner = left_by.and_then(|routes| routes.owner.as_ref());
        let allowed = owner.is_none_or(|owner| *owner == route.origin.object.name.namespace);
        allowed.then_some((any, route))
    }
}

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
    use super::super::bind::{Bind, BindProtocol};
    use super::super::external_auth::AuthProtocol;
    use super::super::path::PathMatch;
    use super::super::route::Origin;
    use super::super::route_table::{TableName, VirtualHost};
    use super::super::sample::SampleHead;
    use super::super::snapshot::{Generation, SnapshotParts};
    use super::*;
    use crate::object::{Age, Kind, ObjectName, ObjectRef};

    fn route(name: &str) -> Arc<Route> {
        let object = ObjectRef::new(Kind::Ingress, ObjectName::new("shop", name));
        let age = Age { created_s: 0, name: object.name.clone() };
        let origin = Origin { object, field: "spec".into(), age, position: 0 };
        Arc::new(Route::new(origin, PathMatch::Prefix("/".into()), Action::Forward(Box::default())))
    }

    /// A bind on which `*.a.test` is a listener with a table of its own, and everything else is the shared table's.
    fn snapshot() -> (Snapshot, BindKey) {
        let key = BindKey { address: ([127, 0, 0, 1], 80).into(), protocol: BindProtocol::Http };
        let pattern = |text: &str| HostPattern::parse(text).unwrap();
        let own = Listener {
            name: ListenerName("own".into()),
            host: pattern("*.a.test"),
            table: TableName::Named("own".into()),
            tls: None,
            port: None,
            origin: None,
        };
        let listeners = [own, Listener::for_every_host("http")].into();
        let mut parts = SnapshotParts { binds: [Bind { key, listeners }].into(), ..SnapshotParts::default() };
        let mut put = |table: &TableName, host: &str, name: &str| {
            let host = VirtualHost::new(table.clone(), pattern(host));
            let path =
                if name.starts_with("all") { PathMatch::Prefix("/all".into()) } else { PathMatch::Exact("/".into()) };
            let route = Arc::new(Route { path, ..Route::clone(&route(name)) });
            parts.hosts.insert(&host, Arc::new(HostRoutes::new(host.clone(), vec![route], None)));
        };
        put(&TableName::Named("own".into()), "x.a.test", "x-of-own");
        put(&TableName::Named("own".into()), "*.a.test", "all-of-own");
        put(&TableName::Shared, "x.a.test", "x-of-shared");
        put(&TableName::Shared, "y.a.test", "y-of-shared");
        put(&TableName::Shared, "b.test", "b-of-shared");
        let mut any = HostRoutes::new(HostPattern::Any, Vec::new(), None);
        any.last_resort = Some(route("last-resort"));
        parts.hosts.insert(&HostPattern::Any.into(), Arc::new(any));
        (Snapshot::freeze(Generation(1), parts), key)
    }

    #[test]
    fn a_request_uses_only_the_table_of_its_listener() {
        let (snapshot, bind) = snapshot();
        let check_path = |host: &str, path: &str, want: (Option<&str>, Option<&str>)| {
            let found = snapshot.find(&bind, host, path, &SampleHead::new("GET"));
            let in_turn = found.listener.map(|listener| snapshot.in_turn(listener, host, path)).unwrap_or_default();
            let first = in_turn
                .into_iter()
                .map(|(_, route)| route)
                .find(|route| route.takes(&SampleHead::new("GET"), &Steps::of_request()));
            assert_eq!(first.map(Arc::as_ptr), found.route.map(Arc::as_ptr), "{host}{path}");
            let listener = found.listener.map(|listener| &*listener.name.0);
            let route = found.route.map(|route| &*route.origin.object.name.name);
            assert_eq!((listener, route), want, "{host}{path}");
        };
        let check = |host, want| check_path(host, "/", want);
        check("x.a.test", (Some("own"), Some("x-of-own")));
        check_path("x.a.test", "/all/of/it", (Some("own"), Some("all-of-own")));
        check_path("x.a.test", "/none", (Some("own"), None));
        check("y.a.test", (Some("own"), None));
        check_path("y.a.test", "/all", (Some("own"), Some("all-of-own")));
        check("b.test", (Some("http"), Some("b-of-shared")));
        check("c.test", (Some("http"), Some("last-resort")));
        let elsewhere = BindKey { address: ([127, 0, 0, 1], 81).into(), ..bind };
        assert!(snapshot.find(&elsewhere, "b.test", "/", &SampleHead::new("GET")).listener.is_none());
    }

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
