//! The steps of a simulation, as a list that can be shortened: every step has a random seed of its own, so that
//! removing one does not change the others.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

use crate::play::Simulation;

/// Steps of a schedule.
pub(crate) const STEPS: usize = 300;

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// An object changes, with a watch event.
    Change,
    /// An object changes, and its watch event is lost.
    Lose,
    /// A watch repeats an event with the current object.
    Repeat,
    /// A kind is listed completely.
    List,
    /// A kind is listed, and some of its items have no identity.
    ListPart,
    /// A kind is listed, and the list silently lacks some objects.
    ListLacking,
    /// The cluster no longer serves a kind.
    Unserve,
    /// The cluster serves a kind again.
    Serve,
    /// A list or a watch of a kind fails in the middle.
    Fail,
    /// The control loop restarts, and keeps World.
    NewLife,
    /// The process restarts without any state.
    Restart,
    /// An operator holds earlier routes, or thaws.
    Command,
    /// Some time passes.
    Wait,
    /// The machine sleeps for a minute or for days.
    Sleep,
    /// One watch delivers a few events; the others deliver none.
    Deliver,
    /// All watches deliver their events, and one batch is compiled.
    Reconcile,
    /// One batch is compiled.
    ReconcileOnly,
    /// All events are delivered, everything is compiled and checked.
    Quiet,
}

impl Act {
    const fn drawn(share: u32) -> Self {
        match share {
            0..56 => Self::Change,
            56..61 => Self::Lose,
            61..66 => Self::Repeat,
            66..69 => Self::List,
            69 => Self::ListPart,
            70..72 => Self::Fail,
            72 => Self::NewLife,
            73 => Self::Restart,
            74 => Self::Command,
            75..77 => Self::Wait,
            77 => Self::Sleep,
            78..84 => Self::Deliver,
            84..89 => Self::Reconcile,
            89..93 => Self::ReconcileOnly,
            93..96 => Self::ListLacking,
            96 => Self::Unserve,
            // More often than the removal, because an unserved kind has no changes.
            97..101 => Self::Serve,
            _ => Self::Quiet,
        }
    }
}

/// A step and its weight.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) act: Act,
    pub(crate) draw: u64,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({:#x})", self.act, self.draw)
    }
}

/// The steps of a simulation.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    /// The seed of the cluster and the options at the start.
    pub(crate) seed: u64,
    pub(crate) steps: Vec<Step>,
}

impl Schedule {
    /// The schedule of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut die = fastrand::Rng::with_seed(!seed);
        let steps = (0..STEPS).map(|_| Step { act: Act::drawn(die.u32(0..108)), draw: die.u64(..) });
        Self { seed, steps: steps.collect() }
    }

    /// Plays it. A failing schedule is replayed with fewer and fewer steps, and the shortest one that still fails is
    /// shown.
    pub(crate) fn play(&self) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| Simulation::play(self))) else { return };
        let said = take_hook();
        set_hook(Box::new(|_| {}));
        let shortest = self.shortest(|schedule| catch_unwind(AssertUnwindSafe(|| Simulation::play(schedule))).is_err());
        set_hook(said);
        eprintln!("The shortest schedule of seed {} that fails, of {} steps:", self.seed, shortest.steps.len());
        for step in &shortest.steps {
            eprintln!("    {step:?}");
        }
        if shortest.steps.len() < self.steps.len() {
            eprintln!("It says:");
            Simulation::play(&shortest);
        }
        std::panic::resume_unwind(panic);
    }

    /// Removes as many steps as possible while it fails: halves, then quarters, and finally single steps (delta
    /// debugging, Zeller and Hildebrandt 2002).
    pub(crate) fn shortest(&self, fails: impl Fn(&Self) -> bool) -> Self {
        let mut shortest = self.clone();
        let mut length = shortest.steps.len().div_ceil(2);
        while length > 0 {
            let mut from = 0;
            let mut shorter = false;
            while from < shortest.steps.len() {
                let mut without = shortest.clone();
                without.steps.drain(from..(from + length).min(shortest.steps.len()));
                if fails(&without) {
                    (shortest, shorter) = (without, true);
                } else {
                    from += length;
                }
            }
            length = if length == 1 && shorter { 1 } else { length / 2 };
        }
        shortest
    }
}
