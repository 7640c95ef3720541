//! The memory of a watch cache's history while watches with selectors are open.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use serde_json::{Map, json};
use tidegate_lite::{Feed, Lite, LiteBody, WatchCacheKind, WatchCacheLimits};
use tower::Service as _;

const BYTES_MAX: usize = 256 << 20;
/// The history limit of a kind.
const HISTORY: usize = BYTES_MAX / 8;

/// The resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok()).unwrap_or_default() << 10
}

/// A Service of 20 KB with many annotations.
fn service(version: usize) -> Vec<u8> {
    let annotations: Map<_, _> = (0..800).map(|nth| (format!("a{nth}"), format!("v{nth}-{version}").into())).collect();
    let metadata = json!({
        "name": "cart", "namespace": "shop", "resourceVersion": version.to_string(), "annotations": annotations,
        "labels": {"app": "cart", "even": version.is_multiple_of(2).to_string()},
    });
    json!({"metadata": metadata, "spec": {"type": "ClusterIP"}}).to_string().into_bytes()
}

fn fed() -> (Lite, Feed) {
    let [plural, kind] = ["services", "Service"].map(str::to_owned);
    let (group, version, namespaced, forwards_writes, short) =
        (String::new(), "v1".to_owned(), true, false, Vec::new());
    let kind = WatchCacheKind { group, version, plural, kind, namespaced, forwards_writes, short };
    let limits =
        WatchCacheLimits { bytes_max: BYTES_MAX, unconfirmed_removals_share: 0.5, unconfirmed_removals_count: 10 };
    let (lite, feeds) = Lite::watch_cache(&[kind], limits);
    let feed = feeds.into_values().next().unwrap();
    feed.list_begins();
    feed.listed("shop", "cart", &service(1));
    feed.list_done("1", true, true);
    (lite, feed)
}

async fn watch(lite: &Lite, selectors: &str) -> LiteBody {
    let path = format!("/api/v1/services?watch=1&resourceVersion=1&{selectors}");
    let answer = lite.service().call(Request::get(&path).body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.into_body()
}

#[tokio::test]
async fn selector_watches_stay_within_the_history_limit() {
    let (lite, feed) = fed();
    // One watch sees nothing, one sees everything, and one sees the Service enter and leave.
    let mut watches = Vec::new();
    for selectors in ["labelSelector=nosuch%3Dx", "fieldSelector=spec.type%3DClusterIP", "labelSelector=even%3Dtrue"] {
        watches.push((watch(&lite, selectors).await, 0));
    }
    let before = resident();
    const CHANGES: usize = 1_000;
    for version in 2..2 + CHANGES {
        feed.event("shop", "cart", &service(version), false);
        for (watch, seen) in &mut watches {
            // A watch without further events is up to date.
            while let Ok(frame) = tokio::time::timeout(std::time::Duration::ZERO, watch.frame()).await {
                frame.expect("it goes on").unwrap();
                *seen += 1;
            }
        }
    }
    let grown = resident().saturating_sub(before);
    assert_eq!(watches.iter().map(|(_, seen)| *seen).collect::<Vec<_>>(), [0, CHANGES, CHANGES]);
    // The allocator keeps pages in addition to the history.
    assert!(grown < 3 * HISTORY, "{} MiB for a share of {}", grown >> 20, HISTORY >> 20);
}
