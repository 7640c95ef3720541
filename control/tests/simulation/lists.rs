//! Lists, complete and incomplete, and kinds that are removed and defined again.

use std::collections::BTreeSet;

use tidegate_config::object::{Kind, ObjectRef};
use tidegate_control::Event;

use crate::play::{Simulation, all_of};

impl Simulation {
    /// Whether the watch of a kind is open.
    pub(crate) fn heard(&self, kind: Kind) -> bool {
        !self.held.contains(&kind) && !self.unserved.contains(&kind)
    }

    /// A complete list; an unconfirmed one is followed by a second one that confirms it. Pending events of the previous
    /// watch are lost. For a kind that the cluster does not serve, only that is reported.
    pub(crate) fn list(&mut self, kind: Kind) {
        self.lost.remove(&kind);
        self.held.remove(&kind);
        self.pending.remove(&Some(kind));
        if self.unserved.contains(&kind) {
            return self.tell_unserved(kind);
        }
        if self.listed(kind, self.cluster.list(kind, self.now)) {
            let again = self.cluster.list(kind, self.now);
            assert!(!self.listed(kind, again), "seed {}: a confirmed list acts", self.seed);
        }
    }

    pub(crate) fn list_all(&mut self) {
        self.pending.clear();
        Kind::ALL.into_iter().for_each(|kind| self.list(kind));
    }

    /// A list with items without an identity: it removes nothing. Missed changes are still missed.
    pub(crate) fn list_part(&mut self, kind: Kind, die: &mut fastrand::Rng) {
        if !self.list_untrue(kind) {
            return;
        }
        let Event::Listed { collection, mut objects, resource_version, received, .. } =
            self.cluster.list(kind, self.now)
        else {
            unreachable!("a list")
        };
        objects.retain(|_| die.bool());
        let listed = objects.iter().map(|object| object.meta.object.clone());
        let there: BTreeSet<ObjectRef> = self.names(kind).into_iter().chain(listed).collect();
        let event = Event::Listed { collection, objects, complete: false, resource_version, received };
        assert_eq!(self.reconciler.observe(event, self.now), None, "seed {}", self.seed);
        assert_eq!(self.names(kind), there, "seed {}: after a part of a list of {kind}", self.seed);
    }

    /// A list that lacks objects but claims to be complete. While it is unconfirmed, all routes continue to serve; it
    /// is followed at random by changes, by another incomplete list, or by a complete one.
    pub(crate) fn list_lacking(&mut self, kind: Kind, die: &mut fastrand::Rng) {
        if !self.list_untrue(kind) || !self.listed(kind, self.cluster.list_lacking(kind, die, self.now)) {
            return;
        }
        if die.bool() {
            self.compile_all();
            self.check_compiled();
        }
        match die.u32(0..3) {
            0 => {}
            1 => {
                let again = self.cluster.list_lacking(kind, die, self.now);
                assert!(!self.listed(kind, again), "seed {}: who is wrong twice is believed", self.seed);
            }
            _ => self.list(kind),
        }
    }

    /// The cluster no longer serves a kind. Its objects are deleted, or hidden; some pending events are delivered.
    pub(crate) fn unserve(&mut self, kind: Kind, die: &mut fastrand::Rng) {
        if die.bool() {
            self.deliver(Some(kind), usize::MAX);
        }
        if die.bool() {
            self.cluster.clear(kind);
        }
        self.unserved.insert(kind);
        self.list(kind);
    }

    /// The cluster serves a kind again, with the objects that exist by now.
    pub(crate) fn serve(&mut self, die: &mut fastrand::Rng) {
        let kind = die.choice(&self.unserved).copied();
        if let Some(kind) = kind.filter(|kind| self.unserved.remove(kind)) {
            self.list(kind);
        }
    }

    /// The cluster serves every kind, and all are listed.
    pub(crate) fn tell_all(&mut self) {
        self.unserved.clear();
        self.list_all();
        self.quiet();
    }

    /// Begins an incorrect list, if there are objects to list. Objects missing from it are still missed.
    fn list_untrue(&mut self, kind: Kind) -> bool {
        let served = !self.unserved.contains(&kind);
        if served {
            self.held.remove(&kind);
            self.pending.remove(&Some(kind));
            self.lost.insert(kind);
        }
        served
    }

    /// A list that claims to be complete, and whether another one must confirm it. An unconfirmed list adds its objects
    /// and removes none; otherwise exactly the listed objects remain. The rule is that of `docs/operations.md`,
    /// implemented independently of the loop.
    fn listed(&mut self, kind: Kind, event: Event) -> bool {
        let Event::Listed { objects, .. } = &event else { unreachable!("a list") };
        let listed: BTreeSet<ObjectRef> = objects.iter().map(|object| object.meta.object.clone()).collect();
        let before = self.names(kind);
        let all: BTreeSet<ObjectRef> = before.union(&listed).cloned().collect();
        let lacks = all.len() - listed.len();
        let most = lacks * 2 > before.len() && lacks > self.options.pace.unconfirmed_removals.count;
        let unconfirmed = (most || lacks > 0 && lacks == before.len()) && self.unconfirmed.insert(kind);
        if !unconfirmed {
            self.unconfirmed.remove(&kind);
        }
        let asked = self.reconciler.observe(event, self.now);
        assert_eq!(asked, unconfirmed.then(|| all_of(kind)), "seed {}: a list of {kind} without {lacks}", self.seed);
        let there = if unconfirmed { all } else { listed };
        assert_eq!(self.names(kind), there, "seed {}: after a list of {kind} without {lacks}", self.seed);
        unconfirmed
    }

    fn tell_unserved(&mut self, kind: Kind) {
        self.unconfirmed.remove(&kind);
        let event = Event::Unserved { collection: all_of(kind), received: self.now };
        assert_eq!(self.reconciler.observe(event, self.now), None, "seed {}: that {kind} is not there", self.seed);
        assert!(self.names(kind).is_empty(), "seed {}: there is {kind} that the cluster does not have", self.seed);
    }

    fn names(&self, kind: Kind) -> BTreeSet<ObjectRef> {
        self.reconciler.model().world().names_of(kind, None).cloned().collect()
    }
}
