//! The verdict and the findings of an object itself, from its attachment.

use std::fmt;
use std::iter::once;
use std::sync::Arc;

use tidegate_config::model::SnapshotParts;
use tidegate_config::object::ObjectRef;

use super::unit::{Unit, UnitKind, beyond};
use super::{Compiled, Inputs, Pass};
use crate::attachment::{Attachment, Key, Report};
use crate::topology::Topology;

/// The reports of objects. They have no part in a snapshot.
pub(super) struct Reports;

impl UnitKind for Reports {
    type Key = ObjectRef;
    type Output = Option<Arc<Report>>;
    const LABEL: &'static str = "object";
    const ROUTING: bool = false;

    fn after(last: Option<&ObjectRef>, inputs: Inputs<'_>, compiled: &Compiled) -> Option<ObjectRef> {
        let judged = compiled.verdicts.range::<ObjectRef, _>(beyond(last)).next().map(|(object, _)| object);
        [inputs.world.after(last), inputs.topology.after(last), judged].into_iter().flatten().min().cloned()
    }

    fn owners_of(_: Inputs<'_>, object: &ObjectRef) -> Vec<ObjectRef> {
        vec![object.clone()]
    }

    fn make(inputs: Inputs<'_>, _: &Compiled, object: &ObjectRef) -> Option<Arc<Report>> {
        inputs.topology.get(object).and_then(|attachment| attachment.report.clone())
    }

    fn put(compiled: &mut Compiled, object: &ObjectRef, report: Option<Arc<Report>>, _: &mut Pass<'_>) -> bool {
        match report.as_ref().and_then(|report| report.verdict.clone()) {
            Some(verdict) => compiled.verdicts.insert(object.clone(), verdict),
            None => compiled.verdicts.remove(object),
        };
        let findings = report.map(|report| report.findings.clone()).unwrap_or_default();
        compiled.findings.put(Unit::Object(object.clone()), findings);
        false
    }

    fn serves(_: &ObjectRef, _: &Compiled, _: &SnapshotParts) -> bool {
        true
    }

    fn only_in(_: &SnapshotParts, _: &SnapshotParts) -> Vec<ObjectRef> {
        Vec::new()
    }

    /// Reports determine no routes.
    fn changed_between(_: &SnapshotParts, _: &SnapshotParts) -> Vec<ObjectRef> {
        Vec::new()
    }

    fn differing(object: &ObjectRef, before: &Attachment, after: &Attachment) -> Vec<ObjectRef> {
        if before.report == after.report { Vec::new() } else { vec![object.clone()] }
    }

    /// The object itself, if it has routes, or else those that depend on it.
    fn dependent_objects<'t>(
        object: &'t ObjectRef,
        topology: &'t Topology,
    ) -> Box<dyn Iterator<Item = &'t ObjectRef> + 't> {
        if topology.get(object).is_some_and(|attachment| !attachment.claims.is_empty()) {
            return Box::new(once(object));
        }
        Box::new(topology.dependents(&Key::Object(object.clone())))
    }

    fn describe(object: &ObjectRef, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(object, f)
    }
}
