//! The arithmetic of leases, as tables.

use super::super::lease::Grant;
use super::*;

/// What happens to a lease at a time in ms.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The store grants so many, has so many left, and says when the window ends.
    Add(u32, u32, u64),
    /// So many requests are charged, and all pass.
    Charge(u32),
    /// One is charged and does not pass.
    Refused,
    /// So many are taken out, of which there are so many.
    TakeOut(u32, u32),
}

use Step::{Add, Charge, Refused, TakeOut};

const WINDOW_MS: u64 = 1000;
const RECHECK: u32 = 100;

/// A lease in words: its state, what was used, and whether it is refilled.
fn text(words: &LeaseWords, window: Window, now: Tick) -> String {
    let state = match words.state(window, now) {
        LeaseState::Held(left) => format!("held {} for {}", left.requests, left.time.as_millis()),
        LeaseState::Exhausted(left) => format!("exhausted for {}", left.time.as_millis()),
        LeaseState::Empty => "empty".to_owned(),
    };
    let refill = if words.is_low(now) { ", low" } else { "" };
    format!("{state}, used {}{refill}", words.used(now))
}

/// Each row is a time, what happens then, and the lease afterwards. All are played at once, and once more with times
/// around which ticks wrap.
#[track_caller]
fn check(rows: &[(u64, Step, &str)]) {
    for base in [0, (1 << u32::BITS) - 500] {
        let (words, window) = (LeaseWords::new(), Window::new(Duration::from_millis(WINDOW_MS)));
        for (ms, step, want) in rows {
            let tick = |ms: u64| window.tick(base + ms);
            let now = tick(*ms);
            match *step {
                Add(granted, beyond, end) => words.add(Grant { granted, beyond, end: tick(end) }, now, RECHECK),
                Charge(count) => (0..count).for_each(|_| assert!(words.charge(window, now).is_some(), "at {ms}")),
                Refused => assert_eq!(words.charge(window, now), None, "at {ms}"),
                TakeOut(most, want) => assert_eq!(words.take_out(most, now), want, "at {ms}"),
            }
            assert_eq!(text(&words, window, now), *want, "at {ms} after {step:?}, from {base}");
        }
    }
}

#[test]
fn a_lease_admits_what_was_granted_until_its_window_ends() {
    check(&[
        (0, Refused, "empty, used 0"),
        (5, Add(3, 10, 1000), "held 13 for 995, used 0"),
        (6, Charge(2), "held 11 for 994, used 2"),
        (7, Charge(1), "empty, used 3"),
        (8, Refused, "empty, used 3"),
        (10, Add(2, 8, 1003), "held 10 for 990, used 3"),
        (998, Charge(1), "held 9 for 2, used 4"),
        (1000, Refused, "empty, used 0"),
        (1001, Add(4, 9, 2001), "held 13 for 1000, used 0"),
        (1500, Charge(4), "empty, used 4, low"),
    ]);
}

#[test]
fn a_grant_that_comes_after_its_window_is_void() {
    check(&[(1000, Add(5, 5, 1000), "empty, used 0"), (1000, Refused, "empty, used 0")]);
    check(&[
        (0, Add(5, 5, 100), "held 10 for 100, used 0"),
        (150, Add(5, 0, 120), "empty, used 0"),
        (151, Add(5, 0, 1100), "held 5 for 949, used 0"),
    ]);
}

#[test]
fn an_exhausted_store_is_asked_again_after_a_while() {
    check(&[
        (0, Add(1, 0, 1000), "held 1 for 1000, used 0"),
        (0, Charge(1), "empty, used 1"),
        (10, Add(0, 0, 1000), "exhausted for 990, used 1"),
        (109, Refused, "exhausted for 891, used 1"),
        (110, Refused, "empty, used 1"),
        (111, Add(1, 0, 1000), "held 1 for 889, used 1"),
        (112, Charge(1), "empty, used 2"),
        (950, Add(0, 0, 1000), "exhausted for 50, used 2"),
        (1000, Refused, "empty, used 0"),
    ]);
}

#[test]
fn a_lease_of_some_size_is_refilled_before_it_is_empty() {
    check(&[
        (0, Add(12, 100, 1000), "held 112 for 1000, used 0"),
        (1, Charge(9), "held 103 for 999, used 9"),
        (2, Charge(1), "held 102 for 998, used 10, low"),
        (3, Add(8, 92, 1000), "held 102 for 997, used 10"),
        (4, Charge(9), "held 93 for 996, used 19, low"),
        // There is nothing more.
        (5, Add(4, 0, 1000), "held 5 for 995, used 19"),
        (6, Charge(5), "empty, used 24"),
    ]);
    // A small one is not, or whoever asks for little would always hold something.
    check(&[(0, Add(3, 100, 1000), "held 103 for 1000, used 0"), (1, Charge(3), "empty, used 3")]);
}

#[test]
fn what_is_given_back_was_not_used() {
    check(&[
        (0, Add(10, 50, 1000), "held 60 for 1000, used 0"),
        (1, Charge(4), "held 56 for 999, used 4"),
        (2, TakeOut(5, 5), "held 51 for 998, used 4, low"),
        (3, TakeOut(5, 1), "empty, used 4, low"),
        (4, TakeOut(5, 0), "empty, used 4, low"),
        (5, Refused, "empty, used 4, low"),
        (6, Add(2, 54, 1000), "held 56 for 994, used 4"),
        (1000, TakeOut(5, 0), "empty, used 0"),
    ]);
}

#[test]
fn a_request_is_taken_back_in_its_own_window_only() {
    let (words, window) = (LeaseWords::new(), Window::new(Duration::from_millis(WINDOW_MS)));
    let add = |at, end| words.add(Grant { granted: 1, beyond: 0, end: window.tick(end) }, window.tick(at), RECHECK);
    add(0, 1000);
    let (receipt, left) = words.charge(window, window.tick(1)).unwrap();
    assert_eq!(left, Left { requests: 0, time: Duration::from_millis(999) });
    words.take_back(receipt);
    let (receipt, _) = words.charge(window, window.tick(2)).unwrap();
    add(1000, 2000);
    words.take_back(receipt);
    assert!(words.charge(window, window.tick(1001)).is_some());
    assert!(words.charge(window, window.tick(1001)).is_none());
}

/// Without the sweeps, the end of so old a window would look like a future one.
#[test]
fn an_old_lease_is_forgotten_by_the_sweep() {
    let (words, window) = (LeaseWords::new(), Window::new(Duration::from_millis(WINDOW_MS)));
    words.add(Grant { granted: 5, beyond: 0, end: window.tick(1000) }, window.tick(0), RECHECK);
    words.reset_if_expired(window.tick(999));
    assert!(words.runs(window.tick(999)));
    words.reset_if_expired(window.tick(1000));
    assert!(!words.runs(window.tick(999)));
    assert_eq!(words.charge(window, window.tick((1 << 31) + 2000)), None);
}
