//! What a source makes of one object.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use serde::Serialize;
use tidegate_config::finding::Finding;
use tidegate_config::model::{
    BackendKey, BindKey, Certificate, HostPattern, Listener, Route, ScopeId, Settings, StreamRoute, VirtualHost,
};
use tidegate_config::object::{Age, Kind, ObjectName, ObjectRef};
use tidegate_config::project::gateway::OwnStatus;

use super::gateway::{GatewayInfrastructure, Offer, RouteStatus};
use crate::compile::Unit;
use crate::topology::Key;
use crate::world::World;

/// What one object asks of the edge, and what that depends on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attachment {
    /// The virtual hosts that it wants a part in, in their order, each once.
    pub claims: Box<[Arc<Claim>]>,
    /// What it depends on besides the object itself, whether it exists or not: in ascending order, each key once. When one of
    /// them changes, the object is attached again.
    pub links: Box<[Key]>,
    /// The listeners that it is attached to and counts for, in ascending order.
    pub listeners: Box<[Key]>,
    /// What its owner is told; `None` for nothing.
    pub report: Option<Arc<Report>>,
    /// What few objects ask for; [`Attachment::besides`] reads it.
    pub besides: Option<Box<Besides>>,
}

/// What an object asks for besides routes of HTTP. Most ask for nothing of it, so it stands apart.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Besides {
    /// What it says of the settings of scopes, in ascending order, each scope once.
    pub scopes: Box<[(ScopeId, Arc<Settings>)]>,
    /// Where connections are to go that are passed on as bytes: by the hosts of listeners, in their order, each once.
    pub streams: Box<[(VirtualHost, Arc<StreamRoute>)]>,
    /// Services that these name and that do not exist, or not yet.
    pub missing: Box<[ObjectRef]>,
    /// The sockets that it asks for, with the listeners on each, in the order of the sockets.
    pub binds: Box<[(BindKey, BindClaim)]>,
    /// What it offers to others, which are attached after it.
    pub offer: Option<Arc<Offer>>,
    /// What is made for it in the cluster.
    pub infrastructure: Option<Arc<GatewayInfrastructure>>,
}

/// The listeners that an object has on a socket, those of the most specific hosts first.
pub type BindClaim = Arc<[Listener]>;

/// What the owner of an object is told of it by itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// What became of it, for kinds that ask for something.
    pub verdict: Option<Verdict>,
    /// What its owner can mend.
    pub findings: Vec<Finding>,
}

/// What became of an object, also when all is well.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is served, under the class or router of this name.
    Served(Arc<str>),
    /// It is not ours to serve.
    Others,
    /// Its conditions, for itself and each of its parents and listeners. How many routes are attached to a listener is filled in by those
    /// who write them.
    Status(Arc<OwnStatus>),
    /// Those of a route, for each of its parents.
    #[serde(rename = "status")]
    Route(Arc<RouteStatus>),
}

/// What one object wants of one virtual host, in the terms of the model. Which source it comes from does not show.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The virtual host.
    pub host: VirtualHost,
    /// What it wants, which its claims for other hosts may share.
    pub terms: Arc<ClaimTerms>,
}

impl Deref for Claim {
    type Target = ClaimTerms;

    fn deref(&self) -> &ClaimTerms {
        &self.terms
    }
}

/// What one object wants of virtual hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimTerms {
    /// The object.
    pub object: ObjectRef,
    /// How old the object is: the older claim wins.
    pub age: Age,
    /// The field that names the host, for an owner who does not get it.
    pub field: &'static str,
    /// Routes of the host, in the order of the object.
    pub routes: Box<[Arc<Route>]>,
    /// Where requests for the host go that no route takes.
    pub fallback: Option<Arc<Route>>,
    /// Whether the fallback also takes what other hosts leave. Of claims for no host alone.
    pub last_resort: bool,
    /// Whether it only adds to a host that others claim, and so is taken where the oldest of those is of the same namespace.
    pub guest: bool,
    /// Certificates for server names of the host, the preferred ones first.
    pub certificates: Box<[(HostPattern, Arc<Certificate>)]>,
    /// Services and Secrets that it names and that do not exist, or not yet.
    pub missing: Box<[ObjectRef]>,
}

impl Attachment {
    /// That of an object that asks for nothing: what its projection found is told.
    pub(super) fn reporting(object: &ObjectRef, world: &World) -> Self {
        let findings = world.findings_of(object).to_vec();
        Self { report: Report { findings, ..Report::default() }.unless_empty(), ..Self::default() }
    }

    /// Tells the owner of the object something besides.
    pub(super) fn tell(&mut self, findings: impl IntoIterator<Item = Finding>) {
        let mut report = self.report.take().map(Arc::unwrap_or_clone).unwrap_or_default();
        report.findings.extend(findings);
        self.report = report.unless_empty();
    }

    /// What it asks for besides routes of HTTP.
    #[must_use]
    pub fn besides(&self) -> &Besides {
        static NOTHING: LazyLock<Besides> = LazyLock::new(Besides::default);
        self.besides.as_deref().unwrap_or(&NOTHING)
    }

    /// The same, to be added to.
    pub(super) fn besides_mut(&mut self) -> &mut Besides {
        self.besides.get_or_insert_default()
    }

    /// The listeners on a socket, where it asks for that.
    #[must_use]
    pub fn bind(&self, key: &BindKey) -> Option<&BindClaim> {
        self.besides().binds.iter().find(|(of, _)| of == key).map(|(_, claim)| claim)
    }

    /// The claim for a host, where there is one.
    #[must_use]
    pub fn claim(&self, host: &VirtualHost) -> Option<&Arc<Claim>> {
        let place = self.claims.binary_search_by(|claim| claim.host.cmp(host)).ok()?;
        self.claims.get(place)
    }

    /// What it says of the settings of a scope.
    #[must_use]
    pub fn settings_of(&self, scope: &ScopeId) -> Option<&Arc<Settings>> {
        self.besides().scopes.iter().find(|(of, _)| of == scope).map(|(_, settings)| settings)
    }

    /// Where the connections for a host are to go that are passed on as bytes.
    #[must_use]
    pub fn stream(&self, host: &VirtualHost) -> Option<&Arc<StreamRoute>> {
        let place = self.besides().streams.binary_search_by(|(of, _)| of.cmp(host)).ok()?;
        self.besides().streams.get(place).map(|(_, route)| route)
    }

    /// The Services that it leads the requests or the connections for a host to.
    pub(crate) fn services_of(&self, unit: &Unit) -> BTreeSet<&ObjectName> {
        match unit {
            Unit::Host(host) => self.claim(host).map(|claim| claim.services()).unwrap_or_default(),
            Unit::Stream(host) => {
                let targets = self.stream(host).into_iter().flat_map(|route| route.targets());
                targets.map(|target| &target.backend.service).collect()
            }
            Unit::Object(_) | Unit::Bind(_) | Unit::Service(_) | Unit::Scope(_) | Unit::Globals(()) => BTreeSet::new(),
        }
    }

    /// The Services that it names.
    pub(crate) fn named_services(&self) -> BTreeSet<&ObjectName> {
        self.links.iter().filter_map(|key| key.object(Kind::Service)).map(|object| &object.name).collect()
    }

    /// Every key under which the object is found: what it depends on, the hosts and the binds that it claims, the
    /// scopes that it is about, and the listeners that it is attached to.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let hosts = self.claims.iter().map(|claim| Key::Host(claim.host.clone()));
        let scopes = self.besides().scopes.iter().map(|(scope, _)| Key::Scope(scope.clone()));
        let streams = self.besides().streams.iter().map(|(host, _)| Key::Stream(host.clone()));
        let binds = self.besides().binds.iter().map(|(bind, _)| Key::Bind(*bind));
        let own = hosts.chain(scopes).chain(streams).chain(binds);
        self.links.iter().cloned().chain(own).chain(self.listeners.iter().cloned())
    }

    /// Whether it says nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Besides { scopes, streams, missing: _, binds, offer, infrastructure: _ } = self.besides();
        let asks = !self.claims.is_empty() || !scopes.is_empty() || !streams.is_empty();
        let offers = offer.is_some() || !binds.is_empty() || !self.listeners.is_empty();
        !asks && !offers && self.links.is_empty() && self.report.is_none()
    }
}

impl Report {
    /// What is found of an object, and what its status is to say.
    pub(super) fn of_status(findings: &[Finding], status: OwnStatus) -> Option<Arc<Self>> {
        Self { verdict: Some(Verdict::Status(Arc::new(status))), findings: findings.to_vec() }.unless_empty()
    }

    /// The same of a route.
    pub(super) fn of_route(findings: Vec<Finding>, status: RouteStatus) -> Option<Arc<Self>> {
        Self { verdict: Some(Verdict::Route(Arc::new(status))), findings }.unless_empty()
    }

    pub(super) fn unless_empty(self) -> Option<Arc<Self>> {
        (self.verdict.is_some() || !self.findings.is_empty()).then(|| Arc::new(self))
    }
}

impl ClaimTerms {
    /// The same, with the routes of another one as far as they are equal.
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
    /// A claim of an object for one host.
    pub(crate) fn new(host: impl Into<VirtualHost>, terms: ClaimTerms) -> Self {
        Self { host: host.into(), terms: Arc::new(terms) }
    }

    /// The order in which claims for a host are settled, the lesser first: the older object, then by its kind and name.
    pub(crate) fn by_age(&self, other: &Self) -> Ordering {
        (&self.age, &self.object).cmp(&(&other.age, &other.object))
    }

    /// Every route that it asks for.
    pub fn all_routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.iter().chain(&self.fallback)
    }

    /// The Service ports that its routes lead to, some of them several times.
    pub fn backends(&self) -> impl Iterator<Item = &BackendKey> {
        self.all_routes().flat_map(|route| backends(route))
    }

    /// The Services that its routes lead to.
    #[must_use]
    pub fn services(&self) -> BTreeSet<&ObjectName> {
        self.backends().map(|key| &key.service).collect()
    }
}

/// The Service ports that a route leads to; addresses that an object names itself are of no Service.
pub(crate) fn backends(route: &Route) -> impl Iterator<Item = &BackendKey> {
    route.targets().filter(|target| target.fixed.is_none()).map(|target| &target.backend)
}
