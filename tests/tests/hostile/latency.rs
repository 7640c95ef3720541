//! The times of honest clients while each attack runs alone: through both drivers, and through nginx and HAProxy with
//! the same tenants behind them.

use std::time::Duration;

use futures::future::join_all;
use tidegate_tests::moment;

use crate::attack::{ATTACKS, Attack, Target, endpoint, play};
use crate::edge::{Driver, Edge, resident_kib};
use crate::endpoint::Endpoint;
use crate::front::{Front, Proxy};
use crate::honest::{Honest, Tally};
use crate::mixed::{ask_until, quantile};

/// Honest clients.
const CLIENTS: usize = 4;
/// No attack, for comparison.
const NONE: Attack = ("none", |_| Box::pin(async {}));

/// The time of each attack.
#[allow(clippy::disallowed_methods, reason = "how long it runs comes from the environment")]
fn time() -> Duration {
    let seconds = std::env::var("HOSTILE_SECONDS").ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(5.0);
    Duration::from_secs_f64(seconds.clamp(0.1, 600.0))
}

/// A proxy that is measured.
struct Subject {
    name: &'static str,
    target: Target,
    process: u32,
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes HOSTILE_SECONDS for each attack and proxy, 5 without it; .ci/full runs it, and .ci/run a short form"]
async fn honest_clients_are_measured_under_each_attack() {
    let (a, b) = (endpoint().await, Endpoint::honest("b").await);
    let tenants = [("a", &a), ("b", &b)];
    let edges = [Edge::start(Driver::Both, &tenants).await, Edge::start(Driver::Pingora, &tenants).await];
    let routes = [("a.test", a.address()), ("b.test", b.address())];
    let fronts = [Front::start(Proxy::Nginx, &routes).await, Front::start(Proxy::Haproxy, &routes).await];
    let of_edge = |name, edge: &Edge| Subject {
        name,
        target: Target { http1: edge.http(), http2: edge.http() },
        process: edge.process(),
    };
    let mut subjects = vec![of_edge("tidegate", &edges[0]), of_edge("tidegate, Pingora alone", &edges[1])];
    for (name, front) in ["nginx", "HAProxy"].into_iter().zip(&fronts) {
        let Some(front) = front else { continue };
        let target = Target { http1: front.http1, http2: front.http2 };
        subjects.push(Subject { name, target, process: front.process() });
    }
    let names: Vec<&str> = subjects.iter().map(|subject| subject.name).collect();
    println!(
        "\nown answers in {:?}, p50 and p99 in ms, resident MiB afterwards\n\n| attack | {} |",
        time(),
        names.join(" | ")
    );
    println!("|--|{}", "--|".repeat(names.len()));
    for attack in [NONE].into_iter().chain(ATTACKS) {
        let mut row = format!("| {} |", attack.0);
        for subject in &subjects {
            let (cell, own, wrong) = measured(subject, attack).await;
            row += &format!(" {cell} |");
            // Wrong answers of the other proxies are their own matter.
            assert!(
                wrong.is_empty() && own > 0 || !subject.name.starts_with("tidegate"),
                "{}, {}: {own} own answers, {wrong:#?}",
                subject.name,
                attack.0
            );
        }
        println!("{row}");
    }
}

/// The cell of a proxy under an attack, the number of own answers, and the wrong ones.
async fn measured(subject: &Subject, attack: Attack) -> (String, u64, Vec<String>) {
    let until = moment() + time();
    let mut clients: Vec<Honest> = (0..CLIENTS).map(|_| Honest::new(subject.target.http1, "b")).collect();
    let traffic = join_all(clients.iter_mut().map(|client| ask_until(client, until)));
    let (_, tallies) = tokio::join!(play(attack, subject.target, until), traffic);
    let mut tally = Tally::default();
    tallies.into_iter().for_each(|one| tally.merge(one));
    let (p50, p99) = (quantile(&mut tally.times, 0.5), quantile(&mut tally.times, 0.99));
    let resident = resident_kib(subject.process).unwrap_or(0) / 1024;
    let failed = if tally.wrong.is_empty() { String::new() } else { format!(", {} failed", tally.wrong.len()) };
    let Tally { own, refused, wrong, .. } = tally;
    let refused = if refused == 0 { String::new() } else { format!(", {refused} refused") };
    (format!("{own}: {p50:.1} / {p99:.1}, {resident}{refused}{failed}"), own, wrong)
}
