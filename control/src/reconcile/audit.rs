//! The audit: while no key waits, every unit is compiled again, a few per turn, and compared with the last compilation
//! and with the serving snapshot. Each change compiles all affected units, so there should never be a difference. A
//! difference is drift: it is repaired, logged and counted, and is an error in Tidegate.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tidegate_config::model::{Snapshot, SnapshotParts};
use tidegate_config::object::ObjectRef;

use super::model::Model;
use super::{Reconciler, Step};
use crate::attachment::Verdict;
use crate::backoff::share;
use crate::compile::{ByObject, ChangedUnits, Compiled, Defer, Touched, Unit};
use crate::history::{Cause, Changes};
use crate::sources::attach;

/// The minimum pause between turns, however large the cluster is.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The progress of the audit.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The last audited unit; `None` at the beginning of a round.
    last: Option<Unit>,
    /// The number of units audited in this round so far.
    passed: usize,
    /// The number of units in the round before, by which the turns are spread over time.
    expected: usize,
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
    /// The first round, over about so many units.
    pub(super) fn new(units: usize) -> Self {
        Self { expected: units, ..Self::default() }
    }

    /// Sets when the next turn is due after one of `units` units: a round takes the configured time, plus up to half of
    /// it.
    pub(super) fn schedule(&mut self, now: Instant, units: usize, model: &Model, draw: u64) {
        // Each object is a unit too, so that a cluster that has just grown is not rushed through.
        let all = self.expected.max(self.passed).max(model.world.count()).max(1);
        let [units, all] = [units, all].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let fair = model.options.pace.audit.saturating_mul(units.min(all)) / all;
        self.due = Some(now + (fair + share(fair / 2, draw)).max(PAUSE_MIN));
    }

    /// Audits the next few units, and schedules the next turn. Returns `true` if the round ends with this turn.
    fn advance(&mut self, turn: &mut Turn<'_>, now: Instant, draw: u64) -> bool {
        let (mut units, mut routes) = (0, 0);
        let pace = turn.model.options.pace;
        while units < pace.units_max() && routes < pace.audit_routes_max.max(1) {
            let Some(unit) = turn.after(self.last.as_ref()) else { break };
            units += 1;
            turn.audit(&unit);
            routes += unit.weight(&turn.model.compiled.parts);
            self.last = Some(unit);
        }
        self.passed += units;
        let whole = turn.after(self.last.as_ref()).is_none();
        if whole {
            self.last = None;
            self.expected = std::mem::take(&mut self.passed);
            turn.audit_left_over();
        }
        self.schedule(now, units, turn.model, draw);
        whole
    }
}

/// One turn in progress.
struct Turn<'a> {
    model: &'a mut Model,
    /// Whether held routes serve instead of the compiled ones.
    holds: bool,
    serving: &'a SnapshotParts,
    /// Units that had drifted.
    drifted: Vec<Unit>,
    /// The changes to publish.
    mended: ChangedUnits,
}

impl Turn<'_> {
    /// The unit after this one.
    fn after(&self, last: Option<&Unit>) -> Option<Unit> {
        Unit::after(last, self.model.inputs(), &self.model.compiled)
    }

    /// Attaches or compiles one unit again, and records drift of it and of the units it affects.
    fn audit(&mut self, unit: &Unit) {
        let before = reported(&self.model.compiled, unit);
        self.model.compiled.invalidate(unit);
        let attached = unit.object().is_some_and(|object| self.attach_again(object));
        let defer = Defer { waits: &|_| false, decide: &mut |_, _| false };
        let (inputs, compiled) = self.model.inputs_and_output();
        let touched = compiled.recompile(inputs, BTreeSet::from([unit.clone()]), defer);
        let recompiled = touched.changed.routes() || touched.changed.endpoints();
        let serves = self.ignores(unit) || unit.serves(&self.model.compiled, self.serving);
        if attached || recompiled || !serves || before != reported(&self.model.compiled, unit) {
            self.drifted.push(unit.clone());
        }
        if recompiled {
            let others = touched.changed.endpoints.first.iter().filter(|other| *other != unit);
            self.drifted.extend(others.cloned());
            self.mended.append(touched.changed);
        } else if !serves {
            self.publish(unit);
        }
    }

    /// Attaches an object again. Returns `true` if the attachment differs.
    fn attach_again(&mut self, object: &ObjectRef) -> bool {
        let Model { world, options, topology, .. } = &*self.model;
        let attachment = attach(world, options, topology, object);
        self.model.replace(object, attachment).is_some()
    }

    /// Records drift of the units that serve although they were not compiled.
    fn audit_left_over(&mut self) {
        let left: BTreeSet<Unit> = Unit::only_in(self.serving, &self.model.compiled.parts).into_iter().collect();
        for unit in left {
            if !self.ignores(&unit) && !self.drifted.contains(&unit) {
                self.publish(&unit);
                self.drifted.push(unit);
            }
        }
    }

    /// Whether a unit need not serve as it was compiled, because other routes are held.
    const fn ignores(&self, unit: &Unit) -> bool {
        self.holds && unit.routing()
    }

    /// A unit must be published as it is now compiled.
    fn publish(&mut self, unit: &Unit) {
        self.mended.replaced += unit.weight(self.serving);
        self.mended.add(unit.clone());
    }
}

impl Reconciler {
    /// When the next turn of [`Reconciler::audit`] is due; `None` while there is other work.
    #[must_use]
    pub fn audit_due(&self) -> Option<Instant> {
        let idle = self.backlog.is_empty() && self.waits.is_empty() && !self.holding.commanded();
        self.round.due.filter(|_| self.running() && idle)
    }

    /// Audits the next few units, at most as many as a batch of the slow lane, if a turn is due. `serving` is the last
    /// published snapshot; `draw` is a random number, which spreads the turns of several processes.
    pub fn audit(&mut self, serving: &Snapshot, now: Instant, draw: u64) -> Option<Audit> {
        self.audit_due().filter(|due| *due <= now)?;
        let (model, holds, serving) = (&mut self.model, self.holding.holds(), serving.parts());
        let mut turn = Turn { model, holds, serving, drifted: Vec::new(), mended: ChangedUnits::default() };
        let whole = self.round.advance(&mut turn, now, draw);
        let Turn { drifted, mended, .. } = turn;
        let step = (!drifted.is_empty()).then(|| self.repair(&drifted, mended));
        Some(Audit { drifted, step, whole })
    }

    /// The step that publishes the repair of drift.
    fn repair(&mut self, drifted: &[Unit], units: ChangedUnits) -> Step {
        let mut changes = Changes { units, ..Changes::default() };
        for unit in drifted {
            changes.causes.note(Cause::Drifted { unit: unit.clone() });
        }
        self.reporting.judged(drifted);
        self.names.note_all();
        self.key_sources.note_all();
        let (names, key_sources) = (self.names.refresh(&mut self.model), self.key_sources.refresh(&mut self.model));
        let secrets = self.secrets.all(&self.model.topology, &self.model.options);
        Step {
            published: self.holding.outgoing(changes, &self.model.compiled.parts),
            touched: Touched::default(),
            oldest: None,
            names,
            key_sources,
            secrets,
        }
    }
}

/// The findings of a unit, and the verdict of its object.
fn reported(compiled: &Compiled, unit: &Unit) -> (Option<ByObject>, Option<Verdict>) {
    let verdict = unit.object().and_then(|object| compiled.verdicts.get(object).cloned());
    (compiled.findings.by_unit().get(unit).cloned(), verdict)
}
