//! The order of fetches from outside of the cluster, such as lookups of DNS names, fair among namespaces. Pure.
//!
//! A server that does not answer occupies a fetch until the timeout, and tenants decide which servers are asked and for
//! how much. So a namespace gets another fetch only while it has fewer in progress than are free, and the namespace
//! with the fewest goes first: one namespace alone has at most half of them, the next one half of the rest, and a
//! namespace without any finds one free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// What is wanted, each by its key, and when it is due.
#[derive(Debug)]
pub(super) struct FetchSchedule<K> {
    /// The limit of concurrent fetches.
    fetches_max: usize,
    under_way: usize,
    /// The number of fetches that have begun.
    begun: u64,
    wanted: BTreeMap<K, Wanted>,
    namespaces: BTreeMap<Arc<str>, Namespace<K>>,
}

/// A fetch that may begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fetch<K> {
    /// What to fetch.
    pub(super) key: K,
    /// The namespace that it counts for.
    namespace: Arc<str>,
}

#[derive(Debug)]
struct Wanted {
    /// The namespaces that want it. It is queued for each of them.
    namespaces: BTreeSet<Arc<str>>,
    /// `None` while it is fetched.
    due: Option<Instant>,
}

#[derive(Debug)]
struct Namespace<K> {
    due: BTreeSet<(Instant, K)>,
    under_way: usize,
    /// The number of its last fetch.
    last: u64,
}

impl<K> Default for Namespace<K> {
    fn default() -> Self {
        Self { due: BTreeSet::new(), under_way: 0, last: 0 }
    }
}

impl<K: Ord + Clone> FetchSchedule<K> {
    /// Nothing is wanted yet.
    pub(super) const fn new(fetches_max: usize) -> Self {
        Self { fetches_max, under_way: 0, begun: 0, wanted: BTreeMap::new(), namespaces: BTreeMap::new() }
    }

    /// Replaces what is wanted, with the namespaces that want it. New keys are due now, and those no longer wanted are
    /// dropped. A fetch in progress counts until it ends.
    pub(super) fn want(&mut self, wanted: &BTreeMap<K, BTreeSet<Arc<str>>>, now: Instant) {
        let moved = self.wanted.iter().filter(|(key, known)| wanted.get(*key) != Some(&known.namespaces));
        let moved: Vec<(K, Option<Instant>)> = moved.map(|(key, known)| (key.clone(), known.due)).collect();
        for (key, due) in moved {
            self.put(&key, None);
            self.wanted.remove(&key);
            if let Some(namespaces) = wanted.get(&key) {
                self.wanted.insert(key.clone(), Wanted { namespaces: namespaces.clone(), due: None });
                self.put(&key, due);
            }
        }
        for (key, namespaces) in wanted {
            if !self.wanted.contains_key(key) {
                self.wanted.insert(key.clone(), Wanted { namespaces: namespaces.clone(), due: None });
                self.put(key, Some(now));
            }
        }
        self.namespaces.retain(|_, of| of.under_way > 0 || !of.due.is_empty());
    }

    /// Begins a fetch. Among the namespaces below their limit with a due key, the one with the fewest fetches in
    /// progress goes first, and of several the one whose last fetch began first.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Fetch<K>> {
        let ready = self.free().filter(|(_, of)| of.due.first().is_some_and(|(at, _)| *at <= now));
        let (namespace, of) = ready.min_by_key(|(_, of)| (of.under_way, of.last))?;
        let turn = Fetch { key: of.due.first()?.1.clone(), namespace: namespace.clone() };
        self.put(&turn.key, None);
        self.under_way += 1;
        self.begun += 1;
        let of = self.namespaces.entry(turn.namespace.clone()).or_default();
        of.under_way += 1;
        of.last = self.begun;
        Some(turn)
    }

    /// When the next fetch can begin; `None` until another one ends or something is wanted.
    pub(super) fn due(&self) -> Option<Instant> {
        self.free().filter_map(|(_, of)| of.due.first()).map(|(at, _)| *at).min()
    }

    /// A fetch has ended; its key is due again at `again`, if it is still wanted.
    pub(super) fn end(&mut self, turn: &Fetch<K>, again: Option<Instant>) {
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(of) = self.namespaces.get_mut(&turn.namespace) {
            of.under_way = of.under_way.saturating_sub(1);
        }
        self.put(&turn.key, again);
    }

    /// The namespaces that may have another fetch.
    fn free(&self) -> impl Iterator<Item = (&Arc<str>, &Namespace<K>)> {
        let free = self.fetches_max.saturating_sub(self.under_way);
        self.namespaces.iter().filter(move |(_, of)| of.under_way < free)
    }

    /// Makes a wanted key due at this time at the latest. Without effect while it is fetched.
    pub(super) fn hurry(&mut self, key: &K, at: Instant) {
        if self.wanted.get(key).and_then(|known| known.due).is_some_and(|due| due > at) {
            self.put(key, Some(at));
        }
    }

    /// Sets the due time of a key in the queues of its namespaces.
    fn put(&mut self, key: &K, due: Option<Instant>) {
        let Some(known) = self.wanted.get_mut(key) else { return };
        let before = std::mem::replace(&mut known.due, due);
        for namespace in &known.namespaces {
            let of = self.namespaces.entry(namespace.clone()).or_default();
            if let Some(before) = before {
                of.due.remove(&(before, key.clone()));
            }
            if let Some(due) = due {
                of.due.insert((due, key.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// An event and its effect on the queue.
    enum Step {
        /// These names are wanted, each as `namespace/name`.
        Want(Vec<String>),
        /// So many seconds pass.
        Wait(u32),
        /// The lookup of a name ends; it is due again after so many seconds.
        End(&'static str, u32),
    }
    use Step::{End, Wait, Want};

    fn want(names: &[&str]) -> Step {
        Want(names.iter().map(|name| (*name).to_owned()).collect())
    }

    /// Names of a namespace.
    fn many(namespace: &str, names: usize) -> impl Iterator<Item = String> {
        (0..names).map(move |name| format!("{namespace}/{namespace}{name:03}"))
    }

    /// Runs the steps. After each it compares the lookups that begin, as `namespace number`, and when the next one can
    /// begin (in seconds from now; empty if not before another ends).
    #[track_caller]
    fn check(fetches_max: usize, steps: Vec<(Step, &str, &str)>) {
        let mut schedule = FetchSchedule::<Arc<str>>::new(fetches_max);
        let mut under_way: Vec<Fetch<Arc<str>>> = Vec::new();
        let mut now = crate::clock::now();
        for (number, (step, begun, due)) in steps.into_iter().enumerate() {
            match step {
                Want(all) => {
                    let mut names = BTreeMap::<Arc<str>, BTreeSet<Arc<str>>>::new();
                    for (namespace, name) in all.iter().filter_map(|name| name.split_once('/')) {
                        names.entry(name.into()).or_default().insert(namespace.into());
                    }
                    schedule.want(&names, now);
                }
                Wait(seconds) => now += SECOND * seconds,
                End(name, after) => {
                    let index = under_way.iter().position(|turn| *turn.key == *name).expect("it is under way");
                    schedule.end(&under_way.swap_remove(index), Some(now + SECOND * after));
                }
            }
            let mut of: BTreeMap<String, usize> = BTreeMap::new();
            while let Some(turn) = schedule.begin(now) {
                *of.entry(turn.namespace.to_string()).or_default() += 1;
                under_way.push(turn);
            }
            assert!(under_way.len() <= fetches_max, "step {number}");
            let of: Vec<String> = of.iter().map(|(namespace, number)| format!("{namespace} {number}")).collect();
            let next = schedule.due().map(|due| due.saturating_duration_since(now).as_secs().to_string());
            assert_eq!((of.join(", ").as_str(), next.unwrap_or_default().as_str()), (begun, due), "step {number}");
        }
    }

    #[test]
    fn a_namespace_leaves_look_ups_for_others() {
        let loud = || many("loud", 100);
        let with = |more: &[&str]| Want(loud().chain(more.iter().map(|name| (*name).to_owned())).collect());
        check(
            16,
            vec![
                (Want(loud().collect()), "loud 8", ""),
                (with(&["quiet/a", "quiet/b"]), "quiet 2", ""),
                (End("a", 5), "", "5"),
                (End("b", 5), "", "5"),
                (Wait(5), "quiet 2", ""),
                (End("loud000", 5), "", ""),
                (End("a", 5), "loud 1", "5"),
            ],
        );
        let all = ["a", "b", "c", "d", "e", "f"].map(|namespace| many(namespace, 100));
        check(
            16,
            vec![
                (Want(all.into_iter().flatten().collect()), "a 3, b 3, c 2, d 2, e 2, f 2", ""),
                (want(&["quiet/x"]), "quiet 1", ""),
                (want(&["quiet/x", "quiet/y"]), "", ""),
            ],
        );
        check(1, vec![(want(&["a/a", "b/b"]), "a 1", ""), (End("a", 0), "b 1", ""), (End("b", 9), "a 1", "")]);
        check(2, vec![(want(&["a/a", "a/b"]), "a 1", ""), (End("a", 9), "a 1", ""), (End("b", 7), "", "7")]);
    }

    #[test]
    fn a_running_look_up_counts_until_it_ends() {
        let (first, then) = (many("loud", 4), many("loud", 8).skip(4));
        check(
            8,
            vec![
                (Want(first.collect()), "loud 4", ""),
                (want(&[]), "", ""),
                (Want(then.collect()), "", ""),
                (End("loud000", 0), "loud 1", ""),
            ],
        );
    }

    #[test]
    fn a_name_waits_in_every_namespace_that_wants_it() {
        let both = many("loud", 10).chain(["loud/shared".to_owned(), "quiet/shared".to_owned()]).collect();
        check(
            4,
            vec![
                (Want(both), "loud 2, quiet 1", ""),
                (want(&["loud/shared"]), "", ""),
                (End("shared", 3), "", ""),
                (want(&["loud/shared", "quiet/shared"]), "", "3"),
                (want(&["quiet/shared"]), "", "3"),
                (Wait(3), "quiet 1", ""),
            ],
        );
    }
}
