//! Each fault of the table against the whole control loop, with the client and the limits of production. Time runs
//! [`TICK`] in a millisecond.
//!
//! A case begins with a loop that is ready. Then the server closes all connections, the fault begins, and the cluster
//! changes unseen: one shop goes, one comes, one moves. A minute later the fault ends.

mod cluster;
mod credentials;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use prometheus::Registry;
use tidegate_config::model::{Bind, BindKey, BindProtocol, HostPattern, Listener, ListenerName, Snapshot};
use tidegate_config::object::Kind;
use tidegate_config::published::{self, Published};
use tidegate_control::client::{Deadlines, connect};
use tidegate_control::options::Options;
use tidegate_control::{ApiServer, Control, Limits, View, Withheld, explain};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep};
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

use super::MS;
use super::fake_api::{Answer, FakeApi, Seen};
use cluster::{Cluster, SHOPS, kind_of};
use credentials::{authority, write};
use table::{Credentials, Fault, Meanwhile, Row, table, written};

const TICK: Duration = Duration::from_millis(50);
/// Cases that run at the same time: with many more of them, what takes a millisecond takes many, and the clock runs on.
const AT_ONCE: usize = 16;
/// How long a fault lasts.
const FAULT_LASTS: Duration = Duration::from_secs(60);
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/faults.md");
/// How long it is watched whether the loop is quiet again.
const QUIET: Duration = Duration::from_secs(30);
/// Watches end by themselves now and then.
const QUIET_REQUESTS: usize = 2;

/// The server's state: the cluster, and the fault while it lasts.
struct Server {
    cluster: Cluster,
    fault: Option<(Fault, BTreeMap<Kind, usize>)>,
    token: Option<&'static str>,
}

impl Server {
    fn answer(&mut self, seen: &Seen, token: Option<&[u8]>) -> Answer {
        if self.token.is_some_and(|want| token != Some(format!("Bearer {want}").as_bytes())) {
            return Answer::status(401);
        }
        let sound = self.cluster.answer(seen);
        let Some((fault, counts)) = &mut self.fault else { return sound };
        let nth = counts.entry(kind_of(seen)).or_default();
        *nth += 1;
        fault(seen, *nth - 1, sound)
    }
}

/// Everything of one case.
struct Case {
    row: Row,
    server: Arc<Mutex<Server>>,
    api: FakeApi,
    tls: watch::Sender<Arc<ServerConfig>>,
    /// Holds the files of the token and of the authority.
    files: tempfile::TempDir,
    published: Published,
    view: View,
    registry: Registry,
    problems: Vec<String>,
    /// How often it was looked at towards the end of the fault, and how often the loop said then that it is degraded.
    looks: usize,
    degraded: usize,
}

/// What a case came to, beside its problems.
struct Outcome {
    problems: Vec<String>,
    requests: usize,
    connections: usize,
    recovered: Option<Duration>,
    apart: Option<Duration>,
}

#[test]
fn no_fault_loses_a_route_leaves_a_stale_one_or_makes_the_loop_spin() {
    let (mut rows, mut problems) = (table(), Vec::new());
    while !rows.is_empty() {
        let some = rows.split_off(rows.len().saturating_sub(AT_ONCE));
        let running: Vec<_> = some.into_iter().map(|row| (row.name, std::thread::spawn(|| run(row)))).collect();
        for (name, thread) in running {
            let outcome = thread.join().unwrap_or_else(|_| panic!("{name}: the case panicked"));
            let Outcome { requests, connections, recovered, apart, .. } = outcome;
            println!(
                "{name}: {requests} requests of the busiest collection, {connections} connections, {recovered:?}, apart {apart:?}"
            );
            problems.extend(outcome.problems.into_iter().map(|problem| format!("{name}: {problem}")));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// `UPDATE_GOLDEN=1` rewrites the table.
#[test]
fn the_page_of_faults_shows_the_table() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let from = page.find("\n|---").map(|at| at + 1).expect("a table");
    let from = from + page[from..].find('\n').unwrap() + 1;
    let to = from + page[from..].find("\n\n").map_or(page.len() - from, |end| end + 1);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(PAGE, [&page[..from], &written(), &page[to..]].concat()).unwrap();
        return;
    }
    assert!(page[from..to] == written(), "docs/faults.md is not current: run with UPDATE_GOLDEN=1");
}

#[test]
fn what_no_watch_told_of_is_found_mended_and_counted_and_nothing_else_is_done() {
    hurried(async {
        let row = table().remove(0);
        let mut case = Case::start(row, Limits { list_again: MS(5000), ..Limits::default() }).await;
        case.ready().await;
        {
            let mut server = case.server.lock().await;
            server.cluster.silently(|cluster| {
                cluster.delete(Kind::Ingress, "h23");
                cluster.ingress("new", "h00");
            });
            server.cluster.ingress("later", "h01");
        }
        case.look_on(MS(10_000)).await;
        assert_eq!((case.served("later"), case.served("new"), case.served("h23")), (Some(1), None, Some(23)));
        case.look_on(Duration::from_secs(210)).await;
        assert_eq!((case.served("later"), case.served("new"), case.served("h23")), (Some(1), Some(0), None));
        let generation = *case.view.generation().borrow();
        case.look_on(Duration::from_secs(210)).await;
        assert_eq!(*case.view.generation().borrow(), generation, "nothing had drifted");
        assert_eq!(case.problems, Vec::<String>::new());
        let sum = |family: &str, label: &str| {
            let families = case.registry.gather();
            let metrics = families.iter().filter(|it| it.name() == family).flat_map(|it| it.get_metric());
            let labelled = metrics.filter(|metric| metric.get_label().iter().any(|it| it.value() == label));
            labelled.map(|metric| metric.get_counter().get_value()).sum::<f64>()
        };
        let drift = Kind::ALL.map(|kind| (kind, sum("tidegate_drift_total", kind.as_str())));
        assert_eq!(drift, Kind::ALL.map(|kind| (kind, if kind == Kind::Ingress { 2.0 } else { 0.0 })));
        assert!(sum("tidegate_lists_total", "drift") >= 10.0, "two for each kind");
    });
}

fn run(row: Row) -> Outcome {
    hurried(async { Case::start(row, Limits::default()).await.play().await })
}

fn hurried<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        tokio::spawn(hurry());
        future.await
    })
}

/// Lets time run faster than it does. Tokio's clock stands while it is paused and a blocking task runs, so that what the
/// kernel does on loopback still takes no time to speak of.
#[allow(clippy::disallowed_methods, reason = "this is what a blocking task is for")]
async fn hurry() {
    loop {
        tokio::task::spawn_blocking(|| std::thread::sleep(MS(1))).await.unwrap();
        tokio::time::advance(TICK).await;
    }
}

impl Case {
    async fn start(row: Row, limits: Limits) -> Self {
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
            client: connect(config, Deadlines::WATCH, &ApiServer::default()).unwrap(),
            api_server: ApiServer::default(),
            namespaces: Vec::new(),
            options: Options { binds: [bind()].into(), ..Options::default() },
            limits,
        };
        let registry = Registry::new();
        let (publisher, published) = published::channel();
        let shutdown = CancellationToken::new();
        let (view, running) =
            tidegate_control::start(control, (publisher, published.clone()), &registry, shutdown).unwrap();
        tokio::spawn(running);
        Self { row, server, api, tls, files, published, view, registry, problems: Vec::new(), looks: 0, degraded: 0 }
    }

    async fn ready(&self) {
        let ready = async { self.view.readiness().wait_for(|readiness| readiness.ready).await.map(drop) };
        tokio::time::timeout(Duration::from_secs(60), ready).await.expect("ready in time").unwrap();
    }

    async fn play(mut self) -> Outcome {
        self.ready().await;
        self.look_on(MS(1000)).await;
        if self.served("h23") != Some(23) {
            self.problems.push("the case does not begin as it should".to_owned());
        }
        let before = (self.api.seen().await.len(), self.api.connections());
        self.begin().await;
        self.look_on(FAULT_LASTS - FAULT_LASTS / 4).await;
        (self.looks, self.degraded) = (0, 0);
        self.look_on(FAULT_LASTS / 4).await;
        let requests = self.busiest(before.0).await;
        let connections = self.api.connections() - before.1;
        self.judge_fault(requests, connections);
        self.end().await;
        let ended = self.api.seen().await.len();
        let recovered = self.recover().await;
        let before = self.api.seen().await.len();
        self.look_on(QUIET).await;
        let apart = self.apart(ended).await;
        if self.row.apart.is_some_and(|bound| apart.is_none_or(|apart| apart > bound)) {
            self.problems.push(format!("asked for again {apart:?} apart"));
        }
        let quiet = self.busiest(before).await;
        if quiet > QUIET_REQUESTS {
            self.problems.push(format!("{quiet} requests in {QUIET:?} after the fault"));
        }
        self.judge_end();
        Outcome { problems: self.problems, requests, connections, recovered, apart }
    }

    /// The server hangs up, and while nobody watches a shop goes, one comes, and one moves.
    async fn begin(&mut self) {
        let mut server = self.server.lock().await;
        server.fault = Some((self.row.fault, BTreeMap::new()));
        server.cluster.hang_up();
        self.api.hang_up();
        if self.row.restored {
            server.cluster.set_back();
        }
        server.cluster.delete(Kind::Ingress, "h23");
        server.cluster.ingress("new", "h00");
        server.cluster.endpoint("h22", 99);
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

    /// Passes time, and looks after every generation and every second whether all is served that has to be.
    async fn look_on(&mut self, time: Duration) {
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
        if !self.view.readiness().borrow().ready {
            self.problems.push("not ready any more".to_owned());
        }
    }

    /// Whether what changed in the cluster is served: what came and what moved, and that what went is not.
    fn followed(&self) -> (bool, bool) {
        (self.served("new") == Some(0) && self.served("h22") == Some(99), self.served("h23").is_none())
    }

    fn judge_fault(&mut self, requests: usize, connections: usize) {
        let want = match self.row.meanwhile {
            Meanwhile::AsBefore => (false, false),
            Meanwhile::Added => (true, false),
            Meanwhile::Followed => (true, true),
        };
        if self.followed() != want {
            self.problems.push(format!("what came, and what went, is followed: {:?}, not {want:?}", self.followed()));
        }
        if self.degraded != if self.row.degraded { self.looks } else { 0 } {
            self.problems.push(format!("degraded in {} of {} looks", self.degraded, self.looks));
        }
        let bound = self.row.requests.in_a_minute();
        if requests > bound || connections > bound * Kind::ALL.len() {
            self.problems.push(format!("{requests} requests, {connections} connections, not {bound}"));
        }
    }

    /// How long it takes until all is as it should be.
    async fn recover(&mut self) -> Option<Duration> {
        let started = Instant::now();
        while started.elapsed() <= self.row.recovers {
            sleep(TICK).await;
            if self.followed() == (true, true) && !self.view.readiness().borrow().degraded {
                self.look();
                return Some(started.elapsed());
            }
        }
        let degraded = self.view.readiness().borrow().degraded;
        self.problems.push(format!("not recovered: followed {:?}, degraded {degraded}", self.followed()));
        None
    }

    fn judge_end(&mut self) {
        let families = self.registry.gather();
        let restarts = families.iter().find(|family| family.name() == "tidegate_control_restarts_total").unwrap();
        if restarts.get_metric()[0].get_counter().get_value() > 0.0 {
            self.problems.push("the loop was started again".to_owned());
        }
    }

    /// The requests after the first so many of the collection that got the most, further pages aside.
    async fn busiest(&self, after: usize) -> usize {
        let mut counts = BTreeMap::<Kind, usize>::new();
        for seen in self.api.seen().await.iter().skip(after).filter(|seen| !seen.query.contains_key("continue")) {
            *counts.entry(kind_of(seen)).or_default() += 1;
        }
        counts.into_values().max().unwrap_or_default()
    }

    /// Between the first request after the first so many and the last of the first for each collection.
    async fn apart(&self, after: usize) -> Option<Duration> {
        let mut first = BTreeMap::<Kind, Instant>::new();
        for seen in self.api.seen().await.iter().skip(after) {
            first.entry(kind_of(seen)).or_insert(seen.at);
        }
        let (begin, end) = (first.values().min()?, first.values().max()?);
        (first.len() == Kind::ALL.len()).then(|| *end - *begin)
    }

    /// The last number of the address that a shop's host leads to.
    fn served(&self, shop: &str) -> Option<u8> {
        endpoint(&self.published.pin(), shop)
    }
}

fn endpoint(snapshot: &Snapshot, shop: &str) -> Option<u8> {
    let route = explain(snapshot, &[], &Withheld::default(), &format!("http://{shop}.example/")).unwrap().route?;
    match route.targets.first()?.endpoints.first()?.address {
        std::net::SocketAddr::V4(address) => Some(address.ip().octets()[3]),
        std::net::SocketAddr::V6(_) => None,
    }
}

fn bind() -> Bind {
    let listener = Listener { name: ListenerName("http".into()), host: HostPattern::Any };
    let key = BindKey { address: ([127, 0, 0, 1], 80).into(), protocol: BindProtocol::Http };
    Bind { key, listeners: [listener].into() }
}
