//! The result of a source for one object: its claims, its dependencies, and its report. Plain data, without knowledge
//! of the sources that make it and of the topology and the compiler that read it.

mod condition;
mod infrastructure;
mod key;
mod listener_ref;
mod gateway_listeners;
mod policy_claim;
mod route_status;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use ipnet::IpNet;
use serde::Serialize;
use tidegate_config::finding::Finding;
use tidegate_config::model::{
    BackendKey, BindKey, Certificate, EdgeSettings, HostPattern, Listener, Route, ScopeId, Settings, StreamRoute,
    VirtualHost,
};
use tidegate_config::object::{Age, Kind, ObjectName, ObjectRef};
use tidegate_config::project::gateway::OwnStatus;

use crate::world::World;
pub use condition::ConditionReason;
pub(crate) use condition::{Conditions, named, parameters};
pub use gateway_listeners::{GatewayListeners, MergedListener};
pub use infrastructure::{Endpoints, GatewayInfrastructure};
pub use key::Key;
pub(crate) use key::Selected;
pub use listener_ref::ListenerRef;
pub(crate) use policy_claim::{AttachedPolicy, PolicyClaim, PolicySection, PolicyTarget};
pub(crate) use route_status::RouteConditions;
pub use route_status::RouteStatus;

/// The claims, dependencies and report of one object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attachment {
    /// The claims to virtual hosts, in the order of the hosts, one for each.
    pub claims: Box<[Claim]>,
    /// The dependencies, whether they exist or not, in ascending order without duplicates. When one of them changes,
    /// the object is attached again. It depends on itself without being listed.
    pub links: Box<[Key]>,
    /// The listeners that count it as attached, in ascending order.
    pub listeners: Box<[Key]>,
    /// The report to the owner; `None` if it is empty.
    pub report: Option<Arc<Report>>,
    /// Rarely used parts, read by [`Attachment::other_claims`].
    pub other_claims: Option<Box<OtherClaims>>,
}

/// The claims of an object besides routes of HTTP. Most objects have none, so they are stored separately.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OtherClaims {
    /// Settings of scopes, in ascending order, one for each scope.
    pub scopes: Box<[(ScopeId, Arc<Settings>)]>,
    /// The routes of connections that are passed on as bytes: by the hosts of listeners, in their order, one for each.
    pub streams: Box<[(VirtualHost, Arc<StreamRoute>)]>,
    /// Services that these refer to and that do not exist (yet).
    pub missing: Box<[ObjectRef]>,
    /// The sockets to open, with the listeners on each, in the order of the sockets.
    pub binds: Box<[(BindKey, BindClaim)]>,
    /// The addresses that a Gateway was assigned from the pool.
    pub addresses: Box<[IpAddr]>,
    /// The listeners of a Gateway, for the objects that attach to it, which are attached later.
    pub gateway_listeners: Option<Arc<GatewayListeners>>,
    /// The desired infrastructure in the cluster.
    pub infrastructure: Option<Arc<GatewayInfrastructure>>,
    /// Its part of the global settings.
    pub globals: Option<Arc<GlobalClaim>>,
    /// Policies on the paths through objects.
    pub policies: Box<[PolicyClaim]>,
}

/// An object's part of the settings of all clients and all connections.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GlobalClaim {
    /// The certificate for server names without another one.
    pub certificate: Option<Arc<Certificate>>,
    /// Further peers whose forwarded headers are trusted.
    pub trusted_proxies: Box<[IpNet]>,
    /// Settings that override the operator's. An operator's PROXY protocol stays on, and so does a log format for which
    /// there is no other.
    pub edge: Option<EdgeSettings>,
}

/// The listeners of an object on a socket, those with the most specific hosts first.
pub type BindClaim = Arc<[Listener]>;

/// The report on an object that does not depend on competing claims.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The outcome, for kinds that make claims.
    pub verdict: Option<Verdict>,
    /// The problems that the owner can fix.
    pub findings: Vec<Finding>,
}

/// The outcome for an object, also when all is well.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is served, under the class or router of this name.
    Served(Arc<str>),
    /// It belongs to another controller.
    Others,
    /// The conditions of the object and of each of its parents and listeners. The number of routes attached to a
    /// listener is filled in when the status is written.
    Status(Arc<OwnStatus>),
    /// The conditions of an object whose parent does not exist. They are written only in place of earlier ones of this
    /// controller: the object may have been another controller's.
    #[serde(rename = "status")]
    Orphaned(Arc<OwnStatus>),
    /// The conditions of a route, for each of its parents.
    #[serde(rename = "status")]
    Route(Arc<RouteStatus>),
}

/// The claim of one object to one virtual host, in the terms of the model and independent of its source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The virtual host.
    pub host: VirtualHost,
    /// The terms of the claim, which claims of the object to other hosts may share.
    pub terms: Arc<ClaimTerms>,
}

impl Deref for Claim {
    type Target = ClaimTerms;

    fn deref(&self) -> &ClaimTerms {
        &self.terms
    }
}

/// The terms of the claims of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimTerms {
    /// The object.
    pub object: ObjectRef,
    /// The age of the object: the older claim wins.
    pub age: Age,
    /// The field with the host, for a report to the owner whose claim loses.
    pub field: &'static str,
    /// Routes of the host, in the order of the object.
    pub routes: Box<[Arc<Route>]>,
    /// The route for requests to the host that match no other.
    pub fallback: Option<Arc<Route>>,
    /// Whether the fallback also takes the requests that match no other host. Only for claims without a host.
    pub last_resort: bool,
    /// Whether the claim only adds to a host that others claim: it is accepted if the oldest of those is of the same
    /// namespace.
    pub guest: bool,
    /// Certificates for server names of the host, in order of preference.
    pub certificates: Box<[(HostPattern, Arc<Certificate>)]>,
    /// Services and Secrets that it refers to and that do not exist (yet).
    pub missing: Box<[ObjectRef]>,
}

#[cfg(test)]
impl ClaimTerms {
    /// The terms of an object that claims nothing but the host.
    pub(crate) fn sample(object: ObjectRef, age: Age) -> Self {
        Self {
            object,
            age,
            field: "",
            routes: Box::default(),
            fallback: None,
            last_resort: false,
            guest: false,
            certificates: Box::default(),
            missing: Box::default(),
        }
    }
}

impl Attachment {
    /// The attachment of an object without claims: it reports the findings of its projection.
    pub(crate) fn reporting(object: &ObjectRef, world: &World) -> Self {
        let findings = world.findings_of(object).to_vec();
        Self { report: Report { findings, ..Report::default() }.unless_empty(), ..Self::default() }
    }

    /// Adds findings to the report.
    pub(crate) fn add_findings(&mut self, findings: impl IntoIterator<Item = Finding>) {
        let mut report = self.report.take().map(Arc::unwrap_or_clone).unwrap_or_default();
        report.findings.extend(findings);
        self.report = report.unless_empty();
    }

    /// The claims besides routes of HTTP.
    #[must_use]
    pub fn other_claims(&self) -> &OtherClaims {
        static NOTHING: LazyLock<OtherClaims> = LazyLock::new(OtherClaims::default);
        self.other_claims.as_deref().unwrap_or(&NOTHING)
    }

    /// The same, mutable.
    pub(crate) fn other_claims_mut(&mut self) -> &mut OtherClaims {
        self.other_claims.get_or_insert_default()
    }

    /// The listeners on a socket, if there are any.
    #[must_use]
    pub fn bind(&self, key: &BindKey) -> Option<&BindClaim> {
        self.other_claims().binds.iter().find(|(of, _)| of == key).map(|(_, claim)| claim)
    }

    /// The claim to a host, if there is one.
    #[must_use]
    pub fn claim(&self, host: &VirtualHost) -> Option<&Claim> {
        let index = self.claims.binary_search_by(|claim| claim.host.cmp(host)).ok()?;
        self.claims.get(index)
    }

    /// The settings of a scope, if there are any.
    #[must_use]
    pub fn settings_of(&self, scope: &ScopeId) -> Option<&Arc<Settings>> {
        self.other_claims().scopes.iter().find(|(of, _)| of == scope).map(|(_, settings)| settings)
    }

    /// The route of the connections for a host, if there is one.
    #[must_use]
    pub fn stream(&self, host: &VirtualHost) -> Option<&Arc<StreamRoute>> {
        let index = self.other_claims().streams.binary_search_by(|(of, _)| of.cmp(host)).ok()?;
        self.other_claims().streams.get(index).map(|(_, route)| route)
    }

    /// The Services that it refers to.
    pub(crate) fn named_services(&self) -> BTreeSet<&ObjectName> {
        self.links.iter().filter_map(|key| key.object(Kind::Service)).map(|object| &object.name).collect()
    }

    /// Every key in the index of dependents: the dependencies, the claimed hosts and sockets, the scopes and global
    /// settings, and the listeners that it is attached to.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.links.iter().cloned().chain(self.claimed_keys())
    }

    /// The keys that another attachment, which usually has the same links, does not have.
    pub(crate) fn keys_not_in<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = Key> + 'a {
        let links = if self.links == other.links { &[] } else { &*self.links };
        let links = links.iter().filter(|key| !other.has_key(key)).cloned();
        links.chain(self.claimed_keys().filter(|key| !other.has_key(key)))
    }

    /// The keys besides the dependencies.
    fn claimed_keys(&self) -> impl Iterator<Item = Key> {
        let hosts = self.claims.iter().map(|claim| Key::Host(claim.host.clone()));
        let scopes = self.other_claims().scopes.iter().map(|(scope, _)| Key::Scope(Box::new(scope.clone())));
        let streams = self.other_claims().streams.iter().map(|(host, _)| Key::Stream(host.clone()));
        let binds = self.other_claims().binds.iter().map(|(bind, _)| Key::Bind(Box::new(*bind)));
        let globals = self.other_claims().globals.iter().map(|_| Key::Globals);
        let policies = self.other_claims().policies.iter();
        let policies = policies.map(|claim| Key::Policies(Box::new(claim.target.object.clone())));
        let listeners = self.listeners.iter().cloned();
        hosts.chain(scopes).chain(streams).chain(binds).chain(globals).chain(policies).chain(listeners)
    }

    /// Whether a key is one of [`Attachment::keys`].
    fn has_key(&self, key: &Key) -> bool {
        let claimed = match key {
            Key::Host(host) => self.claim(host).is_some(),
            Key::Scope(scope) => self.settings_of(scope).is_some(),
            Key::Stream(host) => self.stream(host).is_some(),
            Key::Bind(bind) => self.bind(bind).is_some(),
            Key::Globals => self.other_claims().globals.is_some(),
            Key::Policies(target) => self.other_claims().policies.iter().any(|claim| claim.target.object == **target),
            Key::Listener(_) => self.listeners.binary_search(key).is_ok(),
            Key::Object(_)
            | Key::InNamespace(_)
            | Key::Selected(_)
            | Key::Any(_)
            | Key::NamingPolicy(_)
            | Key::GatewayListeners(_)
            | Key::RoutesTo(_)
            | Key::Conflict(_)
            | Key::EndpointsOf(_)
            | Key::Name(_)
            | Key::KeySet(_)
            | Key::ApiServer
            | Key::Definitions => false,
        };
        claimed || self.links.binary_search(key).is_ok()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let OtherClaims {
            scopes,
            streams,
            missing: _,
            binds,
            addresses: _,
            gateway_listeners,
            infrastructure: _,
            globals,
            policies,
        } = self.other_claims();
        let asks = !self.claims.is_empty() || !scopes.is_empty() || !streams.is_empty() || globals.is_some();
        let asks = asks || !policies.is_empty();
        let has_listeners = gateway_listeners.is_some() || !binds.is_empty() || !self.listeners.is_empty();
        !asks && !has_listeners && self.links.is_empty() && self.report.is_none()
    }
}

impl Report {
    /// A report with the findings about an object and its status.
    pub(crate) fn of_status(findings: &[Finding], status: OwnStatus) -> Option<Arc<Self>> {
        Self { verdict: Some(Verdict::Status(Arc::new(status))), findings: findings.to_vec() }.unless_empty()
    }

    /// The same for an object whose parent does not exist.
    pub(crate) fn of_orphan(findings: &[Finding], status: OwnStatus) -> Option<Arc<Self>> {
        Self { verdict: Some(Verdict::Orphaned(Arc::new(status))), findings: findings.to_vec() }.unless_empty()
    }

    /// The same for a route.
    pub(crate) fn of_route(findings: Vec<Finding>, status: RouteStatus) -> Option<Arc<Self>> {
        Self { verdict: Some(Verdict::Route(Arc::new(status))), findings }.unless_empty()
    }

    pub(crate) fn unless_empty(self) -> Option<Arc<Self>> {
        (self.verdict.is_some() || !self.findings.is_empty()).then(|| Arc::new(self))
    }
}

impl ClaimTerms {
    /// The same terms, with equal routes shared with another claim's.
    pub(crate) fn with_routes_of(&self, other: &Self) -> Self {
        let mut terms = self.clone();
        for (route, same) in terms.routes.iter_mut().zip(&other.routes) {
            if route == same {
                *route = Arc::clone(same);
            }
        }
        terms
    }
}

impl Claim {
    /// A claim of an object to one host.
    pub(crate) fn new(host: impl Into<VirtualHost>, terms: ClaimTerms) -> Self {
        Self { host: host.into(), terms: Arc::new(terms) }
    }

    /// The order of precedence of claims to a host, the winner first: by age, then by kind and name.
    pub(crate) fn by_age(&self, other: &Self) -> Ordering {
        (&self.age, &self.object).cmp(&(&other.age, &other.object))
    }

    /// Every route of the claim, with the fallback.
    pub fn all_routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.iter().chain(&self.fallback)
    }

    /// The Service ports of its routes, with duplicates.
    pub fn backends(&self) -> impl Iterator<Item = &BackendKey> {
        self.all_routes().flat_map(|route| backends(route))
    }

    /// The Services of its routes.
    #[must_use]
    pub fn services(&self) -> BTreeSet<&ObjectName> {
        self.backends().map(|key| &key.service).collect()
    }
}

/// The Service ports of a route, without fixed addresses, which belong to no Service.
pub(crate) fn backends(route: &Route) -> impl Iterator<Item = &BackendKey> {
    route.targets().filter(|target| target.fixed.is_none()).map(|target| &target.backend)
}
