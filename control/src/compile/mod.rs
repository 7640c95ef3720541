//! The compiler: from attachments to the parts of a snapshot and to findings. Pure: no clock, no I/O, no log line, and no
//! source of routes shows in it.
//!
//! [`compile`] is the specification: everything, one unit after the other. [`Compiled::recompile`] does only what is dirty.
//! Both call the same function for each unit.

mod backends;
mod binds;
mod findings;
mod globals;
mod host;
mod report;
mod scopes;
mod streams;
#[cfg(test)]
mod tests;
mod unit;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use backends::KUBERNETES;
pub(crate) use findings::ByObject;
pub use findings::Findings;
pub(crate) use globals::reads as globals_read;
pub use host::HostUnit;
pub(crate) use host::backends_of_host;
use host::claim_index::ClaimIndex;
pub(crate) use streams::used as used_by_stream;
use tidegate_config::caught::caught;
use tidegate_config::finding::{Finding, Problem, printable};
use tidegate_config::model::{BackendKey, BindKey, SnapshotParts, StreamRoute, VirtualHost};
use tidegate_config::object::{ObjectName, ObjectRef};
pub use unit::Unit;

use crate::history::Changes;
use crate::options::Options;
use crate::sources::Verdict;
use crate::topology::Topology;
use crate::world::World;

/// What is compiled.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Every object as it is now.
    pub world: &'a World,
    /// What the operator decided.
    pub options: &'a Options,
    /// What the objects ask for.
    pub topology: &'a Topology,
    /// Service ports whose endpoints are compiled whether a route leads to them or not: those of routes that are held.
    pub held: &'a BTreeSet<BackendKey>,
}

/// What the compiler returns.
#[derive(Debug, Default)]
pub struct Compiled {
    /// What the next snapshot is made of.
    pub parts: SnapshotParts,
    /// What users should be told.
    pub findings: Findings,
    /// What became of each object that asks for something.
    pub verdicts: BTreeMap<ObjectRef, Verdict>,
    /// The backends in the parts in the order of their Services, so that those of a Service can be found.
    backends: BTreeSet<BackendKey>,
    /// What in the parts leads to each backend. The endpoints of others are not compiled.
    uses: BTreeSet<(BackendKey, User)>,
    /// The sockets in the parts that objects ask for.
    binds: BTreeSet<BindKey>,
    /// The hosts in the parts in their order, so that an audit can walk them.
    hosts: BTreeSet<VirtualHost>,
    /// The hosts whose connections are passed on as bytes, likewise.
    streams: BTreeSet<VirtualHost>,
    /// The claims for those hosts that have many, as they were compiled.
    claims: BTreeMap<VirtualHost, ClaimIndex>,
    /// Of those hosts, the objects whose claims are others than were compiled.
    moved: BTreeMap<VirtualHost, BTreeSet<ObjectRef>>,
}

/// What leads to a backend.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum User {
    /// A virtual host.
    Host(VirtualHost),
    /// The connections for a host, which are passed on as bytes.
    Stream(VirtualHost),
}

/// What one recompilation touched.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Touched {
    /// How the parts differ from before.
    pub changes: Changes,
    /// How many units were compiled, by [`Unit::label`].
    pub compiled: BTreeMap<&'static str, usize>,
    /// Units that were to be compiled and stay as they were.
    pub deferred: BTreeSet<Unit>,
    /// Services that routes lead to now and did not before, or the other way round.
    pub led_elsewhere: BTreeSet<ObjectName>,
}

/// Which hosts, and which connections for hosts, stay as they were for now.
pub(crate) struct Defer<'a> {
    /// Those that are not compiled, because they wait for something.
    pub(crate) waiting: BTreeSet<Unit>,
    /// Whether another one is to wait, instead of becoming this.
    pub(crate) decide: &'a mut dyn FnMut(&Compiled, &Next<'_>) -> bool,
}

/// What one of them would become.
pub(crate) enum Next<'u> {
    /// The routes of a host.
    Host(&'u VirtualHost, &'u HostUnit),
    /// Where the connections for a host go that are passed on as bytes.
    Stream(&'u VirtualHost, Option<&'u Arc<StreamRoute>>),
}

impl Next<'_> {
    /// What becomes it.
    pub(crate) fn unit(&self) -> Unit {
        match self {
            Next::Host(host, _) => Unit::Host((*host).clone()),
            Next::Stream(host, _) => Unit::Stream((*host).clone()),
        }
    }
}

/// One recompilation under way.
pub(crate) struct Pass<'a> {
    defer: Defer<'a>,
    /// Units that have to be compiled as well because of what was compiled so far. They come after it in order.
    further: BTreeSet<Unit>,
    touched: Touched,
}

impl Pass<'_> {
    /// Whether what leads to a backend stays as it was.
    fn is_deferred(&self, user: &User) -> bool {
        let unit = match user {
            User::Host(host) => Unit::Host(host.clone()),
            User::Stream(host) => Unit::Stream(host.clone()),
        };
        self.defer.waiting.contains(&unit) || self.touched.deferred.contains(&unit)
    }

    /// Whether a unit is to wait instead of becoming something else, which is noted.
    fn defers(&mut self, compiled: &Compiled, next: &Next<'_>) -> bool {
        let defers = (self.defer.decide)(compiled, next);
        if defers {
            self.touched.deferred.insert(next.unit());
        }
        defers
    }
}

/// Everything, from scratch; with the endpoints of these Service ports whether a route leads to them or not.
#[must_use]
pub fn compile(world: &World, options: &Options, held: &BTreeSet<BackendKey>) -> Compiled {
    let topology = Topology::of(world, options);
    Compiled::of(Inputs { world, options, topology: &topology, held })
}

impl Compiled {
    /// What an empty world compiles to.
    #[must_use]
    pub fn empty(options: &Options) -> Self {
        let parts = SnapshotParts {
            binds: Arc::clone(&options.binds),
            defaults: Arc::clone(&options.defaults),
            trusted_proxies: Arc::clone(&options.trusted_proxies),
            edge: Arc::clone(&options.edge),
            ..SnapshotParts::default()
        };
        Self { parts, ..Self::default() }
    }

    /// Every unit that there is.
    pub(crate) fn of(inputs: Inputs<'_>) -> Self {
        let mut compiled = Self::empty(inputs.options);
        let defer = Defer { waiting: BTreeSet::new(), decide: &mut |_, _| false };
        let mut pass = Pass { defer, further: BTreeSet::new(), touched: Touched::default() };
        let mut last = None;
        while let Some(unit) = Unit::after(last.as_ref(), inputs, &compiled) {
            unit.compile(&mut compiled, inputs, &mut pass);
            last = Some(unit);
        }
        compiled
    }

    /// Compiles what is dirty and nothing else, but for the endpoints of Services to which other routes lead than before. A
    /// unit that is to wait stays as it was.
    ///
    /// A unit that panics keeps its last good state, and the owners of the objects that it was made of are told.
    pub(crate) fn recompile(&mut self, inputs: Inputs<'_>, dirty: BTreeSet<Unit>, defer: Defer<'_>) -> Touched {
        let mut pass = Pass { defer, further: dirty, touched: Touched::default() };
        while let Some(unit) = pass.further.pop_first() {
            *pass.touched.compiled.entry(unit.label()).or_default() += 1;
            if unit.compile(self, inputs, &mut pass) {
                pass.touched.changes.add(unit);
            }
        }
        pass.touched
    }

    /// The claims of these objects for these hosts are others than were compiled.
    pub(crate) fn claims_moved(&mut self, moved: BTreeSet<(VirtualHost, ObjectRef)>) {
        for (host, object) in moved {
            if self.claims.contains_key(&host) {
                self.moved.entry(host).or_default().insert(object);
            }
        }
    }

    /// Has a unit compiled from all that it is made of when that is next done, whatever changed.
    pub(crate) fn distrust(&mut self, unit: &Unit) {
        if let Some(host) = unit.host() {
            self.claims.remove(host);
            self.moved.remove(host);
        }
    }

    /// The backends of a Service as they were compiled last.
    pub(crate) fn backends_of(&self, service: &ObjectName) -> impl Iterator<Item = &BackendKey> {
        let [first, last] = backends::bounds(service);
        self.backends.range(first..=last)
    }

    /// Whether the endpoints of a Service are compiled, because anything leads there.
    pub(crate) fn uses(&self, service: &ObjectName, held: &BTreeSet<BackendKey>) -> bool {
        backends::first_use(self, held, service, None).is_some()
    }

    /// The Services whose endpoints are compiled.
    pub(crate) fn used_services(&self, held: &BTreeSet<BackendKey>) -> BTreeSet<ObjectName> {
        self.uses.iter().map(|(key, _)| key).chain(held).map(|key| key.service.clone()).collect()
    }

    /// What the routes of a host lead to as they were compiled last.
    pub fn backends_of_host(&self, host: &VirtualHost) -> impl Iterator<Item = &BackendKey> {
        backends_of_host(&self.parts, host)
    }

    /// Everything that users should be told, each thing once, ordered by object and field.
    #[must_use]
    pub fn all_findings(&self) -> Vec<Finding> {
        self.findings.all()
    }

    /// Notes what leads to a backend and did before. The endpoints of Services on one side alone have to be compiled.
    fn use_instead(
        &mut self,
        user: &User,
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
            pass.touched.led_elsewhere.insert(key.service.clone());
        }
    }

    /// A Service may have come back that had gone while what leads there waited.
    fn compile_unknown(&self, leads: &BTreeSet<BackendKey>, pass: &mut Pass<'_>) {
        let unknown = leads.iter().filter(|key| !self.parts.backends.contains_key(*key));
        pass.further.extend(unknown.map(|key| Unit::Service(key.service.clone())));
    }

    fn unit<K: unit::Kind>(&mut self, unit: &Unit, key: &K::Key, inputs: Inputs<'_>, pass: &mut Pass<'_>) -> bool {
        let made = caught(|| {
            #[cfg(test)]
            tests::trip(unit);
            K::make(inputs, self, key)
        });
        match made {
            Ok(made) => K::put(self, key, made, pass),
            Err(said) => {
                let problem = Problem::SetAside { why: printable(&said) };
                let told = K::made_of(inputs, key).into_iter();
                let told = told.map(|object: ObjectRef| Finding::new(object, "", problem.clone()));
                self.findings.put(unit.clone(), told.collect());
                self.distrust(unit);
                false
            }
        }
    }
}
