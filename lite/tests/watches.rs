//! A thousand watches through thousands of writes: each sees every change once and in order.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use ring::digest::{Context, SHA256};
use serde_json::{Value, json};
use tidegate_lite::{Lite, LiteService};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tower::Service as _;

const WATCHES: usize = 1_000;
/// The number of writes in every run; `LITE_WRITES` sets another.
const WRITES: usize = 1_000;
/// The number of writes that no watch has seen: a watch that lags further behind is ended, so that its client resumes.
const AHEAD: usize = 200;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn ask(
    service: &mut LiteService,
    method: Method,
    path: &str,
    body: &Value,
) -> http::Response<impl http_body::Body<Data = Bytes, Error: std::fmt::Debug> + Unpin> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let response = service.call(request.body(Full::new(Bytes::from(body.to_string()))).unwrap()).await.unwrap();
    assert!(response.status().is_success(), "{path}: {}", response.status());
    response
}

/// A watch: the number of its events, and the digest of their bytes once it has all of them.
struct Reader {
    service: LiteService,
    seen: Arc<AtomicUsize>,
    events: usize,
}

impl Reader {
    async fn read(mut self, opened: mpsc::Sender<()>, kept: Option<oneshot::Sender<Vec<u8>>>) -> Vec<u8> {
        let path = format!("{MAPS}?watch=true");
        let mut body = ask(&mut self.service, Method::GET, &path, &Value::Null).await.into_body();
        opened.send(()).await.unwrap();
        let (mut digest, mut count, mut all) = (Context::new(&SHA256), 0, Vec::new());
        while count < self.events {
            let frame = body.frame().await.expect("the watch goes on").unwrap().into_data().unwrap();
            count += frame.iter().filter(|byte| **byte == b'\n').count();
            digest.update(&frame);
            if kept.is_some() {
                all.extend_from_slice(&frame);
            }
            self.seen.store(count, Ordering::Relaxed);
        }
        assert_eq!(count, self.events, "no event too many");
        if let Some(kept) = kept {
            kept.send(all).unwrap();
        }
        digest.finish().as_ref().to_vec()
    }
}

#[allow(clippy::disallowed_methods, reason = "a test has no command line of its own")]
fn writes() -> usize {
    std::env::var("LITE_WRITES").map_or(WRITES, |count| count.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_watches_see_every_change_once_and_in_order() {
    let writes = writes();
    let lite = Lite::new();
    let (opened, mut open) = mpsc::channel(WATCHES);
    let (kept, first) = oneshot::channel();
    let mut kept = Some(kept);
    let seen: Vec<Arc<AtomicUsize>> = (0..WATCHES).map(|_| Arc::default()).collect();
    let mut watches = JoinSet::new();
    for seen in &seen {
        let reader = Reader { service: lite.service(), seen: Arc::clone(seen), events: writes };
        watches.spawn(reader.read(opened.clone(), kept.take()));
    }
    for _ in 0..WATCHES {
        open.recv().await.unwrap();
    }

    let mut service = lite.service();
    let slowest = || seen.iter().map(|seen| seen.load(Ordering::Relaxed)).min().unwrap_or_default();
    for nth in 0..writes {
        while nth > slowest() + AHEAD {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Ten objects are created, changed and deleted in turn.
        let (name, turn) = (format!("map-{}", nth % 10), nth / 10 % 3);
        let object = json!({"metadata": {"name": name}, "data": {"nth": nth.to_string()}});
        let one = format!("{MAPS}/{name}");
        let (method, path) = match turn {
            0 => (Method::POST, MAPS),
            1 => (Method::PUT, &*one),
            _ => (Method::DELETE, &*one),
        };
        let body = if turn == 2 { json!({}) } else { object };
        ask(&mut service, method, path, &body).await;
    }

    let digests: BTreeSet<Vec<u8>> = tokio::time::timeout(Duration::from_secs(300), watches.join_all())
        .await
        .expect("all come to the end")
        .into_iter()
        .collect();
    assert_eq!(digests.len(), 1, "every watch had the same events");
    let first = String::from_utf8(first.await.unwrap()).unwrap();
    let mut version = 0;
    for (nth, line) in first.lines().enumerate() {
        let event: Value = serde_json::from_str(line).unwrap();
        let (name, turn) = (format!("map-{}", nth % 10), nth / 10 % 3);
        assert_eq!(event["type"], ["ADDED", "MODIFIED", "DELETED"][turn], "{nth}");
        assert_eq!(event["object"]["metadata"]["name"], *name);
        if turn < 2 {
            assert_eq!(event["object"]["data"]["nth"], nth.to_string());
        }
        let now: u64 = event["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(now > version, "{nth}");
        version = now;
    }
}
