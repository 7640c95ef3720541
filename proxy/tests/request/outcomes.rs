//! The access log and the metrics: one line and one count for each request, for every outcome.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tidegate_config::model::{Balance, Settings};
use tidegate_proxy::{AccessLogSink, Driver, Options};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::bed::{Bed, Model, PATIENCE, closed_port};
use super::retries::{WAYS, ask, in_turn};
use super::upstream::{Reply, Upstream};

/// Waits until the log has this many lines.
async fn lines(path: &std::path::Path, count: usize) -> Vec<Value> {
    let read = || -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let arrived = timeout(PATIENCE, async {
        while read().len() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    arrived.await.unwrap_or_else(|_| panic!("{:?}", read()));
    read()
}

async fn logged(model: Model) -> (Bed, tempfile::TempDir, std::path::PathBuf) {
    logged_by(Driver::Both, model).await
}

async fn logged_by(driver: Driver, model: Model) -> (Bed, tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let sink = AccessLogSink::File(path.clone());
    let set = |options: &mut Options| (options.driver, options.access_log) = (driver, sink);
    (Bed::with(model, set).await, folder, path)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_log_line_that_cannot_be_written_is_counted() {
    let upstream = Upstream::start(|_| Reply::ok("hello")).await;
    let set = |options: &mut Options| {
        options.access_log = AccessLogSink::File("/dev/full".into());
        options.budget.memory_kib = 4096;
    };
    let bed = Bed::with(Model::to(&[upstream.address]), set).await;
    assert_eq!(bed.get("a.test", "/", "").await.status, 200);
    bed.until_metric("tidegate_access_log_dropped_total 1").await;
    bed.until_metric("tidegate_upstream_connect_duration_seconds_count 1").await;
    bed.until_metric(&format!("tidegate_budget_memory_max_bytes {}", 4096 * 1024)).await;
}

#[tokio::test]
async fn a_log_line_has_the_fields_of_its_request() {
    let upstream = Upstream::start(|_| Reply::ok("hello")).await;
    let (bed, _folder, path) = logged(Model::to(&[upstream.address]).trusting()).await;
    let head = "POST /x?y=1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nX-Request-Id: id-1\r\n\
        X-Forwarded-For: 198.51.100.1\r\nUser-Agent: test\r\nReferer: http://r.test/\r\n\r\nabc";
    bed.ask(head).await;
    let line = &lines(&path, 1).await[0];
    for (field, want) in [
        ("request_id", "id-1"),
        ("client", "198.51.100.1"),
        ("method", "POST"),
        ("scheme", "http"),
        ("host", "a.test"),
        ("path", "/x?y=1"),
        ("protocol", "HTTP/1.1"),
        ("upstream", &upstream.address.to_string()),
        ("object", "Ingress shop/web"),
        ("field", "spec.rules[0].http.paths[0]"),
        ("listener", "http"),
        ("user_agent", "test"),
        ("referer", "http://r.test/"),
    ] {
        assert_eq!(line[field], want, "{line}");
    }
    for (field, want) in [("status", 200), ("bytes_in", 3), ("bytes_out", 5), ("tries", 1), ("generation", 1)] {
        assert_eq!(line[field], want, "{line}");
    }
    assert!(line["reason"].is_null() && line["tls"].is_null());
    assert!(line["upstream_connect_ms"].is_f64() && line["upstream_first_byte_ms"].is_f64());
    assert!(line["duration_ms"].as_f64() >= line["upstream_first_byte_ms"].as_f64());
    assert!(line["time"].as_str().unwrap().ends_with('Z') && line["peer"].as_str().unwrap().starts_with("127."));
}

#[tokio::test]
async fn a_log_line_names_the_attempt_that_was_answered() {
    let (broken, other) = (Upstream::start(|_| Reply::Close).await, Upstream::echo().await);
    let settings = Settings { balance: Some(Balance::RoundRobin), ..Settings::default() };
    let model = Model::edited(&[broken.address, other.address], |route| route.settings = Arc::new(settings));
    let (bed, _folder, path) = logged(model).await;
    assert_eq!(bed.get("a.test", "/", "").await.status, 200);
    let line = &lines(&path, 1).await[0];
    assert_eq!((&line["tries"], &line["status"]), (&2.into(), &200.into()), "{line}");
    assert_eq!(line["upstream"], other.address.to_string());
    assert!(line["reason"].is_null() && line["upstream_first_byte_ms"].is_f64(), "{line}");
}

#[tokio::test]
async fn the_body_of_a_retried_request_counts_once() {
    // Endpoints that fail before, during and after the body.
    let after = Upstream::start(|_| Reply::Close).await;
    for broken in [closed_port(), Upstream::resetting().await, after.address] {
        for (driver, http2) in WAYS {
            let other = Upstream::echo().await;
            let (bed, _folder, path) = logged_by(driver, in_turn(&[broken, other.address], 2)).await;
            let what = format!("{driver:?}, HTTP/2: {http2}");
            // The latter is sent in several pieces.
            for body in ["abc".to_owned(), "0123456789".repeat(4000)] {
                assert_eq!(ask(&bed, http2, "PUT", &body).await, 200, "{what}");
            }
            bed.until_metric("tidegate_requests_in_flight 0").await;
            let lines = lines(&path, 2).await;
            assert_eq!(lines[0]["tries"], 2, "{what}: {}", lines[0]);
            let counts = [&lines[0], &lines[1]].map(|line| line["bytes_in"].as_u64());
            assert_eq!(counts, [Some(3), Some(40_000)], "{what}: {lines:?}");
        }
    }
}

#[tokio::test]
async fn every_outcome_is_logged_once() {
    let upstream = Upstream::start(|seen| match seen.line.as_str() {
        "GET /silent HTTP/1.1" => Reply::Silence,
        "GET /broken HTTP/1.1" => Reply::Close,
        _ => Reply::ok(""),
    })
    .await;
    let (bed, _folder, path) = logged(Model::to(&[upstream.address])).await;
    bed.get("a.test", "/", "").await;
    bed.get("b.test", "/", "").await;
    bed.get("a.test", "/broken", "").await;
    bed.get("a b", "/", "").await;
    // A client that disconnects while the endpoint is silent.
    let mut stream = bed.connect().await;
    stream.write_all(b"GET /silent HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    bed.until_metric("tidegate_requests_in_flight 1").await;
    drop(stream);
    let lines = lines(&path, 5).await;
    let ends: Vec<_> = lines.iter().map(|line| (line["status"].as_u64().unwrap(), line["reason"].as_str())).collect();
    let want = [
        (200, None),
        (404, Some("no-route")),
        (502, Some("upstream-broken")),
        (400, Some("malformed-host")),
        (499, Some("client-gone")),
    ];
    assert_eq!(ends, want);
    bed.until_metric("tidegate_requests_in_flight 0").await;
    let object = r#"kind="Ingress",name="web",namespace="shop",object="Ingress shop/web""#;
    for line in [
        format!(r#"tidegate_requests_total{{class="2xx",{object}}} 1"#),
        format!(r#"tidegate_requests_total{{class="4xx",{object}}} 1"#),
        format!(r#"tidegate_requests_total{{class="5xx",{object}}} 1"#),
        r#"tidegate_requests_total{class="4xx",kind="",name="",namespace="",object=""} 2"#.to_owned(),
        format!(r#"tidegate_request_duration_seconds_count{{{object}}} 3"#),
    ] {
        bed.until_metric(&line).await;
    }
}

#[tokio::test]
async fn a_request_cut_by_the_drain_is_logged() {
    let mut upstream = Upstream::start(|_| Reply::Silence).await;
    let (bed, _folder, path) = logged(Model::to(&[upstream.address])).await;
    let mut stream = bed.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    upstream.seen().await;
    bed.drain().await;
    assert_eq!(lines(&path, 1).await[0]["reason"], "aborted");
}
