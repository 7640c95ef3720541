//! File descriptors: requests that take connections to endpoints leave descriptors for the clients of others, and for
//! the pages that tell whether the process is healthy.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use futures::future::join_all;
use http::Method;
use tidegate_tests::moment;
use tokio::time::sleep;

use crate::edge::{Driver, Edge};
use crate::endpoint::{Endpoint, Step};
use crate::honest::{Given, Honest, Tally, is_served};
use crate::streams::hold;

/// The limit of open files of the process.
const OPEN_FILES: u32 = 1500;
/// Connections of the attacker, each with 128 requests: more requests than files.
const CONNECTIONS: usize = 14;
const ATTACK: Duration = Duration::from_secs(7);
/// A health page is asked for by kubelets with a deadline of a second.
const PAGE_MAX: Duration = Duration::from_secs(1);
/// A client of another tenant that waits for longer is kept out, though it may be answered when the attack is over.
const HANG: Duration = Duration::from_secs(3);

/// Requests whose bodies go on for ever.
pub(crate) async fn endless_posts_leave_descriptors_for_others(driver: Driver) {
    descriptors_are_left(driver, Method::POST).await;
}

/// Requests that are over, at an endpoint that says nothing.
pub(crate) async fn slow_endpoints_leave_descriptors_for_others(driver: Driver) {
    descriptors_are_left(driver, Method::GET).await;
}

async fn descriptors_are_left(driver: Driver, method: Method) {
    let (a, b) = (Endpoint::start(|_| vec![Step::Hold]).await, Endpoint::honest("b").await);
    let edge = Edge::limited(driver, &[("a", &a), ("b", &b)], Some(OPEN_FILES)).await;
    let over = AtomicBool::new(false);
    let attack = async {
        join_all((0..CONNECTIONS).map(|_| hold(edge.http(), method.clone(), "/slow", ATTACK))).await;
        over.store(true, Relaxed);
    };
    let kept = ask_until(&over, Honest::new(edge.http(), "b"), false);
    let new = ask_until(&over, Honest::new(edge.http(), "b"), true);
    let ((), kept, new, pages) = tokio::join!(attack, kept, new, poll_until(&over, &edge));

    println!(
        "{driver:?}, {method}: {} connections at the endpoint; own answers and refusals: {} and {} on a kept connection, {} \
         and {} on new ones; {} pages",
        a.connections(),
        kept.own,
        kept.refused,
        new.own,
        new.refused,
        pages.own
    );
    let log = edge.process_log();
    let short = ["os error 24", "Too many open files", "EMFILE"].iter().find(|text| log.contains(**text));
    let wrong = [("a kept connection", &kept), ("new connections", &new), ("the admin address", &pages)];
    let wrong: Vec<String> = wrong
        .iter()
        .filter(|(_, tally)| !tally.wrong.is_empty() || tally.own + tally.refused == 0)
        .map(|(name, tally)| format!("{name}: {} wrong: {:#?}", tally.wrong.len(), tally.wrong))
        .collect();
    assert!(wrong.is_empty() && short.is_none(), "{}\n{short:?} in the log", wrong.join("\n"));
    is_served(edge.http(), "b", 5).await;
}

/// Asks every 50 ms on a connection that is kept, or on a new one each time.
async fn ask_until(over: &AtomicBool, mut client: Honest, new: bool) -> Tally {
    let mut tally = Tally::default();
    while !over.load(Relaxed) {
        let begun = moment();
        let given = if new { client.ask_on_a_new_connection().await } else { client.ask().await };
        let time = begun.elapsed();
        tally.add(if time > HANG { Given::Wrong(format!("{given:?} after {time:?}")) } else { given }, time);
        sleep(Duration::from_millis(50)).await;
    }
    tally
}

/// Asks for the pages of the admin address, each of which has to be 200 in time.
async fn poll_until(over: &AtomicBool, edge: &Edge) -> Tally {
    let mut tally = Tally::default();
    while !over.load(Relaxed) {
        for page in ["/healthz", "/readyz", "/metrics"] {
            match edge.admin(page, PAGE_MAX).await {
                Ok(answer) if answer.status == 200 => tally.own += 1,
                Ok(answer) => tally.wrong.push(format!("{page}: {}", answer.status)),
                Err(error) => tally.wrong.push(error),
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
    tally.wrong.truncate(20);
    tally
}
