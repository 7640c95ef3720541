//! One case: a server, a loop of a scope, and the conditions before, during and after the fault of a row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use prometheus::Registry;
use tidegate_config::model::{Bind, BindKey, BindProtocol, Listener, Snapshot};
use tidegate_config::object::Kind;
use tidegate_config::published::{self, Published};
use tidegate_control::Following;
use tidegate_control::client::{Access, Deadlines, connect};
use tidegate_control::options::Options;
use tidegate_control::{ApiServer, Control, ExplainRequest, Limits, NotServing, View, explain};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep};
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

use super::super::MS;
use super::super::fake_api::{Answer, FakeApi, Seen};
use super::TICK;
use super::cluster::{CERTIFIED, Cluster, SHOPS, Subject, subject};
use super::credentials::{SHOWN, authority, write};
use super::scope::Scope;
use super::table::{Credentials, Fault, Meanwhile, Row};

/// The duration of a fault.
const FAULT_LASTS: Duration = Duration::from_secs(60);
/// The time afterwards in which the loop must be quiet again.
const QUIET: Duration = Duration::from_secs(30);
/// Watches end regularly from time to time, and a list that may have lacked objects ends another one when it is
/// repeated.
const QUIET_REQUESTS: usize = 3;

/// The server's state: the cluster, and the fault while it lasts.
pub(super) struct Server {
    pub(super) cluster: Cluster,
    fault: Option<(Fault, BTreeMap<Subject, usize>)>,
    token: Option<&'static str>,
}

impl Server {
    fn answer(&mut self, seen: &Seen, token: Option<&[u8]>) -> Answer {
        if self.token.is_some_and(|want| token != Some(format!("Bearer {want}").as_bytes())) {
            return Answer::status(401);
        }
        let sound = self.cluster.answer(seen);
        let Some((fault, counts)) = &mut self.fault else { return sound };
        let nth = counts.entry(subject(seen)).or_default();
        *nth += 1;
        fault(seen, *nth - 1, sound)
    }
}

/// The parts of one case.
pub(super) struct Case {
    row: Row,
    scope: Scope,
    pub(super) server: Arc<Mutex<Server>>,
    api: FakeApi,
    tls: watch::Sender<Arc<ServerConfig>>,
    /// The folder with the files of the token and of the authority.
    files: tempfile::TempDir,
    published: Published,
    pub(super) view: View,
    pub(super) registry: Registry,
    pub(super) problems: Vec<String>,
    /// The number of checks towards the end of the fault, and the number of them that found the loop degraded.
    looks: usize,
    degraded: usize,
}

/// The measurements of a case, in addition to its problems.
pub(super) struct Outcome {
    pub(super) problems: Vec<String>,
    pub(super) requests: usize,
    pub(super) connections: usize,
    pub(super) recovered: Option<Duration>,
    pub(super) apart: Option<Duration>,
}

impl Case {
    pub(super) async fn start(row: Row, scope: Scope, limits: Limits) -> Self {
        let server = Arc::new(Mutex::new(Server { cluster: Cluster::new(), fault: None, token: None }));
        let files = tempfile::tempdir().unwrap();
        write(&files.path().join("token"), "first");
        let (tls, serving) = watch::channel(authority("first", files.path()));
        let state = Arc::clone(&server);
        let decide = move |seen: &Seen, headers: &http::HeaderMap| {
            let token = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
            state.try_lock().expect("one thread").answer(seen, token)
        };
        let secure = row.credentials == Credentials::Authority;
        let api = FakeApi::start(Box::new(decide), secure.then_some(serving)).await;

        let mut config = kube::Config::new(api.url.parse().unwrap());
        config.auth_info.token_file = Some(files.path().join("token").to_str().unwrap().to_owned());
        config.root_cert_file = Some(files.path().join("ca.crt"));
        config.root_cert = Some(Vec::new());
        let control = Control {
            client: connect(
                &Access::of(&Following::new().unwrap(), "test", config).unwrap(),
                Deadlines::WATCH,
                &ApiServer::default(),
            )
            .unwrap(),
            api_server: ApiServer::default(),
            namespaces: scope.namespaces(),
            options: Options { binds: [bind()].into(), secrets: scope.secrets(), ..Options::default() },
            order: tidegate_control::Order::default(),
            limits,
            unopened: tokio::sync::watch::channel(tidegate_control::BindFailures::default()).1,
            cache: None,
            copies: None,
            cached: Vec::new(),
            cached_copies: None,
        };
        let registry = Registry::new();
        let (publisher, published) = published::channel();
        let shutdown = CancellationToken::new();
        let (view, running) =
            tidegate_control::start(control, (publisher, published.clone()), &registry, shutdown).unwrap();
        tokio::spawn(running);
        let (problems, looks, degraded) = (Vec::new(), 0, 0);
        Self { row, scope, server, api, tls, files, published, view, registry, problems, looks, degraded }
    }

    pub(super) async fn ready(&self) {
        let ready = async { self.view.readiness().wait_for(|readiness| readiness.ready).await.map(drop) };
        tokio::time::timeout(Duration::from_secs(60), ready).await.expect("ready in time").unwrap();
    }

    pub(super) async fn play(mut self) -> Outcome {
        self.ready().await;
        // Periodic lists have been due for a while when the fault begins.
        self.look_on(self.row.lists_due.map_or(MS(1000), |due| due * 2)).await;
        if self.served("h23") != Some(23) {
            self.problems.push("the case does not begin as it should".to_owned());
        }
        let before = (self.api.seen().await.len(), self.api.connections());
        self.begin().await;
        self.look_on(FAULT_LASTS - FAULT_LASTS / 4).await;
        (self.looks, self.degraded) = (0, 0);
        self.look_on(FAULT_LASTS / 4).await;
        let counts = self.counts(before.0).await;
        let connections = self.api.connections() - before.1;
        self.judge_fault(&counts, connections);
        let awaited = self.awaited().await;
        self.end().await;
        let ended = self.api.seen().await.len();
        let recovered = self.recover().await;
        let before = self.api.seen().await.len();
        self.look_on(QUIET).await;
        let apart = self.apart(ended, &awaited).await;
        if self.row.apart.is_some_and(|bound| apart.is_none_or(|apart| apart > bound)) {
            self.problems.push(format!("asked for again {apart:?} apart"));
        }
        // A list that had begun before may also fail and be repeated, if objects are read by name periodically.
        let lists = self.row.lists_due.map_or(0, |due| 2 * usize::try_from(QUIET.as_secs() / due.as_secs()).unwrap());
        let quiet_max = |(_, name): &Subject| QUIET_REQUESTS + usize::from(name.is_some()) + lists;
        for (subject, requests) in self.counts(before).await {
            if requests > quiet_max(&subject) {
                self.problems.push(format!("{requests} requests for {subject:?} in {QUIET:?} after the fault"));
            }
        }
        self.judge_end().await;
        Outcome { problems: self.problems, requests: busiest(&counts), connections, recovered, apart }
    }

    /// The server closes its connections. While no watch is open, one shop is deleted, one is created, one moves, and
    /// one gets another certificate. With periodic lists this happens after they have been due for a while.
    async fn begin(&mut self) {
        {
            let mut server = self.server.lock().await;
            server.fault = Some((self.row.fault, BTreeMap::new()));
            server.cluster.hang_up();
            self.api.hang_up();
            if self.row.restored {
                server.cluster.set_back();
            }
        }
        if let Some(due) = self.row.lists_due {
            self.look_on(due * 4).await;
        }
        let mut server = self.server.lock().await;
        server.cluster.delete(Kind::Ingress, "h23");
        server.cluster.ingress("new", "h00");
        server.cluster.endpoint("h22", 99);
        server.cluster.certify("h02", 1);
        match self.row.credentials {
            Credentials::Open => {}
            Credentials::Token => server.token = Some("second"),
            Credentials::Authority => drop(self.tls.send_replace(authority("second", &self.files.path().join("next")))),
        }
    }

    async fn end(&mut self) {
        self.server.lock().await.fault = None;
        match self.row.credentials {
            Credentials::Open => {}
            Credentials::Token => write(&self.files.path().join("token"), "second"),
            Credentials::Authority => {
                std::fs::copy(self.files.path().join("next/ca.crt"), self.files.path().join("ca.crt")).unwrap();
            }
        }
    }

    /// Passes time; after every generation and every second checks that all required routes are served.
    pub(super) async fn look_on(&mut self, time: Duration) {
        let until = Instant::now() + time;
        let mut generation = self.view.generation();
        while Instant::now() < until && self.problems.len() < 5 {
            self.look();
            tokio::select! {
                _ = generation.changed() => {}
                () = sleep((until - Instant::now()).min(MS(1000))) => {}
            }
        }
        self.look();
    }

    fn look(&mut self) {
        self.looks += 1;
        self.degraded += usize::from(self.view.readiness().borrow().degraded);
        for shop in 0..SHOPS - 2 {
            let name = format!("h{shop:02}");
            if self.served(&name) != Some(shop) {
                self.problems.push(format!("{name} leads to {:?}", self.served(&name)));
            }
        }
        if self.served("h22").is_none() {
            self.problems.push("h22 has no endpoint".to_owned());
        }
        for shop in CERTIFIED {
            if self.shows(shop, 0) || shop == "h02" && self.shows(shop, 1) {
                continue;
            }
            self.problems.push(format!("{shop} does not show its certificate"));
        }
        if !self.view.readiness().borrow().ready {
            self.problems.push("not ready any more".to_owned());
        }
    }

    /// Whether the changes of the cluster are served: the created and the moved shop, and no longer the deleted one.
    fn followed(&self) -> (bool, bool) {
        (self.served("new") == Some(0) && self.served("h22") == Some(99), self.served("h23").is_none())
    }

    fn judge_fault(&mut self, counts: &BTreeMap<Subject, usize>, connections: usize) {
        let want = match self.row.meanwhile {
            Meanwhile::AsBefore => (false, false),
            Meanwhile::Added => (true, false),
            Meanwhile::Followed => (true, true),
        };
        if self.followed() != want {
            self.problems.push(format!("what came, and what went, is followed: {:?}, not {want:?}", self.followed()));
        }
        let degraded = match (self.row.degraded, self.row.flickers) {
            (false, _) => 0..=0,
            (true, false) => self.looks..=self.looks,
            (true, true) => self.looks / 2..=self.looks,
        };
        if !degraded.contains(&self.degraded) {
            self.problems.push(format!("degraded in {} of {} looks", self.degraded, self.looks));
        }
        let bound = self.row.requests.in_a_minute();
        let of = |(_, name): &Subject| bound + name.as_ref().map_or(0, |_| usize::from(Scope::ROUTINE));
        for (subject, requests) in counts.iter().filter(|(subject, requests)| **requests > of(subject)) {
            self.problems.push(format!("{requests} requests for {subject:?}, not {}", of(subject)));
        }
        let connections_max = self.scope.subjects().iter().map(of).sum();
        if connections > connections_max {
            self.problems.push(format!("{connections} connections, not {connections_max}"));
        }
    }

    /// The time until everything is served as expected.
    async fn recover(&mut self) -> Option<Duration> {
        let started = Instant::now();
        while started.elapsed() <= self.row.recovers {
            sleep(TICK).await;
            if self.followed() == (true, true) && self.shows("h02", 1) && !self.view.readiness().borrow().degraded {
                self.look();
                return Some(started.elapsed());
            }
        }
        let degraded = self.view.readiness().borrow().degraded;
        let (followed, shows) = (self.followed(), self.shows("h02", 1));
        self.problems.push(format!("not recovered: followed {followed:?}, certificate {shows}, degraded {degraded}"));
        None
    }

    async fn judge_end(&mut self) {
        if let Some(seen) = self.api.seen().await.iter().find(|seen| !self.scope.allows(seen)) {
            self.problems.push(format!("{} was asked for", seen.path));
        }
        if self.followed() != (true, true) || !self.shows("h02", 1) || self.view.readiness().borrow().degraded {
            self.problems.push("what was right after the fault did not stay so".to_owned());
        }
        let families = self.registry.gather();
        let restarts = families.iter().find(|family| family.name() == "tidegate_control_restarts_total").unwrap();
        if restarts.get_metric()[0].get_counter().get_value() > 0.0 {
            self.problems.push("the loop was started again".to_owned());
        }
    }

    /// The number of requests by subject after the first `after`, without further pages.
    async fn counts(&self, after: usize) -> BTreeMap<Subject, usize> {
        let mut counts = BTreeMap::new();
        for seen in self.api.seen().await.iter().skip(after).filter(|seen| !seen.query.contains_key("continue")) {
            *counts.entry(subject(seen)).or_default() += 1;
        }
        counts
    }

    /// The subjects that are requested again when the server recovers: everything, except Secrets that can be read by
    /// name.
    async fn awaited(&self) -> BTreeSet<Subject> {
        let readiness = self.view.readiness().borrow().clone();
        let fails = readiness
            .collections
            .iter()
            .any(|collection| collection.kind == Kind::Secret && collection.failing.is_some());
        let all = self.api.seen().await;
        all.iter().map(subject).filter(|(_, name)| fails || name.is_none()).collect()
    }

    /// After the first `after` requests: the time from the first request to the first one for the last of these
    /// subjects.
    async fn apart(&self, after: usize, of: &BTreeSet<Subject>) -> Option<Duration> {
        let mut first = BTreeMap::new();
        for seen in self.api.seen().await.iter().skip(after).filter(|seen| of.contains(&subject(seen))) {
            first.entry(subject(seen)).or_insert(seen.at);
        }
        let (begin, end) = (first.values().min()?, first.values().max()?);
        (first.len() == of.len()).then(|| *end - *begin)
    }

    /// Whether a shop shows this certificate of [`SHOWN`].
    fn shows(&self, shop: &str, which: usize) -> bool {
        let snapshot = self.published.pin();
        let shown = snapshot.certificates_for(&bind().key, &format!("{shop}.example")).first();
        shown.is_some_and(|shown| shown.key.cert.iter().any(|der| **der == *SHOWN[which].der))
    }

    /// The last number of the address of a shop's endpoint.
    pub(super) fn served(&self, shop: &str) -> Option<u8> {
        endpoint(&self.published.pin(), shop)
    }
}

/// The number of requests for the most requested subject.
fn busiest(counts: &BTreeMap<Subject, usize>) -> usize {
    counts.values().copied().max().unwrap_or_default()
}

fn endpoint(snapshot: &Snapshot, shop: &str) -> Option<u8> {
    let asked = ExplainRequest::new(&format!("http://{shop}.example/"), None, []).unwrap();
    let route = explain(snapshot, &[], &NotServing::default(), &asked).unwrap().route?;
    match route.targets.first()?.endpoints.first()?.address {
        std::net::SocketAddr::V4(address) => Some(address.ip().octets()[3]),
        std::net::SocketAddr::V6(_) => None,
    }
}

fn bind() -> Bind {
    let listener = Listener::for_every_host("http");
    let key = BindKey { address: ([127, 0, 0, 1], 80).into(), protocol: BindProtocol::Http };
    Bind { key, listeners: [listener].into() }
}
