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

#[cfg(test)]
mod tests {
    use tidegate_config::model::HostPattern;
    use tidegate_config::object::ObjectName;

    use super::*;

    fn host(name: &str) -> Unit {
        Unit::Host(HostPattern::Exact(name.into()).into())
    }

    fn service(name: &str) -> Unit {
        Unit::Service(ObjectName::new("shop", name))
    }

    fn changed(units: &[Unit], replaced: usize, added: usize) -> ChangedUnits {
        let mut changed = ChangedUnits { replaced, added, ..ChangedUnits::default() };
        units.iter().for_each(|unit| changed.add(unit.clone()));
        changed
    }

    #[test]
    fn routing_and_endpoints_are_apart() {
        let (a, b, c) = (host("a"), service("b"), Unit::Globals(()));
        let nothing = ChangedUnits::default();
        assert!(!nothing.routes() && !nothing.endpoints());
        let endpoints = changed(std::slice::from_ref(&b), 0, 0);
        assert!(!endpoints.routes() && endpoints.endpoints());
        let mut both = changed(&[a.clone(), b.clone(), c.clone()], 2, 3);
        assert!(both.routes() && both.endpoints());
        assert_eq!(both.take_endpoints(), changed(&[b], 0, 0));
        assert_eq!(both, changed(&[a, c], 2, 3));
    }

    #[test]
    fn later_changes_add_up() {
        let mut all = changed(&[host("a"), service("a")], 2, 3);
        all.append(changed(&[host("b"), service("b")], 40, 50));
        assert_eq!(all, changed(&[host("a"), service("a"), host("b"), service("b")], 42, 53));
    }
}
