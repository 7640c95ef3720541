//! Response heads that are large, endless, or expensive to parse: the edge refuses them before they affect another
//! tenant.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use tidegate_tests::{eventually, moment};

use crate::edge::{Driver, Edge};
use crate::endpoint::{Endpoint, Step, path, send};
use crate::honest::is_served;
use crate::raw::Client;

/// The size of a head that fits into the edge's limit, and of one that fits into Pingora's.
const WORDS_BYTES: [usize; 2] = [60 * 1024, 1_048_530];
/// The sizes of heads that never end; the larger one exceeds Pingora's limit.
const ENDLESS_BYTES: [usize; 2] = [1_000_000, 2 << 20];
/// The number of worst responses in the memory test, and their maximum total time.
const WORST: u64 = 1000;
const WORST_TIME_MAX: Duration = Duration::from_secs(25);
/// The time in which a process releases memory that it no longer uses.
const SETTLE: Duration = Duration::from_secs(2);
/// The number of clients that request them at the same time.
const WORST_CLIENTS: usize = 32;

/// The maximum number of different names that a response may nominate in `Connection`.
const NAMES_MAX: usize = 32;
/// The number of lines in responses with many words: as many as may be.
const LINES: usize = 128;
/// The size of a `Connection` line that fits into the edge's limit, and the maximum mean time of such a response.
const REPEATED_BYTES: usize = 60 * 1024;
const REPEATED_TIME_MAX: Duration = Duration::from_millis(150);

/// A response with as many lines as may be, with this value of `Connection`.
fn nominating(value: &str) -> Bytes {
    let lines: String = (2..LINES).map(|number| format!("n{number}: y\r\n")).collect();
    Bytes::from(format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: {value}\r\n{lines}\r\nok"))
}

/// This many different names, of which most are lines of the response.
fn names(count: usize) -> String {
    (2..count + 2).map(|number| format!("n{number}")).collect::<Vec<_>>().join(", ")
}

/// A response of this many bytes whose `Connection` line repeats a name, with more lines than may be.
fn words(bytes: usize) -> Bytes {
    let (begin, end) = ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: ", "b: y\r\n".repeat(250) + "\r\nok");
    let mut text = begin.to_owned();
    while text.len() + end.len() + 4 <= bytes {
        text.push_str("a,");
    }
    Bytes::from(format!("{text}a\r\n{end}"))
}

/// The endpoint's side. The bytes are generated once.
pub(crate) fn script(head: &str) -> Option<Vec<Step>> {
    static MADE: OnceLock<[[Bytes; 2]; 3]> = OnceLock::new();
    let [many_words, endless, empty_lines] = MADE.get_or_init(|| {
        let endless = |bytes: usize| Bytes::from(format!("HTTP/1.1 200 OK\r\nX-Long: {}", "a".repeat(bytes)));
        let empty_lines = |bytes: usize| Bytes::from("\r\n".repeat(bytes / 2));
        [WORDS_BYTES.map(words), ENDLESS_BYTES.map(endless), ENDLESS_BYTES.map(empty_lines)]
    });
    Some(match path(head) {
        "/words/small" => vec![Step::Send(many_words[0].clone())],
        "/words/large" => vec![Step::Send(many_words[1].clone())],
        "/names/max" => vec![Step::Send(nominating(&names(NAMES_MAX)))],
        "/names/more" => vec![Step::Send(nominating(&names(NAMES_MAX + 1)))],
        "/names/repeated" => vec![Step::Send(nominating(&"a,".repeat(REPEATED_BYTES / 2)))],
        "/endless/small" => vec![Step::Send(endless[0].clone()), Step::Hold],
        "/endless/large" => vec![Step::Send(endless[1].clone()), Step::Hold],
        "/empty/small" => vec![Step::Send(empty_lines[0].clone()), send("HTTP/1.1 204 No Content\r\n\r\n"), Step::Hold],
        "/empty/large" => vec![Step::Send(empty_lines[1].clone()), send("HTTP/1.1 204 No Content\r\n\r\n"), Step::Hold],
        // A head in pieces of 32 bytes, each of which may make a reader begin again. Most of it are long lines.
        "/trickle" => {
            let line = Bytes::from(format!("X: {}\r\n", "a".repeat(27)));
            let piece = |times, bytes| Step::Repeat { bytes, times, pause: Duration::ZERO };
            vec![
                send("HTTP/1.1 200 OK\r\nX: "),
                piece(1800, Bytes::from("a".repeat(32))),
                send("\r\n"),
                piece(50, line),
                Step::Hold,
            ]
        }
        // Two bytes at a time, each of which may make a reader begin again.
        "/empty/slow" => {
            vec![Step::Repeat { bytes: Bytes::from_static(b"\r\n"), times: 3000, pause: Duration::from_millis(1) }]
        }
        _ => return None,
    })
}

async fn endpoint() -> Endpoint {
    Endpoint::start(|head| script(head).unwrap_or_else(|| vec![Step::Close])).await
}

/// Requests a path of tenant `a` on a connection of its own; returns the status, or 0 without a response.
async fn status(edge: &Edge, path: &str) -> u16 {
    let Ok(mut client) = Client::connect(edge.http()).await else { return 0 };
    let response = client.ask(format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n")).await;
    response.map_or(0, |response| response.status())
}

/// Four clients request such heads while a client of another tenant sends 40 requests.
pub(crate) async fn many_lines_and_connection_words_are_502_while_others_are_served(driver: Driver) {
    let (a, b) = (endpoint().await, Endpoint::honest("b").await);
    let edge = Edge::start(driver, &[("a", &a), ("b", &b)]).await;
    let attack = |path: &'static str| {
        let edge = &edge;
        async move {
            for _ in 0..8 {
                let status = status(edge, path).await;
                assert_eq!(status, 502, "{path}");
            }
        }
    };
    let attacks = join_all(["/words/small", "/words/large", "/words/small", "/words/large"].map(attack));
    tokio::join!(attacks, is_served(edge.http(), "b", 40));
    eventually("each is counted", || async {
        let count = edge.answered("upstream-broken").await;
        if count >= 32 { Ok(()) } else { Err(format!("{count} of 32")) }
    })
    .await;
}

pub(crate) async fn more_than_32_connection_names_are_502(driver: Driver) {
    let a = endpoint().await;
    let edge = Edge::start(driver, &[("a", &a)]).await;
    for _ in 0..5 {
        assert_eq!(status(&edge, "/names/max").await, 200);
        assert_eq!(status(&edge, "/names/more").await, 502);
    }
}

/// The names are looked up once for each line, so a name costs nothing more when it is repeated.
pub(crate) async fn many_repetitions_of_a_name_cost_little(driver: Driver) {
    const COUNT: u32 = 20;
    let (a, b) = (endpoint().await, Endpoint::honest("b").await);
    let edge = Edge::start(driver, &[("a", &a), ("b", &b)]).await;
    // The best of three rounds: other processes of the machine may spoil some.
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let begun = moment();
        for _ in 0..COUNT {
            assert_eq!(status(&edge, "/names/repeated").await, 200);
        }
        best = best.min(begun.elapsed() / COUNT);
    }
    println!("{driver:?}: {best:?} for a response that repeats a name");
    assert!(best <= REPEATED_TIME_MAX, "{best:?}");
    is_served(edge.http(), "b", 5).await;
}

pub(crate) async fn an_endless_head_is_502(driver: Driver) {
    refused(driver, ["/endless/small", "/endless/large"]).await;
}

pub(crate) async fn empty_lines_before_a_status_line_are_502(driver: Driver) {
    refused(driver, ["/empty/small", "/empty/large"]).await;
}

async fn refused(driver: Driver, [small, large]: [&str; 2]) {
    let (a, b) = (endpoint().await, Endpoint::honest("b").await);
    let edge = Edge::start(driver, &[("a", &a), ("b", &b)]).await;
    let attacks = join_all([small, large, small, large].map(|path| status(&edge, path)));
    let (statuses, ()) = tokio::join!(attacks, is_served(edge.http(), "b", 20));
    assert_eq!(statuses, [502; 4]);
}

/// Requests this number of the worst responses, unless that takes too long; returns the number received.
async fn worst(edge: &Edge, count: u64) -> u64 {
    let (until, asked) = (moment() + WORST_TIME_MAX, AtomicU64::new(0));
    let attack = |_| async {
        for path in ["/words/large", "/endless/large", "/empty/large", "/words/small"].iter().cycle() {
            if asked.fetch_add(1, Relaxed) >= count || moment() > until {
                return;
            }
            status(edge, path).await;
        }
    };
    join_all((0..WORST_CLIENTS).map(attack)).await;
    asked.load(Relaxed).min(count)
}

/// The process returns the memory of a thousand of them: it keeps 5 % more than after a first round at most.
pub(crate) async fn the_worst_heads_leave_no_memory_behind(driver: Driver) {
    let (a, b) = (endpoint().await, Endpoint::honest("b").await);
    let edge = Edge::start(driver, &[("a", &a), ("b", &b)]).await;
    is_served(edge.http(), "b", 200).await;
    // The first round fills the buffers for reuse and the slack of the allocator.
    worst(&edge, WORST / 2).await;
    tokio::time::sleep(SETTLE).await;
    let before = edge.resident_kib();
    let asked = worst(&edge, WORST).await;
    let most = before + before / 20;
    let mut after = edge.resident_kib();
    for _ in 0..100 {
        if after <= most {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        after = edge.resident_kib();
    }
    println!("{driver:?}: {before} KiB before, {after} KiB after {asked} of the worst heads");
    assert!(asked >= WORST / 2, "only {asked} responses in {WORST_TIME_MAX:?}");
    assert!(after <= most, "{before} KiB before, {after} KiB after {asked} responses");
    is_served(edge.http(), "b", 5).await;
}
