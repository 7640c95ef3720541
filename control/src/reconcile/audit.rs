//! The audit: while nothing waits, every unit is compiled again, a few in a turn, and held against what was compiled before
//! and against what serves. Each change compiles all that it affects, so nothing should ever come of it. What does has
//! drifted: it is mended, told and counted, and is a fault of Tidegate.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_config::finding::Finding;
use tidegate_config::model::Snapshot;

use super::{Reconciler, Step};
use crate::backoff::share;
use crate::compile::{Dirty, Touched, Unit, Verdict};
use crate::history::{Cause, Changes};

/// Turns are at least so far apart, however large the cluster is.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// How far the audit has come.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The unit that was looked at last; none before the first.
    last: Option<Unit>,
    /// When the next turn is due; never before the first model.
    due: Option<Instant>,
}

/// What one turn of the audit found.
#[derive(Debug, Default)]
pub struct Audit {
    /// Units that had drifted.
    pub drifted: Vec<Unit>,
    /// What is to be published and told for that.
    pub step: Option<Step>,
    /// Whether the round ended with this turn: every unit has been looked at.
    pub whole: bool,
}

/// What is to be published for units that had drifted, and whether other names may have to be looked up.
#[derive(Default)]
struct Mended {
    changes: Changes,
    names: bool,
}

impl Reconciler {
    /// When [`Reconciler::audit`] has something to do; not while anything else has.
    #[must_use]
    pub fn audit_due(&self) -> Option<Instant> {
        let idle = self.queue.is_empty() && self.deferred.is_empty() && self.commanded.is_none();
        self.round.due.filter(|_| self.running && idle)
    }

    /// Looks at the next few units, as many at most as a batch has objects of lists, if that is due. `serving` is what was
    /// published last; `draw` is any number, and spreads the turns of many processes.
    pub fn audit(&mut self, serving: &Snapshot, now: Instant, draw: u64) -> Option<Audit> {
        self.audit_due().filter(|due| *due <= now)?;
        let (mut audit, mut mended) = (Audit::default(), Mended::default());
        let mut units = 0;
        while !audit.whole && units < self.units_max() {
            let unit = Unit::after(self.round.last.as_ref(), &self.world, &self.topology, &self.compiled);
            units += 1;
            if self.audit_unit(&unit, serving, &mut mended) {
                audit.drifted.push(unit.clone());
            }
            audit.whole = unit == Unit::DefaultCertificate;
            self.round.last = (!audit.whole).then_some(unit);
        }
        if audit.whole {
            let left = self.left_over(serving).into_iter().filter(|unit| !audit.drifted.contains(unit));
            for unit in left.collect::<Vec<_>>() {
                mended.note(&unit, serving);
                audit.drifted.push(unit);
            }
        }
        self.round.due = Some(now + self.pause(units, draw));
        if !audit.drifted.is_empty() {
            audit.step = Some(self.mended(&audit.drifted, mended));
        }
        Some(audit)
    }

    /// Begins the first round.
    pub(super) fn begin_audit(&mut self, now: Instant) {
        self.round = Round { last: None, due: Some(now + self.pause(self.units_max(), 0)) };
    }

    fn units_max(&self) -> usize {
        self.options.pace.share.slow_batch_max.max(1)
    }

    /// The pause after a turn of so many units: a round takes as long as was settled, and up to half as long again.
    fn pause(&self, units: usize, draw: u64) -> Duration {
        let all = self.world.count() + self.compiled.parts.hosts.len() + self.world.services.len() + 1;
        let [units, all] = [units, all].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let fair = self.options.pace.audit.saturating_mul(units.min(all)) / all;
        (fair + share(fair / 2, draw)).max(PAUSE_MIN)
    }

    /// Compiles one unit again; whether it was otherwise than it should be.
    fn audit_unit(&mut self, unit: &Unit, serving: &Snapshot, mended: &mut Mended) -> bool {
        let told = self.told(unit);
        let relinked = match unit {
            Unit::Object(object) => *self.relink(object) != *self.topology.references_of(object),
            Unit::Host(_) | Unit::Service(_) | Unit::DefaultCertificate => false,
        };
        let Self { world, topology, compiled, options, .. } = self;
        let (touched, _) = compiled.recompile(world, options, topology, &Dirty::only(unit.clone()), |_, _, _| false);
        let recompiled = touched.changes.routes() || touched.changes.endpoints();
        let differs = recompiled || !self.serves(unit, serving);
        if differs {
            mended.note(unit, serving);
        }
        mended.names |= relinked || touched.members;
        relinked || differs || told != self.told(unit)
    }

    /// What users are told of a unit, and what became of the object that it is.
    fn told(&self, unit: &Unit) -> (Option<Arc<[Finding]>>, Option<Verdict>) {
        let verdict = match unit {
            Unit::Object(object) => self.compiled.verdicts.get(&object.name).cloned(),
            Unit::Host(_) | Unit::Service(_) | Unit::DefaultCertificate => None,
        };
        (self.compiled.findings.by_unit().get(unit).cloned(), verdict)
    }

    /// Whether a unit serves as it was compiled. Routes that are held need not.
    fn serves(&self, unit: &Unit, serving: &Snapshot) -> bool {
        let (parts, held) = (&self.compiled.parts, self.hold.is_some());
        match unit {
            Unit::Object(_) => true,
            Unit::Host(host) => held || same(serving.hosts().get(host), parts.hosts.get(host)),
            Unit::Service(service) => {
                let mut backends = self.compiled.backends_of(service);
                backends.all(|key| same(serving.backend(key), parts.backends.get(key)))
            }
            Unit::DefaultCertificate => held || serving.default_certificate() == parts.default_certificate.as_ref(),
        }
    }

    /// What serves although it was not compiled. All of it is looked through only where there is more than there should be.
    fn left_over(&self, serving: &Snapshot) -> Vec<Unit> {
        let parts = &self.compiled.parts;
        let mut left = Vec::new();
        if self.hold.is_none() && serving.hosts().len() > parts.hosts.len() {
            let hosts = serving.hosts().iter().map(|(host, _)| host);
            left.extend(hosts.filter(|host| parts.hosts.get(host).is_none()).map(Unit::Host));
        }
        if serving.backends().size() > parts.backends.size() {
            let keys = serving.backends().keys().filter(|key| !parts.backends.contains_key(*key));
            left.extend(keys.map(|key| Unit::Service(key.service.clone())));
        }
        left.sort_unstable();
        left.dedup();
        left
    }

    fn mended(&mut self, drifted: &[Unit], Mended { mut changes, names }: Mended) -> Step {
        for unit in drifted {
            changes.causes.note(Cause::Drifted { unit: unit.clone() });
        }
        self.reporting.judged(drifted.iter().filter_map(|unit| match unit {
            Unit::Object(object) => Some(object),
            Unit::Host(_) | Unit::Service(_) | Unit::DefaultCertificate => None,
        }));
        let names = names.then(|| self.name());
        let secrets = self.follow_all();
        Step { published: self.outgoing(changes), touched: Touched::default(), oldest: None, names, secrets }
    }
}

impl Mended {
    /// A unit has to be published as it is now compiled.
    fn note(&mut self, unit: &Unit, serving: &Snapshot) {
        let changes = &mut self.changes;
        match unit {
            Unit::Object(_) => {}
            Unit::Host(host) => {
                changes.hosts.add(|| host.clone());
                changes.replaced += serving.hosts().get(host).map_or(0, |routes| routes.routes().len());
            }
            Unit::Service(service) => changes.services.add(|| service.clone()),
            Unit::DefaultCertificate => changes.default_certificate = true,
        }
    }
}

/// Whether two are one and the same.
fn same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    one.map(Arc::as_ptr) == other.map(Arc::as_ptr)
}
