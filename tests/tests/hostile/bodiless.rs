//! Bytes after a response without a body (HEAD, 204, 304): they belong to no response, and their connection serves no
//! further request.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::edge::{Driver, Edge};
use crate::endpoint::{Endpoint, Step, ordinary, path, send};
use crate::raw::Client;

/// Pairs of a bodiless response and a victim's request, for each kind of response.
const PAIRS: usize = 50;
/// How long the endpoint may take to send bytes, and the edge to see them.
const SENT_MAX: Duration = Duration::from_secs(10);
const ARRIVAL: Duration = Duration::from_millis(5);
/// A body that is a response itself.
const POISON: &str = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nPOISONED";
/// The heads of bodiless responses, with the methods that they answer.
const HEADS: [(&str, &str, &str); 3] = [
    ("HEAD", "/bodiless/head", "HTTP/1.1 200 OK\r\nContent-Length: 46\r\n\r\n"),
    ("GET", "/bodiless/204", "HTTP/1.1 204 No Content\r\n\r\n"),
    ("GET", "/bodiless/304", "HTTP/1.1 304 Not Modified\r\n\r\n"),
];

/// The endpoint's side: the head and the bytes after it in one write, or `late` in two.
pub(crate) fn script(head: &str, late: Option<Duration>) -> Option<Vec<Step>> {
    let (_, _, response) = HEADS.iter().find(|(_, of, _)| path(head) == *of)?;
    Some(match late {
        None => vec![send(format!("{response}{POISON}"))],
        Some(Duration::ZERO) => vec![send(*response), send(POISON)],
        Some(late) => vec![send(*response), Step::Wait(late), send(POISON)],
    })
}

/// The requests for them.
pub(crate) fn requests() -> [String; 3] {
    HEADS.map(|(method, path, _)| format!("{method} {path} HTTP/1.1\r\nHost: a.test\r\n\r\n"))
}

/// The timing of the bytes after a bodiless response, and of the next request.
#[derive(Clone, Copy, Debug)]
struct Course {
    /// The time from the head to the bytes after it; `None` for one write.
    late: Option<Duration>,
    /// Whether the next request comes only after these bytes have arrived.
    after: bool,
}

/// The answers to the next requests that were not their own, out of [`PAIRS`] for each kind. One connection asks for
/// both, so that one thread and its pool have both.
async fn victims(driver: Driver, course: Course) -> Vec<String> {
    let sent = Arc::new(Semaphore::new(0));
    let tell = Arc::clone(&sent);
    let a = Endpoint::start(move |head| match script(head, course.late) {
        Some(steps) => steps.into_iter().chain([Step::Tell(Arc::clone(&tell))]).collect(),
        None => vec![ordinary(&format!("own {}", path(head)))],
    })
    .await;
    let edge = Edge::start(driver, &[("a", &a)]).await;
    let mut poisoned = Vec::new();
    for request in requests() {
        let mut client = Client::connect(edge.http()).await.unwrap();
        for number in 0..PAIRS {
            let first = client.ask(&request).await.unwrap();
            if first.closes() {
                client = Client::connect(edge.http()).await.unwrap();
            }
            if course.after {
                timeout(SENT_MAX, sent.acquire()).await.expect("nothing is sent").unwrap().forget();
                sleep(ARRIVAL).await;
            }
            let next = client.ask(format!("GET /next/{number} HTTP/1.1\r\nHost: a.test\r\n\r\n")).await.unwrap();
            if next.text() != format!("own /next/{number}") {
                poisoned.push(format!("{}: {}{}", path(&request), next.head, next.text()));
            }
            if next.closes() {
                client = Client::connect(edge.http()).await.unwrap();
            }
        }
    }
    poisoned
}

/// Holds for bytes that the kernel has when the connection would be used again: those that come with the head, and late
/// ones before a later request. Other late bytes cannot be told from the next response; their victims are counted.
pub(crate) async fn body_bytes_after_a_bodiless_response_reach_no_other_client(driver: Driver) {
    for late in [Duration::ZERO, Duration::from_micros(300)] {
        let count = victims(driver, Course { late: Some(late), after: false }).await.len();
        println!("{driver:?}: {count} of {} next requests got bytes that came {late:?} after the head", 3 * PAIRS);
    }
    for course in [Course { late: None, after: false }, Course { late: Some(Duration::from_millis(1)), after: true }] {
        let poisoned = victims(driver, course).await;
        let example = poisoned.first().map_or("", |one| one);
        assert!(poisoned.is_empty(), "{course:?}: {} of {}: {example}", poisoned.len(), 3 * PAIRS);
    }
}
