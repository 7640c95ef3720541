//! The scripts, as a real server runs them.

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, cmd};

use super::super::script::{Granted, Return, Wanted, give_back, grant, present};
use super::server::Server;

const WINDOW_MS: u64 = 600_000;

/// Asks for a maximum with so many replicas, and with so many requests that were admitted without the store.
async fn ask(at: &mut MultiplexedConnection, key: &str, max: u32, [replicas, alone]: [u32; 2]) -> Granted {
    grant(at, key, Wanted { max, window_ms: WINDOW_MS, replicas, alone }).await.unwrap()
}

/// Asks one after the other; each row has what is granted, and what is left.
async fn check(at: &mut MultiplexedConnection, key: &str, rows: &[(u32, [u32; 2], [u32; 2])]) {
    for (max, about, want) in rows {
        let got = ask(at, key, *max, *about).await;
        assert_eq!([got.count, got.beyond], *want, "{key}: max {max}, replicas and alone {about:?}");
        assert!((1..=WINDOW_MS).contains(&got.ends_in_ms), "{got:?}");
    }
}

#[tokio::test]
async fn grants_are_half_of_the_part_that_is_left_and_never_more_than_the_maximum() {
    let Some(server) = Server::start().await else { return };
    let at = &mut server.connect().await;
    // One replica: 50, 25, 12, 6, 3, 2, 1, 1.
    let mut granted = Vec::new();
    while granted.iter().sum::<u32>() < 100 {
        granted.push(ask(at, "one", 100, [1, 0]).await.count);
    }
    assert_eq!(granted, [50, 25, 12, 6, 3, 2, 1, 1]);
    check(at, "one", &[(100, [1, 0], [0, 0])]).await;
    // A new maximum keeps the count.
    check(at, "one", &[(102, [1, 0], [1, 1]), (90, [1, 0], [0, 0])]).await;
    check(at, "three", &[(100, [3, 0], [16, 84]), (100, [3, 0], [14, 70]), (100, [1, 0], [35, 35])]).await;
    check(at, "few", &[(2, [3, 0], [1, 1]), (2, [3, 0], [1, 0]), (2, [3, 0], [0, 0])]).await;
    check(at, "most", &[(u32::MAX, [1, 0], [2_147_483_647, 2_147_483_648])]).await;
    check(at, "none", &[(0, [1, 0], [0, 0])]).await;
    assert!(!at.exists::<_, bool>("none").await.unwrap());
}

#[tokio::test]
async fn requests_that_were_admitted_without_the_store_count() {
    let Some(server) = Server::start().await else { return };
    let at = &mut server.connect().await;
    check(at, "alone", &[(100, [1, 40], [30, 30]), (100, [1, 50], [0, 0]), (200, [1, 0], [40, 40])]).await;
    check(at, "more", &[(10, [2, 30], [0, 0]), (31, [2, 0], [1, 0])]).await;
}

#[tokio::test]
async fn a_window_begins_with_the_first_grant_and_ends_with_its_key() {
    let Some(server) = Server::start().await else { return };
    let at = &mut server.connect().await;
    let first = ask(at, "w", 10, [1, 0]).await;
    let second = ask(at, "w", 10, [1, 0]).await;
    assert_eq!(first.began, second.began);
    assert!(second.ends_in_ms <= first.ends_in_ms);
    // As when the window is over.
    at.del::<_, ()>("w").await.unwrap();
    let third = ask(at, "w", 10, [1, 0]).await;
    assert_eq!((third.count, third.beyond), (5, 5));
    assert!(third.began > first.began);
    // A key that lost its expiry gets one again.
    at.persist::<_, ()>("w").await.unwrap();
    let fourth = ask(at, "w", 10, [1, 0]).await;
    assert_eq!(fourth.ends_in_ms, WINDOW_MS);
    assert!(at.pttl::<_, i64>("w").await.unwrap() > 0);
    let short = Wanted { max: 10, window_ms: 100, replicas: 1, alone: 0 };
    let before = grant(at, "short", short).await.unwrap();
    let mut after = before.clone();
    while after.began == before.began {
        after = grant(at, "short", short).await.unwrap();
    }
    assert_eq!((after.count, after.beyond), (5, 5));
}

#[tokio::test]
async fn only_requests_of_the_window_that_runs_are_given_back() {
    let Some(server) = Server::start().await else { return };
    let at = &mut server.connect().await;
    let first = ask(at, "k", 10, [1, 0]).await;
    let a = Return { began: first.began, count: 4, replica: "a", number: 1 };
    assert_eq!(give_back(at, "k", a).await.unwrap(), 4);
    check(at, "k", &[(10, [1, 0], [4, 5])]).await;
    let a = Return { number: 2, ..a };
    assert_eq!(give_back(at, "k", Return { began: first.began + 1, ..a }).await.unwrap(), 0);
    assert_eq!(give_back(at, "gone", a).await.unwrap(), 0);
    // Not more than was granted.
    assert_eq!(give_back(at, "k", Return { count: 100, ..a }).await.unwrap(), 5);
    check(at, "k", &[(10, [1, 0], [5, 5])]).await;
    assert!(at.pttl::<_, i64>("k").await.unwrap() > 0);
}

/// As when the answer of a node of a cluster is lost, and the client sends the command again.
#[tokio::test]
async fn requests_that_are_given_back_twice_count_once() {
    let Some(server) = Server::start().await else { return };
    let at = &mut server.connect().await;
    let began = ask(at, "k", 100, [1, 0]).await.began;
    let from = |replica, number| Return { began, count: 3, replica, number };
    let rows = [("a", 1, 3), ("a", 1, 0), ("b", 1, 3), ("a", 1, 0), ("a", 3, 3), ("a", 2, 0), ("b", 1, 0), ("b", 9, 3)];
    for (replica, number, want) in rows {
        assert_eq!(give_back(at, "k", from(replica, number)).await.unwrap(), want, "{replica} {number}");
    }
    assert_eq!(at.hget::<_, _, u32>("k", "n").await.unwrap(), 50 - 4 * 3);
    // Their numbers end with the window.
    at.del::<_, ()>("k").await.unwrap();
    let began = ask(at, "k", 100, [1, 0]).await.began;
    assert_eq!(give_back(at, "k", Return { began, ..from("a", 1) }).await.unwrap(), 3);
}

#[tokio::test]
async fn replicas_are_counted_until_they_leave_or_say_nothing() {
    let Some(server) = Server::start().await else { return };
    let at = &mut server.connect().await;
    for (replica, ms, want) in [("a", 60_000, 1), ("b", 60_000, 2), ("a", 60_000, 2), ("c", 60_000, 3), ("b", 0, 2)] {
        assert_eq!(present(at, "r", replica, ms).await.unwrap(), want, "{replica} for {ms} ms");
    }
    assert!(at.pttl::<_, i64>("r").await.unwrap() > 0);
    assert_eq!(present(at, "r", "short", 1).await.unwrap(), 3);
    while present(at, "r", "a", 60_000).await.unwrap() > 2 {}
}

/// A server that has lost its scripts, as after a restart, gets them again.
#[tokio::test]
async fn scripts_are_loaded_when_they_are_missing() {
    let Some(server) = Server::start().await else { return };
    let at = &mut server.connect().await;
    assert_eq!(ask(at, "k", 10, [1, 0]).await.count, 5);
    cmd("SCRIPT").arg("FLUSH").exec_async(at).await.unwrap();
    assert_eq!(ask(at, "k", 10, [1, 0]).await.count, 2);
}
