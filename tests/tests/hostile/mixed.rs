//! All attacks at once, for `HOSTILE_MINUTES`, beside the clients of two honest tenants.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, FutureExt, join_all};
use tidegate_tests::moment;
use tokio::time::sleep;

use crate::attack::{ATTACKS, Target, endpoint, play};
use crate::edge::{Driver, Edge, admin, resident_kib};
use crate::endpoint::Endpoint;
use crate::honest::{Honest, Tally};

/// The number of clients of each honest tenant, and the pause after each of their requests.
const CLIENTS: usize = 3;
const PACE: Duration = Duration::from_millis(20);
/// The limit of open files of the process, which the attacks together exceed.
const OPEN_FILES: u32 = 1500;
/// The deadline for a page of the admin address on a fully loaded machine.
const PAGE_MAX: Duration = Duration::from_secs(5);

#[allow(clippy::disallowed_methods, reason = "how long it runs comes from the environment")]
fn time() -> Duration {
    let minutes = std::env::var("HOSTILE_MINUTES").ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(30.0);
    Duration::from_secs_f64(minutes.clamp(0.1, 24.0 * 60.0) * 60.0)
}

/// A percentile of the sorted times, in milliseconds.
pub(crate) fn quantile(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index, rounded"
    )]
    let index = ((times.len().saturating_sub(1)) as f64 * share).round() as usize;
    times.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes HOSTILE_MINUTES, 30 without it; .ci/full runs it"]
async fn all_attacks_at_once_native_and_full() {
    all_attacks_at_once(Driver::Both).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes HOSTILE_MINUTES, 30 without it; .ci/full runs it"]
async fn all_attacks_at_once_full_alone() {
    all_attacks_at_once(Driver::Pingora).await;
}

async fn all_attacks_at_once(driver: Driver) {
    let (a, b, c) = (endpoint().await, Endpoint::honest("b").await, Endpoint::honest("c").await);
    let edge = Edge::limited(driver, &[("a", &a), ("b", &b), ("c", &c)], Some(OPEN_FILES)).await;
    let target = Target { http1: edge.http(), http2: edge.http() };
    let until = moment() + time();
    let over = AtomicBool::new(false);
    let attacks = async {
        let rounds = join_all(ATTACKS.map(|attack| play(attack, target, until))).await;
        over.store(true, Relaxed);
        rounds
    };
    let minutes = minutes(edge.http(), edge.process(), until);
    let (rounds, minutes, missed) = tokio::join!(attacks, minutes, pages_missed(&over, edge.admin_address()));

    println!("\n{driver:?}, all attacks at once\n\n{}", Minute::HEADER);
    for (number, minute) in minutes.iter().enumerate() {
        println!("{}", minute.row(number + 1));
    }
    let rounds: Vec<String> = ATTACKS.iter().zip(rounds).map(|((name, _), count)| format!("{name} {count}")).collect();
    println!("\nrounds of the attacks: {}", rounds.join(", "));
    let wrong: Vec<&String> = minutes.iter().flat_map(|minute| &minute.tally.wrong).collect();
    assert!(wrong.is_empty(), "wrong answers: {wrong:#?}");
    for (number, Minute { tally, .. }) in minutes.iter().enumerate() {
        let (own, refused) = (tally.own, tally.refused);
        assert!(own > 10 * refused, "minute {}: {own} own answers, {refused} refused", number + 1);
    }
    assert!(missed.is_empty(), "pages of the admin address: {missed:#?}");
    let resident: Vec<u64> = minutes.iter().flat_map(|minute| minute.resident_kib.iter().copied()).collect();
    is_flat(&resident);
}

/// Checks the samples after the first sixth: the last third of them is within a tenth of the first third. A run of less
/// than five minutes is too short to tell growth from the turns of the attacks, and only prints both.
fn is_flat(samples: &[u64]) {
    let warm = &samples[samples.len() / 6..];
    let third = warm.len() / 3;
    let most = |samples: &[u64]| samples.iter().copied().max().unwrap_or(0);
    let (first, last) = (most(&warm[..third]), most(&warm[warm.len() - third..]));
    println!("resident memory: at most {first} KiB in the first third, {last} KiB in the last");
    assert!(last <= first + first / 10 || samples.len() < 280, "resident memory grows from {first} KiB to {last} KiB");
}

/// One minute of honest traffic.
#[derive(Debug, Default)]
struct Minute {
    tally: Tally,
    /// One sample per second.
    resident_kib: Vec<u64>,
}

impl Minute {
    const HEADER: &str =
        "| minute | own answers | refused | wrong | p50 ms | p99 ms | resident MiB |\n|--:|--:|--:|--:|--:|--:|--:|";

    fn row(&self, number: usize) -> String {
        let mut times = self.tally.times.clone();
        let (p50, p99) = (quantile(&mut times, 0.5), quantile(&mut times, 0.99));
        let resident = self.resident_kib.iter().max().unwrap_or(&0) / 1024;
        let tally = &self.tally;
        format!(
            "| {number} | {} | {} | {} | {p50:.1} | {p99:.1} | {resident} |",
            tally.own,
            tally.refused,
            tally.wrong.len()
        )
    }
}

/// Honest traffic minute by minute.
async fn minutes(address: SocketAddr, process: u32, until: Instant) -> Vec<Minute> {
    let mut clients: Vec<Honest> =
        ["b", "c"].iter().flat_map(|tenant| (0..CLIENTS).map(|_| Honest::new(address, tenant))).collect();
    let mut minutes = Vec::new();
    while moment() < until {
        let end = until.min(moment() + Duration::from_secs(60));
        let traffic = join_all(clients.iter_mut().map(|client| ask_until(client, end)));
        let (tallies, resident_kib) = tokio::join!(traffic, resident_until(process, end));
        let mut minute = Minute { resident_kib, ..Minute::default() };
        tallies.into_iter().for_each(|tally| minute.tally.merge(tally));
        minutes.push(minute);
    }
    minutes
}

/// Sends requests until a time, at a fixed pace.
pub(crate) fn ask_until(client: &mut Honest, until: Instant) -> BoxFuture<'_, Tally> {
    async move {
        let mut tally = Tally::default();
        while moment() < until {
            tally.ask(client).await;
            sleep(PACE).await;
        }
        tally
    }
    .boxed()
}

async fn resident_until(process: u32, until: Instant) -> Vec<u64> {
    let mut samples = Vec::new();
    while moment() < until {
        samples.extend(resident_kib(process));
        sleep(Duration::from_secs(1)).await;
    }
    samples
}

/// The pages of the admin address that were not 200 in time.
async fn pages_missed(over: &AtomicBool, address: SocketAddr) -> Vec<String> {
    let mut missed = Vec::new();
    while !over.load(Relaxed) && missed.len() < 20 {
        for page in ["/healthz", "/readyz", "/metrics"] {
            match admin(address, page, PAGE_MAX).await {
                Ok(answer) if answer.status == 200 => {}
                Ok(answer) => missed.push(format!("{page}: {}", answer.status)),
                Err(error) => missed.push(error),
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
    missed
}
