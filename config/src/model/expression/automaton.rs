//! The automaton of an expression, and the number of steps that it takes for a letter.

use std::cell::RefCell;

use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson::pikevm::{Cache, PikeVM};
use regex_automata::nfa::thompson::{self, NFA, State, WhichCaptures};
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::{Anchored, Input};
use regex_syntax::hir::Hir;

use super::{ExpressionFault, Extent};

/// The maximum size of the states of an expression, in bytes.
const NFA_BYTES_MAX: usize = 128 << 10;
/// The maximum size of a deterministic automaton, in bytes.
const DFA_BYTES_MAX: usize = 32 << 10;
/// The maximum memory while it is made, in bytes.
const DETERMINIZE_BYTES_MAX: usize = 128 << 10;
/// The maximum number of states of which a deterministic automaton is made.
const DETERMINIZED_STATES_MAX: u64 = 2 << 10;
/// The steps for one visit of a state, which takes some times as long as a step of a deterministic automaton.
const STATE_STEPS: u64 = 4;

/// What matches letters.
pub(super) enum Automaton {
    /// One step a letter. It allocates nothing.
    Deterministic(Box<dense::DFA<Vec<u32>>>, StateID),
    /// At most all of its states at each letter.
    States(Box<PikeVM>, Extent, u64),
}

impl Automaton {
    /// Compiles an expression. Returns an upper limit of the work as well, in visits of states.
    ///
    /// # Errors
    /// If it has too many states.
    pub(super) fn of(expression: &Hir, extent: Extent) -> Result<(Self, u64), ExpressionFault> {
        let config =
            thompson::Config::new().utf8(false).which_captures(WhichCaptures::None).nfa_size_limit(Some(NFA_BYTES_MAX));
        let nfa = thompson::Compiler::new().configure(config).build_from_hir(expression).map_err(|error| {
            let too_many = |limit| format!("its states take more than {limit} bytes");
            let why = error.size_limit().map_or_else(|| error.to_string(), too_many);
            ExpressionFault { why, work: NFA_BYTES_MAX as u64 }
        })?;
        let states = visits(&nfa);
        let mut work = states;
        if states <= DETERMINIZED_STATES_MAX {
            let made = deterministic(&nfa, extent);
            let bytes = made.as_ref().map_or(DFA_BYTES_MAX, |(dfa, _)| dfa.memory_usage());
            work += states * (bytes / size_of::<u32>()) as u64;
            if let Some((dfa, first)) = made {
                return Ok((Self::Deterministic(Box::new(dfa), first), work));
            }
        }
        let automaton = PikeVM::builder()
            .thompson(thompson::Config::new().utf8(false))
            .build_from_nfa(nfa)
            .map_err(|error| ExpressionFault { why: error.to_string(), work })?;
        Ok((Self::States(Box::new(automaton), extent, states * STATE_STEPS), work))
    }

    /// The maximum number of steps for a letter.
    pub(super) const fn steps_a_letter(&self) -> u64 {
        match self {
            Self::Deterministic(..) => 1,
            Self::States(_, _, steps) => *steps,
        }
    }

    /// The memory that it holds, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Deterministic(dfa, _) => dfa.memory_usage(),
            Self::States(automaton, ..) => automaton.get_nfa().memory_usage(),
        }
    }

    /// Returns whether it matches, and the number of steps, if that is known.
    pub(super) fn run(&self, letters: impl Iterator<Item = u8>) -> (bool, Option<u64>) {
        match self {
            Self::Deterministic(dfa, first) => {
                let (matches, steps) = follow(dfa, *first, letters);
                (matches, Some(steps))
            }
            Self::States(automaton, extent, _) => (visit(automaton, *extent, letters), None),
        }
    }
}

/// The deterministic automaton and its first state; `None` if it is too large.
fn deterministic(nfa: &NFA, extent: Extent) -> Option<(dense::DFA<Vec<u32>>, StateID)> {
    let (start_kind, anchored) = match extent {
        Extent::Whole => (StartKind::Anchored, Anchored::Yes),
        Extent::Anywhere => (StartKind::Unanchored, Anchored::No),
    };
    let config = dense::Config::new()
        .start_kind(start_kind)
        .accelerate(false)
        .dfa_size_limit(Some(DFA_BYTES_MAX))
        .determinize_size_limit(Some(DETERMINIZE_BYTES_MAX));
    let dfa = dense::Builder::new().configure(config).build_from_nfa(nfa).ok()?;
    let first = dfa.start_state(&start::Config::new().anchored(anchored)).ok()?;
    Some((dfa, first))
}

/// The number of visits that a letter takes at most: of each state, and of each of its transitions that are tried in
/// turn.
fn visits(nfa: &NFA) -> u64 {
    let of = |state: &State| match state {
        State::Sparse(sparse) => sparse.transitions.len().max(1),
        State::Union { alternates } => alternates.len().max(1),
        State::BinaryUnion { .. } => 2,
        State::ByteRange { .. }
        | State::Dense(_)
        | State::Look { .. }
        | State::Capture { .. }
        | State::Fail
        | State::Match { .. } => 1,
    };
    nfa.states().iter().map(|state| of(state) as u64).sum()
}

/// Follows a deterministic automaton to its first match or its end. A match is known one letter later.
fn follow(dfa: &dense::DFA<Vec<u32>>, first: StateID, letters: impl Iterator<Item = u8>) -> (bool, u64) {
    let (mut state, mut steps) = (first, 1);
    for letter in letters {
        steps += 1;
        state = dfa.next_state(state, letter);
        if dfa.is_special_state(state) {
            if dfa.is_match_state(state) {
                return (true, steps);
            }
            if dfa.is_dead_state(state) {
                return (false, steps);
            }
        }
    }
    (dfa.is_match_state(dfa.next_eoi_state(state)), steps)
}

thread_local! {
    /// The memory for visits of states, of the size of the largest expression that this thread has tried.
    static VISITING: RefCell<Option<(Cache, Vec<u8>)>> = const { RefCell::new(None) };
}

fn visit(automaton: &PikeVM, extent: Extent, letters: impl Iterator<Item = u8>) -> bool {
    let anchored = match extent {
        Extent::Whole => Anchored::Yes,
        Extent::Anywhere => Anchored::No,
    };
    VISITING.with_borrow_mut(|memory| {
        let (cache, text) = memory.get_or_insert_with(|| (automaton.create_cache(), Vec::new()));
        cache.reset(automaton);
        text.clear();
        text.extend(letters);
        automaton.is_match(cache, Input::new(text).anchored(anchored))
    })
}
