//! How far the caching of each kind has come, for readiness and for what is kept over a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus::IntGauge;
use tokio::sync::watch;

use super::{CachedKind, ServedKind};
use crate::source_metrics::SourceMetrics;

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

impl CachedStanding {
    /// The second since the epoch as of which stale objects are; 0 where none are.
    fn stale_since_s(self) -> i64 {
        match self {
            Self::Kept(as_of_s) => i64::try_from(as_of_s).unwrap_or(i64::MAX),
            Self::Unknown | Self::Current | Self::Absent => 0,
        }
    }
}

/// Where the state of one kind is told.
#[derive(Clone, Debug)]
pub(crate) struct Tell {
    states: watch::Sender<CachedStates>,
    name: Arc<str>,
    stale_since: IntGauge,
}

impl Tell {
    pub(crate) fn of(states: &watch::Sender<CachedStates>, kind: &CachedKind, metrics: &SourceMetrics) -> Self {
        let stale_since = metrics.cached_stale_since(&kind.resource_name());
        Self { states: states.clone(), name: kind.to_string().into(), stale_since }
    }

    /// Changes the state.
    pub(crate) fn tell(&self, change: impl FnOnce(&mut CachedState)) {
        self.states.send_if_modified(|states| {
            let state = states.entry(Arc::clone(&self.name)).or_default();
            let before = state.clone();
            change(state);
            self.stale_since.set(state.standing.stale_since_s());
            before != *state
        });
    }
}

/// What is known of each kind that the API server has.
pub(crate) fn served(states: &CachedStates) -> BTreeMap<Arc<str>, ServedKind> {
    states.iter().filter_map(|(name, state)| Some((Arc::clone(name), state.served.clone()?))).collect()
}
