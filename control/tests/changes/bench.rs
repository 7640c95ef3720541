//! A running loop of which one host is looked at.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use tidegate_config::model::{HostPattern, SnapshotParts};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::project;
use tidegate_control::options::Options;
use tidegate_control::{Changes, Event, Reconciler, Source};

pub(crate) struct Bench {
    pub(crate) reconciler: Reconciler,
    pub(crate) now: Instant,
    /// What was published last, and why.
    pub(crate) published: Option<SnapshotParts>,
    pub(crate) changes: Changes,
    /// The names that are to be looked up, as they were told last.
    names: Arc<BTreeSet<Arc<str>>>,
}

impl Bench {
    /// A running loop in which `web.example` leads to the Service `old` with one endpoint.
    #[allow(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    pub(crate) fn new() -> Self {
        let sources = Kind::ALL.map(|kind| Source { kind, namespace: None });
        let reconciler = Reconciler::new(Options::default(), sources.clone());
        let mut bench = Self {
            reconciler,
            now: Instant::now(),
            names: Arc::default(),
            published: None,
            changes: Changes::default(),
        };
        for source in sources {
            let event = Event::Listed {
                source,
                objects: Vec::new(),
                complete: true,
                resource_version: "1".into(),
                received: bench.now,
            };
            bench.reconciler.observe(event, bench.now);
        }
        bench.reconcile();
        let class = json!({"metadata": {"name": "tidegate"}, "spec": {"controller": "tidegate.io/ingress"}});
        bench.apply(Kind::IngressClass, class);
        bench.apply(Kind::Service, service("old"));
        bench.apply(Kind::EndpointSlice, slice("old", "10.0.0.1"));
        bench.apply(Kind::Ingress, ingress("old"));
        bench.reconcile();
        bench
    }

    /// A list that names nothing and is not whole: it takes nothing away.
    pub(crate) fn list_again(&mut self, source: Source) {
        let (objects, resource_version, received) = (Vec::new(), "4".into(), self.now);
        let event = Event::Listed { source, objects, complete: false, resource_version, received };
        assert_eq!(self.reconciler.observe(event, self.now), None);
    }

    pub(crate) fn apply(&mut self, kind: Kind, mut object: Value) {
        object["metadata"]["resourceVersion"] = "2".into();
        let projected = project(kind, object.to_string().as_bytes()).expect("an identity");
        let event = Event::Applied { projected: Box::new(projected), received: self.now };
        assert_eq!(self.reconciler.observe(event, self.now), None);
    }

    pub(crate) fn resolve(&mut self, name: &str, address: Option<&str>) {
        let addresses = address.map(|address| [address.parse().expect("an address")].into());
        let addresses = addresses.ok_or_else(|| "no such name".to_owned());
        self.reconciler.observe(Event::Resolved { name: name.into(), addresses }, self.now);
    }

    #[track_caller]
    pub(crate) fn check_names(&self, want: &[&str]) {
        assert_eq!(self.names.iter().map(|name| &**name).collect::<Vec<_>>(), want);
    }

    pub(crate) fn delete(&mut self, kind: Kind, name: &str) {
        let object = ObjectRef::new(kind, ObjectName::new("shop", name));
        self.reconciler.observe(Event::Deleted { object, resource_version: "3".into(), received: self.now }, self.now);
    }

    pub(crate) fn reconcile(&mut self) {
        while let Some(step) = self.reconciler.reconcile(self.now) {
            self.names = step.names.unwrap_or_else(|| Arc::clone(&self.names));
            if let Some((parts, changes)) = step.published {
                (self.published, self.changes) = (Some(parts), changes);
            }
            if !self.reconciler.busy() {
                break;
            }
        }
    }

    /// The endpoints that `web.example/` leads to now, or why to none.
    #[track_caller]
    pub(crate) fn check(&self, want: &str) {
        assert_eq!(leads(self.published.as_ref().expect("a model")), want);
    }
}

fn leads(parts: &SnapshotParts) -> String {
    let routes = parts.hosts.get(&HostPattern::Exact("web.example".into())).expect("the host");
    let Some(route) = routes.routes().first() else { return "no route".to_owned() };
    let tidegate_config::model::Action::Forward(targets) = &route.action else { return "redirect".to_owned() };
    let Some(target) = targets.first() else { return "no target".to_owned() };
    let Some(backend) = parts.backends.get(&target.target.backend) else { return "no backend".to_owned() };
    backend.endpoints.first().map_or("no endpoint".to_owned(), |endpoint| endpoint.address.ip().to_string())
}

pub(crate) fn service(name: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"ports": [{"port": 80}]}})
}

pub(crate) fn external(name: &str, dns: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"type": "ExternalName", "externalName": dns}})
}

pub(crate) fn slice(service: &str, address: &str) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": service, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "ports": [{"port": 80}], "endpoints": [{"addresses": [address]}],
    })
}

pub(crate) fn ingress(service: &str) -> Value {
    let backend = json!({"service": {"name": service, "port": {"number": 80}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    json!({
        "metadata": {"namespace": "shop", "name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"ingressClassName": "tidegate", "rules": [{"host": "web.example", "http": {"paths": paths}}]},
    })
}
