//! Each fault of the table against the whole control loop, with the client and the limits of production, once for each
//! scope. One [`TICK`] of simulated time takes a millisecond.
//!
//! A case begins with a loop that is ready. Then the server closes all connections, the fault begins, and the cluster
//! changes unseen: one shop is deleted, one is created, one moves, and one gets another certificate. A minute later the
//! fault ends.

mod case;
mod cluster;
mod credentials;
mod scope;
mod table;

use std::time::Duration;

use tidegate_config::object::Kind;
use tidegate_control::Limits;

use super::MS;
use case::{Case, Outcome};
use scope::Scope;
use table::{Row, table, written};

const TICK: Duration = Duration::from_millis(50);
/// The number of cases that run at the same time. With many more, the work of a millisecond takes several, while the
/// clock advances.
const AT_ONCE: usize = 16;
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/faults.md");

#[test]
fn every_fault_recovers_without_lost_or_stale_routes() {
    let of = |scope| table().into_iter().map(move |row| (row, scope));
    let (mut cases, mut problems) = (Scope::ALL.into_iter().flat_map(of).collect::<Vec<_>>(), Vec::new());
    while !cases.is_empty() {
        let some = cases.split_off(cases.len().saturating_sub(AT_ONCE));
        let named = |(row, scope): (Row, Scope)| {
            let name = format!("{}, {}", row.name, scope.as_str());
            (name, std::thread::spawn(move || run(row, scope)))
        };
        let running: Vec<_> = some.into_iter().map(named).collect();
        for (name, thread) in running {
            let outcome = thread.join().unwrap_or_else(|_| panic!("{name}: the case panicked"));
            let Outcome { requests, connections, recovered, apart, .. } = outcome;
            println!(
                "{name}: requests {requests}, connections {connections}, recovered {recovered:?}, apart {apart:?}"
            );
            problems.extend(outcome.problems.into_iter().map(|problem| format!("{name}: {problem}")));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// `UPDATE_GOLDEN=1` rewrites the table.
#[test]
fn the_faults_page_shows_the_table() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let from = page.find("\n|---").map(|at| at + 1).expect("a table");
    let from = from + page[from..].find('\n').unwrap() + 1;
    let to = from + page[from..].find("\n\n").map_or(page.len() - from, |end| end + 1);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(PAGE, [&page[..from], &written(), &page[to..]].concat()).unwrap();
        return;
    }
    assert!(page[from..to] == written(), "docs/faults.md is not current: run with UPDATE_GOLDEN=1");
}

#[test]
fn drift_is_found_repaired_and_counted() {
    hurried(async {
        let row = table().remove(0);
        let mut case =
            Case::start(row, Scope::Everything, Limits { relist_interval: MS(60_000), ..Limits::default() }).await;
        case.ready().await;
        {
            let mut server = case.server.lock().await;
            server.cluster.silently(|cluster| {
                cluster.delete(Kind::Ingress, "h23");
                cluster.ingress("new", "h00");
            });
            server.cluster.ingress("later", "h01");
        }
        case.look_on(MS(10_000)).await;
        assert_eq!((case.served("later"), case.served("new"), case.served("h23")), (Some(1), None, Some(23)));
        case.look_on(Duration::from_secs(95)).await;
        assert_eq!((case.served("later"), case.served("new"), case.served("h23")), (Some(1), Some(0), None));
        let generation = *case.view.generation().borrow();
        case.look_on(Duration::from_secs(95)).await;
        assert_eq!(*case.view.generation().borrow(), generation, "nothing had drifted");
        assert_eq!(case.problems, Vec::<String>::new());
        let sum = |family: &str, label: &str| {
            let families = case.registry.gather();
            let metrics = families.iter().filter(|it| it.name() == family).flat_map(|it| it.get_metric());
            let labelled = metrics.filter(|metric| metric.get_label().iter().any(|it| it.value() == label));
            labelled.map(|metric| metric.get_counter().get_value()).sum::<f64>()
        };
        let drift = Kind::ALL.map(|kind| (kind, sum("tidegate_drift_total", kind.as_str())));
        assert_eq!(drift, Kind::ALL.map(|kind| (kind, if kind == Kind::Ingress { 2.0 } else { 0.0 })));
        assert!(sum("tidegate_lists_total", "periodic") >= 10.0, "two for each kind");
    });
}

fn run(row: Row, scope: Scope) -> Outcome {
    let limits = Limits::default();
    let relist_interval = row.lists_due.unwrap_or(limits.relist_interval);
    hurried(async { Case::start(row, scope, Limits { relist_interval, ..limits }).await.play().await })
}

fn hurried<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        tokio::spawn(hurry());
        future.await
    })
}

/// Accelerates time: a tick passes after a millisecond in which the runtime was nearly idle. On a busy machine the
/// clock waits. Tokio's clock stands while it is paused and a blocking task runs, so that the work of the kernel on
/// loopback takes almost no simulated time.
#[allow(clippy::disallowed_methods, reason = "this is what a blocking task is for")]
async fn hurry() {
    let metrics = tokio::runtime::Handle::current().metrics();
    let mut busy = metrics.worker_total_busy_duration(0);
    loop {
        tokio::task::spawn_blocking(|| std::thread::sleep(MS(1))).await.unwrap();
        let now = metrics.worker_total_busy_duration(0);
        if now - busy < MS(1) / 4 {
            tokio::time::advance(TICK).await;
        }
        busy = now;
    }
}
