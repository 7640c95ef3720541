//! Tests of leases, of the scripts on a real server, and of several replicas that share one.

mod away;
mod lease;
mod replicas;
mod script;
mod server;

use super::super::values::Values;
use super::*;

/// A request does not wait longer, whatever becomes of the store.
#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_store_for_less_than_5_ms() {
    let (leases, began) = (two_leases(), tokio::time::Instant::now());
    assert!(leases.iter().all(|lease| lease.words.begin_asking()));
    let wait = LeaseWait::new(leases.iter().cloned().collect(), began.into_std(), None);
    wait.refilled().await;
    assert_eq!(began.elapsed(), WAIT_MAX);
    assert!(WAIT_MAX < Duration::from_millis(5));
    // A second wait of the same request ends with the first one.
    LeaseWait::new(leases.into_iter().collect(), wait.until(), Some(wait.until())).refilled().await;
    assert_eq!(began.elapsed(), WAIT_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_all_leases_are_answered_or_dropped() {
    let (leases, began) = (two_leases(), tokio::time::Instant::now());
    let asks = leases.iter().map(|lease| {
        assert!(lease.words.begin_asking() && !lease.words.begin_asking());
        Ask { lease: Arc::clone(lease), max: 1, alone: 0 }
    });
    let mut asks: Vec<Ask> = asks.collect();
    let wait = LeaseWait::new(leases.iter().cloned().collect(), began.into_std(), None);
    let answering = async {
        while let Some(ask) = asks.pop() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            drop(ask);
        }
    };
    tokio::join!(wait.refilled(), answering);
    assert_eq!(began.elapsed(), Duration::from_millis(2));
    wait.refilled().await;
    assert_eq!(began.elapsed(), Duration::from_millis(2));
}

fn two_leases() -> [Arc<Lease>; 2] {
    let limit = crate::limit::tests::limit("l", &[(1, 1000)]);
    let hash = hmac::Key::new(hmac::HMAC_SHA256, b"");
    let key = LimitKey::new(&hash, &limit, Duration::from_secs(1));
    [CounterValues::Overflow, CounterValues::Of(Values::Shared)].map(|values| {
        Arc::new(Lease {
            words: LeaseWords::new(),
            window: Window::new(Duration::from_secs(1)),
            window_ms: 1000,
            key: CounterKey { limit: key, values },
            reported: AtomicU64::new(0),
            carried: Carried::nothing(),
            began: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            refilled: Notify::new(),
        })
    })
}

/// Other replicas have the same keys, of this version and of later ones.
#[test]
fn keys_are_short_the_same_in_all_replicas_and_show_nothing() {
    let limit = crate::limit::tests::limit("login", &[(1, 1000)]);
    let name = |secret: &[u8], window_s, values| {
        let limit = LimitKey::new(&hmac::Key::new(hmac::HMAC_SHA256, secret), &limit, Duration::from_secs(window_s));
        CounterKey { limit, values }.name("edge")
    };
    let all = CounterValues::Of(Values::Shared);
    let first = name(b"", 1, all);
    assert_eq!(first, name(b"", 1, all));
    assert_eq!((first.len(), &first[..7], &first[39..]), (43, "edge:c:", ":all"));
    assert!(first != name(b"", 2, all) && first != name(b"key", 1, all));
    assert!(name(b"", 1, CounterValues::Of(Values::Failed)).ends_with(":failed"));
    assert!(name(b"", 1, CounterValues::Overflow).ends_with(":overflow"));
    let values = |secret: &[u8], parts: &[&str]| {
        let keys = super::super::values::ValueKeys::Shared(hmac::Key::new(hmac::HMAC_SHA256, secret));
        let mut values = keys.builder();
        parts.iter().for_each(|part| values.add(part));
        values.finish()
    };
    let address = name(b"", 1, CounterValues::Of(values(b"", &["192.0.2.1"])));
    assert!(address.len() == 56 && !address.contains("192"), "{address}");
    assert_eq!(values(b"", &["a", "bc"]), values(b"", &["a", "bc"]));
    for (secret, other) in [(&b""[..], &["ab", "c"][..]), (b"", &["a", "bc", ""]), (b"key", &["a", "bc"])] {
        assert_ne!(values(b"", &["a", "bc"]), values(secret, other), "{other:?}");
    }
}

#[test]
fn the_number_of_replicas_is_kept_for_a_while_after_the_store_was_away() {
    let (mut replicas, start) = (replicas_of_store(), crate::clock::now());
    let at = |s: u64| start + Duration::from_secs(s);
    assert_eq!(replicas.counted(3, at(0)), 3);
    assert_eq!(replicas.counted(2, at(1)), 2);
    replicas.counted(3, at(2));
    replicas.connected(at(10));
    assert_eq!([replicas.counted(1, at(10)), replicas.counted(4, at(14)), replicas.counted(0, at(14))], [3, 4, 3]);
    assert_eq!([replicas.counted(2, at(15)), replicas.counted(0, at(16))], [2, 1]);
}

const fn replicas_of_store() -> super::replicas::Replicas {
    super::replicas::Replicas::new()
}
