//! The audit: while no key waits, every unit is compiled again, a few per turn, and compared with the last compilation
//! and with the serving snapshot. Each change compiles all affected units, so there should never be a difference. A
//! difference is drift: it is repaired, logged and counted, and is an error in Tidegate.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tidegate_config::model::{Snapshot, SnapshotParts};
use tidegate_config::object::ObjectRef;

use super::{Reconciler, Step, inputs};
use crate::attachment::{Attachment, Verdict};
use crate::backoff::share;
use crate::compile::{ByObject, ChangedUnits, Compiled, Defer, Inputs, Touched, Unit};
use crate::history::{Cause, Changes};
use crate::sources::attach;

/// The minimum pause between turns, however large the cluster is.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The progress of the audit.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The last audited unit; `None` at the beginning of a round.
    last: Option<Unit>,
    /// When the next turn is due; `None` before the first model.
    due: Option<Instant>,
}

/// The result of one turn of the audit.
#[derive(Debug, Default)]
pub struct Audit {
    /// Units that had drifted.
    pub drifted: Vec<Unit>,
    /// The repair to publish and report.
    pub step: Option<Step>,
    /// Whether the round ended with this turn.
    pub whole: bool,
}

impl Round {
    /// Sets when the next turn is due after one of `units` units: a round takes the configured time, plus up to half of
    /// it.
    pub(super) fn schedule(
        &mut self,
        now: Instant,
        units: usize,
        (Inputs { world, options, .. }, compiled): (Inputs<'_>, &Compiled),
        draw: u64,
    ) {
        let all = world.count() + compiled.parts.hosts.len() + world.services.len() + 1;
        let [units, all] = [units, all].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let fair = options.pace.audit.saturating_mul(units.min(all)) / all;
        self.due = Some(now + (fair + share(fair / 2, draw)).max(PAUSE_MIN));
    }
}

impl Reconciler {
    /// When the next turn of [`Reconciler::audit`] is due; `None` while there is other work.
    #[must_use]
    pub fn audit_due(&self) -> Option<Instant> {
        let idle = self.backlog.is_empty() && self.waits.is_empty() && !self.holding.commanded();
        self.round.due.filter(|_| self.running && idle)
    }

    /// Audits the next few units, at most as many as a batch of the slow lane, if a turn is due. `serving` is the last
    /// published snapshot; `draw` is a random number, which spreads the turns of several processes.
    pub fn audit(&mut self, serving: &Snapshot, now: Instant, draw: u64) -> Option<Audit> {
        self.audit_due().filter(|due| *due <= now)?;
        let (mut audit, mut mended) = (Audit::default(), ChangedUnits::default());
        let mut units = 0;
        while units < self.options.pace.units_max() {
            let Some(unit) = Unit::after(self.round.last.as_ref(), self.inputs(), &self.compiled) else { break };
            units += 1;
            self.audit_unit(&unit, serving.parts(), &mut mended, &mut audit.drifted);
            self.round.last = Some(unit);
        }
        audit.whole = Unit::after(self.round.last.as_ref(), self.inputs(), &self.compiled).is_none();
        if audit.whole {
            self.round.last = None;
            for unit in self.left_over(serving.parts()) {
                if !audit.drifted.contains(&unit) {
                    note(&mut mended, &unit, serving.parts());
                    audit.drifted.push(unit);
                }
            }
        }
        let inputs = inputs(&self.world, &self.options, &self.topology, self.holding.backends());
        self.round.schedule(now, units, (inputs, &self.compiled), draw);
        if !audit.drifted.is_empty() {
            audit.step = Some(self.mended(&audit.drifted, mended));
        }
        Some(audit)
    }

    fn inputs(&self) -> Inputs<'_> {
        inputs(&self.world, &self.options, &self.topology, self.holding.backends())
    }

    /// Attaches or compiles one unit again, and records drift of it and of the units it affects.
    fn audit_unit(&mut self, unit: &Unit, serving: &SnapshotParts, mended: &mut ChangedUnits, drifted: &mut Vec<Unit>) {
        let before = told(&self.compiled, unit);
        self.compiled.distrust(unit);
        let attached = unit.object().is_some_and(|object| self.attach_again(object));
        let inputs = inputs(&self.world, &self.options, &self.topology, self.holding.backends());
        let defer = Defer { waiting: BTreeSet::new(), decide: &mut |_, _| false };
        let touched = self.compiled.recompile(inputs, BTreeSet::from([unit.clone()]), defer);
        let recompiled = touched.changed.routes() || touched.changed.endpoints();
        let serves = self.serves(unit, serving);
        if attached || recompiled || !serves || before != told(&self.compiled, unit) {
            drifted.push(unit.clone());
        }
        if recompiled {
            let others = touched.changed.endpoints.first.iter().filter(|other| *other != unit);
            drifted.extend(others.cloned());
            mended.append(touched.changed);
            self.names.note_all();
        } else if !serves {
            note(mended, unit, serving);
        }
    }

    /// Attaches an object again. Returns `true` if the attachment differs.
    fn attach_again(&mut self, object: &ObjectRef) -> bool {
        let attachment = attach(&self.world, &self.options, &self.topology, object);
        let differs = *self.topology.get(object).unwrap_or(&Attachment::default()) != attachment;
        if differs {
            self.topology.replace(object, attachment);
            self.names.note_all();
        }
        differs
    }

    /// Returns `true` if a unit serves as it was compiled. Held routes need not.
    fn serves(&self, unit: &Unit, serving: &SnapshotParts) -> bool {
        unit.routing() && self.holding.holds() || unit.serves(&self.compiled, serving)
    }

    /// Units that serve although they were not compiled.
    fn left_over(&self, serving: &SnapshotParts) -> Vec<Unit> {
        let left = Unit::only_in(serving, &self.compiled.parts).into_iter();
        left.filter(|unit| !self.holding.holds() || !unit.routing()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn mended(&mut self, drifted: &[Unit], units: ChangedUnits) -> Step {
        let mut changes = Changes { units, ..Changes::default() };
        for unit in drifted {
            changes.causes.note(Cause::Drifted { unit: unit.clone() });
        }
        self.reporting.judged(drifted);
        let names = self.refresh_names();
        let secrets = self.secrets.all(&self.topology, &self.options);
        Step {
            published: self.holding.outgoing(changes, &self.compiled.parts),
            touched: Touched::default(),
            oldest: None,
            names,
            secrets,
        }
    }
}

/// The findings of a unit, and the verdict of its object.
fn told(compiled: &Compiled, unit: &Unit) -> (Option<ByObject>, Option<Verdict>) {
    let verdict = unit.object().and_then(|object| compiled.verdicts.get(object).cloned());
    (compiled.findings.by_unit().get(unit).cloned(), verdict)
}

/// A unit must be published as it is now compiled.
fn note(changes: &mut ChangedUnits, unit: &Unit, serving: &SnapshotParts) {
    changes.replaced += unit.weight(serving);
    changes.add(unit.clone());
}
