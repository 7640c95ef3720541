//! A snapshot: the routing model at one moment.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;
use serde::Serialize;

use super::backend::{Backend, BackendKey, BackendMap, Target, no_backends};
use super::bind::{Bind, BindKey, Binds};
use super::certificate::Certificate;
use super::compression::Compression;
use super::edge::EdgeSettings;
use super::host::HostPattern;
use super::host_routes::HostRoutes;
use super::listener::{Listener, ListenerTls};
use super::policy::auth::{AuthRuleName, PathAuth};
use super::policy::{Limit, PathPolicies, PolicyMap, no_policies};
use super::retry::RetryPolicy;
use super::route::Route;
use super::route_table::RouteTables;
use super::settings::{Effective, ScopeId, Settings};
use super::stream::StreamRoute;

/// The number of a snapshot, rising by one with each publication; 0 is the empty snapshot before the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize)]
pub struct Generation(pub u64);

impl Generation {
    /// The next generation.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The parts of a snapshot. A clone shares everything, so the cost of the next snapshot is that of the difference.
#[derive(Clone, Debug)]
pub struct SnapshotParts {
    /// The sockets to listen on.
    pub binds: Binds,
    /// The stream routes of listeners whose bytes are passed on, in the table of the listener: by server name, or for
    /// every host if the protocol has no server names.
    pub streams: RouteTables<Arc<StreamRoute>>,
    /// Routes and certificates by virtual host.
    pub hosts: RouteTables<Arc<HostRoutes>>,
    /// Endpoints by Service port.
    pub backends: BackendMap,
    /// The policies of paths, by the object that they attach to.
    pub policies: PolicyMap,
    /// The certificate for every other server name.
    pub default_certificate: Option<Arc<Certificate>>,
    /// Shared settings.
    pub scopes: Arc<BTreeMap<ScopeId, Arc<Settings>>>,
    /// The widest scope.
    pub defaults: Arc<Settings>,
    /// The peers whose forwarded headers are trusted.
    pub trusted_proxies: Arc<[IpNet]>,
    /// Settings of all clients and all connections.
    pub edge: Arc<EdgeSettings>,
}

impl Default for SnapshotParts {
    fn default() -> Self {
        Self {
            binds: Binds::default(),
            streams: RouteTables::default(),
            hosts: RouteTables::default(),
            backends: no_backends(),
            policies: no_policies(),
            default_certificate: None,
            scopes: Arc::default(),
            defaults: Arc::default(),
            trusted_proxies: Arc::default(),
            edge: Arc::default(),
        }
    }
}

impl SnapshotParts {
    /// The settings of a route: its own, then its scopes', then the defaults.
    #[must_use]
    pub fn effective(&self, route: &Route) -> Effective {
        self.narrowed(Effective::of(&self.defaults), route)
    }

    /// The compression of the responses of a route, if enabled.
    #[must_use]
    pub fn compression<'a>(&'a self, route: &'a Route) -> Option<&'a Arc<Compression>> {
        self.narrowest(route, |settings| settings.compression.as_ref())
    }

    /// The policy for retries after an answer of an endpoint, if a scope of the route has one.
    #[must_use]
    pub fn retry<'a>(&'a self, route: &'a Route) -> Option<&'a Arc<RetryPolicy>> {
        self.narrowest(route, |settings| settings.retry.as_ref())
    }

    /// The value of the narrowest scope that sets one.
    fn narrowest<'a, T>(&'a self, route: &'a Route, set: impl Fn(&'a Settings) -> Option<&'a T>) -> Option<&'a T> {
        let scopes = || route.scopes.iter().filter_map(|scope| self.scopes.get(scope));
        set(&route.settings).or_else(|| scopes().chain([&self.defaults]).find_map(|settings| set(settings)))
    }

    fn narrowed(&self, mut effective: Effective, route: &Route) -> Effective {
        let scopes = route.scopes.iter().rev().filter_map(|scope| self.scopes.get(scope));
        scopes.chain([&route.settings]).for_each(|settings| effective.narrow(settings));
        effective
    }
}

/// The routing model at one moment. It is immutable.
#[derive(Debug, Default)]
pub struct Snapshot {
    generation: Generation,
    parts: SnapshotParts,
    /// The defaults, resolved: most routes have no settings of their own.
    defaults: Effective,
}

impl Snapshot {
    pub(crate) fn freeze(generation: Generation, parts: SnapshotParts) -> Self {
        let defaults = Effective::of(&parts.defaults);
        Self { generation, parts, defaults }
    }

    /// Its number.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Its parts.
    #[must_use]
    pub const fn parts(&self) -> &SnapshotParts {
        &self.parts
    }

    /// The sockets to listen on.
    #[must_use]
    pub fn binds(&self) -> &[Bind] {
        &self.parts.binds
    }

    /// The bind with this identity.
    #[must_use]
    pub fn bind(&self, key: &BindKey) -> Option<&Bind> {
        self.parts.binds.get(key)
    }

    /// The stream route of a bind whose protocol has no server names: that of its one listener.
    #[must_use]
    pub fn stream(&self, bind: &BindKey) -> Option<&Arc<StreamRoute>> {
        let listener = self.bind(bind)?.listeners.first()?;
        self.parts.streams.table(&listener.table)?.get(&HostPattern::Any)
    }

    /// The stream route for a server name in lower case on a TLS listener: that of the most specific pattern of the
    /// listener's table.
    #[must_use]
    pub fn tls_stream(&self, listener: &Listener, server_name: &str) -> Option<&Arc<StreamRoute>> {
        self.parts.streams.table(&listener.table)?.matching(server_name).next()
    }

    /// Routes and certificates by virtual host.
    #[must_use]
    pub const fn hosts(&self) -> &RouteTables<Arc<HostRoutes>> {
        &self.parts.hosts
    }

    /// The endpoints of a Service port, if a route refers to it.
    #[must_use]
    pub fn backend(&self, key: &BackendKey) -> Option<&Arc<Backend>> {
        self.parts.backends.get(key)
    }

    /// The endpoints of a target.
    #[must_use]
    pub fn backend_of<'a>(&'a self, target: &'a Target) -> Option<&'a Arc<Backend>> {
        target.fixed.as_ref().or_else(|| self.backend(&target.backend))
    }

    /// The backends that targets hold themselves. Only routes without a host have such targets.
    pub fn fixed_backends(&self) -> impl Iterator<Item = &Arc<Backend>> {
        let routes = self.parts.hosts.shared().get(&HostPattern::Any).into_iter().flat_map(|routes| routes.all());
        routes.flat_map(|route| route.action.targets()).filter_map(|target| target.fixed.as_ref())
    }

    /// Every Service port that a route refers to.
    #[must_use]
    pub const fn backends(&self) -> &BackendMap {
        &self.parts.backends
    }

    /// The policies in effect on the path over a listener to a route; `None` if there are none.
    #[must_use]
    pub fn policies(&self, listener: &Listener, route: &Route) -> Option<&Arc<PathPolicies>> {
        let policies = &self.parts.policies;
        if policies.is_empty() {
            return None;
        }
        let origin = listener.origin.as_deref();
        let of_gateway = || policies.get(&origin?.gateway);
        let target = policies.get(&route.origin.object).or_else(of_gateway)?;
        target.of(origin, route.rule.as_ref(), route.origin.rule_index())
    }

    /// Every limit that is in effect on some path, with duplicates.
    pub fn limits(&self) -> impl Iterator<Item = &Arc<Limit>> {
        self.paths().flat_map(|path| path.limits.iter().chain(&path.identity_limits))
    }

    /// The rules of authentication and authorisation that are in effect on some path, with duplicates.
    pub fn auth_rules(&self) -> impl Iterator<Item = AuthRuleName> {
        self.paths().filter_map(|path| path.auth.as_deref()).flat_map(PathAuth::deciding)
    }

    /// The policies of every path that has some.
    fn paths(&self) -> impl Iterator<Item = &Arc<PathPolicies>> {
        self.parts.policies.values().flat_map(|target| target.paths())
    }

    /// The certificates for a server name in lower case, for clients of this bind: those of the host that takes its
    /// requests, and of no other, so that no tenant can present a certificate for requests of another tenant.
    #[must_use]
    pub fn certificates_for(&self, bind: &BindKey, server_name: &str) -> &[Arc<Certificate>] {
        let listener = self.bind(bind).and_then(|bind| bind.listener(server_name));
        let table = listener.and_then(|listener| self.parts.hosts.table(&listener.table));
        let host = table.and_then(|table| table.matching(server_name).next());
        host.map_or(&[], |routes| routes.certificates.of(server_name))
    }

    /// The TLS settings of the listener that takes a handshake with this server name (in lower case), if it has its
    /// own. Such a listener presents its own certificates and no other.
    #[must_use]
    pub fn own_tls(&self, bind: &BindKey, server_name: Option<&str>) -> Option<&ListenerTls> {
        self.bind(bind)?.listener(server_name.unwrap_or_default())?.tls.as_deref()
    }

    /// The certificates for a TLS handshake with a client of this bind, in the order of preference: those of the
    /// listener that takes the server name (in lower case), if it has TLS settings of its own; else those of the host,
    /// then the default one. Without a server name these are the listener's for every name, or the default one.
    pub fn handshake_certificates<'a>(
        &'a self,
        bind: &BindKey,
        server_name: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Certificate>> {
        let tls = self.own_tls(bind, server_name);
        let own = tls.into_iter().flat_map(move |tls| tls.certificates_for(server_name));
        let shared = tls.is_none().then(|| server_name.map_or(&[][..], |name| self.certificates_for(bind, name)));
        let default = shared.and(self.default_certificate());
        own.chain(shared.unwrap_or_default()).chain(default)
    }

    /// The certificate for every other server name.
    #[must_use]
    pub const fn default_certificate(&self) -> Option<&Arc<Certificate>> {
        self.parts.default_certificate.as_ref()
    }

    /// The peers whose forwarded headers are trusted.
    #[must_use]
    pub fn trusted_proxies(&self) -> &[IpNet] {
        &self.parts.trusted_proxies
    }

    /// Settings of all clients and all connections.
    #[must_use]
    pub const fn edge(&self) -> &Arc<EdgeSettings> {
        &self.parts.edge
    }

    /// The settings of a route.
    #[must_use]
    pub fn effective(&self, route: &Route) -> Effective {
        self.parts.narrowed(self.defaults, route)
    }

    /// The compression of the responses of a route, if enabled.
    #[must_use]
    pub fn compression<'a>(&'a self, route: &'a Route) -> Option<&'a Arc<Compression>> {
        self.parts.compression(route)
    }

    /// The policy for retries after an answer of an endpoint, if a scope of the route has one.
    #[must_use]
    pub fn retry<'a>(&'a self, route: &'a Route) -> Option<&'a Arc<RetryPolicy>> {
        self.parts.retry(route)
    }
}
