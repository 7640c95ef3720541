//! All attacks as rounds of a few seconds, against the edge or against another proxy in its place.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use http::{Method, Request};
use tidegate_tests::moment;
use tokio::time::{sleep, timeout};

use crate::endpoint::{Endpoint, Step, ordinary, path, send};
use crate::raw::Client;
use crate::streams::{ATTACKER, SLOW, STREAMS, Streams, hold};
use crate::{bodiless, codings, framing, heads, message_ends, resets, targets};

/// The maximum time of one round, and the pause before the next.
const ROUND: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(50);
/// Bytes of a response that its reader does not read.
const LARGE_BYTES: usize = 4 << 20;

/// Bytes of a header in a large head.
const LARGE_HEAD_BYTES: usize = 60_000;

/// The proxy under attack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Its address of HTTP/1.1.
    pub(crate) http1: SocketAddr,
    /// Its address of HTTP/2 by prior knowledge.
    pub(crate) http2: SocketAddr,
}

/// An attack: its name and one round of it.
pub(crate) type Attack = (&'static str, fn(Target) -> BoxFuture<'static, ()>);

/// All of them.
pub(crate) const ATTACKS: [Attack; 17] = [
    ("unknown codings", |target| requests(target, codings()).boxed()),
    ("Connection words, 60 KiB", |target| requests(target, vec![get("/words/small"); 8]).boxed()),
    ("Connection words, 1 MiB", |target| requests(target, vec![get("/words/large"); 4]).boxed()),
    ("endless heads", |target| requests(target, vec![get("/endless/large"); 4]).boxed()),
    ("heads in small pieces", |target| requests(target, vec![get("/trickle"); 4]).boxed()),
    ("empty lines", |target| requests(target, vec![get("/empty/slow"), get("/empty/large")]).boxed()),
    ("endless posts", |target| held(target, Method::POST).boxed()),
    ("slow endpoints", |target| held(target, Method::GET).boxed()),
    ("silent connections", |target| silent(target).boxed()),
    ("resets", |target| resets(target).boxed()),
    ("doubtful framing", |target| requests(target, framing::paths().map(|path| get(&path)).collect()).boxed()),
    ("ambiguous requests", |target| requests(target, targets::requests()).boxed()),
    ("late bodies", |target| requests(target, bodiless::requests().to_vec()).boxed()),
    ("slow readers", |target| slow_readers(target).boxed()),
    ("unread answers", |target| unread_answers(target).boxed()),
    ("unfinished heads", |target| unfinished_heads(target).boxed()),
    ("ends of bodies", |target| ends_of_bodies(target).boxed()),
];

/// The endpoint for all of them.
pub(crate) async fn endpoint() -> Endpoint {
    let large = bytes::Bytes::from(vec![b'a'; LARGE_BYTES]);
    Endpoint::start(move |head| {
        let known = codings::script(head)
            .or_else(|| framing::script(head))
            .or_else(|| heads::script(head))
            .or_else(|| bodiless::script(head, Some(Duration::from_micros(300))));
        match (known, path(head)) {
            (Some(steps), _) => steps,
            (None, SLOW) => vec![Step::Hold],
            (None, "/large") => {
                vec![
                    send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE_BYTES}\r\n\r\n")),
                    Step::Send(large.clone()),
                ]
            }
            (None, _) => vec![ordinary("hostile")],
        }
    })
    .await
}

/// Plays rounds of one attack until the time is over; returns their number.
pub(crate) async fn play((_, round): Attack, target: Target, until: Instant) -> u64 {
    let mut rounds = 0;
    while moment() < until {
        // Some end by themselves; the others are cut.
        let most = ROUND + Duration::from_secs(2);
        drop(timeout(most.min(until.saturating_duration_since(moment())), round(target)).await);
        sleep(PAUSE).await;
        rounds += 1;
    }
    rounds
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n")
}

fn codings() -> Vec<String> {
    (0..codings::CODINGS.len()).map(|number| codings::request(number, codings::TO_FULL)).collect()
}

/// Sends each request on a connection of its own and reads the answer, if there is one.
async fn requests(target: Target, requests: Vec<String>) {
    let one = async |request: String| {
        let Ok(mut client) = Client::connect(target.http1).await else { return };
        if client.send(request).await.is_ok() {
            let (_, _) = client.rest(ROUND).await;
        }
    };
    join_all(requests.into_iter().map(one)).await;
}

/// Four connections of HTTP/2 with as many requests as they may have.
async fn held(target: Target, method: Method) {
    join_all((0..4).map(|_| hold(ATTACKER, target.http2, method.clone(), ROUND))).await;
}

/// Three hundred connections of one address that are silent, or send only the beginning of a head.
async fn silent(target: Target) {
    let mut open = Vec::new();
    for number in 0..300 {
        let Ok(mut client) = Client::connect_from(ATTACKER, target.http1).await else { continue };
        let sent = number % 2 == 0 || client.send("GET / HTTP/1.1\r\nHost: a.te").await.is_ok();
        if sent {
            open.push(client);
        }
    }
    sleep(ROUND / 2).await;
}

async fn resets(target: Target) {
    let (_, _) = resets::attack(target.http2, ROUND).await;
}

/// Bodies that end in every way, to the endpoint of an honest tenant, whose connections its own clients share.
async fn ends_of_bodies(target: Target) {
    let _answered = message_ends::attack(target.http2).await;
}

/// Requests with large heads for an unknown host, whose answers have no window.
async fn unread_answers(target: Target) {
    let mut held = Vec::new();
    let large = "x".repeat(LARGE_HEAD_BYTES);
    for _ in 0..4 {
        let Ok(mut streams) = Streams::connect(ATTACKER, target.http2, 0).await else { continue };
        let mut answers = Vec::new();
        for _ in 0..STREAMS - 1 {
            let request = Request::get("http://unknown.test/").header("x-large", &large).body(()).expect("a request");
            let Ok(one) = streams.send(request).await else { break };
            answers.push(one);
        }
        held.push((streams, answers));
    }
    sleep(ROUND / 2).await;
}

/// Connections that send a large head but not its end.
async fn unfinished_heads(target: Target) {
    let head = format!("GET / HTTP/1.1\r\nHost: a.test\r\nX-Large: {}", "x".repeat(LARGE_HEAD_BYTES));
    let mut open = Vec::new();
    for _ in 0..100 {
        let Ok(mut client) = Client::connect_from(ATTACKER, target.http1).await else { continue };
        if client.send(head.clone()).await.is_ok() {
            open.push(client);
        }
    }
    sleep(ROUND / 2).await;
}

/// Readers that request much and read none of it: a quarter of them over HTTP/1.1.
async fn slow_readers(target: Target) {
    let mut clients = Vec::new();
    for _ in 0..STREAMS / 4 {
        let Ok(mut client) = Client::connect(target.http1).await else { continue };
        if client.send(get("/large")).await.is_ok() {
            clients.push(client);
        }
    }
    let mut held = Vec::new();
    if let Ok(mut streams) = Streams::connect(ATTACKER, target.http2, 0).await {
        for _ in 0..STREAMS {
            let Ok(one) = streams.open(&Method::GET, "/large").await else { break };
            held.push(one);
        }
        sleep(ROUND).await;
    }
}
