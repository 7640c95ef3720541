//! The state machine of the control loop: from events to the parts of the next snapshot. Synchronous, and the time is
//! an argument.

mod attaching;
mod attachment_diff;
mod audit;
mod backlog;
mod changed_findings;
mod hold;
mod infrastructure;
mod listing;
mod names;
mod observe;
mod rank;
mod report;
mod secrets;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

pub use audit::Audit;
use audit::Round;
use backlog::{Backlog, Batch};
pub use changed_findings::{ChangedFindings, ObjectFindings};
use hold::Holding;
pub use infrastructure::Made;
use infrastructure::Making;
use listing::Listing;
use names::LookedUp;
pub use names::Names;
use report::Reporting;
pub use report::{Addresses, Desired, PendingStatusUpdates};
use secrets::FollowedSecrets;
use tidegate_config::model::{BackendKey, SnapshotParts};
use tidegate_config::object::{Kind, ObjectRef};
use waits::{Wait, Waits, awaited};

use crate::compile::{Compiled, Defer, Inputs, Next, Touched};
use crate::event::Source;
use crate::explain::{Refused, refused};
use crate::history::{Cause, Changes};
use crate::informer::SecretInterest;
use crate::not_serving::{self, NotServing};
use crate::options::Options;
use crate::queue::Meter;
use crate::sample::Sample;
use crate::sources::attach_all;
use crate::topology::Topology;
use crate::tree::{self, Tree, TreeQuery};
use crate::world::World;

/// Owns World, topology and the last compilation; no other code changes them.
#[derive(Debug)]
pub struct Reconciler {
    options: Options,
    world: World,
    topology: Topology,
    compiled: Compiled,
    backlog: Backlog,
    /// The sources that have been listed.
    listing: Listing,
    /// Whether the first model was compiled; nothing is published before.
    running: bool,
    /// Hosts and streams that wait, because their next routes use backends that World has never seen.
    waits: Waits,
    /// Sources whose last list would have removed so much that it needs a confirmation.
    doubted: BTreeSet<Source>,
    names: LookedUp,
    secrets: FollowedSecrets,
    /// Held routes, which serve instead of the cluster's, and the operator's last command.
    holding: Holding,
    /// The desired statuses, and the objects whose status may have to be written.
    reporting: Reporting,
    /// Gateways whose infrastructure may be incomplete.
    making: Making,
    /// The progress of the audit.
    round: Round,
}

/// The result of one call of [`Reconciler::reconcile`].
#[derive(Debug)]
pub struct Step {
    /// The parts to publish with their changes, if there are any.
    pub published: Option<(SnapshotParts, Changes)>,
    /// The compiled units.
    pub touched: Touched,
    /// The arrival of the oldest change.
    pub oldest: Option<Instant>,
    /// The DNS names to look up, if they have changed.
    pub names: Option<Arc<Names>>,
    /// The Secrets to watch by name, if they have changed; at the start also an empty list.
    pub secrets: Option<Vec<SecretInterest>>,
}

impl Reconciler {
    /// A reconciler that waits for the lists of these sources.
    #[must_use]
    pub fn new(options: Options, sources: impl IntoIterator<Item = Source>) -> Self {
        let compiled = Compiled::empty(&options);
        let (reporting, making) = (Reporting::new(&options), Making::new(&options));
        Self {
            options,
            world: World::default(),
            topology: Topology::default(),
            compiled,
            backlog: Backlog::default(),
            listing: Listing::new(sources),
            running: false,
            waits: Waits::default(),
            doubted: BTreeSet::new(),
            names: LookedUp::default(),
            secrets: FollowedSecrets::default(),
            holding: Holding::default(),
            reporting,
            making,
            round: Round::default(),
        }
    }

    /// Adds metrics of its queue. To be called before any other method.
    #[must_use]
    pub fn metered(mut self, meter: Meter) -> Self {
        self.backlog = Backlog::new(meter);
        self
    }

    /// Starts again after a panic or a lost task: everything derived from World is dropped, because a panic may have
    /// left it incomplete, and every source must be listed again. World stays: it is changed object by object, and the
    /// lists correct it before anything is published. Without it, a list that lost most objects of a kind could not be
    /// detected, and objects that cannot be listed now, such as Secrets, would be lost. A hold stays too.
    pub fn start_over(&mut self, sources: impl IntoIterator<Item = Source>) {
        let (world, backlog) = (std::mem::take(&mut self.world), std::mem::take(&mut self.backlog).emptied());
        let holding = self.holding.take();
        let fresh = Self::new(self.options.clone(), []);
        let listing = std::mem::replace(&mut self.listing, Listing::new([])).still_serving(sources);
        *self = Self { world, backlog, holding, listing, ..fresh };
    }

    /// Attaches changed objects, and compiles the next batch. `None` if there is nothing to do.
    pub fn reconcile(&mut self, now: Instant) -> Option<Step> {
        if !self.running {
            return self.start(now);
        }
        self.attach_stale();
        let due = self.waits.first_end().is_some_and(|end| end <= now);
        let stale = self.names.stale() || self.secrets.stale();
        if self.backlog.is_empty() && !due && !stale && !self.holding.commanded() {
            return None;
        }
        let mut batch = self.backlog.take(self.options.pace.share, now);
        for (object, reason) in std::mem::take(&mut batch.objects) {
            self.attach(&object, &reason);
        }
        // An object of the slow lane may change its offer.
        self.attach_stale();
        self.backlog.pull_in_related(&mut batch, |unit| unit.services(&self.topology, &self.compiled.parts));
        let oldest = batch.oldest;
        let (mut touched, causes) = self.compile_batch(batch, now);
        let units = std::mem::take(&mut touched.changed);
        let published = self.holding.outgoing(Changes { causes, units }, &self.compiled.parts);
        let secrets = self.secrets.changes(&self.topology, &self.options);
        Some(Step { published, touched, oldest, names: self.refresh_names(), secrets })
    }

    /// Compiles a batch, and the units whose wait is over. Returns the causes as well.
    fn compile_batch(&mut self, batch: Batch, now: Instant) -> (Touched, Sample<Cause>) {
        let (mut causes, Batch { mut units, own, .. }) = (batch.causes(), batch);
        let woken = self.waits.end(now, &units);
        units.extend(woken.keys().cloned());
        units.append(&mut self.holding.take_next());
        self.reporting.judged(units.iter());
        self.compiled.claims_moved(self.topology.take_moved());
        let settle = self.options.pace.settle;
        let inputs = inputs(&self.world, &self.options, &self.topology, self.holding.backends());
        let mut begun = BTreeMap::new();
        let mut decide = |compiled: &Compiled, next: &Next<'_>| {
            let unit = next.unit();
            let until = woken.get(&unit).map_or(now + settle, |wait| wait.until);
            if until <= now || !own.contains(&unit) && !woken.contains_key(&unit) {
                return false;
            }
            let Some(awaited) = awaited(inputs.world, inputs.topology, compiled, next) else { return false };
            begun.insert(unit, Wait { until, awaited });
            true
        };
        let waiting = self.waits.iter().map(|(unit, _)| unit.clone()).collect();
        let touched = self.compiled.recompile(inputs, units, Defer { waiting, decide: &mut decide });
        for unit in woken.keys().filter(|unit| !begun.contains_key(*unit)) {
            causes.note(Cause::Settled { unit: unit.clone() });
        }
        self.waits.begin(begun);
        for service in &touched.changed_services {
            self.names.note_use(&ObjectRef::new(Kind::Service, service.clone()), &self.topology);
        }
        (touched, causes)
    }

    /// When [`Reconciler::reconcile`] must be called even without events.
    #[must_use]
    pub fn wake(&self) -> Option<Instant> {
        if self.running {
            return self.waits.first_end();
        }
        self.listing.patience(&self.options.pace)
    }

    /// Returns `true` if keys wait.
    #[must_use]
    pub fn busy(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// The compiled routes that do not serve. `now` and `wall` are the same moment on both clocks.
    #[must_use]
    pub fn not_serving(&self, now: Instant, wall: SystemTime) -> NotServing {
        let waits = self.waits.iter().map(|(unit, Wait { until, awaited })| not_serving::Wait {
            unit: unit.clone(),
            until: wall.checked_add(until.saturating_duration_since(now)).unwrap_or(wall),
            awaited: awaited.iter().cloned().collect(),
        });
        let held = self.holding.by_command(now, wall);
        NotServing { held, waits: waits.collect() }
    }

    /// Ends the last batch: its changes are published.
    pub fn finish(&mut self, now: Instant) {
        self.backlog.finish(now);
    }

    /// Returns `true` if the first complete model has been compiled.
    #[must_use]
    pub const fn running(&self) -> bool {
        self.running
    }

    /// Sources that have not been listed yet.
    #[must_use]
    pub const fn unsynced(&self) -> &BTreeSet<Source> {
        self.listing.unsynced()
    }

    /// The current objects.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// The references between objects.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The routes for a host that a Gateway does not accept; limited in number.
    #[must_use]
    pub fn refused(&self, gateway: &ObjectRef, host: &str) -> Vec<Refused> {
        refused(&self.world, &self.topology, gateway, host)
    }

    /// A page of the tree of attachments.
    #[must_use]
    pub fn tree(&self, query: &TreeQuery) -> Tree {
        let (world, topology, parts) = (&self.world, &self.topology, &self.compiled.parts);
        tree::build(tree::Known { world, topology, parts }, query)
    }

    /// The last compilation.
    #[must_use]
    pub const fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// The Service ports of held routes.
    #[must_use]
    pub const fn held_backends(&self) -> &BTreeSet<BackendKey> {
        self.holding.backends()
    }

    /// The operator's options.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// Updates the DNS names to look up, and removes the addresses of others.
    fn refresh_names(&mut self) -> Option<Arc<Names>> {
        let names = self.names.refresh(&self.topology, &self.compiled, self.holding.backends())?;
        self.world.names.retain(|name, _| names.contains_key(name));
        Some(names)
    }

    /// The first model, after the required sources were listed, and the optional ones too or their grace is over.
    fn start(&mut self, now: Instant) -> Option<Step> {
        let patient = self.wake().is_none_or(|deadline| now < deadline);
        if self.listing.waits() {
            return None;
        }
        if let Some(secrets) = self.first_secrets() {
            let (published, touched, oldest, names) = (None, Touched::default(), None, None);
            return Some(Step { published, touched, oldest, names, secrets: Some(secrets) });
        }
        if self.listing.any_unknown() && patient {
            return None;
        }
        for source in self.unsynced().iter().filter(|source| self.listing.unknown(source)) {
            tracing::warn!(%source, "it could not be listed in time; the first model is compiled without it");
        }
        self.running = true;
        self.world.compact();
        self.topology = attach_all(&self.world, &self.options);
        let inputs = inputs(&self.world, &self.options, &self.topology, self.holding.backends());
        self.compiled = Compiled::of(inputs);
        self.round = Round::default();
        self.round.schedule(now, self.options.pace.units_max(), (inputs, &self.compiled), 0);
        let compiled = [("host", self.compiled.parts.hosts.len()), ("service", self.world.services.len())].into();
        let touched = Touched { compiled, ..Touched::default() };
        self.names.note_all();
        let names = self.refresh_names();
        self.holding.publish_first();
        let secrets = self.secrets.all(&self.topology, &self.options);
        let published = self.holding.outgoing(Changes::default(), &self.compiled.parts);
        Some(Step { published, touched, oldest: None, names, secrets })
    }

    /// The Secrets that the first model needs, if Secrets are read by name: known after the other lists. The model
    /// waits for them like for a list.
    fn first_secrets(&mut self) -> Option<Vec<SecretInterest>> {
        let open = self.listing.comes(|source| source.kind != Kind::Secret);
        if !secrets::by_name(&self.options) || !self.secrets.untold() || open {
            return None;
        }
        self.secrets.all(&attach_all(&self.world, &self.options), &self.options)
    }
}

/// The compiler's input, for callers that can only borrow parts of the loop.
const fn inputs<'a>(
    world: &'a World,
    options: &'a Options,
    topology: &'a Topology,
    held: &'a BTreeSet<BackendKey>,
) -> Inputs<'a> {
    Inputs { world, options, topology, held }
}
