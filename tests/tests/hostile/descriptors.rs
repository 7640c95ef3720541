//! File descriptors: requests that take connections to endpoints leave descriptors for other clients, and for the
//! health pages.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use futures::future::join_all;
use http::Method;
use tidegate_tests::{eventually, moment};
use tokio::time::sleep;

use crate::edge::{Driver, Edge};
use crate::endpoint::{Endpoint, Step};
use crate::health::{self, were_prompt};
use crate::honest::{Given, Honest, Tally, is_served};
use crate::streams::{ATTACKER, hold};

/// The limit of open files of the process.
const OPEN_FILES: u32 = 1500;
/// The number of the attacker's connections, each with 128 requests: more requests than files.
const CONNECTIONS: u8 = 14;
const ATTACK: Duration = Duration::from_secs(7);
/// Kubelets request a health page with a deadline of a second.
const PAGE_MAX: Duration = Duration::from_secs(1);
/// The time after which a client of another tenant counts as denied service, even if it is answered after the attack.
const HANG: Duration = Duration::from_secs(3);

/// Requests of one address whose bodies never end.
pub(crate) async fn endless_posts_leave_descriptors_for_others(driver: Driver) {
    others_are_served(driver, Method::POST).await;
}

/// Complete requests of one address, at an endpoint that does not respond.
pub(crate) async fn slow_endpoints_leave_descriptors_for_others(driver: Driver) {
    others_are_served(driver, Method::GET).await;
}

async fn others_are_served(driver: Driver, method: Method) {
    let played = play(driver, |_| (ATTACKER, method.clone())).await;
    let tallies = [("a kept connection", &played.kept), ("new connections", &played.new), ("pages", &played.pages)];
    let wrong: Vec<String> = tallies.iter().filter_map(|(name, tally)| complaint(name, tally)).collect();
    assert!(wrong.is_empty() && played.short.is_none(), "{}\n{:?} in the log", wrong.join("\n"), played.short);
    // One address gets a share of the places, and the rest serves others.
    for (name, tally) in tallies {
        assert!(tally.own > 0 && tally.refused == 0, "{name}: {} own answers, {} refused", tally.own, tally.refused);
    }
    were_prompt(&played.health);
}

/// If each connection of the attacker has an address of its own, no limit per address holds, and clients may be refused
/// in any way; the process keeps descriptors for its own pages all the same.
pub(crate) async fn many_addresses_leave_descriptors_for_the_process(driver: Driver) {
    let played = play(driver, |number| {
        let source = IpAddr::V4(Ipv4Addr::new(127, 0, 1, number));
        (source, if number % 2 == 0 { Method::POST } else { Method::GET })
    })
    .await;
    let wrong = complaint("pages", &played.pages);
    assert!(wrong.is_none() && played.short.is_none(), "{wrong:?}\n{:?} in the log", played.short);
    were_prompt(&played.health);
}

/// The wrong answers of a tally, or the lack of any answer.
fn complaint(name: &str, tally: &Tally) -> Option<String> {
    let right = tally.wrong.is_empty() && tally.own + tally.refused > 0;
    (!right).then(|| format!("{name}: {} wrong: {:#?}", tally.wrong.len(), tally.wrong))
}

/// The answers during an attack.
struct Played {
    /// Those of another tenant's client that keeps its connection.
    kept: Tally,
    /// Those of another tenant's client that opens a connection for each request.
    new: Tally,
    /// Those of the admin address.
    pages: Tally,
    /// The times of its health pages.
    health: Vec<Duration>,
    /// The line of the process's log that reports a lack of descriptors.
    short: Option<&'static str>,
}

/// Plays the attack, whose connections have these addresses and methods. Afterwards the other tenant has to be served.
async fn play(driver: Driver, connection: impl Fn(u8) -> (IpAddr, Method)) -> Played {
    let (a, b) = (Endpoint::start(|_| vec![Step::Hold]).await, Endpoint::honest("b").await);
    let edge = Edge::limited(driver, &[("a", &a), ("b", &b)], Some(OPEN_FILES)).await;
    let over = AtomicBool::new(false);
    let attack = async {
        let one = |number| {
            let (source, method) = connection(number);
            hold(source, edge.http(), method, ATTACK)
        };
        join_all((0..CONNECTIONS).map(one)).await;
        over.store(true, Relaxed);
    };
    let kept = ask_until(&over, Honest::new(edge.http(), "b"), false);
    let new = ask_until(&over, Honest::new(edge.http(), "b"), true);
    let ((), kept, new, (pages, health)) = tokio::join!(attack, kept, new, poll_until(&over, &edge));
    println!(
        "{driver:?}: {} connections at the endpoint; own answers, refusals and others: {} on a kept connection, {} on new \
         ones, {} pages",
        a.connections(),
        counts(&kept),
        counts(&new),
        counts(&pages)
    );
    let log = edge.process_log();
    let short = ["os error 24", "Too many open files", "EMFILE"].into_iter().find(|text| log.contains(text));
    eventually("the other tenant is served again", || async {
        let given = Honest::new(edge.http(), "b").ask().await;
        if matches!(given, Given::Own) { Ok(()) } else { Err(format!("{given:?}")) }
    })
    .await;
    is_served(edge.http(), "b", 5).await;
    Played { kept, new, pages, health, short }
}

fn counts(tally: &Tally) -> String {
    format!("{}, {} and {}", tally.own, tally.refused, tally.wrong.len())
}

/// Sends a request every 50 ms on a connection that is kept, or on a new one each time.
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

/// Requests the pages of the admin address, each of which has to be 200 in time; returns the times of the health pages
/// as well.
async fn poll_until(over: &AtomicBool, edge: &Edge) -> (Tally, Vec<Duration>) {
    let (mut tally, mut health) = (Tally::default(), Vec::new());
    while !over.load(Relaxed) {
        let metrics = async {
            let answer = edge.admin("/metrics", PAGE_MAX).await?;
            if answer.status == 200 { Ok(()) } else { Err(format!("/metrics: {}", answer.status)) }
        };
        for page in [metrics.await, health::ask(edge, PAGE_MAX, &mut health).await] {
            match page {
                Ok(()) => tally.own += 1,
                Err(error) => tally.wrong.push(error),
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
    tally.wrong.truncate(20);
    (tally, health)
}
