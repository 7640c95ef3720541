//! The control loop and its reporter on the embedded API server, with a second client of that server that is never
//! delayed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use http::{Request, Response};
use http_body_util::{BodyStream, Either, Full, StreamBody};
use kube::client::Body;
use prometheus::Registry;
use serde_json::{Value, json};
use tidegate_config::object::ObjectName;
use tidegate_config::project::PublicAddress;
use tidegate_config::published;
use tidegate_control::options::{Options, Publish};
use tidegate_control::{ApiServer, Control, ElectionTiming, Limits, Reporter, View};
use tidegate_lite::Lite;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::Service as _;

const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
/// Terms with which no leader loses the lease on a busy machine: an interrupted write would count as failed.
pub(crate) const TERMS: ElectionTiming =
    ElectionTiming { lease: Duration::from_secs(30), lead: Duration::from_secs(20), retry: Duration::from_millis(100) };

/// Terms for tests that simulate hours.
const CALM: ElectionTiming =
    ElectionTiming { lease: Duration::from_secs(60), lead: Duration::from_secs(40), retry: Duration::from_secs(15) };

/// The delayed requests and their delay; they continue at once when it is removed.
type Slow = Arc<watch::Sender<Option<(Duration, fn(&Request<Body>) -> bool, CancellationToken)>>>;

/// The answer to requests about Events and statuses: a status, headers and a body.
pub(crate) type Refusal = (u16, &'static [(&'static str, &'static str)], &'static str);
type Refuse = Arc<watch::Sender<Option<Refusal>>>;

/// An API server with the class `tidegate`.
pub(crate) struct Api {
    lite: Lite,
    client: kube::Client,
    slow: Slow,
    refuse: Refuse,
    lag: Arc<watch::Sender<Duration>>,
}

/// A delay that lasts until it is ended.
pub(crate) struct Delay(CancellationToken);

impl Delay {
    pub(crate) fn end(self) {
        self.0.cancel();
    }
}

impl Api {
    pub(crate) async fn new() -> Self {
        let lite = Lite::new();
        let client = kube::Client::new(lite.service(), "default");
        let api = Self { lite, client, slow: Slow::default(), refuse: Refuse::default(), lag: Arc::default() };
        let class =
            |name: &str, controller: &str| json!({"metadata": {"name": name}, "spec": {"controller": controller}});
        for (name, controller) in [("tidegate", "tidegate.io/ingress"), ("nginx", "k8s.io/ingress-nginx")] {
            api.create("/apis/networking.k8s.io/v1/ingressclasses", class(name, controller)).await;
        }
        api
    }

    /// The client that may be delayed and refused.
    pub(crate) fn slow_client(&self) -> kube::Client {
        let (service, slow, refuse) = (self.lite.service(), Arc::clone(&self.slow), Arc::clone(&self.refuse));
        let lag = Arc::clone(&self.lag);
        let service = tower::service_fn(move |request: Request<Body>| {
            let slow = slow.borrow().clone().filter(|(_, waits, _)| waits(&request));
            let refusal = refuse.borrow().filter(|_| is_report(&request));
            let lag = Some(*lag.borrow()).filter(|_| is_watch(&request));
            let mut service = service.clone();
            async move {
                if let Some((time, _, end)) = slow {
                    end.run_until_cancelled(sleep(time)).await;
                }
                let Some((status, headers, body)) = refusal else {
                    let wait = lag.unwrap_or_default();
                    let late =
                        |body| StreamBody::new(BodyStream::new(body).then(move |frame| sleep(wait).map(|()| frame)));
                    return service.call(request).await.map(|answer| answer.map(|body| Either::Left(late(body))));
                };
                let answer = Response::builder().status(status);
                let answer = headers.iter().fold(answer, |answer, (name, value)| answer.header(*name, *value));
                Ok(answer.body(Either::Right(Full::new(Bytes::from(body)))).unwrap())
            }
        });
        kube::Client::new(service, "default")
    }

    /// A client whose requests are reported, by method and path.
    pub(crate) fn heard_client(&self, asked: UnboundedSender<String>) -> kube::Client {
        let service = self.lite.service();
        let service = tower::service_fn(move |request: Request<Body>| {
            let method = if is_watch(&request) { "WATCH" } else { request.method().as_str() };
            asked.send(format!("{method} {}", request.uri().path())).unwrap_or_default();
            service.clone().call(request)
        });
        kube::Client::new(service, "default")
    }

    /// A client whose patches wait until so many of them have come.
    pub(crate) fn held_client(&self, patches: usize) -> kube::Client {
        let (service, arrived) = (self.lite.service(), Arc::new(watch::Sender::new(0)));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (mut service, arrived) = (service.clone(), Arc::clone(&arrived));
            async move {
                if request.method() == http::Method::PATCH {
                    arrived.send_modify(|count| *count += 1);
                    arrived.subscribe().wait_for(|count| *count >= patches).await.unwrap();
                }
                service.call(request).await
            }
        });
        kube::Client::new(service, "default")
    }

    /// A client whose writes are refused if the API server does not know a field of them, and are reported:
    /// method, path and the code of the answer.
    pub(crate) fn strict_client(&self, writes: UnboundedSender<(String, u16)>) -> kube::Client {
        let service = self.lite.service();
        let service = tower::service_fn(move |mut request: Request<Body>| {
            let write = (request.method() != http::Method::GET)
                .then(|| format!("{} {}", request.method(), request.uri().path()));
            if write.is_some() {
                let between = if request.uri().query().is_some() { '&' } else { '?' };
                *request.uri_mut() = format!("{}{between}fieldValidation=Strict", request.uri()).parse().unwrap();
            }
            let (mut service, writes) = (service.clone(), writes.clone());
            async move {
                let answer = service.call(request).await?;
                if let Some(write) = write {
                    writes.send((write, answer.status().as_u16())).unwrap_or_default();
                }
                Ok::<_, tower::BoxError>(answer)
            }
        });
        kube::Client::new(service, "default")
    }

    /// Sets the answer to requests about Events and statuses.
    pub(crate) fn refuse(&self, refusal: Option<Refusal>) {
        self.refuse.send_replace(refusal);
    }

    /// Delays watch events by this much, one after the other.
    pub(crate) fn lag(&self, time: Duration) {
        self.lag.send_replace(time);
    }

    pub(crate) fn slow(&self, time: Duration, waits: fn(&Request<Body>) -> bool) -> Delay {
        let end = CancellationToken::new();
        self.slow.send_replace(Some((time, waits, end.clone())));
        Delay(end)
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: Option<&Value>) -> Value {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("content-type", kind).body(body).unwrap();
        self.client.request(request).await.unwrap_or_else(|why| panic!("{method} {path}: {why}"))
    }

    /// The object, if it exists.
    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        let request = Request::builder().uri(path).body(Vec::new()).unwrap();
        self.client.request(request).await.ok()
    }

    pub(crate) async fn create(&self, path: &str, object: Value) {
        self.send("POST", path, "application/json", Some(&object)).await;
    }

    pub(crate) async fn patch(&self, path: &str, patch: &Value) {
        self.send("PATCH", path, "application/merge-patch+json", Some(patch)).await;
    }

    pub(crate) async fn ingress(&self, name: &str, class: &str) {
        let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
        let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
        let rules = json!([{"host": format!("{name}.test"), "http": {"paths": paths}}]);
        let spec = json!({"ingressClassName": class, "rules": rules});
        self.create(INGRESSES, json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    /// Gives an Ingress one rule, without paths, for this host.
    pub(crate) async fn rule(&self, name: &str, host: &str) {
        self.patch(&format!("{INGRESSES}/{name}"), &json!({"spec": {"rules": [{"host": host}]}})).await;
    }

    pub(crate) async fn class(&self, name: &str, class: &str) {
        self.patch(&format!("{INGRESSES}/{name}"), &json!({"spec": {"ingressClassName": class}})).await;
    }

    pub(crate) async fn status(&self, name: &str, ips: &[&str]) {
        let entries: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        let patch = json!({"status": {"loadBalancer": {"ingress": entries}}});
        self.patch(&format!("{INGRESSES}/{name}/status"), &patch).await;
    }

    pub(crate) async fn status_of(&self, name: &str) -> Vec<String> {
        let ingress = self.send("GET", &format!("{INGRESSES}/{name}"), "application/json", None).await;
        let entries = ingress["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
        let text = |entry: &Value| entry["ip"].as_str().or(entry["hostname"].as_str()).unwrap().to_owned();
        entries.iter().map(text).collect()
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.send("DELETE", path, "application/json", None).await;
    }

    /// The Events that `kubectl describe` shows of an Ingress.
    pub(crate) async fn events_of(&self, name: &str) -> Vec<Value> {
        let ingress = self.send("GET", &format!("{INGRESSES}/{name}"), "application/json", None).await;
        let uid = ingress["metadata"]["uid"].as_str().unwrap();
        let asked = [("kind", "Ingress"), ("name", name), ("namespace", "default"), ("uid", uid)];
        let asked = asked.map(|(field, value)| format!("involvedObject.{field}%3D{value}")).join(",");
        let path = format!("/api/v1/namespaces/default/events?fieldSelector={asked}");
        self.send("GET", &path, "application/json", None).await["items"].as_array().unwrap().clone()
    }

    pub(crate) async fn told(&self, name: &str, want: &[&str]) {
        eventually(|| async { self.status_of(name).await == want }).await;
    }

    pub(crate) async fn holder(&self) -> String {
        let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/tidegate";
        let lease = self.send("GET", path, "application/json", None).await;
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }
}

/// One replica.
pub(crate) struct Edge {
    pub(crate) view: View,
    registry: Registry,
    stop: CancellationToken,
    reporter: JoinHandle<()>,
}

fn is_watch(request: &Request<Body>) -> bool {
    request.uri().query().is_some_and(|query| query.contains("watch=true"))
}

/// Whether the request is about an Event or a status.
fn is_report(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    path.contains("/events") || path.ends_with("/status")
}

impl Edge {
    /// A replica that writes statuses only.
    pub(crate) fn start(api: &Api, publish: Publish, identity: &str) -> Self {
        Self::with(api.slow_client(), Options { publish, events: false, ..Options::default() }, TERMS, identity)
    }

    /// A replica that writes Events only.
    pub(crate) fn telling(api: &Api, identity: &str) -> Self {
        Self::with(api.slow_client(), Options::default(), CALM, identity)
    }

    /// A replica that writes both.
    pub(crate) fn writing(api: &Api, publish: Publish, identity: &str) -> Self {
        Self::on(api.slow_client(), publish, identity, TERMS)
    }

    /// A replica that writes both, with this client and these terms of the election.
    pub(crate) fn on(client: kube::Client, publish: Publish, identity: &str, terms: ElectionTiming) -> Self {
        Self::with(client, Options { publish, ..Options::default() }, terms, identity)
    }

    /// A replica that writes both, with a Lease of its own.
    pub(crate) fn of_lease(api: &Api, publish: Publish, lease: &str) -> Self {
        let (options, lease) = (Options { publish, ..Options::default() }, ObjectName::new("default", lease));
        Self::with_lease(api.slow_client(), options, TERMS, (lease, "a"))
    }

    pub(crate) fn with(client: kube::Client, options: Options, terms: ElectionTiming, identity: &str) -> Self {
        Self::with_lease(client, options, terms, (ObjectName::new("default", "tidegate"), identity))
    }

    fn with_lease(
        client: kube::Client,
        mut options: Options,
        terms: ElectionTiming,
        (lease, identity): (ObjectName, &str),
    ) -> Self {
        let (registry, stop) = (Registry::new(), CancellationToken::new());
        options.pace.optional_grace = Duration::from_millis(100);
        options.pace.optional_slow_grace = Duration::from_millis(100);
        let (namespaces, limits) = (Vec::new(), Limits::default());
        let (api_server, cache) = (ApiServer::default(), None);
        let control = Control {
            client: client.clone(),
            api_server,
            namespaces,
            options,
            order: tidegate_control::Order::default(),
            limits,
            unopened: tokio::sync::watch::channel(tidegate_control::BindFailures::default()).1,
            cache,
            copies: None,
            cached: Vec::new(),
            cached_copies: None,
        };
        let (publisher, seen) = published::channel();
        let (view, running) = tidegate_control::start(control, (publisher, seen), &registry, stop.clone()).unwrap();
        tokio::spawn(running);
        let reporter = Reporter::new(view.clone(), client, lease, identity.to_owned(), &registry).unwrap();
        let reporter = tokio::spawn(reporter.paced(terms).run(stop.clone()));
        Self { view, registry, stop, reporter }
    }

    /// Ends the replica as a process that receives SIGTERM.
    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        (&mut self.reporter).await.unwrap();
    }

    pub(crate) fn ready(&self) -> bool {
        self.view.readiness().borrow().ready
    }

    /// The value of a metric, of the series with this label if one is given.
    pub(crate) fn metric(&self, name: &str, label: &str) -> i64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap_or_else(|| panic!("no {name}"));
        let of = |metric: &&prometheus::proto::Metric| {
            label.is_empty() || metric.get_label().iter().any(|pair| pair.value() == label)
        };
        let metric = family.get_metric().iter().find(of).unwrap();
        #[allow(clippy::cast_possible_truncation, reason = "small counts")]
        let value = (metric.get_gauge().get_value() + metric.get_counter().get_value()) as i64;
        value
    }

    pub(crate) fn leads(&self) -> i64 {
        self.metric("tidegate_leader", "")
    }

    pub(crate) fn writes(&self, outcome: &str) -> i64 {
        self.metric("tidegate_status_writes_total", outcome)
    }

    /// Writes of Events by outcome: `written`, `known`, `gone`, `throttled`, `refused`, `failed`.
    pub(crate) fn event_writes(&self) -> [i64; 6] {
        let outcomes = ["written", "exists", "gone", "throttled", "refused", "failed"];
        outcomes.map(|outcome| self.metric("tidegate_event_writes_total", outcome))
    }

    /// The number of dropped reports.
    pub(crate) fn dropped(&self) -> i64 {
        self.metric("tidegate_events_dropped_total", "")
    }

    /// Whether writes have been in progress for a while.
    pub(crate) fn waits_for_writes(&self) -> bool {
        self.metric("workqueue_unfinished_work_seconds", "status") > 0
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) fn addresses(ips: &[&str]) -> Publish {
    Publish::Addresses(ips.iter().map(|ip| PublicAddress::of_ip(*ip)).collect())
}

pub(crate) fn service(name: &str, kind: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": [{"port": 80}]}})
}

/// Waits until the condition holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(mut is: impl FnMut() -> F) {
    let so = timeout(Duration::from_secs(60), async {
        while !is().await {
            sleep(Duration::from_millis(20)).await;
        }
    });
    so.await.expect("so at last");
}
