//! A loop with a simulated clock and events.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use tidegate_config::model::{Action, HostPattern, SnapshotParts};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::{Projected, project};
use tidegate_control::options::Options;
use tidegate_control::{Changes, Collection, Event, Names, NotServing, Reconciler, SecretInterest};

use crate::manifests::{class, ingress, service, slice};

pub(crate) struct Bench {
    pub(crate) reconciler: Reconciler,
    pub(crate) begun: Instant,
    pub(crate) now: Instant,
    /// The last publication, with its causes.
    pub(crate) published: Option<SnapshotParts>,
    pub(crate) changes: Changes,
    /// The names to look up, as last reported.
    names: Arc<Names>,
    /// The Secrets to watch by name, as reported.
    pub(crate) secrets: Vec<SecretInterest>,
}

/// The kinds that are read where Ingresses alone make routes.
pub(crate) const KINDS: [Kind; 5] =
    [Kind::Ingress, Kind::IngressClass, Kind::Service, Kind::EndpointSlice, Kind::Secret];

pub(crate) const fn all_of(kind: Kind) -> Collection {
    Collection { kind, namespace: None }
}

impl Bench {
    /// A loop without any events.
    pub(crate) fn untold(options: Options) -> Self {
        Self::of(options, KINDS.map(all_of))
    }

    /// A loop without any events that waits for these collections.
    #[allow(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    pub(crate) fn of(options: Options, collections: impl IntoIterator<Item = Collection>) -> Self {
        let now = Instant::now();
        Self {
            reconciler: Reconciler::new(options, collections),
            begun: now,
            now,
            published: None,
            changes: Changes::default(),
            names: Arc::default(),
            secrets: Vec::new(),
        }
    }

    /// A running loop in a cluster that is empty except for the class.
    pub(crate) fn running(options: Options) -> Self {
        let mut bench = Self::untold(options);
        for kind in KINDS {
            assert_eq!(bench.list(kind, &[]), None);
        }
        bench.reconcile();
        bench.apply(Kind::IngressClass, class());
        bench.reconcile();
        bench
    }

    /// A running loop in which `web.example` leads to the Service `old` with one endpoint.
    pub(crate) fn web() -> Self {
        let mut bench = Self::running(Options::default());
        bench.apply(Kind::Service, service("old"));
        bench.apply(Kind::EndpointSlice, slice("old", &["10.0.0.1"]));
        bench.apply(Kind::Ingress, ingress("old"));
        bench.reconcile();
        bench
    }

    /// Lists all objects of a kind; returns the collection that must be listed again if the list is unconfirmed.
    pub(crate) fn list(&mut self, kind: Kind, objects: &[Value]) -> Option<Collection> {
        self.listed(kind, objects, true)
    }

    /// An incomplete list without objects: it removes nothing.
    pub(crate) fn list_in_part(&mut self, kind: Kind) {
        assert_eq!(self.listed(kind, &[], false), None);
    }

    fn listed(&mut self, kind: Kind, objects: &[Value], complete: bool) -> Option<Collection> {
        self.listed_in(all_of(kind), objects, complete)
    }

    pub(crate) fn listed_in(
        &mut self,
        collection: Collection,
        objects: &[Value],
        complete: bool,
    ) -> Option<Collection> {
        let objects = objects.iter().map(|object| projected(collection.kind, object.clone())).collect();
        let (resource_version, received) = ("1".into(), self.now);
        self.reconciler.observe(Event::Listed { collection, objects, complete, resource_version, received }, self.now)
    }

    /// Applies an object. One without an identity is left out, as informers do.
    pub(crate) fn apply(&mut self, kind: Kind, object: Value) {
        self.apply_json(kind, &json(object));
    }

    /// The same for any JSON text.
    pub(crate) fn apply_json(&mut self, kind: Kind, object: &str) {
        let Ok(projected) = project(kind, object.as_bytes()) else { return };
        let event = Event::Applied { projected: Box::new(projected), received: self.now };
        assert_eq!(self.reconciler.observe(event, self.now), None);
    }

    pub(crate) fn delete(&mut self, kind: Kind, name: &str) {
        self.delete_object(ObjectRef::new(kind, ObjectName::new("shop", name)));
    }

    pub(crate) fn delete_object(&mut self, object: ObjectRef) {
        self.reconciler.observe(Event::Deleted { object, resource_version: "3".into(), received: self.now }, self.now);
    }

    pub(crate) fn fail(&mut self, kind: Kind) {
        self.fail_in(all_of(kind), false);
    }

    /// Reports that a collection fails, because of a denial or for another reason.
    pub(crate) fn fail_in(&mut self, collection: Collection, denied: bool) {
        let event = Event::Failing { collection, why: "as told".to_owned(), denied };
        assert_eq!(self.reconciler.observe(event, self.now), None);
    }

    pub(crate) fn unserve(&mut self, kind: Kind) {
        self.observe(Event::Unserved { collection: all_of(kind), received: self.now });
    }

    /// Observes an event that asks for no list.
    pub(crate) fn observe(&mut self, event: Event) {
        assert_eq!(self.reconciler.observe(event, self.now), None);
    }

    pub(crate) fn resolve(&mut self, name: &str, address: Option<&str>) {
        let addresses = address.map(|address| [address.parse().expect("an address")].into());
        let addresses = addresses.ok_or_else(|| "no such name".to_owned());
        self.reconciler.observe(Event::Resolved { name: name.into(), addresses }, self.now);
    }

    /// Compares the routes that do not serve, and the reasons, one minute after the Unix epoch.
    #[track_caller]
    pub(crate) fn check_withheld(&self, want: &[&str]) {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(60);
        let NotServing { held, waits } = self.reconciler.not_serving(self.now, wall);
        let held = held.iter().map(ToString::to_string);
        let waits = waits.iter().map(|wait| format!("{}: {wait}", wait.unit));
        assert_eq!(held.chain(waits).collect::<Vec<_>>(), want);
    }

    /// Compiles until the queue is empty; returns the last reported names, if any.
    pub(crate) fn reconcile(&mut self) -> Option<Arc<Names>> {
        let mut names = None;
        while let Some(step) = self.reconciler.reconcile(self.now) {
            names = step.names.or(names);
            if let Some((parts, changes)) = step.published {
                (self.published, self.changes) = (Some(parts), changes);
            }
            self.secrets.extend(step.secrets.into_iter().flatten());
            if self.reconciler.running() && !self.reconciler.busy() {
                break;
            }
        }
        self.names = names.clone().unwrap_or_else(|| Arc::clone(&self.names));
        names
    }

    /// The names that are looked up.
    #[track_caller]
    pub(crate) fn check_names(&self, want: &[&str]) {
        assert_eq!(self.names.keys().map(|name| &**name).collect::<Vec<_>>(), want);
    }

    /// The current endpoints of `web.example/`, or the reason why there are none.
    #[track_caller]
    pub(crate) fn check(&self, want: &str) {
        assert_eq!(self.leads(), want);
    }

    /// The same, as text.
    pub(crate) fn leads(&self) -> String {
        leads(self.published.as_ref().expect("a model"))
    }

    pub(crate) fn parts(&self) -> &SnapshotParts {
        &self.reconciler.model().compiled().parts
    }
}

fn projected(kind: Kind, object: Value) -> Projected {
    project(kind, json(object).as_bytes()).expect("an identity")
}

/// The JSON of an object with a new resourceVersion.
fn json(mut object: Value) -> String {
    object["metadata"]["resourceVersion"] = "2".into();
    object.to_string()
}

fn leads(parts: &SnapshotParts) -> String {
    let routes = parts.hosts.shared().get(&HostPattern::Exact("web.example".into())).expect("the host");
    let Some(route) = routes.routes().into_iter().next() else { return "no route".to_owned() };
    if matches!(route.action, Action::Redirect(_)) {
        return "redirect".to_owned();
    }
    let Some(target) = route.action.targets().next() else { return "no target".to_owned() };
    let Some(backend) = parts.backends.get(&target.backend) else { return "no backend".to_owned() };
    backend.endpoints.first().map_or("no endpoint".to_owned(), |endpoint| endpoint.address.ip().to_string())
}
