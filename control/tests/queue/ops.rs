//! Random operations on a queue.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_control::{Lane, LaneShares, Retries};

pub(crate) type Key = u8;

/// An operation on the queue. A worker may finish any key in work; besides the workers, a batch consumer takes batches
/// and can finish the last one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Op {
    Add(Key, Lane),
    AddAfter(Key, u64, Lane),
    /// A key failed; the number is drawn for its delay.
    Retry(Key, u64),
    Forget(Key),
    Fire,
    Get,
    /// A batch with these maximum numbers of keys in the fast and the slow lane.
    Take(usize, usize),
    Finish,
    /// The key in work at this position, modulo their number.
    Done(usize),
    /// A key that may or may not be in work.
    DoneAny(Key),
    Advance(u64),
    Clear,
    Shutdown,
}

/// A trace over few keys, so that their operations interact.
pub(crate) fn ops(keys: Key, length: usize) -> impl Strategy<Value = Vec<Op>> {
    let lane = || prop_oneof![Just(Lane::Fast), Just(Lane::Slow)];
    let op = prop_oneof![
        12 => (0..keys, lane()).prop_map(|(key, lane)| Op::Add(key, lane)),
        3 => (0..keys, 0..400_u64, lane()).prop_map(|(key, delay, lane)| Op::AddAfter(key, delay, lane)),
        3 => (0..keys, any::<u64>()).prop_map(|(key, draw)| Op::Retry(key, draw)),
        1 => (0..keys).prop_map(Op::Forget),
        1 => Just(Op::Fire),
        8 => Just(Op::Get),
        3 => (0..5_usize, 0..4_usize).prop_map(|(fast, slow)| Op::Take(fast, slow)),
        3 => Just(Op::Finish),
        5 => (0..8_usize).prop_map(Op::Done),
        1 => (0..keys).prop_map(Op::DoneAny),
        4 => (0..250_u64).prop_map(Op::Advance),
    ];
    (vec(op, 1..length), 0..4_u8, 0..4_u8).prop_map(|(mut ops, end, clear)| {
        if end == 0 {
            ops.insert(ops.len() * 2 / 3, Op::Shutdown);
        }
        if clear == 0 {
            ops.insert(ops.len() * 3 / 4, Op::Clear);
        } else if clear == 1 {
            ops.insert(ops.len() / 2, Op::Clear);
        }
        ops
    })
}

pub(crate) const SHARE: LaneShares = LaneShares {
    batch_max: 1,
    slow_batch_max: 1,
    fast_turns_max: 3,
    slow_age_max: Duration::from_millis(300),
    aged_every: 3,
};

/// Few failures reach the longest delay, so that random traces get there.
pub(crate) const RETRIES: Retries = Retries { first: Duration::from_millis(5), max: Duration::from_millis(40) };

/// The rank of a key in the slow lane: keys of one parity are preferred.
pub(crate) fn rank(key: Key) -> u64 {
    u64::from(key % 2)
}
