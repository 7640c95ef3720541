//! The invariants of the loop at a quiet point, and of every publication.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::model::auth::AuthenticationMethod;
use tidegate_config::model::{
    Backend, BackendKey, HostRoutes, SnapshotParts, StreamRoute, TargetPolicies, VirtualHost,
};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::{Secret, ServicePort};
use tidegate_control::{Cause, Changes, Compiled, Unit, Verdict, compile};

use crate::naive;
use crate::play::Simulation;

impl Simulation {
    pub(crate) fn check(&self) {
        self.cluster.check_world(self.reconciler.model().world(), |kind| self.heard(kind), self.seed);
        self.check_compiled();
    }

    /// The invariants whenever the queue is empty, for any events.
    pub(crate) fn check_compiled(&self) {
        let seed = self.seed;
        let (world, options) = (self.reconciler.model().world(), self.reconciler.model().options());
        let (live, full) =
            (self.reconciler.model().compiled(), compile(world, options, self.reconciler.model().frozen_backends()));
        // Every part by its name, so that this does not compile without a new one.
        let SnapshotParts {
            hosts: _,
            streams: _,
            backends: _,
            policies: _,
            binds,
            scopes,
            trusted_proxies,
            default_certificate,
            defaults,
            edge,
        } = &full.parts;
        assert_eq!(pointers(live), pointers(&full), "seed {seed}: hosts");
        assert_eq!(streams(&live.parts), streams(&full.parts), "seed {seed}: streams");
        assert_eq!(backends(&live.parts), backends(&full.parts), "seed {seed}: backends");
        assert_eq!(policies(&live.parts), policies(&full.parts), "seed {seed}: policies");
        assert_eq!(&live.parts.binds, binds, "seed {seed}: binds");
        assert_eq!(&live.parts.scopes, scopes, "seed {seed}: scopes");
        assert_eq!(&live.parts.trusted_proxies, trusted_proxies, "seed {seed}: trusted proxies");
        assert_eq!(&live.parts.default_certificate, default_certificate, "seed {seed}: default certificate");
        assert_eq!(&live.parts.defaults, defaults, "seed {seed}: defaults");
        assert_eq!(&live.parts.edge, edge, "seed {seed}: settings of all clients");
        assert_eq!(live.findings.by_unit(), full.findings.by_unit(), "seed {seed}: findings");
        assert!(live.findings.objects().eq(full.findings.objects()), "seed {seed}: what they are about");
        for object in live.findings.objects() {
            let (live, full) = (live.findings.about(object), full.findings.about(object));
            assert!(live.eq(full), "seed {seed}: findings about {object}");
        }
        assert_eq!(live.verdicts, full.verdicts, "seed {seed}: verdicts");
        for finding in live.all_findings() {
            let known = world.holds(&finding.object);
            let named = options.default_certificate.as_ref() == Some(&finding.object.name);
            assert!(known || named, "seed {seed}: a finding about nothing: {finding}");
        }
        // The naive model covers Ingresses only.
        if options.sources.deis.is_none() && options.sources.gateway.is_none() {
            naive::check(world, options, live, seed);
        }
        self.check_named_policies();
        self.check_keys();
        self.check_published(&live.parts);
    }

    /// An Ingress that names policies is closed unless there is one, and all of them are usable.
    fn check_named_policies(&self) {
        let model = self.reconciler.model();
        let kinds = [Kind::RateLimitPolicy, Kind::AuthPolicy];
        let is_read = model.options().sources.kuadrant.is_some() && kinds.iter().all(|kind| model.world().knows(*kind));
        for (name, ingress) in &model.world().ingresses {
            let object = ObjectRef::new(Kind::Ingress, name.clone());
            let is_ours = matches!(model.compiled().verdicts.get(&object), Some(Verdict::Served(_)));
            let Some(policy) = ingress.policy.as_ref().filter(|_| is_ours) else { continue };
            let policy = name.beside(Arc::clone(policy));
            let limits = model.world().rate_limit_policies.get(&policy).map(|policy| policy.invalid());
            let rules = model.world().auth_policies.get(&policy).map(|policy| policy.invalid());
            let mut found = limits.into_iter().chain(rules).peekable();
            let usable = is_read && found.peek().is_some() && found.all(|invalid| invalid.is_none());
            let target = model.compiled().parts.policies.get(&object).expect("policies");
            assert!(target.paths().all(|path| path.closed != usable), "seed {}: {object}", self.seed);
        }
    }

    /// A key is accepted only while a Secret of the policy's namespace has it.
    fn check_keys(&self) {
        let model = self.reconciler.model();
        let secrets = &model.world().secrets;
        for (target, policies) in model.compiled().parts.policies.iter() {
            let rules = policies.paths().filter_map(|path| path.auth.as_ref()).flat_map(|auth| &auth.authentication);
            for rule in rules {
                let AuthenticationMethod::ApiKey(keys) = &rule.rule.method else { continue };
                for hash in keys.0.keys() {
                    let has = |(name, secret): (&ObjectName, &Arc<Secret>)| {
                        let key = secret.api_key.as_ref().and_then(|secret| secret.key.ok());
                        name.namespace == rule.policy.name.namespace && key == Some(*hash)
                    };
                    assert!(secrets.iter().any(has), "seed {}: a key of nobody on {target}", self.seed);
                }
            }
        }
    }

    /// The invariants after every batch: a batch removes no backend of the cluster that a route uses; the hosts and
    /// connections that it compiles use only compiled backends.
    pub(crate) fn check_routed(&self, before: &SnapshotParts) {
        let now = &self.reconciler.model().compiled().parts;
        for (host, routes) in now.hosts.iter() {
            let same = before.hosts.get(&host).is_some_and(|before| Arc::ptr_eq(before, routes));
            for route in routes.all() {
                let targets = route.action.targets().filter(|target| target.fixed.is_none());
                targets.for_each(|target| self.check_led(&route.origin.object, &target.backend, same, before));
            }
        }
        for (host, route) in now.streams.iter() {
            let same = before.streams.get(&host) == Some(route);
            route.targets().for_each(|target| self.check_led(&route.origin.object, &target.backend, same, before));
        }
    }

    /// The same for one backend of an object. With `same`, the object led to it before the batch.
    fn check_led(&self, object: &ObjectRef, key: &BackendKey, same: bool, before: &SnapshotParts) {
        let service = self.reconciler.model().world().services.get(&key.service);
        let is_port = |port: &ServicePort| (port.number, port.transport) == (key.port, key.transport);
        let there = service.is_some_and(|service| service.ports.iter().any(is_port));
        let now = &self.reconciler.model().compiled().parts.backends;
        let compiled = now.contains_key(key) || same && !before.backends.contains_key(key);
        assert!(!there || compiled, "seed {}: {object} leads to {key}, which is not compiled", self.seed);
    }

    /// The serving parts: the routes of the cluster, or the held ones; in both cases with the current endpoints of
    /// every Service port that these routes use.
    fn check_published(&self, live: &SnapshotParts) {
        let seed = self.seed;
        let published = self.published.last().expect("a model");
        let routes = self.frozen.as_ref().unwrap_or(live);
        assert_eq!(changed_between(published, routes), BTreeSet::new(), "seed {seed}: the routes that serve");
        assert_eq!(backends(published), backends(live), "seed {seed}: the endpoints that serve");
        let followed = self.reconciler.model().frozen_backends();
        for route in published.hosts.iter().flat_map(|(_, host)| host.all().cloned().collect::<Vec<_>>()) {
            for key in route.action.targets().filter(|target| target.fixed.is_none()).map(|target| &target.backend) {
                assert!(self.frozen.is_none() || followed.contains(key), "seed {seed}: {key}");
                let service = self.reconciler.model().world().services.get(&key.service);
                let there = service.is_some_and(|service| service.ports.iter().any(|port| port.number == key.port));
                assert!(!there || published.backends.contains_key(key), "seed {seed}: nobody follows {key}");
            }
        }
    }

    /// The reported changes are the actual ones.
    pub(crate) fn check_changes(&self, after: &SnapshotParts, changes: &Changes) {
        let Some(before) = self.published.last() else { return };
        assert_eq!(
            changes.units.routing.total,
            changed_between(before, after).len(),
            "seed {}: {changes:?}",
            self.seed
        );
        assert!(changes.causes.total > 0, "seed {}: nothing caused {changes:?}", self.seed);
    }
}

/// Whether a model is not published as a difference from the previous one.
pub(crate) fn whole(cause: &Cause) -> bool {
    matches!(cause, Cause::Started | Cause::Commanded { .. })
}

/// The units that determine routes and differ between two models.
fn changed_between(one: &SnapshotParts, other: &SnapshotParts) -> BTreeSet<Unit> {
    Unit::changed_between(one, other).into_iter().chain(Unit::changed_between(other, one)).collect()
}

fn streams(parts: &SnapshotParts) -> BTreeMap<VirtualHost, Arc<StreamRoute>> {
    parts.streams.iter().map(|(host, route)| (host, Arc::clone(route))).collect()
}

fn hosts(parts: &SnapshotParts) -> BTreeMap<VirtualHost, Arc<HostRoutes>> {
    parts.hosts.iter().map(|(host, routes)| (host, Arc::clone(routes))).collect()
}

fn policies(parts: &SnapshotParts) -> BTreeMap<ObjectRef, Arc<TargetPolicies>> {
    parts.policies.iter().map(|(target, policies)| (target.clone(), Arc::clone(policies))).collect()
}

fn backends(parts: &SnapshotParts) -> BTreeMap<BackendKey, Arc<Backend>> {
    parts.backends.iter().map(|(key, backend)| (key.clone(), Arc::clone(backend))).collect()
}

pub(crate) fn pointers(compiled: &Compiled) -> BTreeMap<VirtualHost, Arc<HostRoutes>> {
    hosts(&compiled.parts)
}
