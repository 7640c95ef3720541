//! How far the caching of each kind has come, for readiness and for what is kept over a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::{CachedKind, ServedKind};

/// All of them, by their names.
pub type CachedStates = BTreeMap<Arc<str>, CachedState>;

/// One cached kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CachedState {
    /// What the API server has by this name, where that is known.
    pub served: Option<ServedKind>,
    /// What is known of its objects.
    pub standing: CachedStanding,
    /// Why it cannot be read at the moment, in one line.
    pub failing: Option<String>,
    /// Whether the API server says that it may not be read.
    pub denied: bool,
}

/// What is known of the objects of a cached kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CachedStanding {
    /// Nothing.
    #[default]
    Unknown,
    /// What was kept on disk, as of this second since the epoch.
    Kept(u64),
    /// They are followed.
    Current,
    /// The API server has no such kind.
    Absent,
}

impl CachedState {
    /// Whether there is nothing to wait for: something can be served, or nothing ever will be until somebody changes the cluster.
    #[must_use]
    pub fn settled(&self) -> bool {
        self.standing != CachedStanding::Unknown || self.denied
    }
}

/// Where the state of one kind is told.
#[derive(Clone, Debug)]
pub(crate) struct Tell {
    states: watch::Sender<CachedStates>,
    name: Arc<str>,
}

impl Tell {
    pub(crate) fn of(states: &watch::Sender<CachedStates>, kind: &CachedKind) -> Self {
        Self { states: states.clone(), name: kind.to_string().into() }
    }

    /// Changes the state.
    pub(crate) fn tell(&self, change: impl FnOnce(&mut CachedState)) {
        self.states.send_if_modified(|states| {
            let state = states.entry(Arc::clone(&self.name)).or_default();
            let before = state.clone();
            change(state);
            before != *state
        });
    }
}

/// What is known of each kind that the API server has.
pub(crate) fn served(states: &CachedStates) -> BTreeMap<Arc<str>, ServedKind> {
    states.iter().filter_map(|(name, state)| Some((Arc::clone(name), state.served.clone()?))).collect()
}
