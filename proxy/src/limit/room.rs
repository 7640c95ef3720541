//! The room for the counters of all limits, and the parts of it that namespaces and their limits are sure of.
//!
//! One half is for whoever comes first. The other half is kept: each namespace of policies has an equal part of it, and
//! each group of a namespace an equal part of that. So neither a limit with many values nor a tenant with many limits
//! takes the room of other tenants. Parts are of the namespaces and groups that there are at the moment; what was taken
//! before there were more of them is not taken away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use foldhash::fast::RandomState;

/// The number of groups of a namespace that is removed.
const REMOVED: usize = usize::MAX;

/// The room for all counters.
#[derive(Debug)]
pub(super) struct Room {
    common_max: usize,
    kept_max: usize,
    common: AtomicUsize,
    kept: AtomicUsize,
    namespaces: papaya::HashMap<Arc<str>, Arc<Namespace>, RandomState>,
    /// The number of namespaces with groups.
    in_use: AtomicUsize,
}

/// The room of one namespace of policies.
#[derive(Debug)]
pub(super) struct Namespace {
    name: Arc<str>,
    groups: AtomicUsize,
    /// Its places in the half that is kept.
    kept: AtomicUsize,
}

impl Room {
    /// Room for so many counters.
    pub(super) fn new(counters_max: usize) -> Self {
        let kept_max = counters_max / 2;
        Self {
            common_max: counters_max - kept_max,
            kept_max,
            common: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            namespaces: papaya::HashMap::with_hasher(RandomState::default()),
            in_use: AtomicUsize::new(0),
        }
    }

    /// Adds a group to a namespace; [`Self::leave`] removes it.
    pub(super) fn enter(&self, name: &Arc<str>) -> Arc<Namespace> {
        let namespaces = self.namespaces.pin();
        loop {
            let new = || {
                let (groups, kept) = (AtomicUsize::new(0), AtomicUsize::new(0));
                Arc::new(Namespace { name: Arc::clone(name), groups, kept })
            };
            let namespace = Arc::clone(namespaces.get_or_insert_with(Arc::clone(name), new));
            let more = |groups: usize| (groups != REMOVED).then_some(groups + 1);
            match namespace.groups.fetch_update(Relaxed, Relaxed, more) {
                Ok(before) => {
                    if before == 0 {
                        self.in_use.fetch_add(1, Relaxed);
                    }
                    return namespace;
                }
                Err(_) => self.forget(&namespace),
            }
        }
    }

    /// Removes a group without counters from its namespace.
    pub(super) fn leave(&self, namespace: &Arc<Namespace>) {
        if namespace.groups.fetch_sub(1, Relaxed) > 1 {
            return;
        }
        self.in_use.fetch_sub(1, Relaxed);
        if namespace.groups.compare_exchange(0, REMOVED, Relaxed, Relaxed).is_ok() {
            self.forget(namespace);
        }
    }

    fn forget(&self, namespace: &Arc<Namespace>) {
        // It is an error if another one was inserted since.
        self.namespaces.pin().remove_if(&namespace.name, |_, it| Arc::ptr_eq(it, namespace)).ok();
    }

    /// Takes a place for a group of a namespace that has so many. Returns `false` if there is none.
    pub(super) fn take(&self, namespace: &Namespace, own: usize) -> bool {
        if one_more(&self.common, self.common_max) {
            return true;
        }
        let of_namespace = self.kept_max / self.in_use.load(Relaxed).max(1);
        let of_group = of_namespace / namespace.groups.load(Relaxed).max(1);
        if own >= of_group || !one_more(&self.kept, self.kept_max) {
            return false;
        }
        let taken = one_more(&namespace.kept, of_namespace);
        if !taken {
            self.kept.fetch_sub(1, Relaxed);
        }
        taken
    }

    /// Gives back a place of a namespace: one of those that were kept for it, if it has one.
    pub(super) fn give(&self, namespace: &Namespace) {
        let fewer = |kept: usize| kept.checked_sub(1);
        let of = if namespace.kept.fetch_update(Relaxed, Relaxed, fewer).is_ok() { &self.kept } else { &self.common };
        of.fetch_sub(1, Relaxed);
    }

    /// The number of namespaces that are known.
    #[cfg(test)]
    pub(super) fn namespaces(&self) -> (usize, usize) {
        (self.namespaces.len(), self.in_use.load(Relaxed))
    }
}

/// Adds one to a number below a limit.
fn one_more(number: &AtomicUsize, max: usize) -> bool {
    number.fetch_update(Relaxed, Relaxed, |number| (number < max).then_some(number + 1)).is_ok()
}
