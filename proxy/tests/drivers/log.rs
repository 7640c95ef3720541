//! What the two drivers write down of the same requests.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use tidegate_config::model::BindProtocol;
use tidegate_proxy::{AccessLogSink, Driver};

use super::case::Case;
use super::corpus;
use super::run::{QUIET, TURN};
use super::side::Side;

/// What is the same whoever carries a request. Times, ids and ports are not, nor whether the pool had a connection.
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
    async fn start(driver: Driver) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sink = AccessLogSink::File(folder.path().join("access.log"));
        let side = Side::start(BindProtocol::Http, |options| {
            options.driver = driver;
            options.access_log = sink;
        });
        Self { side: side.await, folder }
    }

    /// Plays cases; what was written down of each, by id.
    async fn play(mut self, cases: &[Case]) -> BTreeMap<String, Value> {
        for case in cases {
            self.side.play(case, QUIET[0]).await;
        }
        let path = self.folder.path().join("access.log");
        // The end hands over what threads have gathered.
        self.side.end().await;
        lines(&path)
    }
}

/// The lines about cases.
fn lines(path: &Path) -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let by_id = all.map(|line| (line["request_id"].as_str().unwrap_or_default().to_owned(), line));
    by_id.filter(|(id, _)| id.starts_with("case-")).collect()
}

/// The case with an id that its line can be found by.
fn named(number: usize, case: &Case) -> Case {
    let (bytes, id) = (case.bytes(), format!("X-Request-Id: case-{number}\r\n"));
    let end = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let pieces = vec![[&bytes[..end], id.as_bytes(), &bytes[end..]].concat()];
    Case { pieces, ..case.clone() }
}

fn shown(line: &Value, name: &str) -> String {
    match name {
        "upstream" | "upstream_first_byte_ms" => (!line[name].is_null()).to_string(),
        // How much got through of what breaks off, or was read of what was too much, is a matter of time.
        "bytes_in" if line["reason"] == "body-too-large" => String::new(),
        "bytes_out" if line["reason"] == "upstream-broken" => String::new(),
        _ => line[name].to_string(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_drivers_write_down_the_same() {
    let _turn = TURN.acquire().await.unwrap();
    let plain = |case: &Case| case.lean && !case.bytes().to_ascii_lowercase().windows(12).any(|w| w == b"x-request-id");
    let cases = corpus::all().into_iter().enumerate().filter(|(_, case)| plain(case)).step_by(5);
    let cases: Vec<Case> = cases.map(|(number, case)| named(number, &case)).collect();
    assert!(cases.len() > 200, "{} cases", cases.len());
    let (lean, full) = tokio::join!(Logged::start(Driver::Both), Logged::start(Driver::Full));
    let (lean, full) = tokio::join!(lean.play(&cases), full.play(&cases));
    assert!(lean.len() == cases.len() && lean.keys().eq(full.keys()), "{} and {} lines", lean.len(), full.len());
    // Two of the differences that decision 0015 lists: what only the lean driver refuses, and what only the full one does.
    let listed = |one: &Value, other: &Value| {
        one["status"] == 502 && (other["status"] == 101 || other["status"] == 200)
            || other["reason"] == "malformed-request"
    };
    let alike = lean.iter().zip(full.values()).filter(|((_, one), other)| !listed(one, other));
    let differ = alike.flat_map(|((id, one), other)| {
        let texts = FIELDS.iter().map(move |name| (name, shown(one, name), shown(other, name)));
        texts
            .filter(|(_, one, other)| one != other)
            .map(move |(name, one, other)| format!("{id}, {name}: {one}, and {other}"))
    });
    let differ: Vec<String> = differ.collect();
    assert!(differ.is_empty(), "{} differences\n{}", differ.len(), differ.join("\n"));
}
