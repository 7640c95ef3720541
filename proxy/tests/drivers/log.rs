//! The access log of the two drivers for the same requests, and its equality with the metrics.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use prometheus::Registry;
use serde_json::Value;
use tempfile::TempDir;
use tidegate_proxy::{AccessLogSink, Driver};
use tokio::time::{sleep, timeout};

use super::case::Case;
use super::corpus;
use super::http2;
use super::run::{QUIET, TURN};
use super::side::{Over, Side};

/// The fields that are equal for both drivers. Times, ids and ports are not, nor whether the pool had a connection.
const FIELDS: [&str; 20] = [
    "client",
    "method",
    "scheme",
    "host",
    "path",
    "protocol",
    "status",
    "bytes_in",
    "bytes_out",
    "tries",
    "object",
    "field",
    "listener",
    "tls",
    "user_agent",
    "referer",
    "reason",
    "generation",
    "upstream",
    "upstream_first_byte_ms",
];

struct Logged {
    side: Side,
    folder: TempDir,
}

impl Logged {
    async fn start(driver: Driver, over: Over) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sink = AccessLogSink::File(folder.path().join("access.log"));
        let side = Side::start(over, |options| {
            options.driver = driver;
            options.access_log = sink;
        });
        Self { side: side.await, folder }
    }

    /// Plays cases; returns the log entry of each by id.
    async fn play(mut self, cases: &[Case]) -> BTreeMap<String, Value> {
        for case in cases {
            self.side.play(case, QUIET[0]).await;
        }
        let path = self.folder.path().join("access.log");
        // The drain hands over the buffered lines of all threads, and they are written shortly after.
        let registry = self.side.end().await;
        let whole = async {
            while written(&lines(&path)) != counted(&registry) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        drop(timeout(Duration::from_secs(5), whole).await);
        let all = lines(&path);
        assert_eq!(written(&all), counted(&registry), "what was written down, and what was counted");
        let by_id = all.into_iter().map(|line| (line["request_id"].as_str().unwrap_or_default().to_owned(), line));
        by_id.filter(|(id, _)| id.starts_with("case-")).collect()
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    // The last line may be incomplete.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The number of logged requests by object and class, and by reason.
fn written(lines: &[Value]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in lines {
        // A status without a class counts as 5xx.
        let class = (line["status"].as_u64().unwrap_or_default() / 100).min(5);
        *counts.entry(format!("{} {class}xx", line["object"].as_str().unwrap_or_default())).or_default() += 1;
        if let Some(reason) = line["reason"].as_str() {
            *counts.entry(reason.to_owned()).or_default() += 1;
        }
    }
    counts
}

/// The same from the metrics.
fn counted(registry: &Registry) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for family in registry.gather() {
        let labels: &[&str] = match family.name() {
            "tidegate_requests_total" => &["object", "class"],
            "tidegate_requests_by_reason_total" => &["reason"],
            _ => continue,
        };
        for metric in family.get_metric() {
            let value = |name: &&str| metric.get_label().iter().find(|label| label.name() == *name).map(|l| l.value());
            let key = labels.iter().filter_map(value).collect::<Vec<_>>().join(" ");
            counts.insert(key, metric.get_counter().get_value() as u64);
        }
    }
    counts.retain(|_, count| *count > 0);
    counts
}

/// The case with an id by which its log line can be found.
fn named(number: usize, case: &Case) -> Case {
    let (bytes, id) = (case.bytes(), format!("X-Request-Id: case-{number}\r\n"));
    let end = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let pieces = vec![[&bytes[..end], id.as_bytes(), &bytes[end..]].concat()];
    Case { pieces, ..case.clone() }
}

/// The id of a case.
fn id(case: &Case) -> String {
    let text = String::from_utf8_lossy(&case.pieces[0]).into_owned();
    text.lines().find_map(|line| line.strip_prefix("X-Request-Id: ")).unwrap_or_default().to_owned()
}

fn shown(line: &Value, name: &str) -> String {
    match name {
        "upstream" | "upstream_first_byte_ms" => (!line[name].is_null()).to_string(),
        // How many bytes of a truncated response are sent, or of a too large body are read, is a race.
        "bytes_in" if line["reason"] == "body-too-large" => String::new(),
        // The native driver reads nothing of a body that no endpoint takes; the Pingora driver has begun to read it.
        "bytes_in" if line["reason"] == "connect-failed" => String::new(),
        "bytes_out" if line["reason"] == "upstream-broken" => String::new(),
        // The flush points of compressed bodies depend on the received pieces.
        "bytes_out" if line["host"] == "z.test" => String::new(),
        _ => line[name].to_string(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_drivers_log_the_same() {
    check(Over::Tcp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_drivers_log_the_same_over_http2() {
    check(Over::Http2).await;
}

async fn check(over: Over) {
    let _turn = TURN.acquire().await.unwrap();
    let plain =
        |case: &Case| case.native && !case.bytes().to_ascii_lowercase().windows(12).any(|w| w == b"x-request-id");
    let cases = corpus::all().into_iter().enumerate().filter(|(_, case)| plain(case)).step_by(5);
    let mut cases: Vec<Case> = cases.map(|(number, case)| named(number, &case)).collect();
    // How much of a body is read after an early answer is a race, and lax chunks are listed in decision 0015.
    cases.retain(|case| !case.is_answered_early());
    cases.retain(|case| !over.is_http2() || !http2::requests(case).is_empty());
    assert!(cases.len() > 200, "{} cases", cases.len());
    let (native, full) = tokio::join!(Logged::start(Driver::Both, over), Logged::start(Driver::Pingora, over));
    let (native, full) = tokio::join!(native.play(&cases), full.play(&cases));
    let missing = |lines: &BTreeMap<String, Value>| {
        let ids = cases.iter().map(id).filter(|id| !lines.contains_key(id));
        ids.collect::<Vec<_>>()
    };
    assert_eq!([missing(&native), missing(&full)], [const { Vec::<String>::new() }; 2]);
    // A difference that decision 0015 lists: requests that only the native driver refuses.
    let listed = |one: &Value, other: &Value| {
        // Over HTTP/2 the Pingora driver aborts a switch of protocols.
        let sent_on = [101, 200, if over.is_http2() { 499 } else { 101 }];
        one["status"] == 502 && sent_on.iter().any(|status| other["status"] == *status)
    };
    let alike = native.iter().zip(full.values()).filter(|((_, one), other)| !listed(one, other));
    let differ = alike.flat_map(|((id, one), other)| {
        let texts = FIELDS.iter().map(move |name| (name, shown(one, name), shown(other, name)));
        texts
            .filter(|(_, one, other)| one != other)
            .map(move |(name, one, other)| format!("{id}, {name}: {one}, and {other}"))
    });
    let differ: Vec<String> = differ.collect();
    assert!(differ.is_empty(), "{} differences\n{}", differ.len(), differ.join("\n"));
}
