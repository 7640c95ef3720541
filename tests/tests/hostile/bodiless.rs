//! Bytes after a response without a body (HEAD, 204, 304): they belong to no response, and their connection serves no
//! further request.

use std::time::Duration;

use tokio::time::sleep;

use crate::edge::{Driver, Edge};
use crate::endpoint::{Endpoint, Step, ordinary, path, send};
use crate::raw::Client;

/// Pairs of a bodiless response and a victim's request, for each kind of response.
const PAIRS: usize = 50;
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
    /// The time from the response to the next request.
    pause: Duration,
}

/// The answers to the next requests that were not their own, out of [`PAIRS`] for each kind. One connection asks for both,
/// so that one thread and its pool have both.
async fn victims(driver: Driver, course: Course) -> Vec<String> {
    let a = Endpoint::start(move |head| {
        script(head, course.late).unwrap_or_else(|| vec![ordinary(&format!("own {}", path(head)))])
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
            sleep(course.pause).await;
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
    let soon = Duration::ZERO;
    for late in [Duration::ZERO, Duration::from_micros(300)] {
        let count = victims(driver, Course { late: Some(late), pause: soon }).await.len();
        println!("{driver:?}: {count} of {} next requests got bytes that came {late:?} after the head", 3 * PAIRS);
    }
    for course in [
        Course { late: None, pause: soon },
        Course { late: Some(Duration::from_millis(1)), pause: Duration::from_millis(20) },
    ] {
        let poisoned = victims(driver, course).await;
        let example = poisoned.first().map_or("", |one| one);
        assert!(poisoned.is_empty(), "{course:?}: {} of {}: {example}", poisoned.len(), 3 * PAIRS);
    }
}
