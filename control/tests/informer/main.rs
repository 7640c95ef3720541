//! The list/watch loop against an API server that misbehaves in all known ways.
//!
//! A case is a script of answers, the expected events, and the requests that the server must have received. `faults`
//! plays each fault against the whole control loop instead; `served` is about kinds that are defined and deleted.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

mod beside;
mod fake_api;
mod faults;
mod list;
mod named;
mod recovery;
mod resume;
mod served;
mod watch;

use std::time::Duration;

use fake_api::{Answer, FakeApi, Seen, Step};
use prometheus::Registry;
use tidegate_config::object::Kind;
use tidegate_config::project::Projected;
use tidegate_control::Following;
use tidegate_control::client::{Access, Deadlines, connect};
use tidegate_control::options::Options;
use tidegate_control::{
    ApiServer, Collection, CollectionMetrics, Event, Identity, Informer, Interest, Limits, Reconciler, Relist, Resource,
};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

const DEADLINE: Duration = Duration::from_secs(20);
const MS: fn(u64) -> Duration = Duration::from_millis;

/// Deadlines that do not pass in a test, and a short back-off. Each test lowers the one that it tests.
fn patient() -> Limits {
    Limits { backoff_first: MS(1), backoff_max: MS(20), short_watch: Duration::ZERO, ..Limits::default() }
}

/// The state of one test.
struct Run {
    api: FakeApi,
    registry: Registry,
    events: mpsc::Receiver<Event>,
    relist: Relist,
    stop: DropGuard,
    task: tokio::task::JoinHandle<()>,
}

async fn start(lists: Vec<Answer>, watches: Vec<Answer>, limits: Limits, events_max: usize) -> Run {
    begin(lists, watches, limits, events_max, |informer| informer).await
}

async fn begin(
    lists: Vec<Answer>,
    watches: Vec<Answer>,
    limits: Limits,
    events_max: usize,
    with: impl FnOnce(Informer) -> Informer,
) -> Run {
    let api = FakeApi::scripted(lists, watches).await;
    let config = kube::Config::new(api.url.parse().unwrap());
    let client = connect(
        &Access::of(&Following::new().unwrap(), "test", config).unwrap(),
        Deadlines::WATCH,
        &ApiServer::default(),
    )
    .unwrap();
    let registry = Registry::new();
    let metrics = CollectionMetrics::register(&registry).unwrap();
    let (sender, events) = mpsc::channel(events_max);
    let interest = Interest {
        collection: Collection { kind: Kind::Service, namespace: Some("shop".into()) },
        resource: Resource::of(Kind::Service),
        label_selector: None,
        field_selector: Some("spec.type=ClusterIP".to_owned()),
    };
    let informer = with(Informer::new(client, interest, limits, sender, &metrics, 7));
    let relist = informer.relist();
    let stop = CancellationToken::new();
    let task = tokio::spawn(informer.run(stop.clone()));
    Run { api, registry, events, relist, stop: stop.drop_guard(), task }
}

impl Run {
    async fn next(&mut self) -> String {
        let event = tokio::time::timeout(DEADLINE, self.events.recv()).await.expect("an event in time");
        text(&event.expect("the informer runs"))
    }

    /// The first `count` requests, as text.
    async fn requests(&self, count: usize) -> Vec<String> {
        let started = tokio::time::Instant::now();
        loop {
            let seen = self.api.seen().await;
            if seen.len() >= count || started.elapsed() > DEADLINE {
                return seen.iter().take(count).map(request_text).collect();
            }
            tokio::time::sleep(MS(5)).await;
        }
    }

    /// A counter with this value of the label `reason`; zero if there is none.
    fn count(&self, family: &str, reason: &str) -> f64 {
        let families = self.registry.gather();
        let metrics = families.iter().filter(|it| it.name() == family).flat_map(|it| it.get_metric());
        metrics
            .filter(|metric| metric.get_label().iter().any(|label| label.name() == "reason" && label.value() == reason))
            .map(|metric| metric.get_counter().get_value())
            .sum()
    }
}

/// Plays a script and compares the first events and requests. An expected text that ends in `*` matches as a prefix.
/// Counters are written `watch:REASON` and `list:REASON` for the ends of requests, and `why:REASON` for the causes of
/// lists.
#[track_caller]
fn check(limits: Limits, lists: Vec<Answer>, watches: Vec<Answer>, expect: &Expect<'_>) {
    let outcome = block_on(async {
        let mut run = start(lists, watches, limits, 64).await;
        let mut events = Vec::new();
        for _ in expect.events {
            events.push(run.next().await);
        }
        let requests = run.requests(expect.requests.len()).await;
        let missing = expect.counted.iter().filter(|counted| {
            let (what, reason) = counted.split_once(':').unwrap();
            let family = match what {
                "watch" => "tidegate_watch_restarts_total",
                "list" => "tidegate_list_failures_total",
                _ => "tidegate_lists_total",
            };
            run.count(family, reason) == 0.0
        });
        (events, requests, missing.map(|it| (*it).to_owned()).collect::<Vec<_>>())
    });
    let (events, requests, missing) = outcome;
    assert!(matches(&events, expect.events), "events: {events:#?}\nexpected: {:#?}", expect.events);
    assert!(matches(&requests, expect.requests), "requests: {requests:#?}\nexpected: {:#?}", expect.requests);
    assert_eq!(missing, Vec::<String>::new(), "not counted");
}

/// The expected outcome of a script.
struct Expect<'a> {
    events: &'a [&'a str],
    requests: &'a [&'a str],
    counted: &'a [&'a str],
}

fn matches(found: &[String], expected: &[&str]) -> bool {
    found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, expected)| match expected.strip_suffix('*') {
            Some(start) => found.starts_with(start),
            None => found == expected,
        })
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn text(event: &Event) -> String {
    match event {
        Event::Applied { projected, .. } => format!("applied {}", named(projected)),
        Event::Deleted { object, resource_version, .. } => format!("deleted {}@{resource_version}", object.name.name),
        Event::Listed { objects, complete, resource_version, .. } => {
            let objects: Vec<_> = objects.iter().map(named).collect();
            let part = if *complete { "" } else { " and more" };
            format!("listed@{resource_version} {}{part}", objects.join(" ")).trim_end().to_owned()
        }
        Event::Unserved { .. } => "unserved".to_owned(),
        Event::Unreadable { why, .. } => format!("unreadable: {why}"),
        Event::Unlisted { .. } => "unlisted".to_owned(),
        Event::Defined { kind, release, .. } => format!("{kind} of {release:?}"),
        Event::Resumed { resource_version, .. } => format!("resumed@{resource_version}"),
        Event::Watching { .. } => "watching".to_owned(),
        Event::Bookmark { resource_version, .. } => format!("bookmark@{resource_version}"),
        Event::Failing { why, .. } => format!("failing: {why}"),
        Event::Resolved { name, .. } => format!("resolved {name}"),
        Event::KeySet { source, .. } => format!("keys of {source:?}"),
        Event::BindFailures { sockets } => format!("sockets not opened: {sockets:?}"),
        Event::ApiServer { sockets } => format!("the API server at {sockets:?}"),
    }
}

fn named(projected: &Projected) -> String {
    let broken = if projected.findings.is_empty() { "" } else { "!" };
    format!("{}@{}{broken}", projected.meta.object.name.name, projected.meta.resource_version)
}

fn request_text(seen: &Seen) -> String {
    let of = |key: &str| seen.query.get(key).map(String::as_str).unwrap_or_default();
    if seen.is_watch() {
        return format!("watch {}", of("resourceVersion"));
    }
    let mut text = "list".to_owned();
    if of("limit") != "500" {
        text += &format!(" limit={}", of("limit"));
    }
    if seen.query.contains_key("continue") {
        text += &format!(" continue={}", of("continue"));
    }
    text
}

/// A Service as the API sends it.
fn object(name: &str, version: u32) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"shop","resourceVersion":"{version}"}},"spec":{{"ports":[{{"port":80}}]}}}}"#
    )
}

/// One page of a list; an empty token is the last.
fn page(version: u32, objects: &[(&str, u32)], token: &str) -> String {
    let objects: Vec<_> = objects.iter().map(|(name, version)| object(name, *version)).collect();
    format!(
        r#"{{"kind":"ServiceList","metadata":{{"resourceVersion":"{version}","continue":"{token}"}},"items":[{}]}}"#,
        objects.join(",")
    )
}

fn listed(version: u32, objects: &[(&str, u32)]) -> Answer {
    Answer::ok(page(version, objects, ""))
}

/// One frame of a watch.
fn frame(what: &str, object: &str) -> String {
    format!("{{\"type\":\"{what}\",\"object\":{object}}}\n")
}

/// A watch that sends these frames and then stays open.
fn watching(frames: &[String]) -> Answer {
    Answer::steps(vec![Step::Send(frames.concat()), Step::Hang])
}
