//! The pages of the admin address: kubelets restart a process whose pages are late, so they answer quickly whatever
//! goes on beside them.

use std::time::Duration;

use tidegate_tests::moment;
use tokio::time::sleep;

use crate::edge::Edge;
use crate::mixed::quantile;

const PAGES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];
/// The 99th percentile of the pages' times in the best of three rounds: other processes of the machine may spoil some.
const P99_MAX_MS: f64 = 100.0;
const ROUNDS: usize = 3;
/// The number of requests for each page in a round, and the pause after all of them.
const ROUND: usize = 20;
const PAUSE: Duration = Duration::from_millis(20);

/// Requests all pages; adds their times.
pub(crate) async fn ask(edge: &Edge, within: Duration, times: &mut Vec<Duration>) -> Result<(), String> {
    for page in PAGES {
        let begun = moment();
        let answer = edge.admin(page, within).await?;
        times.push(begun.elapsed());
        if answer.status != 200 {
            return Err(format!("{page}: {}", answer.status));
        }
    }
    Ok(())
}

/// Checks the times of an attack, as three rounds one after the other.
#[track_caller]
pub(crate) fn were_prompt(times: &[Duration]) {
    let round = times.len() / ROUNDS;
    assert!(round >= PAGES.len(), "only {} times", times.len());
    let p99s: Vec<f64> = times.chunks(round).take(ROUNDS).map(|round| quantile(&mut round.to_vec(), 0.99)).collect();
    let median = quantile(&mut times.to_vec(), 0.5);
    println!("pages of the admin address: median {median:.1} ms, p99 of each round {p99s:.1?} ms");
    assert!(p99s.iter().any(|p99| *p99 < P99_MAX_MS), "p99 of each round: {p99s:?} ms");
    assert!(median < P99_MAX_MS, "median: {median} ms");
}

/// The same for rounds of their own, beside what is held meanwhile.
pub(crate) async fn are_prompt(edge: &Edge, within: Duration) {
    let mut times = Vec::new();
    for _ in 0..ROUNDS * ROUND {
        ask(edge, within, &mut times).await.expect("a page");
        sleep(PAUSE).await;
    }
    were_prompt(&times);
}
