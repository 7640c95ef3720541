//! A seeded simulation: three candidates with clocks of different speeds that jump, and an API server with delayed or
//! lost requests and responses. Two candidates must never lead at the same time, and one must lead once the faults are
//! over.
//!
//! `SIM_SEED=7` replays one seed, `SIM_SEEDS=100000` runs that many.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Election, ElectionTiming, LeaseWrite, ObservedLease};

/// The timeout of a request, in ms of its sender's clock; a request may arrive later.
const GIVEN_UP_MS: u64 = 5_000;
/// The end of the faults, and the end of the simulation, in ms.
const FAULTS_MS: u64 = 240_000;
const END_MS: u64 = 300_000;

#[derive(Clone, Debug)]
enum Message {
    /// A candidate begins its next round.
    Round {
        candidate: usize,
        life: u64,
    },
    /// A request arrives at the API server.
    Read {
        candidate: usize,
        life: u64,
    },
    Write {
        candidate: usize,
        life: u64,
        next_write: LeaseWrite,
    },
    /// Its response arrives.
    IsRead {
        candidate: usize,
        life: u64,
        seen: Option<ObservedLease>,
    },
    IsWritten {
        candidate: usize,
        life: u64,
        next_write: LeaseWrite,
        version: Option<String>,
    },
}

struct Replica {
    election: Election,
    /// The number of the awaited response: it changes with rounds and restarts, so that old responses are ignored.
    life: u64,
    /// Its monotonic clock: an offset, and its speed in thousandths of the true one.
    offset_ms: u64,
    speed: u64,
    /// The offset of its wall clock in µs; `None` if it stands still.
    wall_us: Option<i64>,
    /// The end of a pause: the process is stopped or starved.
    paused_until: u64,
}

struct Simulation {
    die: fastrand::Rng,
    base: Instant,
    now_ms: u64,
    candidates: Vec<Replica>,
    lease: Option<ObservedLease>,
    versions: u64,
    agenda: BTreeMap<(u64, u64), Message>,
    sent: u64,
    /// The number of changes of the leader.
    changes: usize,
    last: Option<usize>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut die = fastrand::Rng::with_seed(seed);
        let candidate = |nth: u64, die: &mut fastrand::Rng| Replica {
            election: Election::new(format!("candidate-{nth}"), ElectionTiming::default()),
            life: 0,
            offset_ms: die.u64(..1_000_000),
            speed: die.u64(900..1100),
            wall_us: Some(die.i64(-1_000_000_000_000..1_000_000_000_000)),
            paused_until: 0,
        };
        let candidates = (0..3).map(|nth| candidate(nth, &mut die)).collect();
        let (lease, agenda) = (None, BTreeMap::new());
        let base = crate::clock::now();
        let mut one =
            Self { die, base, now_ms: 0, candidates, lease, versions: 0, agenda, sent: 0, changes: 0, last: None };
        for candidate in 0..3 {
            let at = one.die.u64(..4_000);
            one.send(at, Message::Round { candidate, life: 0 });
        }
        one
    }

    fn faulty(&self) -> bool {
        self.now_ms < FAULTS_MS
    }

    /// The time of a candidate's own clock.
    fn clock(&self, candidate: usize) -> Instant {
        let Replica { offset_ms, speed, .. } = self.candidates[candidate];
        self.base + Duration::from_millis(offset_ms + self.now_ms * speed / 1000)
    }

    fn wall_us(&self, candidate: usize) -> i64 {
        let true_us = i64::try_from(self.now_ms).unwrap() * 1000;
        self.candidates[candidate].wall_us.map_or(0, |away| true_us + away)
    }

    fn send(&mut self, after_ms: u64, message: Message) {
        self.sent += 1;
        self.agenda.insert((self.now_ms + after_ms, self.sent), message);
    }

    /// Sends a message over a network that may delay or lose it.
    fn travel(&mut self, message: Message) {
        let lost = self.faulty() && self.die.u8(..) < 60;
        let slow = self.faulty() && self.die.u8(..) < 40;
        let delay = if slow { self.die.u64(..12_000) } else { self.die.u64(1..80) };
        if !lost {
            self.send(delay, message);
        }
    }

    fn play(&mut self) {
        while let Some(((at, _), message)) = self.agenda.pop_first() {
            if at > END_MS {
                return;
            }
            // Between two messages leadership can only expire, so checking at each message is enough.
            self.now_ms = at;
            self.misfortune();
            self.deliver(message);
            self.look();
        }
    }

    fn misfortune(&mut self) {
        if !self.faulty() || self.die.u8(..) > 20 {
            return;
        }
        let (candidate, jump) = (self.die.usize(..3), self.die.i64(-1_000_000_000_000..1_000_000_000_000));
        let until = self.now_ms + self.die.u64(..40_000);
        match self.die.u8(..5) {
            0 => self.candidates[candidate].paused_until = until,
            1 => self.candidates[candidate].wall_us = None,
            2 => self.release(candidate),
            _ => self.candidates[candidate].wall_us = Some(jump),
        }
    }

    /// A clean exit, and another process in its place.
    fn release(&mut self, candidate: usize) {
        let (now, wall_us) = (self.clock(candidate), self.wall_us(candidate));
        let at = self.now_ms;
        let one = &mut self.candidates[candidate];
        let next_write = one.election.release(now, wall_us);
        one.life += 1;
        let life = one.life;
        one.election = Election::new(format!("candidate-{candidate}-{at}-{life}"), ElectionTiming::default());
        if let Some(next_write) = next_write {
            // The response is ignored.
            self.travel(Message::Write { candidate, life: u64::MAX, next_write });
        }
        self.send(1_000, Message::Round { candidate, life });
    }

    fn deliver(&mut self, message: Message) {
        let to = match &message {
            Message::Round { candidate, life }
            | Message::IsRead { candidate, life, .. }
            | Message::IsWritten { candidate, life, .. } => Some((*candidate, *life)),
            Message::Read { .. } | Message::Write { .. } => None,
        };
        if let Some((candidate, life)) = to {
            let one = &self.candidates[candidate];
            if one.life != life {
                return;
            }
            if one.paused_until > self.now_ms {
                let after = one.paused_until - self.now_ms;
                return self.send(after, message);
            }
        }
        match message {
            Message::Round { candidate, .. } => self.round(candidate),
            Message::Read { candidate, life } => {
                let seen = self.lease.clone();
                self.travel(Message::IsRead { candidate, life, seen });
            }
            Message::Write { candidate, life, next_write } => {
                let version = self.write(&next_write);
                self.travel(Message::IsWritten { candidate, life, next_write, version });
            }
            Message::IsRead { candidate, seen, .. } => {
                let now = self.clock(candidate);
                self.candidates[candidate].election.read(seen, now);
                self.attempt(candidate);
            }
            Message::IsWritten { candidate, next_write, version, .. } => {
                let now = self.clock(candidate);
                if let Some(version) = version {
                    self.candidates[candidate].election.won(next_write, version, now);
                }
                self.rest(candidate, 2_000);
            }
        }
    }

    /// A write at the API server: accepted only for the current version.
    fn write(&mut self, next_write: &LeaseWrite) -> Option<String> {
        if self.lease.as_ref().map(|lease| &lease.version) != next_write.over.as_ref() {
            return None;
        }
        let unchanged = self.lease.as_ref().is_some_and(|lease| lease.record == next_write.record);
        if !unchanged {
            self.versions += 1;
            self.lease = Some(ObservedLease { version: self.versions.to_string(), record: next_write.record.clone() });
        }
        self.lease.as_ref().map(|lease| lease.version.clone())
    }

    fn round(&mut self, candidate: usize) {
        if self.candidates[candidate].election.must_read() {
            let life = self.await_answer(candidate);
            self.travel(Message::Read { candidate, life });
        } else {
            self.attempt(candidate);
        }
    }

    fn attempt(&mut self, candidate: usize) {
        let (now, wall_us) = (self.clock(candidate), self.wall_us(candidate));
        match self.candidates[candidate].election.next_write(now, wall_us) {
            Some(next_write) => {
                let life = self.await_answer(candidate);
                self.travel(Message::Write { candidate, life, next_write });
            }
            None => self.rest(candidate, 2_000),
        }
    }

    /// A new number for the awaited response, and a new round in case of a timeout.
    fn await_answer(&mut self, candidate: usize) -> u64 {
        self.candidates[candidate].life += 1;
        let life = self.candidates[candidate].life;
        self.send(GIVEN_UP_MS, Message::Round { candidate, life });
        life
    }

    fn rest(&mut self, candidate: usize, after_ms: u64) {
        self.candidates[candidate].life += 1;
        let life = self.candidates[candidate].life;
        self.send(after_ms, Message::Round { candidate, life });
    }

    fn leaders(&self) -> Vec<usize> {
        let leads = |candidate: &usize| {
            self.candidates[*candidate].election.until().is_some_and(|until| self.clock(*candidate) < until)
        };
        (0..3).filter(leads).collect()
    }

    fn look(&mut self) {
        let leaders = self.leaders();
        assert!(leaders.len() <= 1, "{leaders:?} lead at {} ms; the Lease is {:?}", self.now_ms, self.lease);
        if let Some(leader) = leaders.first().copied().filter(|leader| self.last != Some(*leader)) {
            self.changes += 1;
            self.last = Some(leader);
        }
    }
}

/// Runs one seed; returns the number of leader changes.
fn play(seed: u64) -> usize {
    let played = std::panic::catch_unwind(|| {
        let mut simulation = Simulation::new(seed);
        simulation.play();
        assert_eq!(simulation.leaders().len(), 1, "a minute after the faults");
        simulation.changes
    });
    played.unwrap_or_else(|_| panic!("SIM_SEED={seed} shows it"))
}

#[test]
#[allow(clippy::disallowed_methods, reason = "which seeds are played is said in the environment")]
fn there_are_never_two_leaders() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("SIM_SEED") {
        play(seed);
        return;
    }
    let seeds = number("SIM_SEEDS").unwrap_or(300);
    let changes: usize = (0..seeds).map(play).sum();
    assert!(changes as u64 > 2 * seeds, "the faults are too mild to show anything: {changes} changes");
}
