//! The compiler: from attachments to the parts of a snapshot and to findings. Pure: no clock, no I/O, no log line, and
//! independent of the sources of routes.
//!
//! [`Compiled::of`] compiles all units, one after the other, and [`Compiled::recompile`] only dirty ones. Both call the
//! same function for each unit.

mod backends;
mod binds;
mod changed;
mod findings;
mod globals;
mod host;
mod policies;
mod report;
mod scopes;
mod streams;
#[cfg(test)]
mod tests;
mod unit;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use changed::ChangedUnits;
pub use findings::Findings;
pub(crate) use findings::{ByObject, FindingCounts};
pub use host::HostUnit;
use host::claim_index::ClaimIndex;
use tidegate_config::caught::caught;
use tidegate_config::finding::{Finding, Problem, printable};
use tidegate_config::model::{BackendKey, BindKey, SnapshotParts, StreamRoute, VirtualHost};
use tidegate_config::object::{ObjectName, ObjectRef};
pub use unit::Unit;

use crate::attachment::Verdict;
use crate::options::Options;
use crate::topology::Topology;
use crate::world::{World, pack};

/// The input of the compiler.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The current objects.
    pub world: &'a World,
    /// The operator's options.
    pub options: &'a Options,
    /// The attachments of the objects.
    pub topology: &'a Topology,
    /// Service ports whose endpoints are compiled even if no route uses them: those of held routes.
    pub frozen_backends: &'a BTreeSet<BackendKey>,
}

/// The output of the compiler.
#[derive(Debug, Default)]
pub struct Compiled {
    /// The parts of the next snapshot.
    pub parts: SnapshotParts,
    /// The findings.
    pub findings: Findings,
    /// The verdicts of objects.
    pub verdicts: BTreeMap<ObjectRef, Verdict>,
    /// The backends in the parts, in the order of their Services, so that those of a Service can be found.
    backends: BTreeSet<BackendKey>,
    /// The users of each backend. The endpoints of others are not compiled.
    uses: BTreeSet<(BackendKey, BackendUser)>,
    /// The sockets in the parts that objects ask for.
    binds: BTreeSet<BindKey>,
    /// The hosts in the parts in their order, for the audit.
    hosts: BTreeSet<VirtualHost>,
    /// The hosts whose connections are passed on as bytes, likewise.
    streams: BTreeSet<VirtualHost>,
    /// The objects with policies in the parts, likewise.
    policies: BTreeSet<ObjectRef>,
    /// The compiled claims of hosts with many claims.
    claims: BTreeMap<VirtualHost, ClaimIndex>,
    /// For those hosts, the objects whose claims have changed since.
    changed_claims: BTreeMap<VirtualHost, BTreeSet<ObjectRef>>,
}

/// A user of a backend.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum BackendUser {
    /// A virtual host.
    Host(VirtualHost),
    /// The connections for a host, which are passed on as bytes.
    Stream(VirtualHost),
}

/// The effects of one recompilation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Touched {
    /// The units whose parts differ.
    pub changed: ChangedUnits,
    /// The number of compiled units, by [`Unit::label`].
    pub compiled: BTreeMap<&'static str, usize>,
    /// Dirty units that were deferred.
    pub deferred: BTreeSet<Unit>,
    /// Services that are used now and were not before, or the other way round.
    pub changed_services: BTreeSet<ObjectName>,
    /// Policies whose effect on some path has changed.
    pub policies: BTreeSet<ObjectRef>,
}

/// The hosts and the streams that are deferred.
pub(crate) struct Defer<'a> {
    /// Returns `true` for units that are not compiled, because they wait for something.
    pub(crate) waits: &'a dyn Fn(&Unit) -> bool,
    /// Returns `true` if a unit must wait instead of being replaced by its next state.
    pub(crate) decide: &'a mut dyn FnMut(&Compiled, &Next<'_>) -> bool,
}

/// The next state of a unit that can be deferred.
pub(crate) enum Next<'u> {
    /// The routes of a host.
    Host(&'u VirtualHost, &'u HostUnit),
    /// The route of the connections for a host that are passed on as bytes.
    Stream(&'u VirtualHost, Option<&'u Arc<StreamRoute>>),
}

impl Next<'_> {
    /// The unit whose next state it is.
    pub(crate) fn unit(&self) -> Unit {
        match self {
            Next::Host(host, _) => Unit::Host((*host).clone()),
            Next::Stream(host, _) => Unit::Stream((*host).clone()),
        }
    }
}

/// One recompilation in progress.
pub(crate) struct Pass<'a> {
    defer: Defer<'a>,
    topology: &'a Topology,
    /// Further units to compile because of the results so far. They come later in order.
    further: BTreeSet<Unit>,
    touched: Touched,
}

impl Pass<'_> {
    /// Returns `true` if the user of a backend is deferred.
    fn is_deferred(&self, user: &BackendUser) -> bool {
        let unit = match user {
            BackendUser::Host(host) => Unit::Host(host.clone()),
            BackendUser::Stream(host) => Unit::Stream(host.clone()),
        };
        (self.defer.waits)(&unit) || self.touched.deferred.contains(&unit)
    }

    /// Decides whether a unit must wait instead of being replaced by its next state, and records it.
    fn defers(&mut self, compiled: &Compiled, next: &Next<'_>) -> bool {
        let defers = (self.defer.decide)(compiled, next);
        if defers {
            self.touched.deferred.insert(next.unit());
        }
        defers
    }
}

impl Compiled {
    /// The output for an empty world.
    #[must_use]
    pub fn empty(options: &Options) -> Self {
        let parts = SnapshotParts {
            binds: options.binds.clone(),
            defaults: Arc::clone(&options.defaults),
            trusted_proxies: Arc::clone(&options.trusted_proxies),
            edge: Arc::clone(&options.edge),
            ..SnapshotParts::default()
        };
        Self { parts, ..Self::default() }
    }

    /// Compiles all units, and counts them by [`Unit::label`].
    pub(crate) fn of(inputs: Inputs<'_>) -> (Self, BTreeMap<&'static str, usize>) {
        let mut compiled = Self::empty(inputs.options);
        let defer = Defer { waits: &|_| false, decide: &mut |_, _| false };
        let topology = inputs.topology;
        let mut pass = Pass { defer, topology, further: BTreeSet::new(), touched: Touched::default() };
        let (mut last, mut count) = (None, BTreeMap::new());
        while let Some(unit) = Unit::after(last.as_ref(), inputs, &compiled) {
            unit.compile(&mut compiled, inputs, &mut pass);
            *count.entry(unit.label()).or_default() += 1;
            last = Some(unit);
        }
        pack(&mut compiled.verdicts);
        pack(&mut compiled.backends);
        pack(&mut compiled.uses);
        pack(&mut compiled.hosts);
        (compiled, count)
    }

    /// Compiles the dirty units, and the endpoints of Services whose use has changed. A deferred unit stays unchanged.
    ///
    /// A unit that panics keeps its last good state, and the objects it was made of get a finding.
    pub(crate) fn recompile<'a>(&mut self, inputs: Inputs<'a>, dirty: BTreeSet<Unit>, defer: Defer<'a>) -> Touched {
        let mut pass = Pass { defer, topology: inputs.topology, further: dirty, touched: Touched::default() };
        while let Some(unit) = pass.further.pop_first() {
            *pass.touched.compiled.entry(unit.label()).or_default() += 1;
            if unit.compile(self, inputs, &mut pass) {
                pass.touched.changed.add(unit);
            }
        }
        pass.touched
    }

    /// The claims of these objects for these hosts have changed.
    pub(crate) fn claims_changed(&mut self, changed_claims: BTreeSet<(VirtualHost, ObjectRef)>) {
        for (host, object) in changed_claims {
            if self.claims.contains_key(&host) {
                self.changed_claims.entry(host).or_default().insert(object);
            }
        }
    }

    /// Makes the next compilation of a unit use all of its inputs.
    pub(crate) fn invalidate(&mut self, unit: &Unit) {
        unit.invalidate(self);
    }

    /// The backends of a Service as compiled last.
    pub(crate) fn backends_of(&self, service: &ObjectName) -> impl Iterator<Item = &BackendKey> {
        let [first, last] = backends::bounds(service);
        self.backends.range(first..=last)
    }

    /// Returns `true` if the endpoints of a Service are compiled, because it is used.
    pub(crate) fn uses(&self, service: &ObjectName, frozen_backends: &BTreeSet<BackendKey>) -> bool {
        backends::first_use(self, frozen_backends, service, None).is_some()
    }

    /// The Services whose endpoints are compiled.
    pub(crate) fn used_services(&self, frozen_backends: &BTreeSet<BackendKey>) -> BTreeSet<ObjectName> {
        self.uses.iter().map(|(key, _)| key).chain(frozen_backends).map(|key| key.service.clone()).collect()
    }

    /// The number of findings by reason and severity, if it has changed since the last call.
    pub(crate) fn take_finding_counts(&mut self) -> Option<&FindingCounts> {
        self.findings.take_counts()
    }

    /// Replaces the findings that do not follow from the objects, at most one of each object.
    pub(crate) fn put_findings_apart(&mut self, findings: BTreeMap<ObjectRef, Finding>) {
        self.findings.put_apart(findings);
    }

    /// All findings, each once, ordered by object and field.
    #[must_use]
    pub fn all_findings(&self) -> Vec<Finding> {
        self.findings.all()
    }

    /// Replaces the backends of a user. The endpoints of Services that are only in one of the sets must be compiled.
    fn use_instead(
        &mut self,
        user: &BackendUser,
        old: &BTreeSet<BackendKey>,
        new: &BTreeSet<BackendKey>,
        pass: &mut Pass<'_>,
    ) {
        for key in old.difference(new) {
            self.uses.remove(&(key.clone(), user.clone()));
        }
        self.uses.extend(new.iter().map(|key| (key.clone(), user.clone())));
        for key in old.symmetric_difference(new) {
            pass.further.insert(Unit::Service(key.service.clone()));
            pass.touched.changed_services.insert(key.service.clone());
        }
    }

    /// A Service may have been deleted and created again while the routes that lead to it waited.
    fn compile_unknown(&self, backends: &BTreeSet<BackendKey>, pass: &mut Pass<'_>) {
        let unknown = backends.iter().filter(|key| !self.parts.backends.contains_key(*key));
        pass.further.extend(unknown.map(|key| Unit::Service(key.service.clone())));
    }

    fn unit<K: unit::UnitKind>(&mut self, unit: &Unit, key: &K::Key, inputs: Inputs<'_>, pass: &mut Pass<'_>) -> bool {
        let made = caught(|| {
            #[cfg(test)]
            tests::trip(unit);
            K::make(inputs, self, key)
        });
        match made {
            Ok(made) => {
                // Only kinds with findings of their own replace those of a unit. After a panic a unit has no others, so
                // the first tells: a host can have thousands.
                if self
                    .findings
                    .of(unit)
                    .next()
                    .is_some_and(|first| matches!(first.problem, Problem::ProcessingFailed { .. }))
                {
                    self.findings.put(unit.clone(), Vec::new());
                }
                K::put(self, key, made, pass)
            }
            Err(panic) => {
                let problem = Problem::ProcessingFailed { why: printable(&panic) };
                let findings = K::owners_of(inputs, key).into_iter();
                let findings = findings.map(|object: ObjectRef| Finding::new(object, "", problem.clone()));
                self.findings.put(unit.clone(), findings.collect());
                self.invalidate(unit);
                false
            }
        }
    }
}
