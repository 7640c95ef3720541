//! Drift found by lists and audits: metrics and log lines. The state machine repairs it.

use std::time::Instant;

use super::Loop;
use crate::event::Event;
use crate::reconcile::Audit;

impl Loop<'_> {
    /// Counts the objects of a list that World does not hold in the listed version, although the watch has reached
    /// their resourceVersions. Removed objects count only if nothing can have changed in between.
    pub(super) fn count_drift(&self, event: &Event) {
        let Event::Listed { collection, objects, complete, resource_version, .. } = event else { return };
        let state = self.collections.get(collection).filter(|state| state.synced);
        let Some(reached) = state.and_then(|state| state.resource_version.as_deref()) else { return };
        let world = self.reconciler.model().world();
        let known = objects.iter().filter(|object| !younger(&object.meta.resource_version, reached));
        let mut drifted = known.filter(|object| !world.holds_as(object)).count();
        // A list that confirms another finds the same drift, and may have its version.
        if *complete && **resource_version == *reached && !self.reconciler.listing().is_unconfirmed(collection) {
            let held = self.reconciler.listing().names_of(collection, world).count();
            drifted += held - objects.iter().filter(|object| world.holds(&object.meta.object)).count();
        }
        if drifted > 0 {
            tracing::warn!(%collection, drifted, "a list has objects that no watch event had reported; they are applied");
        }
        self.metrics.drift.with_label_values(&[collection.kind.as_str()]).inc_by(drifted as u64);
    }

    /// Makes a step of the audit, if it is due.
    pub(super) fn audit(&mut self, now: Instant) {
        let audit = self.reconciler.audit(&self.publisher.serving(), now, fastrand::u64(..));
        let Some(Audit { drifted, step, whole }) = audit else { return };
        for unit in drifted {
            tracing::warn!(%unit, "an audit found drift in this unit and repaired it");
            self.metrics.audit_drift.with_label_values(&[unit.label()]).inc();
        }
        self.metrics.audits.inc_by(u64::from(whole));
        if let Some(step) = step {
            self.publish_step(step, now);
        }
    }
}

/// Returns `true` if a resourceVersion is later: they are whole numbers of any length.
fn younger(version: &str, than: &str) -> bool {
    (version.len(), version) > (than.len(), than)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_config::model::HostPattern;
    use tidegate_config::object::{Kind, ObjectName, ObjectRef};
    use tidegate_config::project::project;

    use crate::clock;
    use crate::drive::tests::{Bed, listed};
    use crate::event::Collection;

    #[test]
    fn differences_found_by_an_audit_are_published_reported_and_counted() {
        let collections = Kind::ALL.map(|kind| Collection { kind, namespace: None });
        let mut bed = Bed::new(collections.clone());
        let published = bed.published.clone();
        let mut running = bed.running();
        let (outputs, metrics) = (running.outputs, running.metrics);
        let round = running.reconciler.model().options().pace.audit * 2;
        let mut now = clock::now();
        let class = json!({"kubernetes.io/ingress.class": "tidegate"});
        let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
        let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
        let ingress = json!({
            "metadata": {"namespace": "shop", "name": "web", "resourceVersion": "1", "annotations": class},
            "spec": {"rules": [{"host": "web.example", "http": {"paths": paths}}]},
        });
        for collection in collections {
            let objects = match collection.kind {
                Kind::Ingress => vec![project(Kind::Ingress, ingress.to_string().as_bytes()).unwrap()],
                Kind::IngressClass | Kind::Service | Kind::EndpointSlice | Kind::Secret | Kind::Deployment => {
                    Vec::new()
                }
                Kind::Namespace
                | Kind::ConfigMap
                | Kind::GatewayClass
                | Kind::Gateway
                | Kind::ReferenceGrant
                | Kind::HttpRoute
                | Kind::ListenerSet
                | Kind::GrpcRoute
                | Kind::TlsRoute
                | Kind::TcpRoute
                | Kind::UdpRoute
                | Kind::BackendTlsPolicy
                | Kind::RateLimitPolicy
                | Kind::TokenRateLimitPolicy
                | Kind::AuthPolicy => Vec::new(),
            };
            running.observe(listed(collection, objects, "1"));
        }
        running.step(now);
        let counted = |unit| metrics.audit_drift.with_label_values(&[unit]).get();
        now += round;
        running.step(now);
        assert_eq!((metrics.audits.get(), counted("host"), counted("object")), (1, 0, 0));
        assert_eq!(published.pin().generation().0, 1, "nothing had drifted");

        running.reconciler.unseen().delete(&ObjectRef::new(Kind::Ingress, ObjectName::new("shop", "web")));
        now += round;
        running.step(now);
        assert_eq!((metrics.audits.get(), counted("host"), counted("object")), (2, 1, 1));
        let snapshot = published.pin();
        assert_eq!((snapshot.generation().0, outputs.generation.borrow().0), (2, 2));
        assert!(snapshot.hosts().shared().get(&HostPattern::Exact("web.example".into())).is_none());
        let causes = &running.history.latest(1, None)[0].changes.causes;
        let causes: Vec<String> = causes.first.iter().map(ToString::to_string).collect();
        assert_eq!(causes, ["Ingress shop/web had drifted", "host web.example had drifted"]);
    }

    #[test]
    fn objects_confirmed_by_two_lists_do_not_count_as_drift() {
        let collection = Collection { kind: Kind::Ingress, namespace: None };
        let mut bed = Bed::new([collection.clone()]);
        let mut running = bed.running();
        let ingress = json!({"metadata": {"namespace": "shop", "name": "web", "resourceVersion": "1"}});
        let web = || project(Kind::Ingress, ingress.to_string().as_bytes()).unwrap();
        let drift = running.metrics.drift.with_label_values(&[Kind::Ingress.as_str()]);
        for (objects, version, held, drifted) in
            [(vec![web()], "1", 1, 0), (vec![], "5", 1, 0), (vec![], "5", 0, 0), (vec![web()], "5", 1, 1)]
        {
            running.observe(listed(collection.clone(), objects, version));
            let names = running.reconciler.model().world().names_of(Kind::Ingress, None).count();
            assert_eq!((names, drift.get()), (held, drifted), "at {version}");
        }
    }
}
