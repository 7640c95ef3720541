//! The queue between World and the compiler: each key once, in one of two lanes.
//!
//! What a list brings goes to the slow lane and what a watch tells to the fast one, so that a live change overtakes
//! start-up and relist work. The slow lane keeps a bounded share and a bounded age, so it is never starved.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Which lane a key waits in. The order is that of urgency.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Start-up and relist work.
    Slow,
    /// Live changes.
    Fast,
}

/// Keys that wait, each once.
#[derive(Debug)]
pub struct Queue<K> {
    lanes: [VecDeque<K>; 2],
    waiting: HashMap<K, Waiting>,
    /// Keys that wait in each lane; a lane's own length may count places that were moved away from.
    depths: [usize; 2],
    /// Batches of the fast lane since the last one of the slow lane.
    fast_batches: u32,
    /// Whether the last batch was one of the slow lane.
    slow_last: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    lane: Lane,
    /// When it was first added since it was last taken.
    since: Instant,
}

/// How the lanes share.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Keys in one batch.
    pub batch_max: usize,
    /// Batches of the fast lane after which a waiting slow lane gets one.
    pub fast_batches_max: u32,
    /// Age at which the oldest slow key goes next. It earns one batch: while a whole list is of that age, the lanes take
    /// turns.
    pub slow_age_max: Duration,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            lanes: [VecDeque::new(), VecDeque::new()],
            waiting: HashMap::new(),
            depths: [0; 2],
            fast_batches: 0,
            slow_last: false,
        }
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// Adds a key. One that waits already keeps its place, unless it is now more urgent: then it moves to the end of the fast lane.
    pub fn add(&mut self, key: K, lane: Lane, now: Instant) {
        let since = match self.waiting.get(&key) {
            Some(waiting) if waiting.lane >= lane => return,
            Some(waiting) => {
                self.depths[waiting.lane as usize] -= 1;
                waiting.since
            }
            None => now,
        };
        self.depths[lane as usize] += 1;
        self.waiting.insert(key.clone(), Waiting { lane, since });
        self.lanes[lane as usize].push_back(key);
    }

    /// Takes the next batch: keys of one lane, oldest first, each with the time since which it waited.
    pub fn take(&mut self, share: Share, now: Instant) -> Vec<(K, Instant)> {
        self.drop_moved();
        let lane = self.next_lane(share, now);
        let mut batch = Vec::new();
        while batch.len() < share.batch_max {
            let Some(key) = self.lanes[lane as usize].pop_front() else { break };
            if let Some(waiting) = self.waiting.get(&key).copied().filter(|waiting| waiting.lane == lane) {
                self.waiting.remove(&key);
                self.depths[lane as usize] -= 1;
                batch.push((key, waiting.since));
            }
        }
        batch
    }

    /// How many keys wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many keys wait in a lane.
    #[must_use]
    pub const fn depth(&self, lane: Lane) -> usize {
        self.depths[lane as usize]
    }

    /// Drops places at the head of the slow lane whose keys have moved to the fast one.
    fn drop_moved(&mut self) {
        let slow = &mut self.lanes[Lane::Slow as usize];
        while slow.front().is_some_and(|key| self.waiting.get(key).is_none_or(|waiting| waiting.lane != Lane::Slow)) {
            slow.pop_front();
        }
    }

    fn next_lane(&mut self, share: Share, now: Instant) -> Lane {
        let slow_head = self.lanes[Lane::Slow as usize].front().and_then(|key| self.waiting.get(key));
        let lane = match slow_head {
            None => Lane::Fast,
            Some(head) => {
                let due = !self.slow_last && now.saturating_duration_since(head.since) >= share.slow_age_max;
                let turn = self.fast_batches >= share.fast_batches_max.max(1);
                if self.depth(Lane::Fast) == 0 || due || turn { Lane::Slow } else { Lane::Fast }
            }
        };
        self.slow_last = lane == Lane::Slow;
        self.fast_batches = if self.slow_last || slow_head.is_none() { 0 } else { self.fast_batches + 1 };
        lane
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
mod tests {
    use super::Lane::{Fast, Slow};
    use super::*;

    const SHARE: Share = Share { batch_max: 2, fast_batches_max: 2, slow_age_max: Duration::from_secs(1) };

    #[track_caller]
    fn check(queue: &mut Queue<&'static str>, now: Instant, want: &[&str]) {
        let got: Vec<&str> = queue.take(SHARE, now).into_iter().map(|(key, _)| key).collect();
        assert_eq!(got, want);
    }

    fn queue(now: Instant, keys: &[(&'static str, Lane)]) -> Queue<&'static str> {
        let mut queue = Queue::default();
        for (key, lane) in keys {
            queue.add(*key, *lane, now);
        }
        queue
    }

    #[test]
    fn a_key_waits_once_and_live_changes_go_first() {
        let now = Instant::now();
        let mut queue = queue(now, &[("s", Slow), ("a", Fast), ("a", Fast), ("b", Fast), ("a", Slow)]);
        assert_eq!((queue.len(), queue.depth(Fast), queue.depth(Slow)), (3, 2, 1));
        check(&mut queue, now, &["a", "b"]);
        check(&mut queue, now, &["s"]);
        check(&mut queue, now, &[]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_slow_key_that_becomes_urgent_moves_to_the_end_of_the_fast_lane() {
        let now = Instant::now();
        let mut queue = queue(now, &[("x", Slow), ("y", Slow), ("a", Fast), ("x", Fast)]);
        check(&mut queue, now, &["a", "x"]);
        check(&mut queue, now, &["y"]);
        queue.add("x", Slow, now);
        check(&mut queue, now, &["x"]);
        check(&mut queue, now, &[]);
    }

    #[test]
    fn the_slow_lane_keeps_its_share() {
        let now = Instant::now();
        let keys = [("s", Slow), ("a", Fast), ("b", Fast), ("c", Fast), ("d", Fast), ("e", Fast), ("f", Fast)];
        let mut queue = queue(now, &keys);
        check(&mut queue, now, &["a", "b"]);
        check(&mut queue, now, &["c", "d"]);
        check(&mut queue, now, &["s"]);
        check(&mut queue, now, &["e", "f"]);
    }

    #[test]
    fn an_old_slow_key_goes_next() {
        let now = Instant::now();
        let mut queue = queue(now, &[("s", Slow), ("a", Fast)]);
        check(&mut queue, now + SHARE.slow_age_max, &["s"]);
        check(&mut queue, now + SHARE.slow_age_max, &["a"]);
    }

    #[test]
    fn however_long_and_old_the_slow_lane_is_a_live_change_goes_within_two_batches() {
        for (fast_batches_max, batches_max) in [(0, 2), (1, 2), (8, 2)] {
            let share = Share { batch_max: 512, fast_batches_max, ..SHARE };
            let now = Instant::now();
            let mut queue = Queue::default();
            for key in 0..100_000 {
                queue.add(key, Slow, now);
            }
            let now = now + share.slow_age_max;
            let mut took = 0;
            for live in 100_000..100_100 {
                queue.add(live, Fast, now);
                let takes = (1..).find(|_| queue.take(share, now).iter().any(|(key, _)| *key == live)).unwrap();
                assert!(takes <= batches_max, "{live} came in batch {takes}");
                took += takes;
            }
            assert!(queue.depth(Slow) < 100_000 - 50 * 512, "the slow lane has its turns as well");
            assert!(took > 100, "the slow lane is due");
        }
    }

    #[test]
    fn a_key_remembers_when_it_was_first_added() {
        let now = Instant::now();
        let mut queue = queue(now, &[("x", Slow)]);
        queue.add("x", Fast, now + Duration::from_millis(5));
        assert_eq!(queue.take(SHARE, now), [("x", now)]);
    }
}
