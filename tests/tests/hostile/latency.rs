//! The times of honest clients while each attack runs alone: through both drivers, and through nginx and HAProxy with the
//! same tenants behind them.

use std::time::Duration;

use futures::future::join_all;
use tidegate_tests::moment;

use crate::attack::{ATTACKS, Attack, Target, endpoint, play};
use crate::edge::{Driver, Edge, resident_kib};
use crate::endpoint::Endpoint;
use crate::front::{Front, Proxy};
use crate::honest::{Honest, Tally};
use crate::mixed::{ask_until, quantile};

/// The time of each attack.
const TIME: Duration = Duration::from_secs(5);
/// Honest clients.
const CLIENTS: usize = 4;
/// No attack at all, to compare with.
const NONE: Attack = ("none", |_| Box::pin(async {}));

/// A proxy that is measured.
struct Subject {
    name: &'static str,
    target: Target,
    process: u32,
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes and measures; .ci/full runs it"]
async fn honest_clients_are_measured_under_each_attack() {
    let (a, b) = (endpoint().await, Endpoint::honest("b").await);
    let tenants = [("a", &a), ("b", &b)];
    let edges = [Edge::start(Driver::Both, &tenants).await, Edge::start(Driver::Full, &tenants).await];
    let routes = [("a.test", a.address()), ("b.test", b.address())];
    let fronts = [Front::start(Proxy::Nginx, &routes).await, Front::start(Proxy::Haproxy, &routes).await];
    let of_edge = |name, edge: &Edge| Subject {
        name,
        target: Target { http1: edge.http(), http2: edge.http() },
        process: edge.process(),
    };
    let mut subjects = vec![of_edge("tidegate", &edges[0]), of_edge("tidegate, full alone", &edges[1])];
    for (name, front) in ["nginx", "HAProxy"].into_iter().zip(&fronts) {
        let Some(front) = front else { continue };
        let target = Target { http1: front.http1, http2: front.http2 };
        subjects.push(Subject { name, target, process: front.process() });
    }
    let names: Vec<&str> = subjects.iter().map(|subject| subject.name).collect();
    println!(
        "\nown answers in {TIME:?}, p50 and p99 in ms, resident MiB afterwards\n\n| attack | {} |",
        names.join(" | ")
    );
    println!("|--|{}", "--|".repeat(names.len()));
    for attack in [NONE].into_iter().chain(ATTACKS) {
        let mut row = format!("| {} |", attack.0);
        for subject in &subjects {
            row += &format!(" {} |", measured(subject, attack).await);
        }
        println!("{row}");
    }
}

/// The cell of a proxy under an attack.
async fn measured(subject: &Subject, attack: Attack) -> String {
    let until = moment() + TIME;
    let mut clients: Vec<Honest> = (0..CLIENTS).map(|_| Honest::new(subject.target.http1, "b")).collect();
    let traffic = join_all(clients.iter_mut().map(|client| ask_until(client, until)));
    let (_, tallies) = tokio::join!(play(attack, subject.target, until), traffic);
    let mut tally = Tally::default();
    tallies.into_iter().for_each(|one| tally.merge(one));
    let (p50, p99) = (quantile(&mut tally.times, 0.5), quantile(&mut tally.times, 0.99));
    let resident = resident_kib(subject.process).unwrap_or(0) / 1024;
    let failed = if tally.wrong.is_empty() { String::new() } else { format!(", {} failed", tally.wrong.len()) };
    format!("{}: {p50:.1} / {p99:.1}, {resident}{failed}", tally.own)
}
