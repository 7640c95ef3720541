//! Several replicas in one process, each with its own counters and its own connection to one real server.

use std::collections::HashMap;

use prometheus::Registry;
use redis::AsyncCommands as _;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::server::Server;
use super::*;
use crate::clock;
use crate::limit::tests::{limit, limit_by_value};
use crate::limit::{Counters, LimitCharge, LimitDecision, Values};
use crate::observe::limit_metrics::LimitMetrics;
use crate::options::{CounterLimits, Secret, StoreNode, StoreSecrets};
use crate::sweep_trigger::SweepTrigger;

const HOUR_MS: u64 = 3_600_000;

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Outcome {
    Passed,
    Limited,
    Uncounted,
}

use Outcome::{Limited, Passed, Uncounted};

struct Replica {
    counters: Counters,
    task: JoinHandle<()>,
    stop: CancellationToken,
}

/// A store on this port of loopback.
pub(super) fn options(port: u16, away: StoreAway, cluster: bool) -> LimitStore {
    LimitStore {
        nodes: vec![StoreNode { host: "127.0.0.1".to_owned(), port }],
        cluster,
        tls: false,
        user: None,
        database: 0,
        prefix: "test".to_owned(),
        hash_key: Secret::default(),
        secrets: Arc::new(|| Ok(StoreSecrets::default())),
        away,
    }
}

impl Replica {
    fn start(port: u16, away: StoreAway) -> Self {
        Self::start_with(port, away, false)
    }

    fn start_with(port: u16, away: StoreAway, cluster: bool) -> Self {
        let (registry, sweep_trigger) = (Registry::new(), Arc::new(SweepTrigger::default()));
        let metrics = Arc::new(LimitMetrics::register(&registry, Arc::clone(&sweep_trigger)).unwrap());
        let store = options(port, away, cluster);
        let counters = Counters::new(CounterLimits::default(), clock::now(), metrics, sweep_trigger);
        let counters = counters.shared_in(store, LimitStoreMetrics::register(&registry).unwrap());
        let stop = CancellationToken::new();
        let task = tokio::spawn(counters.store_task().unwrap().run(stop.clone()));
        Self { counters, task, stop }
    }

    fn store(&self) -> &Store {
        self.counters.store.as_ref().unwrap()
    }

    fn values(&self, text: &str) -> Values {
        if text.is_empty() {
            return Values::Shared;
        }
        let mut values = self.counters.values();
        values.add(text);
        values.finish()
    }

    fn charges<'l>(&self, limits: &[(&'l Limit, &str)]) -> Vec<LimitCharge<'l>> {
        limits.iter().map(|(limit, values)| LimitCharge { limit, values: self.values(values) }).collect()
    }

    /// A request that waits for the store as long as any does.
    async fn request(&self, limits: &[(&Limit, &str)]) -> Outcome {
        let (charges, mut until) = (self.charges(limits), None);
        loop {
            match self.counters.decide(&charges, clock::now(), until) {
                Ok(LimitDecision { refused_by: Some(_), .. }) => return Limited,
                Ok(LimitDecision { is_uncounted: true, .. }) => return Uncounted,
                Ok(LimitDecision { .. }) => return Passed,
                Err(wait) => {
                    assert!(until.is_none_or(|until| until == wait.until()), "the wait begins again");
                    until = Some(wait.until());
                    wait.refilled().await;
                }
            }
        }
    }

    /// So many requests, one after the other.
    async fn requests(&self, count: usize, limits: &[(&Limit, &str)]) -> HashMap<Outcome, usize> {
        let mut outcomes = HashMap::new();
        for _ in 0..count {
            *outcomes.entry(self.request(limits).await).or_default() += 1;
        }
        outcomes
    }

    /// Ends it in order: what it has not used is given back.
    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

/// Waits until a condition holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = clock::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(clock::now() < deadline, "{what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Three replicas that know each other.
async fn three(port: u16, away: StoreAway) -> [Replica; 3] {
    let replicas = [(); 3].map(|()| Replica::start(port, away));
    for replica in &replicas {
        until("replicas know each other", async || {
            replica.store().is_up.load(Ordering::Relaxed) && replica.store().replicas.load(Ordering::Relaxed) == 3
        })
        .await;
    }
    replicas
}

async fn is_up(replicas: &[Replica], want: bool) {
    for replica in replicas {
        until("the state of the store", async || replica.store().is_up.load(Ordering::Relaxed) == want).await;
    }
}

/// All requests that the store has counted.
async fn counted(server: &Server) -> u32 {
    let mut at = server.connect().await;
    let keys: Vec<String> = at.keys("test:c:*").await.unwrap();
    let mut all = 0;
    for key in keys {
        all += at.hget::<_, _, u32>(key, "n").await.unwrap();
    }
    all
}

#[tokio::test]
async fn three_replicas_admit_the_maximum_and_no_request_more() {
    let Some(server) = Server::start().await else { return };
    let replicas = three(server.port, StoreAway::Refuse).await;
    for (limit, value) in [(limit("all", &[(100, HOUR_MS)]), ""), (limit_by_value("each", &[(50, HOUR_MS)]), "a")] {
        let max = limit.rates[0].max as usize;
        let mut passed = 0;
        // What one has not used goes to the others after a second. That the store answers too late for some requests
        // changes nothing.
        until("all pass", async || {
            for replica in &replicas {
                passed += usize::from(replica.request(&[(&limit, value)]).await == Passed);
            }
            passed >= max
        })
        .await;
        for replica in &replicas {
            passed += replica.requests(50, &[(&limit, value)]).await.get(&Passed).copied().unwrap_or(0);
        }
        assert_eq!(passed, max);
    }
    for replica in replicas {
        replica.end().await;
    }
    assert_eq!(counted(&server).await, 150);
}

/// The wide limit counts what the narrow one lets pass, and no request that it refuses.
#[tokio::test]
async fn a_request_is_counted_in_all_limits_or_in_none() {
    let Some(server) = Server::start().await else { return };
    let replicas = three(server.port, StoreAway::Refuse).await;
    let (wide, narrow) =
        (limit("wide", &[(1000, HOUR_MS), (500, HOUR_MS / 2)]), limit_by_value("narrow", &[(7, HOUR_MS)]));
    let mut passed = 0;
    until("all values are exhausted", async || {
        for replica in &replicas {
            for value in ["a", "b", "c"] {
                passed += usize::from(replica.request(&[(&wide, ""), (&narrow, value)]).await == Passed);
            }
        }
        passed >= 21
    })
    .await;
    for replica in &replicas {
        let outcomes = replica.requests(20, &[(&wide, ""), (&narrow, "b")]).await;
        assert_eq!(outcomes.get(&Passed), None, "{outcomes:?}");
    }
    for replica in replicas {
        replica.end().await;
    }
    // Of each of the three windows.
    assert_eq!(counted(&server).await, 3 * 21);
}

/// A flood that one limit refuses makes no counters of the others, in the store or here.
#[tokio::test]
async fn a_refused_request_asks_the_store_for_nothing() {
    let Some(server) = Server::start().await else { return };
    let replicas = three(server.port, StoreAway::Refuse).await;
    let (narrow, each) = (limit("narrow", &[(1, HOUR_MS)]), limit_by_value("each", &[(5, HOUR_MS)]));
    let replica = &replicas[0];
    let is_refused = |limits: &[(&Limit, &str)], now| {
        let decided = replica.counters.decide(&replica.charges(limits), now, None);
        decided.is_ok_and(|decision| decision.refused_by.is_some())
    };
    let mut now = clock::now();
    until("it is exhausted", async || {
        replica.request(&[(&narrow, "")]).await;
        now = clock::now();
        is_refused(&[(&narrow, "")], now)
    })
    .await;
    // All at the same time, at which it need not ask again.
    for value in 0..200 {
        assert!(is_refused(&[(&each, &value.to_string()), (&narrow, "")], now));
    }
    for replica in replicas {
        replica.end().await;
    }
    let keys: Vec<String> = server.connect().await.keys("test:c:*").await.unwrap();
    assert_eq!(keys.len(), 1, "{keys:?}");
}

#[tokio::test]
async fn a_lease_that_is_not_used_is_given_back_within_a_second() {
    let Some(server) = Server::start().await else { return };
    let replicas = three(server.port, StoreAway::Refuse).await;
    let all = limit("all", &[(90, HOUR_MS)]);
    until("a request passes", async || replicas[0].request(&[(&all, "")]).await == Passed).await;
    assert!(counted(&server).await > 1);
    until("the rest is given back", async || counted(&server).await == 1).await;
    // Nor is it lost, although its counter was removed.
    let each = limit_by_value("each", &[(90, HOUR_MS)]);
    until("a request passes", async || replicas[0].request(&[(&each, "a")]).await == Passed).await;
    replicas[0].counters.sweep_unnamed(std::iter::empty());
    replicas[0].counters.sweep_unnamed(std::iter::empty());
    until("the rest is given back", async || counted(&server).await == 2).await;
}

/// At most `max` + (N - 1) × the part of one pass in a window in which the store goes away: here, all of it first by
/// one replica, and then their parts by the others.
#[tokio::test]
async fn without_the_store_each_replica_has_its_part() {
    let Some(server) = Server::start().await else { return };
    let replicas = three(server.port, StoreAway::Divide).await;
    let (all, few) = (limit("all", &[(100, HOUR_MS)]), limit("few", &[(2, HOUR_MS)]));
    let mut passed = 0;
    until("one has all", async || {
        passed += usize::from(replicas[0].request(&[(&all, "")]).await == Passed);
        passed >= 100
    })
    .await;
    // It may have counted some alone, when the store was late.
    assert_eq!(passed, 100);
    let port = server.port;
    drop(server);
    is_up(&replicas, false).await;
    let mut more = 0;
    for replica in &replicas {
        more += replica.requests(100, &[(&all, "")]).await.get(&Passed).copied().unwrap_or(0);
        // At least one, however small the maximum.
        assert_eq!(replica.requests(9, &[(&few, "")]).await, HashMap::from([(Passed, 1), (Limited, 8)]));
    }
    assert_eq!(more, 2 * 33);
    // A store that has lost its counts learns what they were while it was away.
    let server = Server::start_at(port).await.unwrap();
    is_up(&replicas, true).await;
    for replica in &replicas[1..] {
        until("it is reported", async || {
            replica.request(&[(&all, "")]).await;
            replica.store().replicas.load(Ordering::Relaxed) == 3 && counted(&server).await >= 66
        })
        .await;
    }
}

#[tokio::test]
async fn without_the_store_requests_are_refused_if_that_is_wanted() {
    let Some(server) = Server::start().await else { return };
    let replicas = three(server.port, StoreAway::Refuse).await;
    let (all, shadow) = (limit("all", &[(100, HOUR_MS)]), limit("shadow", &[(100, HOUR_MS)]));
    let shadow = Limit { shadow: true, ..shadow };
    until("one passes", async || replicas[0].request(&[(&all, "")]).await == Passed).await;
    drop(server);
    is_up(&replicas, false).await;
    // What was granted before is used up; nothing is admitted beyond it.
    let outcomes = replicas[0].requests(100, &[(&all, "")]).await;
    assert!(outcomes[&Passed] < 16 && outcomes[&Uncounted] > 80, "{outcomes:?}");
    assert_eq!(replicas[1].requests(5, &[(&all, "")]).await, HashMap::from([(Uncounted, 5)]));
    // Nothing is refused for the sake of a limit in shadow mode, or of a maximum of 0.
    assert_eq!(replicas[1].requests(5, &[(&shadow, "")]).await, HashMap::from([(Passed, 5)]));
    assert_eq!(replicas[1].request(&[(&limit("none", &[(0, HOUR_MS)]), "")]).await, Limited);
}

#[tokio::test]
async fn a_store_that_hangs_is_away_and_comes_back() {
    let Some(server) = Server::start().await else { return };
    let replicas = three(server.port, StoreAway::Divide).await;
    let all = limit("all", &[(30, HOUR_MS)]);
    server.signal("STOP");
    let mut passed = 0;
    for replica in &replicas {
        passed += replica.requests(50, &[(&all, "")]).await.get(&Passed).copied().unwrap_or(0);
    }
    assert_eq!(passed, 30);
    is_up(&replicas, false).await;
    server.signal("CONT");
    is_up(&replicas, true).await;
    // The first to come back reports its own requests, and not yet those of the others.
    until("all is reported", async || {
        let mut more = 0;
        for replica in &replicas {
            more += usize::from(replica.request(&[(&all, "")]).await == Passed);
        }
        passed += more;
        more == 0 && counted(&server).await >= 30
    })
    .await;
    assert!(passed <= 30 + 2 * 10, "{passed}");
}

/// A window that is too short for a lease is divided even while the store answers.
#[tokio::test]
async fn very_short_windows_are_divided() {
    let Some(server) = Server::start().await else { return };
    let replicas = three(server.port, StoreAway::Refuse).await;
    let short = limit("short", &[(9, 99)]);
    for replica in &replicas {
        let began = clock::now();
        let passed = replica.requests(50, &[(&short, "")]).await[&Passed];
        let windows = began.elapsed().as_millis() / 99 + 1;
        assert!(passed >= 3 && passed as u128 <= 3 * windows, "{passed} in {windows}");
    }
    assert_eq!(counted(&server).await, 0);
}

/// Each counter is a key of its own, on whichever node.
#[tokio::test]
async fn a_cluster_is_a_store_too() {
    let Some(server) = Server::start_cluster().await else { return };
    let replica = Replica::start_with(server.port, StoreAway::Refuse, true);
    let limits: Vec<Limit> = (0..5).map(|n| limit(&n.to_string(), &[(7, HOUR_MS)])).collect();
    let mut passed = 0;
    until("all pass", async || {
        for limit in &limits {
            passed += usize::from(replica.request(&[(limit, "")]).await == Passed);
        }
        passed >= 35
    })
    .await;
    assert_eq!(passed, 35);
    replica.end().await;
    assert_eq!(counted(&server).await, 35);
}
