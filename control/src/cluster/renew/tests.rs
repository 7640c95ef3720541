//! Renewals that hang, with the time of the runtime.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;

use http::header::AUTHORIZATION;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use prometheus::{Encoder as _, Registry, TextEncoder};
use serde_json::json;
use tokio::time::{Instant, advance, pause};
use tower::ServiceExt as _;

use super::*;
use crate::followed::Following;

/// A client of a server in memory.
struct Asking {
    client: Renewed<String>,
    registry: Registry,
}

impl Asking {
    /// The time passes by itself from now on while nothing else happens: a request that waits takes as long as it says,
    /// and one that does not wait takes no time.
    async fn paused(access: &Access, registry: Registry) -> Self {
        let mut asking = Self { client: Renewed::new(access.clone(), stack).unwrap(), registry };
        assert_eq!(asking.ask("200").await.0, "one");
        pause();
        asking
    }

    /// A client by a plugin that prints credentials for so many seconds once, and then hangs.
    async fn by_plugin(seconds: i64) -> Self {
        let (folder, following, registry) = (tempfile::tempdir().unwrap(), Following::new().unwrap(), Registry::new());
        following.register(&registry).unwrap();
        let end = Timestamp::now() + SignedDuration::from_secs(seconds);
        let printed = json!({"status": {"token": "one", "expirationTimestamp": end.to_string()}});
        let out = folder.path().join("out");
        std::fs::write(&out, printed.to_string()).unwrap();
        let script = format!("[ -e {0} ] && exec cat {0}\nexec sleep 3600", out.display());
        let exec = json!({"command": "/bin/sh", "args": ["-c", script]});
        let mut config = Config::new("http://127.0.0.1:1".parse().unwrap());
        config.auth_info.exec = Some(serde_json::from_value(exec).unwrap());
        let access = Access::of(&following, "test", config).unwrap();
        let asking = Self::paused(&access, registry).await;
        std::fs::remove_file(out).unwrap();
        advance(Duration::from_secs(2)).await;
        asking
    }

    /// The token of a request that is answered with a status, or fails, and the seconds that it took.
    async fn ask(&mut self, status: &str) -> (String, u64) {
        let began = Instant::now();
        let request = Request::get("/").header(AUTHORIZATION, status).body(Body::empty()).unwrap();
        let answer = self.client.ready().await.unwrap().call(request).await;
        (answer.map_or_else(|why| why.to_string(), Response::into_body), began.elapsed().as_secs())
    }

    /// The runs of the plugin that have failed.
    fn failed_runs(&self) -> usize {
        let mut page = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        let series = r#"tidegate_followed_files_reads_total{outcome="failed",source="credential-plugin"} "#;
        page.lines().find_map(|line| line.strip_prefix(series)).unwrap().parse().unwrap()
    }
}

/// Answers each request with the token of the client, and the status that the request names.
fn stack(config: &Config) -> Result<Stack<String>, ConnectError> {
    let token = serde_json::to_value(&config.auth_info).unwrap()["token"].as_str().unwrap_or_default().to_owned();
    Ok(BoxService::new(tower::service_fn(move |request: Request<Body>| {
        let (token, status) = (token.clone(), request.headers()[AUTHORIZATION].to_str().unwrap().to_owned());
        async move {
            let status: u16 = status.parse()?;
            Ok(Response::builder().status(status).body(token)?)
        }
    })))
}

fn one(seconds: u64) -> (String, u64) {
    ("one".to_owned(), seconds)
}

#[tokio::test]
async fn no_request_waits_for_a_plugin_before_the_end_of_its_credentials() {
    let mut asking = Asking::by_plugin(240).await;
    assert_eq!(asking.ask("200").await, one(0), "long before the end");
    advance(Duration::from_secs(200)).await;
    for _ in 0..3 {
        assert_eq!(asking.ask("200").await, one(0), "shortly before the end");
    }
}

#[tokio::test]
async fn a_request_waits_for_a_plugin_after_the_end_of_its_credentials() {
    let mut asking = Asking::by_plugin(240).await;
    advance(Duration::from_secs(250)).await;
    assert_eq!(asking.ask("200").await, one(30));
}

#[tokio::test]
async fn a_request_after_a_refusal_waits_for_the_plugin() {
    let mut asking = Asking::by_plugin(3_600).await;
    assert_eq!(asking.ask("401").await, one(0));
    assert_eq!(asking.ask("200").await, one(30));
    assert_eq!(asking.ask("200").await, one(0));
}

#[tokio::test]
async fn a_refusal_during_a_run_waits_for_that_run() {
    let mut asking = Asking::by_plugin(240).await;
    advance(Duration::from_secs(200)).await;
    assert_eq!(asking.ask("401").await, one(0));
    assert_eq!(asking.ask("200").await, one(30));
    assert_eq!(asking.failed_runs(), 1);
}

#[tokio::test]
async fn the_pause_between_runs_begins_at_the_end_of_a_run() {
    let mut asking = Asking::by_plugin(3_600).await;
    asking.ask("401").await;
    assert_eq!(asking.ask("401").await, one(30));
    assert_eq!(asking.ask("401").await, one(0));
    assert_eq!(asking.failed_runs(), 1);
    advance(Duration::from_secs(2)).await;
    assert_eq!(asking.ask("200").await, one(30));
    assert_eq!(asking.failed_runs(), 2);
}

#[tokio::test]
async fn a_request_after_a_cancelled_one_waits_for_a_run_of_its_own() {
    let mut asking = Asking::by_plugin(240).await;
    advance(Duration::from_secs(250)).await;
    assert!(futures::poll!(std::pin::pin!(asking.client.ready())).is_pending());
    // The run for that request ends meanwhile.
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(asking.ask("200").await, one(30));
    assert_eq!(asking.failed_runs(), 2);
}

#[tokio::test]
async fn a_request_waits_briefly_for_files_that_hang() {
    // The files hang until the test drops its end, also if it fails.
    let (release, released) = channel::<()>();
    let (released, first) = (tokio::sync::Mutex::new(released), AtomicBool::new(true));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "one").unwrap();
    let load = move |reads: &mut crate::followed::Reads| {
        if !first.swap(false, Ordering::Relaxed) {
            released.try_lock().unwrap().recv().ok();
        }
        let mut config = Config::new("http://127.0.0.1:1".parse().unwrap());
        config.auth_info.token = Some(reads.value(&file).map_err(ConnectError::File)?.into());
        Ok(config)
    };
    let access = Access::follow(&Following::new().unwrap(), "test", load).unwrap();
    let mut asking = Asking::paused(&access, Registry::new()).await;
    asking.ask("fails").await;
    // A thread that reads holds the time of the runtime.
    let passing = async {
        loop {
            tokio::task::yield_now().await;
            advance(Duration::from_millis(100)).await;
        }
    };
    let (seconds, passing) = (std::pin::pin!(async { asking.ask("200").await }), std::pin::pin!(passing));
    let futures::future::Either::Left((answer, _)) = futures::future::select(seconds, passing).await;
    drop(release);
    assert_eq!(answer, one(1));
}
