//! The lanes by example: which keys move, which lane has its turn, and how long a change may wait.

use std::time::Duration;

use tidegate_control::Lane::{Fast, Slow};
use tidegate_control::{Lane, LaneShares, Queue};

use crate::ops::SHARE;
use crate::{queue, start};

/// Compares the order of keys after these requests, if each key is finished at once.
#[track_caller]
fn check(asked: &[(&'static str, Lane)], want: &[&str]) {
    let (mut queue, now) = (queue(), start());
    for (key, lane) in asked {
        queue.add(*key, *lane, u64::from(key.starts_with("silent")), now);
    }
    let mut got = Vec::new();
    while let Some(key) = queue.get(SHARE, now) {
        queue.done(&key, now);
        got.push(key);
    }
    assert_eq!(got, want);
}

#[test]
fn keys_move_up_and_keep_their_place() {
    check(&[("x", Slow), ("y", Slow), ("a", Fast), ("x", Fast)], &["a", "x", "y"]);
    check(&[("a", Fast), ("b", Fast), ("a", Slow)], &["a", "b"]);
    check(&[("a", Fast), ("b", Fast), ("a", Fast)], &["a", "b"]);
    check(&[("a", Slow), ("b", Slow), ("a", Slow)], &["a", "b"]);
    check(&[("silent a", Slow), ("b", Slow), ("silent c", Slow), ("d", Slow)], &["b", "d", "silent a", "silent c"]);
    check(&[("silent a", Fast), ("b", Fast)], &["silent a", "b"]);
    check(&[("listed", Slow), ("deleted", Slow), ("other", Slow), ("deleted", Fast)], &["deleted", "listed", "other"]);
    check(&[("s", Slow), ("a", Fast), ("b", Fast), ("c", Fast), ("d", Fast)], &["a", "b", "c", "s", "d"]);
}

/// Adds a key in work to these lanes; when it is queued again, other keys wait in both lanes.
#[track_caller]
fn check_again(taken_from: Lane, asked: &[Lane], want: &[&str]) {
    let (mut queue, now) = (queue(), start());
    queue.add("x", taken_from, 0, now);
    assert_eq!(queue.get(SHARE, now), Some("x"));
    asked.iter().for_each(|lane| queue.add("x", *lane, 0, now));
    assert_eq!(queue.get(SHARE, now), None, "nobody else gets it meanwhile");
    queue.add("slow", Slow, 0, now);
    queue.add("fast", Fast, 0, now);
    queue.done(&"x", now);
    let got: Vec<&str> = std::iter::from_fn(|| queue.get(SHARE, now)).collect();
    assert_eq!(got, want);
}

#[test]
fn a_key_requested_during_work_returns_in_its_most_urgent_lane() {
    check_again(Slow, &[Fast], &["fast", "x", "slow"]);
    check_again(Slow, &[Fast, Slow], &["fast", "x", "slow"]);
    check_again(Slow, &[Slow, Fast], &["fast", "x", "slow"]);
    check_again(Fast, &[Slow], &["fast", "slow", "x"]);
    check_again(Fast, &[], &["fast", "slow"]);
}

#[test]
fn no_slow_key_starves() {
    // Live changes and preferred slow keys arrive without end; a silent key of the lowest rank gets its turn once it
    // has overdue, oldest first.
    let (mut queue, mut now) = (queue(), start());
    queue.add(0_u32, Slow, 9, now);
    queue.add(1, Slow, 9, now);
    let mut came = Vec::new();
    for turn in 0..100_u32 {
        queue.add(1000 + turn, Fast, 0, now);
        queue.add(2000 + turn, Slow, 0, now);
        let key = queue.get(SHARE, now).unwrap();
        if key < 2 {
            came.push((key, turn));
        }
        now += Duration::from_millis(10);
    }
    let old = 30;
    assert_eq!(came, [(0, old), (1, old + SHARE.aged_every)], "as soon as they are old, and not in turns on end");
}

#[test]
fn a_live_change_waits_for_one_slow_turn() {
    for (batch_max, fast_turns_max, aged_every) in [(1, 0, 0), (1, 8, 2), (512, 8, 2), (512, 1, 100)] {
        let share = LaneShares { batch_max, slow_batch_max: batch_max.min(64), fast_turns_max, aged_every, ..SHARE };
        let now = start();
        let mut queue: Queue<u32> = queue();
        for key in 0..100_000 {
            queue.add(key, Slow, u64::from(key % 3), now);
        }
        let now = now + share.slow_age_max;
        let mut turns = 0;
        for live in 100_000..100_100 {
            queue.add(live, Fast, 0, now);
            let took = (1..).find(|_| queue.take(share, now).iter().any(|(key, _)| *key == live)).unwrap();
            assert!(took <= 2, "{live} came in turn {took} of {share:?}");
            turns += took;
        }
        assert!(turns > 100, "the slow lane has turns as well");
        let slow_turns = turns - 100;
        assert_eq!(queue.depth(Slow), 100_000 - slow_turns * share.slow_batch_max, "of bounded batches");
    }
}

/// Compares the batches, in order.
#[track_caller]
fn check_batches(asked: &[(&'static str, Lane)], want: &[&[&str]]) {
    let share = LaneShares { batch_max: 2, slow_batch_max: 3, fast_turns_max: 2, ..SHARE };
    let (mut queue, now) = (queue(), start());
    asked.iter().for_each(|(key, lane)| queue.add(*key, *lane, 0, now));
    for want in want {
        let got: Vec<&str> = queue.take(share, now).into_iter().map(|(key, _)| key).collect();
        assert_eq!(got, *want);
    }
    assert!(queue.is_empty() && queue.working() == 0 && queue.take(share, now).is_empty());
}

#[test]
fn a_batch_is_of_one_lane_and_bounded_by_it() {
    check_batches(&[("s", Slow), ("a", Fast), ("b", Fast), ("a", Slow)], &[&["a", "b"], &["s"]]);
    check_batches(&[("s", Slow), ("t", Slow), ("u", Slow), ("v", Slow)], &[&["s", "t", "u"], &["v"]]);
    let keys = [("s", Slow), ("a", Fast), ("b", Fast), ("c", Fast), ("d", Fast), ("e", Fast)];
    check_batches(&keys, &[&["a", "b"], &["c", "d"], &["s"], &["e"]]);
}

#[test]
fn a_key_keeps_the_time_of_its_first_request() {
    let (mut queue, now) = (queue(), start());
    queue.add("x", Slow, 0, now);
    queue.add("x", Fast, 0, now + Duration::from_millis(5));
    assert_eq!(queue.take(SHARE, now), [("x", now)]);
}
