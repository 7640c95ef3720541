//! The units that a recompilation has changed.

use serde::Serialize;

use super::Unit;
use crate::sample::Sample;

/// The units whose parts differ from those of the model before.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedUnits {
    /// Changed units of routing.
    pub routing: Sample<Unit>,
    /// Changed units of endpoints.
    pub endpoints: Sample<Unit>,
    /// The number of routes of the earlier model that this one does not share: the cost of keeping the earlier one.
    #[serde(skip)]
    pub(crate) replaced: usize,
    /// The number of routes that the earlier model does not share.
    #[serde(skip)]
    pub(crate) added: usize,
}

impl ChangedUnits {
    /// Adds a changed unit.
    pub(crate) fn add(&mut self, unit: Unit) {
        if unit.routing() { &mut self.routing } else { &mut self.endpoints }.add(|| unit);
    }

    /// Returns `true` if routing has changed.
    #[must_use]
    pub const fn routes(&self) -> bool {
        self.routing.total > 0
    }

    /// Returns `true` if endpoints have changed.
    #[must_use]
    pub const fn endpoints(&self) -> bool {
        self.endpoints.total > 0
    }

    /// Removes the changes of endpoints, and returns them.
    pub(crate) fn take_endpoints(&mut self) -> Self {
        Self { endpoints: std::mem::take(&mut self.endpoints), ..Self::default() }
    }

    /// Adds later changes.
    pub(crate) fn append(&mut self, later: Self) {
        self.routing.append(later.routing);
        self.endpoints.append(later.endpoints);
        self.replaced += later.replaced;
        self.added += later.added;
    }
}
