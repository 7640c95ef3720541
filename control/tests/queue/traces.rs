//! Random traces: on the model, and on properties that hold for any trace.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use tidegate_control::{Lane, Queue};

use crate::model::Model;
use crate::ops::{Key, Op, SHARE, ops, rank};
use crate::{PROPERTIES, queue, start};

fn config() -> ProptestConfig {
    // `PROPTEST_CASES=20000` plays more.
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

/// Runs a trace; returns the violated property.
fn play(trace: &[Op]) -> Result<Model, TestCaseError> {
    let mut model = Model::new();
    model.play(trace).map_err(|broken| {
        let property = PROPERTIES.get(usize::from(broken.0) - 1).map(|(property, _)| *property);
        TestCaseError::fail(format!("{broken:?} ({})", property.unwrap_or("no such property")))
    })?;
    Ok(model)
}

/// client-go's queue, as its documentation specifies it.
#[derive(Default)]
struct ClientGo {
    queue: VecDeque<Key>,
    dirty: BTreeSet<Key>,
    processing: BTreeSet<Key>,
}

impl ClientGo {
    fn add(&mut self, key: Key) {
        if self.dirty.insert(key) && !self.processing.contains(&key) {
            self.queue.push_back(key);
        }
    }

    fn get(&mut self) -> Option<Key> {
        let key = self.queue.pop_front()?;
        self.processing.insert(key);
        self.dirty.remove(&key);
        Some(key)
    }

    fn done(&mut self, key: Key) {
        if self.processing.remove(&key) && self.dirty.contains(&key) {
            self.queue.push_back(key);
        }
    }
}

fn drain(queue: &mut Queue<Key>, now: std::time::Instant) -> BTreeMap<Key, usize> {
    let mut got = BTreeMap::new();
    while let Some(key) = queue.get(SHARE, now) {
        *got.entry(key).or_default() += 1;
        queue.done(&key, now);
    }
    got
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_queue_follows_its_model(few in ops(3, 60), many in ops(40, 200)) {
        play(&few)?;
        play(&many)?;
    }

    #[test]
    fn no_update_is_lost(trace in ops(4, 80)) {
        let mut model = Model::new();
        let mut asked: BTreeMap<Key, usize> = BTreeMap::new();
        for op in &trace {
            model.step(*op).map_err(|broken| TestCaseError::fail(format!("{broken:?}")))?;
            if let Op::Add(key, _) = op && !model.queue.ending() {
                // The number of keys handed out before this request.
                asked.insert(*key, model.trace.len());
            }
            if *op == Op::Clear {
                asked.clear();
            }
        }
        model.play(&[]).map_err(|broken| TestCaseError::fail(format!("{broken:?}")))?;
        for (key, before) in asked {
            prop_assert!(model.trace[before..].contains(&key), "{key} was asked for and never came");
        }
        let adds = usize::try_from(model.tally.adds).unwrap();
        prop_assert_eq!(model.trace.len() + model.cleared, adds, "each that became dirty comes once");
    }

    #[test]
    fn equal_calls_give_equal_keys(trace in ops(20, 120)) {
        prop_assert_eq!(play(&trace)?.trace, play(&trace)?.trace);
    }

    #[test]
    fn one_lane_is_the_queue_of_client_go(trace in ops(6, 120), fast in any::<bool>()) {
        let lane = if fast { Lane::Fast } else { Lane::Slow };
        let (mut queue, mut model, now) = (queue(), ClientGo::default(), start());
        for op in trace {
            match op {
                Op::Add(key, _) => {
                    queue.add(key, lane, 0, now);
                    model.add(key);
                }
                Op::Get => prop_assert_eq!(queue.get(SHARE, now), model.get()),
                Op::DoneAny(key) | Op::AddAfter(key, ..) => {
                    queue.done(&key, now);
                    model.done(key);
                }
                Op::Done(_) | Op::Advance(_) | Op::Shutdown | Op::Clear => {}
                Op::Retry(..) | Op::Forget(_) | Op::Fire | Op::Take(..) | Op::Finish => {}
            }
            prop_assert_eq!(queue.len(), model.queue.len());
        }
    }

    #[test]
    fn the_order_of_completions_does_not_matter(trace in ops(8, 80), seed in any::<u64>()) {
        let play = |shuffled: bool| {
            let mut model = Model::new();
            trace.iter().try_for_each(|op| model.step(*op)).map_err(|broken| TestCaseError::fail(format!("{broken:?}")))?;
            let mut held: Vec<Key> = model.working.keys().copied().collect();
            if shuffled {
                fastrand::Rng::with_seed(seed).shuffle(&mut held);
            }
            held.iter().for_each(|key| model.queue.done(key, model.now));
            Ok::<_, TestCaseError>(drain(&mut model.queue, model.now))
        };
        prop_assert_eq!(play(false)?, play(true)?);
    }

    #[test]
    fn live_changes_go_first(slow in 0..40_u8, fast in 0..3_u8) {
        // Few enough that neither share nor age applies: all of them precede any slow key.
        let (mut queue, now) = (queue(), start());
        (0..slow).for_each(|key| queue.add(key, Lane::Slow, rank(key), now));
        (100..100 + fast).for_each(|key| queue.add(key, Lane::Fast, 0, now));
        for key in 100..100 + fast {
            prop_assert_eq!(queue.get(SHARE, now), Some(key));
        }
    }

    #[test]
    fn the_slow_lane_has_its_share(added in proptest::collection::vec(1..4_usize, 10..60)) {
        // However fast live changes arrive, they get at most `fast_turns_max` turns in a row.
        let (mut queue, now) = (queue(), start());
        (0..200_u32).for_each(|key| queue.add(key, Lane::Slow, 0, now));
        let (mut live, mut fast_turns) = (1000_u32, 0);
        for many in added {
            for _ in 0..many {
                queue.add(live, Lane::Fast, 0, now);
                live += 1;
            }
            let key = queue.get(SHARE, now);
            fast_turns = if key >= Some(1000) { fast_turns + 1 } else { 0 };
            prop_assert!(fast_turns <= SHARE.fast_turns_max);
        }
    }
}
