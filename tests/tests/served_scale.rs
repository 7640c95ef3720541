//! The served API of `tidegate lite` over many objects, with many watches: kubectl in pages, informers of client-go,
//! reflectors of kube-rs and plain watches, each compared with the upstream, object by object and event by event.
//! `.ci/full` runs it with more:
//!
//! ```text
//! SERVED_OBJECTS=100000 SERVED_WATCHES=1000 cargo test --release -p tidegate-tests --test served_scale -- --nocapture
//! ```

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use serde_json::{Value, json};
use tidegate_lite::{Feed, Lite, ServerSocket, SharedServer, WRITE_TIMEOUT, WatchCacheKind, WatchCacheLimits};
use tidegate_tests::{CacheServer, Informers, Kubectl, Reader, eventually, get, items, moment, plain};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// The number of changes sent to every watch.
const CHANGES: usize = 200;

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var_os(name).map_or(otherwise, |text| text.to_str().and_then(|text| text.parse().ok()).expect("a number"))
}

/// An API server of Services, and its event history.
struct Upstream {
    /// The channel for its changes; `None` while it is unavailable.
    feed: Option<Feed>,
    address: SocketAddr,
    serving: Option<AbortOnDropHandle<()>>,
    objects: BTreeMap<String, Value>,
    version: usize,
}

fn service(name: &str, version: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": name, "namespace": "shop", "resourceVersion": version.to_string(),
            "uid": format!("00000000-0000-4000-8000-{version:012}"), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": name, "team": format!("t{}", version % 50)},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": "None", "sessionAffinity": "None", "selector": {"app": name},
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        },
        "status": {"loadBalancer": {}},
    })
}

impl Upstream {
    fn start(objects: usize) -> Self {
        let all = (1..=objects).map(|nth| (format!("s{nth}"), service(&format!("s{nth}"), nth))).collect();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut upstream = Self { feed: None, address, serving: None, objects: all, version: objects };
        upstream.open();
        upstream
    }

    /// Starts to serve the current objects. It has no history: a watch from an earlier version is answered with 410, as
    /// after a compaction.
    fn open(&mut self) {
        let [version, plural, kind] = ["v1", "services", "Service"].map(str::to_owned);
        let group = String::new();
        let kind = WatchCacheKind {
            group,
            version,
            plural,
            kind,
            namespaced: true,
            forwards_writes: false,
            short: Vec::new(),
        };
        let limits =
            WatchCacheLimits { bytes_max: 1 << 30, unconfirmed_removals_share: 0.5, unconfirmed_removals_count: 10 };
        let (lite, feeds) = Lite::watch_cache(&[kind], limits);
        let feed = feeds.into_values().next().unwrap();
        feed.list_begins();
        for (name, object) in &self.objects {
            feed.listed("shop", name, object.to_string().as_bytes());
        }
        feed.list_done(&self.version.to_string(), true, true);
        // The connections of its predecessor may still be closing.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(self.address).unwrap();
        let listener = socket.listen(1024).unwrap();
        self.address = listener.local_addr().unwrap();
        let (connections_max, write_timeout) = (64, WRITE_TIMEOUT);
        let server = SharedServer { lite, tls: None, token: None, forward: None, connections_max, write_timeout };
        let serving = tokio::spawn(server.serve(ServerSocket::Tcp(listener), std::future::pending()));
        (self.feed, self.serving) = (Some(feed), Some(AbortOnDropHandle::new(serving)));
    }

    /// Stops, and loses its history.
    fn close(&mut self) {
        (self.feed, self.serving) = (None, None);
    }

    /// Makes changes, deletions and new objects; returns the events in the form of a watch.
    fn change(&mut self) -> Vec<String> {
        let all = self.version;
        let mut events = Vec::new();
        for change in 0..CHANGES {
            self.version += 1;
            let (version, known) = (self.version, format!("s{}", 1 + change * all / CHANGES));
            let name = if change % 4 == 0 { format!("new{change}") } else { known };
            let (object, gone) = (service(&name, version), change % 4 == 1 && self.objects.contains_key(&name));
            let before =
                if gone { self.objects.remove(&name) } else { self.objects.insert(name.clone(), object.clone()) };
            let told = if gone {
                "DELETED"
            } else if before.is_some() {
                "MODIFIED"
            } else {
                "ADDED"
            };
            events.push(format!("{told} {name}@{version}"));
            if let Some(feed) = &self.feed {
                feed.event("shop", &name, object.to_string().as_bytes(), gone);
            }
        }
        events
    }

    /// The objects that every client should hold.
    fn held(&self) -> BTreeMap<String, Value> {
        self.objects.iter().map(|(name, object)| (format!("services shop/{name}"), plain(object.clone()))).collect()
    }
}

/// A watch from a version on.
async fn watch(api: SocketAddr, version: usize) -> BufReader<TcpStream> {
    let mut stream = BufReader::new(TcpStream::connect(api).await.unwrap());
    let path = format!("/api/v1/services?watch=1&allowWatchBookmarks=true&resourceVersion={version}");
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {api}\r\n\r\n").as_bytes()).await.unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    assert!(line.contains("200"), "{line}");
    stream
}

/// The next events of a watch, and the watch.
async fn told(mut stream: BufReader<TcpStream>, count: usize) -> (Vec<String>, BufReader<TcpStream>) {
    let mut events = Vec::new();
    while events.len() < count {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).await.unwrap() > 0, "a watch ended after {} events", events.len());
        let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
        if let (Some(kind), metadata) =
            (event["type"].as_str().filter(|kind| *kind != "BOOKMARK"), &event["object"]["metadata"])
        {
            let text = |field: &str| metadata[field].as_str().unwrap_or_default();
            events.push(format!("{kind} {}@{}", text("name"), text("resourceVersion")));
        }
    }
    (events, stream)
}

/// Checks the events of each watch, and returns the watches.
async fn all_told(
    watches: Vec<BufReader<TcpStream>>,
    expected: &[String],
    tidy: impl Fn(Vec<String>) -> Vec<String>,
) -> Vec<BufReader<TcpStream>> {
    let readers: Vec<_> = watches.into_iter().map(|stream| tokio::spawn(told(stream, expected.len()))).collect();
    let mut open = Vec::new();
    for reader in readers {
        let (events, stream) = reader.await.unwrap();
        assert_eq!(tidy(events), expected);
        open.push(stream);
    }
    open
}

/// The final state of each object, in the order of the names: a list does not say at which versions objects were
/// deleted.
fn by_name(events: Vec<String>) -> Vec<String> {
    let plain = |event: String| match event.split_once('@') {
        Some((deleted, _)) if deleted.starts_with("DELETED") => deleted.to_owned(),
        _ => event,
    };
    let mut events: Vec<String> = events.into_iter().map(plain).collect();
    events.sort_by(|one, other| one.split(' ').nth(1).cmp(&other.split(' ').nth(1)));
    events
}

/// Lists everything by kubectl in pages, and some objects by a label.
async fn pages(served: &Reader, upstream: &Upstream, when: &str) {
    let begun = moment();
    let list = served.run(&["get", "services", "-A", "-o", "json", "--chunk-size=500"]).await;
    let got: BTreeMap<String, Value> = items(&list)
        .into_iter()
        .map(|object| (format!("services shop/{}", object["metadata"]["name"].as_str().unwrap()), plain(object)))
        .collect();
    let want = upstream.held();
    let other: Vec<_> = want.keys().chain(got.keys()).filter(|key| want.get(*key) != got.get(*key)).take(5).collect();
    assert!(other.is_empty(), "{when}: {other:?}");
    took(&format!("kubectl lists {} objects in pages of 500, {when}", got.len()), begun);
    let begun = moment();
    let some = served.run(&["get", "services", "-A", "-o", "name", "--chunk-size=100", "-l", "team=t7"]).await;
    let of_team = |object: &&Value| object["metadata"]["labels"]["team"] == "t7";
    assert_eq!(some.lines().count(), upstream.objects.values().filter(of_team).count(), "{when}");
    took("and by a label in pages of 100", begun);
}

fn took(what: &str, begun: Instant) {
    println!("    {:>6} ms  {what}", begun.elapsed().as_millis());
}

async fn informers_hold(clients: &mut [Informers], upstream: &Upstream, when: &str) {
    let want = upstream.held();
    for client in clients {
        let begun = moment();
        let name = client.name;
        let client = tokio::sync::Mutex::new(client);
        let held = eventually(&format!("{name}: all objects, {when}"), || async {
            let held = client.lock().await.held().await;
            if held.synced && held.objects == want { Ok(held) } else { Err(held.events.to_string()) }
        })
        .await;
        assert_eq!(held.faults, json!([]), "{name}, {when}");
        took(&format!("{name}: all objects, {when}"), begun);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_objects_and_watches_match_the_upstream() {
    let (objects, watches) = (number("SERVED_OBJECTS", 3_000), number("SERVED_WATCHES", 200));
    let mut upstream = Upstream::start(objects);
    let folder = tempfile::tempdir().unwrap();
    let server = format!("http://{}", upstream.address);
    let arguments = [
        "--cache-kinds",
        "services",
        "--serve-memory",
        "1024",
        "--serve-connections",
        "4096",
        "--cache-dir",
        folder.path().to_str().unwrap(),
        "--cache-write-after",
        "50ms",
        "--cache-write-budget",
        "100000",
    ];
    let begun = moment();
    let cache = CacheServer::fed_by(&server, &arguments).await;
    cache.ready().await;
    took(&format!("ready with {objects} objects"), begun);
    let served = Reader::of(&cache.url(), &[]).filter(|_| Kubectl::for_config(folder.path()).is_some());
    if let Some(served) = &served {
        pages(served, &upstream, "at first").await;
    }
    let mut clients = Informers::start_all(&cache.url(), &["v1/services"]).unwrap_or_default();
    informers_hold(&mut clients, &upstream, "at first").await;

    let mut open = Vec::new();
    for _ in 0..watches {
        open.push(watch(cache.api, upstream.version).await);
    }
    let begun = moment();
    let events = upstream.change();
    let open = all_told(open, &events, |events| events).await;
    took(&format!("{CHANGES} changes at {watches} watches"), begun);
    informers_hold(&mut clients, &upstream, "after changes").await;

    // The upstream stops, changes meanwhile, and returns without a history: one list, and watches get the difference.
    upstream.close();
    let missed = by_name(upstream.change());
    upstream.open();
    let begun = moment();
    let open = all_told(open, &missed, by_name).await;
    took(&format!("{CHANGES} changes of an outage at {watches} watches, since the upstream is back"), begun);
    informers_hold(&mut clients, &upstream, "after an outage and a compaction").await;
    // The watches continue.
    let events = upstream.change();
    drop(all_told(open, &events, |events| events).await);
    informers_hold(&mut clients, &upstream, "after changes that followed").await;
    drop(clients);

    // In order, so that everything is on disk.
    cache.end().await;
    upstream.close();
    let begun = moment();
    let cache = CacheServer::fed_by(&server, &arguments).await;
    cache.ready().await;
    took("ready from disk, without the upstream", begun);
    let metrics = get(cache.admin, "localhost", "/metrics").await.expect("metrics").body;
    let stale = "tidegate_cached_kind_stale_since_timestamp_seconds{kind=\"services\"} 1";
    assert!(metrics.contains(stale), "it says that it is stale, as of a second of this century: {metrics}");
    let held = format!("tidegate_served_objects{{kind=\"services\"}} {}\n", upstream.objects.len());
    assert!(metrics.contains(&held), "it is ready when it can serve: {metrics}");
    if let Some(served) = Reader::of(&cache.url(), &[]).filter(|_| served.is_some()) {
        pages(&served, &upstream, "from disk").await;
    }
}
