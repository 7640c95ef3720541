//! The readiness of collections, and the order in which the loop takes its inputs.

use std::cell::Cell;
use std::time::Duration;

use prometheus::Registry;
use serde_json::json;
use tidegate_config::model::BackendKey;
use tidegate_config::object::{ObjectName, ObjectRef};
use tidegate_config::project::{Projected, project};
use tidegate_config::published::{self, Published};
use tokio::sync::oneshot;

use super::*;
use crate::event::BindFailures;
use crate::options::Options;
use crate::queue::Meter;

/// All state of a loop, with its outputs.
pub(super) struct Bed {
    reconciler: Reconciler,
    publisher: Publisher,
    pub(super) published: Published,
    history: History,
    outputs: LoopOutputs,
    registry: Registry,
    metrics: ControlMetrics,
    api_server: ApiServer,
}

/// The sum of a metric's series, 0 without any; of a histogram, the number of observations.
fn metric(registry: &Registry, name: &str) -> f64 {
    let families = registry.gather();
    let of_name = families.iter().filter(|family| family.name() == name);
    let values = of_name.flat_map(|family| family.get_metric()).map(|series| {
        let observed = u32::try_from(series.get_histogram().get_sample_count()).unwrap();
        series.get_counter().get_value() + series.get_gauge().get_value() + f64::from(observed)
    });
    values.sum()
}

impl Bed {
    pub(super) fn new(collections: impl IntoIterator<Item = Collection>) -> Self {
        let (publisher, published) = published::channel();
        let outputs = LoopOutputs {
            generation: watch::Sender::default(),
            readiness: watch::Sender::default(),
            names: watch::Sender::default(),
            key_sources: watch::Sender::default(),
            sockets: watch::Sender::default(),
            secrets: mpsc::unbounded_channel().0,
            relist: mpsc::unbounded_channel().0,
            reports: Reports::new(std::array::from_fn(|_| Meter::default())),
        };
        let registry = Registry::new();
        Self {
            reconciler: Reconciler::new(Options::default(), collections),
            publisher,
            published,
            history: History::default(),
            outputs,
            metrics: ControlMetrics::register(&registry).unwrap(),
            registry,
            api_server: ApiServer::default(),
        }
    }

    pub(super) fn running(&mut self) -> Loop<'_> {
        let Self { reconciler, publisher, history, outputs, metrics, api_server, .. } = self;
        let unopened = watch::channel(BindFailures::default()).1;
        Loop::new(reconciler, publisher, history, outputs, metrics, (api_server, &unopened))
    }
}

/// A complete list of this moment.
pub(super) fn listed(collection: Collection, objects: Vec<Projected>, version: &str) -> Event {
    let (resource_version, received) = (version.into(), clock::now());
    Event::Listed { collection, objects, complete: true, resource_version, received }
}

/// Checks the readiness of a collection after events: whether it is synced, and why it fails.
#[track_caller]
fn check(events: Vec<Event>, synced: bool, failing: Option<&str>) {
    let collection = Collection { kind: Kind::Secret, namespace: None };
    let mut bed = Bed::new([collection]);
    let mut running = bed.running();
    events.into_iter().for_each(|event| running.observe(event));
    running.step(clock::now());
    running.report();
    let readiness = running.outputs.readiness.borrow();
    let state = &readiness.collections[0];
    assert_eq!((state.synced, state.failing.as_deref()), (synced, failing));
    assert_eq!(readiness.degraded, failing.is_some(), "the loop runs, so this is all that can be wrong");
    assert_eq!(running.metrics.degraded.get(), i64::from(failing.is_some()));
}

#[test]
fn nothing_is_in_effect_before_the_first_model() {
    let collections = [Kind::Service, Kind::Ingress].map(|kind| Collection { kind, namespace: None });
    let mut bed = Bed::new(collections.clone());
    let mut running = bed.running();
    for (collection, want) in collections.into_iter().zip([0.0, 5.0]) {
        running.observe(listed(collection, Vec::new(), "5"));
        running.step(clock::now());
        running.report();
        let version = running.metrics.applied_resource_version.with_label_values(&[Kind::Service.as_str()]);
        assert!((version.get() - want).abs() < 0.1, "{}", version.get());
    }
}

#[test]
fn a_collection_fails_until_its_watch_is_open() {
    let collection = || Collection { kind: Kind::Secret, namespace: None };
    let failing = || Event::Failing { collection: collection(), why: "refused".to_owned(), denied: false };
    let watching = || Event::Watching { collection: collection() };
    let bookmark = || Event::Bookmark { collection: collection(), resource_version: "7".into() };
    let listed = || listed(collection(), Vec::new(), "5");
    let unserved = || Event::Unserved { collection: collection(), received: clock::now() };
    let unreadable =
        || Event::Unreadable { collection: collection(), why: "denied".to_owned(), received: clock::now() };
    check(vec![listed()], true, None);
    check(vec![failing(), unserved()], true, None);
    check(vec![failing(), unreadable()], true, None);
    check(vec![failing(), listed()], true, Some("refused"));
    check(vec![failing(), listed(), watching()], true, None);
    check(vec![listed(), failing()], true, Some("refused"));
    check(vec![listed(), failing(), listed(), bookmark()], true, Some("refused"));
    check(vec![listed(), failing(), watching(), failing()], true, Some("refused"));
}

/// Runs a loop on this flood until a live change is published, then asks a question. Returns how many items of the
/// flood it took meanwhile.
async fn taken_under(flood: impl AsyncFn(mpsc::Sender<Event>, mpsc::Sender<Question>, &Cell<usize>)) -> usize {
    let collections = Kind::ALL.map(|kind| Collection { kind, namespace: None });
    let mut bed = Bed::new(collections.clone());
    let ((events, mut received), (questions, mut asked)) = (mpsc::channel(8), mpsc::channel(16));
    let mut generation = bed.outputs.generation.subscribe();
    let (taken, stop) = (Cell::new(0), CancellationToken::new());
    let scenario = async {
        for collection in collections {
            events.send(listed(collection, Vec::new(), "1")).await.unwrap();
        }
        generation.wait_for(|generation| generation.0 == 1).await.unwrap();
        let before = taken.get();
        let class = json!({"kubernetes.io/ingress.class": "tidegate"});
        let ingress = json!({
            "metadata": {"namespace": "shop", "name": "web", "resourceVersion": "2", "annotations": class},
            "spec": {"rules": [{"host": "web.example", "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}},
            ]}}]},
        });
        let projected = Box::new(project(Kind::Ingress, ingress.to_string().as_bytes()).unwrap());
        events.send(Event::Applied { projected, received: clock::now() }).await.unwrap();
        generation.wait_for(|generation| generation.0 == 2).await.unwrap();
        let (answer, answered) = oneshot::channel();
        questions.send(Question::Findings(answer)).await.unwrap();
        assert_eq!(answered.await.unwrap().len(), 1);
        taken.get() - before
    };
    let running = bed.running().run(&mut received, &mut asked, &stop);
    let scenario = tokio::time::timeout(Duration::from_secs(20), scenario);
    tokio::select! {
        () = running => panic!("the loop ended"),
        () = flood(events.clone(), questions.clone(), &taken) => panic!("the flood ended"),
        taken = scenario => taken.expect("neither waits for the end of the other"),
    }
}

/// The lists of a cluster in which `web.example` has one endpoint, 192.0.2.1:80.
fn of_web() -> Vec<Event> {
    let metadata = json!({"namespace": "shop", "name": "web", "resourceVersion": "1",
        "annotations": {"kubernetes.io/ingress.class": "tidegate"}, "labels": {"kubernetes.io/service-name": "web"}});
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    let read = |kind, mut object: serde_json::Value| {
        object["metadata"] = metadata.clone();
        vec![project(kind, object.to_string().as_bytes()).unwrap()]
    };
    let objects = |kind| match kind {
        Kind::Ingress => read(kind, json!({"spec": {"rules": [{"host": "web.example", "http": {"paths": paths}}]}})),
        Kind::Service => read(kind, json!({"spec": {"ports": [{"port": 80}]}})),
        Kind::EndpointSlice => {
            let endpoints = json!([{"addresses": ["192.0.2.1"]}]);
            read(kind, json!({"addressType": "IPv4", "ports": [{"port": 80}], "endpoints": endpoints}))
        }
        Kind::IngressClass | Kind::Secret | Kind::Deployment => Vec::new(),
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
    Kind::ALL.map(|kind| listed(Collection { kind, namespace: None }, objects(kind), "1")).into()
}

fn endpoints(published: &Published) -> usize {
    let web = BackendKey::tcp(ObjectName::new("shop", "web"), 80);
    published.pin().backend(&web).expect("a backend").endpoints.len()
}

#[test]
fn the_addresses_of_the_api_server_are_known_before_compiling() {
    for (at, want) in [("192.0.2.2:80", 1), ("192.0.2.1:80", 0)] {
        let mut bed = Bed::new(Kind::ALL.map(|kind| Collection { kind, namespace: None }));
        let (published, api_server) = (bed.published.clone(), bed.api_server.clone());
        let mut running = bed.running();
        of_web().into_iter().for_each(|event| running.observe(event));
        api_server.learn([at.parse().unwrap()]);
        running.step(clock::now());
        assert_eq!(endpoints(&published), want, "{at}");
    }
}

#[test]
fn findings_are_counted_until_their_cause_is_gone() {
    let mut bed = Bed::new(Kind::ALL.map(|kind| Collection { kind, namespace: None }));
    let metrics = bed.metrics.clone();
    let missing = || metrics.findings.with_label_values(&["ServiceMissing", "error"]).get();
    let mut running = bed.running();
    let mut check = |events: Vec<Event>, want: i64| {
        events.into_iter().for_each(|event| running.observe(event));
        running.step(clock::now());
        running.count_findings();
        assert_eq!(missing(), want);
    };
    check(of_web(), 0);
    let object = ObjectRef::new(Kind::Service, ObjectName::new("shop", "web"));
    check(vec![Event::Deleted { object, resource_version: "2".into(), received: clock::now() }], 1);
    check(of_web(), 0);
}

#[test]
fn the_metrics_of_the_loop_follow_its_steps() {
    let mut bed = Bed::new(Kind::ALL.map(|kind| Collection { kind, namespace: None }));
    let registry = bed.registry.clone();
    let check = |when: &str, name: &str, want: f64| {
        let got = metric(&registry, name);
        assert!((got - want).abs() < 0.1, "{when}: {name} is {got}, not {want}");
    };
    let mut running = bed.running();
    let mut events = of_web();
    let (mut count, last) = (events.len() as u32, events.pop().unwrap());
    events.into_iter().for_each(|event| running.observe(event));
    running.step(clock::now());
    running.report();
    check("one list is missing", "tidegate_ready", 0.0);
    check("one list is missing", "tidegate_publish_duration_seconds", 0.0);
    running.observe(last);
    running.step(clock::now());
    running.report();
    running.count_findings();
    for (name, want) in [
        ("tidegate_ready", 1.0),
        ("tidegate_degraded", 0.0),
        ("tidegate_findings", 0.0),
        ("tidegate_snapshot_generation", 1.0),
        ("tidegate_publish_duration_seconds", 1.0),
        ("tidegate_change_duration_seconds", 0.0),
        ("tidegate_control_events_total", f64::from(count)),
        ("tidegate_applied_resource_version", Kind::ALL.len() as f64),
    ] {
        check("all is listed", name, want);
    }
    let before = metric(&registry, "tidegate_control_units_compiled_total");
    let collection = Collection { kind: Kind::Secret, namespace: None };
    let object = ObjectRef::new(Kind::Service, ObjectName::new("shop", "web"));
    running.observe(Event::Failing { collection, why: "refused".to_owned(), denied: false });
    running.observe(Event::Deleted { object, resource_version: "2".into(), received: clock::now() });
    count += 2;
    running.step(clock::now());
    running.report();
    running.count_findings();
    for (name, want) in [
        ("tidegate_ready", 1.0),
        ("tidegate_degraded", 1.0),
        ("tidegate_findings", 1.0),
        ("tidegate_publish_duration_seconds", 2.0),
        ("tidegate_change_duration_seconds", 1.0),
        ("tidegate_control_events_total", f64::from(count)),
    ] {
        check("the Service is deleted", name, want);
    }
    assert!(metric(&registry, "tidegate_control_units_compiled_total") > before);
}

#[tokio::test]
async fn new_addresses_of_the_api_server_take_effect_without_other_events() {
    let mut bed = Bed::new(Kind::ALL.map(|kind| Collection { kind, namespace: None }));
    let (published, api_server, stop) = (bed.published.clone(), bed.api_server.clone(), CancellationToken::new());
    let mut generation = bed.outputs.generation.subscribe();
    let ((events, mut received), (_questions, mut asked)) = (mpsc::channel(8), mpsc::channel(1));
    let scenario = async {
        for event in of_web() {
            events.send(event).await.unwrap();
        }
        for (generations, want) in [(1, 1), (2, 0)] {
            generation.wait_for(|generation| generation.0 == generations).await.unwrap();
            assert_eq!(endpoints(&published), want);
            api_server.learn(["192.0.2.1:80".parse().unwrap()]);
        }
    };
    tokio::select! {
        () = bed.running().run(&mut received, &mut asked, &stop) => panic!("the loop ended"),
        done = tokio::time::timeout(Duration::from_secs(20), scenario) => done.expect("in time"),
    }
}

#[tokio::test]
async fn endless_queries_do_not_delay_changes() {
    let taken = taken_under(async |_events, questions, taken| {
        loop {
            let (answer, _nobody) = oneshot::channel();
            questions.send(Question::LookAgain(answer)).await.unwrap();
            taken.set(taken.get() + 1);
        }
    });
    let taken = taken.await;
    assert!(taken < 100, "{taken} questions were taken before the change was published and another one answered");
}

#[tokio::test]
async fn endless_events_do_not_delay_queries() {
    let taken = taken_under(async |events, _questions, taken| {
        loop {
            let collection = Collection { kind: Kind::Service, namespace: None };
            events.send(Event::Bookmark { collection, resource_version: "3".into() }).await.unwrap();
            taken.set(taken.get() + 1);
        }
    });
    let taken = taken.await;
    assert!(taken < 200, "{taken} events were taken before the change was published and a question answered");
}
