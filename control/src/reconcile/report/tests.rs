//! Tests of the objects whose status is written, after each change.

use std::time::Duration;

use tidegate_config::project::gateway::{ListenerStatus, ParentStatus, StatusReading, WrittenRef};
use tidegate_config::project::{Meta, project};

use super::*;
use crate::attachment::{Attachment, RouteConditions, RouteStatus};
use crate::clock;
use crate::event::Collection;
use crate::options::{GatewayApi, GatewayServices, Sources};

const CONTROLLER: &str = "tidegate.io/gateway";

fn name(name: &str) -> ObjectName {
    ObjectName::new("shop", name)
}

fn ingress(of: &str) -> ObjectRef {
    ObjectRef::new(Kind::Ingress, name(of))
}

fn gateway() -> ObjectRef {
    ObjectRef::new(Kind::Gateway, name("gateway"))
}

fn route() -> ObjectRef {
    ObjectRef::new(Kind::HttpRoute, name("route"))
}

fn served() -> Option<Verdict> {
    Some(Verdict::Served("tidegate".into()))
}

/// The status of a Gateway with one listener.
fn with_listener() -> Arc<OwnStatus> {
    let listener =
        ListenerStatus { name: "http".into(), supported_kinds: vec![], attached_routes: 0, conditions: vec![] };
    Arc::new(OwnStatus { listeners: vec![listener], ..OwnStatus::default() })
}

fn addresses(ip: &[&str]) -> Vec<PublicAddress> {
    ip.iter().map(|ip| PublicAddress::of_ip(*ip)).collect()
}

/// The reports of a controller that publishes the addresses of the Service `edge`.
struct Bench {
    model: Model,
    listing: Listing,
    reporting: Reporting,
    gateway_services: KnownServices,
}

impl Bench {
    /// Every kind has been listed.
    fn new() -> Self {
        Self::awaiting(&[])
    }

    /// These collections have not been listed.
    fn awaiting(collections: &[Collection]) -> Self {
        let (controller, addresses, services) = (CONTROLLER.into(), [].into(), GatewayServices::Off);
        let gateway = Some(GatewayApi { controller, addresses, services, optional: false });
        let sources = Sources { gateway, ..Sources::default() };
        let options = Options { sources, publish: Publish::Service(name("edge")), ..Options::default() };
        let (reporting, gateway_services) = (Reporting::new(&options), KnownServices::new(&options));
        let mut listing = Listing::new(collections.iter().cloned());
        listing.start();
        Self { model: Model::new(options), listing, reporting, gateway_services }
    }

    fn pending(&mut self) -> PendingReports<'_> {
        let Self { model, listing, reporting, gateway_services } = self;
        PendingReports { model, listing, reporting, gateway_services }
    }

    fn status(&self, object: &ObjectRef) -> Option<Desired> {
        let Self { model, listing, reporting, gateway_services } = self;
        DesiredReports { model, listing, reporting, gateway_services }.status(object)
    }

    /// Sets the verdict of an object, as if it had been compiled.
    fn judge(&mut self, object: &ObjectRef, verdict: Option<Verdict>) {
        match verdict {
            Some(verdict) => self.model.compiled.verdicts.insert(object.clone(), verdict),
            None => self.model.compiled.verdicts.remove(object),
        };
        self.reporting.judged([&Unit::Object(object.clone())]);
    }

    /// An object has these addresses, and this digest of the part of a controller.
    fn observe(&mut self, object: &ObjectRef, ip: &[&str], part: Option<(&str, u64)>) {
        let meta = Meta { object: object.clone(), uid: None, resource_version: "1".into(), generation: None };
        let digests = part.into_iter().map(|(controller, digest)| (controller.into(), digest)).collect();
        let (object, findings) = (None, Vec::new());
        self.reporting.observe(&Projected {
            meta,
            object,
            findings,
            addresses: addresses(ip),
            status: StatusReading { digests, transitions: None },
        });
    }

    fn observe_edge(&mut self, ip: &[&str]) {
        self.observe(&ObjectRef::new(Kind::Service, name("edge")), ip, None);
    }

    /// Observes the desired status of an object, as if it had been written.
    fn write(&mut self, object: &ObjectRef) {
        match self.status(object).expect("a status to write") {
            Desired::Addresses { addresses, .. } => {
                let ip: Vec<&str> = addresses.iter().filter_map(|it| it.ip.as_deref()).collect();
                self.observe(object, &ip, None);
            }
            Desired::Status { status, .. } if object.kind.has_parents() && status.parents.is_empty() => {
                self.observe(object, &[], None);
            }
            Desired::Status { controller, status, .. } => {
                let part = if object.kind.has_parents() { &*controller } else { "" };
                self.observe(object, &[], Some((part, status.digest())));
            }
        }
    }

    /// Attaches the route to the listener of the Gateway, or to none.
    fn attach_route(&mut self, attached: bool) {
        let listener = Key::Listener(Arc::new(ListenerRef { owner: gateway(), section: "http".into() }));
        let listeners = attached.then_some(listener).into_iter().collect();
        self.model.topology.replace(&route(), Attachment { listeners, ..Attachment::default() });
        self.reporting.counts_differ(gateway());
    }

    /// Checks the objects to write since the last check, each after the reason.
    #[track_caller]
    fn check(&mut self, want: &[&str]) {
        let PendingStatusUpdates { all, changed, counting, rewritten, overwritten } = self.pending().status_updates();
        let (over, late) = rewritten.into_iter().partition(|object| overwritten.contains(object));
        let lists =
            [("all", all), ("changed", changed), ("counting", counting), ("rewritten", late), ("overwritten", over)];
        let text = |(reason, objects): (&str, Vec<ObjectRef>)| {
            objects.into_iter().map(|object| format!("{reason}: {}", object.name.name)).collect::<Vec<_>>()
        };
        assert_eq!(lists.into_iter().flat_map(text).collect::<Vec<_>>(), want);
    }
}

#[test]
fn an_ingress_is_written_if_its_addresses_differ_from_the_published_ones() {
    let mut bench = Bench::new();
    bench.judge(&ingress("a"), served());
    bench.judge(&ingress("foreign"), Some(Verdict::Others));
    bench.check(&[]);
    bench.observe_edge(&["192.0.2.1"]);
    bench.check(&["all: a"]);
    bench.write(&ingress("a"));
    bench.check(&[]);
    bench.observe_edge(&["192.0.2.1"]);
    bench.judge(&ingress("a"), served());
    bench.check(&[]);
    bench.observe(&ingress("a"), &["192.0.2.9"], None);
    bench.observe(&ingress("foreign"), &["192.0.2.9"], None);
    bench.check(&["overwritten: a"]);
    bench.check(&[]);
    bench.observe(&ingress("a"), &["192.0.2.8"], None);
    bench.check(&["rewritten: a"]);
    bench.judge(&ingress("b"), served());
    bench.check(&["changed: b"]);
    bench.observe_edge(&["192.0.2.2"]);
    bench.check(&["all: a", "all: b"]);
    bench.judge(&ingress("b"), None);
    bench.reporting.gone(&ingress("b"));
    bench.check(&[]);
}

#[test]
fn no_addresses_are_removed_while_the_published_service_has_none() {
    let mut bench = Bench::new();
    bench.judge(&ingress("a"), served());
    bench.observe_edge(&["192.0.2.1"]);
    bench.check(&["all: a"]);
    bench.write(&ingress("a"));
    bench.observe_edge(&[]);
    bench.pending().look_again();
    bench.check(&[]);
    bench.observe(&ingress("a"), &[], None);
    bench.check(&["rewritten: a"]);
}

#[test]
fn a_gateway_is_written_if_the_number_of_attached_routes_differs() {
    let mut bench = Bench::new();
    bench.judge(&gateway(), Some(Verdict::Status(with_listener())));
    bench.check(&["all: gateway"]);
    bench.write(&gateway());
    bench.check(&[]);
    bench.attach_route(true);
    bench.check(&["counting: gateway"]);
    bench.write(&gateway());
    bench.attach_route(true);
    bench.check(&[]);
    bench.attach_route(false);
    bench.judge(&gateway(), Some(Verdict::Status(with_listener())));
    bench.check(&["changed: gateway"]);
}

#[test]
fn entries_of_other_controllers_are_left_and_ours_are_removed_without_a_parent_of_ours() {
    let without_parents = RouteStatus::new(&[].into(), 1, Vec::new(), RouteConditions::default());
    for verdict in [None, Some(Verdict::Route(Arc::new(without_parents)))] {
        let mut bench = Bench::new();
        bench.judge(&route(), verdict);
        bench.check(&[]);
        bench.observe(&route(), &[], Some(("another.example/gateway", 1)));
        bench.check(&[]);
        bench.observe(&route(), &[], Some((CONTROLLER, 1)));
        bench.check(&["rewritten: route"]);
        bench.pending().look_again();
        bench.check(&["all: route"]);
        bench.write(&route());
        bench.check(&[]);
    }
}

#[test]
fn a_policy_is_written_if_its_entry_differs() {
    let policy = ObjectRef::new(Kind::BackendTlsPolicy, name("policy"));
    let parent = WrittenRef {
        group: "".into(),
        kind: "Gateway".into(),
        namespace: None,
        name: "gateway".into(),
        section_name: None,
        port: None,
    };
    let parents = vec![ParentStatus { parent, conditions: Vec::new() }];
    let verdict = Verdict::Status(Arc::new(OwnStatus { parents, ..OwnStatus::default() }));
    let mut bench = Bench::new();
    bench.judge(&policy, Some(verdict.clone()));
    bench.check(&["all: policy"]);
    bench.write(&policy);
    bench.judge(&policy, Some(verdict));
    bench.check(&[]);
    bench.observe(&policy, &[], Some((CONTROLLER, 1)));
    bench.check(&["overwritten: policy"]);
}

#[test]
fn an_object_without_a_parent_is_written_only_in_place_of_an_earlier_status_of_ours() {
    let set = ObjectRef::new(Kind::ListenerSet, name("set"));
    let object = r#"{"metadata": {"name": "set", "namespace": "shop", "resourceVersion": "1"},
        "spec": {"parentRef": {"name": "gateway"}, "listeners": [{"name": "a", "port": 80, "protocol": "HTTP"}]}}"#;
    let mut bench = Bench::new();
    bench.model.world.apply(project(Kind::ListenerSet, object.as_bytes()).expect("a ListenerSet"));
    bench.judge(&set, Some(Verdict::Orphaned(with_listener())));
    bench.check(&[]);
    bench.observe(&set, &[], Some(("", 1)));
    bench.check(&["rewritten: set"]);
    let desired = bench.status(&set);
    assert!(matches!(desired, Some(Desired::Status { only_in_place_of_ours: true, .. })), "{desired:?}");
    bench.write(&set);
    bench.check(&[]);
    bench.observe(&set, &[], Some(("", 1)));
    let elsewhere = Collection { kind: Kind::Gateway, namespace: Some("elsewhere".into()) };
    bench.listing = Bench::awaiting(std::slice::from_ref(&elsewhere)).listing;
    bench.listing.synced(&elsewhere, clock::now());
    bench.check(&[]);
}

#[test]
fn nothing_is_written_before_every_kind_is_listed() {
    let [secrets, denied] = [None, Some("shop".into())].map(|namespace| Collection { kind: Kind::Secret, namespace });
    let now = clock::now();
    let mut bench = Bench::awaiting(&[secrets.clone(), denied.clone()]);
    bench.observe_edge(&["192.0.2.1"]);
    bench.judge(&ingress("a"), served());
    let other = ObjectRef::new(Kind::Ingress, ObjectName::new("other", "b"));
    bench.judge(&other, served());
    bench.check(&[]);
    bench.listing.synced(&secrets, now);
    bench.check(&[]);
    bench.listing.fails(denied.clone(), true, now + Duration::from_secs(1));
    bench.check(&["all: b"]);
    bench.listing.synced(&denied, now + Duration::from_secs(2));
    bench.pending().look_again();
    bench.check(&["all: b", "all: a"]);
}

#[test]
fn a_process_without_reports_drops_its_queues() {
    let mut bench = Bench::new();
    bench.observe_edge(&["192.0.2.1"]);
    bench.check(&[]);
    bench.judge(&ingress("a"), served());
    bench.judge(&gateway(), Some(Verdict::Status(with_listener())));
    bench.observe(&ingress("a"), &["192.0.2.9"], None);
    bench.reporting.counts_differ(gateway());
    bench.pending().drop_all();
    bench.check(&[]);
    bench.pending().look_again();
    bench.check(&["all: a", "all: gateway"]);
}
