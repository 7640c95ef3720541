//! The state of each cached kind, for readiness and for storage over a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus::IntGauge;
use tokio::sync::watch;

use super::{CachedKind, ServedKind};
use crate::cluster::collection_metrics::CollectionMetrics;

/// The states of all kinds, by name.
pub type CachedStates = BTreeMap<Arc<str>, CachedState>;

/// The state of one cached kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CachedState {
    /// The resource that the API server serves under this name, if known.
    pub served: Option<ServedKind>,
    /// The state of its objects.
    pub standing: CachedCondition,
    /// The reason why it cannot be read at the moment, in one line.
    pub failing: Option<String>,
    /// Whether the API server denies access.
    pub denied: bool,
}

/// The state of the objects of a cached kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CachedCondition {
    /// Unknown.
    #[default]
    Unknown,
    /// Restored from disk, as of this second since the epoch.
    Kept(u64),
    /// Up to date: the watch is open.
    Current,
    /// The API server has no such kind.
    Absent,
}

impl CachedState {
    /// Returns `true` if objects cannot be served yet. Where the API server denies access they never will be, without a
    /// change of permissions, so that is not pending.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.standing == CachedCondition::Unknown && !self.denied
    }
}

/// The first kind that still has to be waited for. Where other kinds were restored from disk, one that cannot be looked
/// up is not waited for: whether the API server has it is unknown while it is unreachable.
#[must_use]
pub fn awaited(states: &CachedStates) -> Option<&Arc<str>> {
    let restored = states.values().any(|state| matches!(state.standing, CachedCondition::Kept(_)));
    let awaited = |state: &CachedState| state.is_pending() && !(restored && state.failing.is_some());
    states.iter().find(|(_, state)| awaited(state)).map(|(name, _)| name)
}

impl CachedCondition {
    /// The age of stale objects as a second since the epoch; 0 for others.
    fn stale_since_s(self) -> i64 {
        match self {
            Self::Kept(as_of_s) => i64::try_from(as_of_s).unwrap_or(i64::MAX),
            Self::Unknown | Self::Current | Self::Absent => 0,
        }
    }
}

/// The sink for the state of one kind.
#[derive(Clone, Debug)]
pub(crate) struct StateReporter {
    states: watch::Sender<CachedStates>,
    name: Arc<str>,
    stale_since: IntGauge,
}

impl StateReporter {
    pub(crate) fn of(states: &watch::Sender<CachedStates>, kind: &CachedKind, metrics: &CollectionMetrics) -> Self {
        let stale_since = metrics.cached_kind_stale_since(&kind.resource_name());
        Self { states: states.clone(), name: kind.to_string().into(), stale_since }
    }

    /// Changes the state.
    pub(crate) fn report(&self, change: impl FnOnce(&mut CachedState)) {
        self.states.send_if_modified(|states| {
            let state = states.entry(Arc::clone(&self.name)).or_default();
            let before = state.clone();
            change(state);
            self.stale_since.set(state.standing.stale_since_s());
            before != *state
        });
    }
}

/// The initial states.
pub(crate) fn unknown(kinds: &[CachedKind]) -> CachedStates {
    kinds.iter().map(|kind| (Arc::from(kind.to_string()), Default::default())).collect()
}

/// The resources of the kinds that the API server serves.
pub(crate) fn served(states: &CachedStates) -> BTreeMap<Arc<str>, ServedKind> {
    states.iter().filter_map(|(name, state)| Some((Arc::clone(name), state.served.clone()?))).collect()
}
