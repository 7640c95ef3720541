//! A watch cache of many objects with many watches. With `--nocapture` it prints the cost.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use bytes::Bytes;
use futures::future::join_all;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use serde_json::{Value, json};
use tidegate_lite::{Feed, Lite, LiteBody, WatchCacheKind, WatchCacheLimits};
use tokio::time::Instant;
use tower::Service as _;

const OBJECTS: usize = 100_000;
const WATCHES: usize = 1_000;
const CHANGES: usize = 200;

fn service(nth: usize, version: usize) -> Vec<u8> {
    let name = format!("web-{nth}");
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}]);
    let managed = json!([{
        "manager": "kubectl-client-side-apply", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:ports": {}, "f:selector": {}, "f:type": {}}},
    }]);
    let object = json!({
        "metadata": {
            "name": name, "namespace": format!("team-{}", nth % 500), "resourceVersion": version.to_string(),
            "uid": format!("6f1b4bb4-54b9-4d2e-9a38-{nth:012x}"), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": name}, "managedFields": managed,
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ports": ports, "selector": {"app": name},
        },
        "status": {"loadBalancer": {}},
    });
    object.to_string().into_bytes()
}

async fn asked(lite: &Lite, path: &str) -> LiteBody {
    let request = Request::get(path).body(Empty::<Bytes>::new()).unwrap();
    let answer = lite.service().call(request).await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    answer.into_body()
}

async fn whole(lite: &Lite, path: &str) -> Bytes {
    asked(lite, path).await.collect().await.unwrap().to_bytes()
}

/// The resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok()).unwrap_or_default() << 10
}

/// A watch cache with all of the objects.
fn fed() -> (Lite, Feed) {
    let [plural, kind] = ["services", "Service"].map(str::to_owned);
    let kind = WatchCacheKind {
        group: String::new(),
        version: "v1".to_owned(),
        plural,
        kind,
        namespaced: true,
        forwards_writes: false,
        short: Vec::new(),
    };
    let limits =
        WatchCacheLimits { bytes_max: 512 << 20, unconfirmed_removals_share: 0.5, unconfirmed_removals_count: 10 };
    let (lite, feeds) = Lite::watch_cache(&[kind], limits);
    let feed = feeds.into_values().next().unwrap();
    let (before, begun) = (resident(), Instant::now());
    feed.list_begins();
    for nth in 0..OBJECTS {
        feed.listed(&format!("team-{}", nth % 500), &format!("web-{nth}"), &service(nth, nth + 1));
    }
    feed.list_done(&OBJECTS.to_string(), true, true);
    let (json, resident) = (feed.figures().bytes / OBJECTS, resident().saturating_sub(before) / OBJECTS);
    println!("fed in {:?}; an object: {json} bytes of JSON and beside it, {resident} resident", begun.elapsed());
    (lite, feed)
}

async fn listed(lite: &Lite) {
    let begun = Instant::now();
    let list = whole(lite, "/api/v1/services").await;
    println!("one list of {} bytes: {:?}", list.len(), begun.elapsed());
    let list: Value = serde_json::from_slice(&list).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), OBJECTS);
}

async fn listed_in_pages(lite: &Lite) {
    let (begun, mut token, mut items, mut pages) = (Instant::now(), String::new(), 0, 0);
    loop {
        let page = whole(lite, &format!("/api/v1/services?limit=5000&continue={token}")).await;
        let page: Value = serde_json::from_slice(&page).unwrap();
        items += page["items"].as_array().unwrap().len();
        pages += 1;
        match page["metadata"]["continue"].as_str() {
            Some(next) => next.clone_into(&mut token),
            None => break,
        }
    }
    println!("in {pages} pages: {:?}", begun.elapsed());
    assert_eq!(items, OBJECTS);
}

async fn selected(lite: &Lite) {
    let begun = Instant::now();
    let one = whole(lite, "/api/v1/services?labelSelector=app%3Dweb-777").await;
    println!("by a label: {:?}", begun.elapsed());
    let one: Value = serde_json::from_slice(&one).unwrap();
    assert_eq!(one["items"][0]["metadata"]["resourceVersion"], "778");
}

/// Reads each change of a watch, in order.
async fn read(mut body: LiteBody) {
    for nth in 0..CHANGES {
        let frame = body.frame().await.expect("it goes on").unwrap().into_data().unwrap();
        let event: Value = serde_json::from_slice(&frame).unwrap();
        assert_eq!(event["object"]["metadata"]["resourceVersion"], (OBJECTS + 1 + nth).to_string());
    }
}

async fn watched(lite: &Lite, feed: &Feed) {
    let before = resident();
    let path = format!("/api/v1/services?watch=1&allowWatchBookmarks=true&resourceVersion={OBJECTS}");
    let watches = join_all((0..WATCHES).map(|_| asked(lite, &path))).await;
    println!("an idle watch: {} bytes resident", resident().saturating_sub(before) / WATCHES);
    assert_eq!(feed.figures().watches, WATCHES);
    let begun = Instant::now();
    let readers: Vec<_> = watches.into_iter().map(|body| tokio::spawn(read(body))).collect();
    for change in 0..CHANGES {
        feed.event("team-7", "web-7", &service(7, OBJECTS + 1 + change), false);
    }
    for reader in readers {
        reader.await.unwrap();
    }
    println!("{CHANGES} changes to {WATCHES} watches, each read as JSON: {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_objects_and_a_thousand_watches() {
    let (lite, feed) = fed();
    listed(&lite).await;
    listed_in_pages(&lite).await;
    selected(&lite).await;
    watched(&lite, &feed).await;
}
