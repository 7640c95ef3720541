//! The times of the conditions of a status. Whoever writes the status again keeps the time of a condition that has not
//! changed, so that an object need not be read before that, as long as nobody else writes in the same lists.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};

use super::status::WrittenRef;

/// The list that a condition is in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConditionList<'a> {
    /// That of the object as a whole.
    Object,
    /// That of a listener.
    Listener(&'a str),
    /// That of a parent or an ancestor.
    Parent(&'a WrittenRef),
}

/// The times of the conditions of a status, and which other lists it has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transitions {
    /// Most conditions of an object have one time.
    by_time: Box<[Transition]>,
    /// Whether it has addresses.
    pub has_addresses: bool,
    /// Whether it has listeners.
    pub has_listeners: bool,
}

/// The conditions whose last transition was at the same time.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Transition {
    time: Box<str>,
    /// Their hashes, see [`key`].
    conditions: Box<[u32]>,
}

/// The conditions as they are read.
#[derive(Debug, Default)]
pub(super) struct TransitionsBuilder<'s>(BTreeMap<&'s str, Vec<u32>>);

impl Transitions {
    /// The time of the last transition of the condition of this type, if it was in the list with this status
    /// (RFC 3339).
    #[must_use]
    pub fn since(&self, list: ConditionList<'_>, kind: &str, status: &str) -> Option<&str> {
        let key = key(list, kind, status);
        self.by_time.iter().find_map(|at| at.conditions.contains(&key).then_some(&*at.time))
    }
}

impl<'s> TransitionsBuilder<'s> {
    /// A condition of this type and status has this time.
    pub(super) fn add(&mut self, list: ConditionList<'_>, [kind, status]: [&str; 2], time: &'s str) {
        self.0.entry(time).or_default().push(key(list, kind, status));
    }

    pub(super) fn finish(self, has_addresses: bool, has_listeners: bool) -> Transitions {
        let at = |(time, keys): (&str, Vec<u32>)| Transition { time: time.into(), conditions: keys.into() };
        let by_time = self.0.into_iter().map(at).collect();
        Transitions { by_time, has_addresses, has_listeners }
    }
}

/// Two conditions of one object with the same key, which hardly happens, would swap their times.
fn key(list: ConditionList<'_>, kind: &str, status: &str) -> u32 {
    foldhash::quality::FixedState::with_seed(0).hash_one((list, kind, status)) as u32
}
