//! The state machine of the control loop: from events to the parts of the next snapshot. Synchronous, and the time is
//! an argument.

mod attachment_diff;
mod audit;
mod backlog;
mod changed_findings;
mod contested;
mod hold;
mod infrastructure;
mod key_sources;
mod listing;
mod model;
mod names;
mod observe;
mod rank;
mod refreshing;
mod report;
mod secrets;
mod waits;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

pub use audit::Audit;
use audit::Round;
use backlog::{Backlog, Batch};
pub use changed_findings::{ChangedFindings, ObjectFindings};
use hold::Holding;
pub use infrastructure::DesiredInfrastructure;
use infrastructure::KnownServices;
use key_sources::NamedKeySources;
pub use listing::Listing;
pub use model::Model;
use names::ResolvedNames;
use report::Reporting;
pub use report::{Addresses, Desired, DesiredReports, KnownStatus, PendingReports, PendingStatusUpdates};
use secrets::PolledSecrets;
use tidegate_config::model::SnapshotParts;
use tidegate_config::object::{Kind, ObjectRef};
use waits::{AwaitedObjects, Waits, awaited};

use crate::compile::{Compiled, Defer, FindingCounts, Next, Touched, Unit};
use crate::event::Collection;
use crate::history::{Cause, Changes};
use crate::interest::{KeySources, Names, SecretInterest};
use crate::not_serving::{self, NotServing};
use crate::options::Options;
use crate::order::Order;
use crate::queue::Meter;
use crate::sample::Sample;
use crate::sources::attach_all;

/// Owns the model; no other code changes it.
#[derive(Debug)]
pub struct Reconciler {
    model: Model,
    backlog: Backlog,
    /// The collections that have been listed.
    listing: Listing,
    /// Hosts and streams that wait, because their next routes use backends that World has never seen.
    waits: Waits,
    names: ResolvedNames,
    key_sources: NamedKeySources,
    secrets: PolledSecrets,
    /// Held routes, which serve instead of the cluster's, and the operator's last command.
    holding: Holding,
    /// The desired statuses, and the objects whose status may have to be written.
    reporting: Reporting,
    /// Gateways whose infrastructure may be incomplete.
    gateway_services: KnownServices,
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
    /// The keys of issuers to fetch, if they have changed.
    pub key_sources: Option<Arc<KeySources>>,
    /// The Secrets to watch by name, if they have changed; at the start also an empty list.
    pub secrets: Option<Vec<SecretInterest>>,
}

impl Reconciler {
    /// A reconciler that waits for the lists of these collections.
    #[must_use]
    pub fn new(options: Options, collections: impl IntoIterator<Item = Collection>) -> Self {
        let (reporting, gateway_services) = (Reporting::new(&options), KnownServices::new(&options));
        let listing = Listing::new(collections)
            .with_optional(Kind::ALL.into_iter().filter(|kind| options.sources.optional(*kind)));
        let mut model = Model::new(options);
        model.world.unlisted.clone_from(listing.unsynced());
        Self {
            model,
            backlog: Backlog::default(),
            listing,
            waits: Waits::default(),
            names: ResolvedNames::default(),
            key_sources: NamedKeySources::default(),
            secrets: PolledSecrets::default(),
            holding: Holding::default(),
            reporting,
            gateway_services,
            round: Round::default(),
        }
    }

    /// Adds metrics of its queue. To be called before any other method.
    #[must_use]
    pub fn metered(mut self, meter: Meter) -> Self {
        self.backlog = self.backlog.metered(meter);
        self
    }

    /// Compiles what waits in the slow lane in this order. To be called before any other method.
    #[must_use]
    pub fn ordered(mut self, order: Order) -> Self {
        self.backlog = self.backlog.ordered(order);
        self
    }

    /// Starts again after a panic or a lost task: everything derived from World is dropped, because a panic may have
    /// left it incomplete, and every collection must be listed again. World stays: it is changed object by object, and
    /// the lists correct it before anything is published. Without it, a list that lost most objects of a kind could not
    /// be detected, and objects that cannot be listed now, such as Secrets, would be lost. A hold stays too.
    pub fn start_over(&mut self, collections: impl IntoIterator<Item = Collection>) {
        let fresh = Self::new(self.model.options.clone(), []);
        let Self { model, backlog, holding, listing, .. } = std::mem::replace(self, fresh);
        self.model = model.uncompiled();
        self.backlog = backlog.emptied();
        self.holding = holding.without_queue();
        self.listing = listing.still_serving(collections);
    }

    /// Refreshes changed objects, and compiles the next batch. `None` if there is nothing to do.
    pub fn reconcile(&mut self, now: Instant) -> Option<Step> {
        if !self.running() {
            return self.start(now);
        }
        self.refresh_stale();
        let due = self.waits.first_end().is_some_and(|end| end <= now);
        let stale = self.names.stale() || self.key_sources.stale() || self.secrets.stale();
        if self.backlog.is_empty() && !due && !stale && !self.holding.commanded() {
            return None;
        }
        let mut batch = self.backlog.take(self.model.options.pace.share, now);
        for (object, reason) in std::mem::take(&mut batch.objects) {
            self.refresh(&object, &reason);
        }
        // An object of the slow lane may change the listeners of a Gateway.
        self.refresh_stale();
        self.backlog
            .pull_in_related(&mut batch, |unit| unit.services(&self.model.topology, &self.model.compiled.parts));
        let oldest = batch.oldest;
        let (mut touched, causes) = self.compile_batch(batch, now);
        let units = std::mem::take(&mut touched.changed);
        let published = self.holding.outgoing(Changes { causes, units }, &self.model.compiled.parts);
        let secrets = self.secrets.changes(&self.model.topology, &self.model.options);
        let (names, key_sources) = (self.names.refresh(&mut self.model), self.key_sources.refresh(&mut self.model));
        Some(Step { published, touched, oldest, names, key_sources, secrets })
    }

    /// Compiles a batch, and the units whose wait is over. Returns the causes as well.
    fn compile_batch(&mut self, batch: Batch, now: Instant) -> (Touched, Sample<Cause>) {
        let (mut causes, Batch { mut units, own, .. }) = (batch.causes(), batch);
        let woken = self.waits.end(now, &units);
        units.extend(woken.keys().cloned());
        units.append(&mut self.holding.take_next());
        self.reporting.judged(units.iter());
        self.model.compiled.claims_changed(self.model.topology.take_changed());
        let settle = self.model.options.pace.settle;
        let (inputs, compiled) = self.model.inputs_and_output();
        let mut begun = BTreeMap::new();
        let mut decide = |compiled: &Compiled, next: &Next<'_>| {
            let unit = next.unit();
            let until = woken.get(&unit).map_or(now + settle, |wait| wait.until);
            if until <= now || !own.contains(&unit) && !woken.contains_key(&unit) {
                return false;
            }
            let Some(awaited) = awaited(inputs.world, inputs.topology, compiled, next) else { return false };
            begun.insert(unit, AwaitedObjects { until, awaited });
            true
        };
        let waits = |unit: &Unit| self.waits.contains(unit);
        let touched = compiled.recompile(inputs, units, Defer { waits: &waits, decide: &mut decide });
        for unit in woken.keys().filter(|unit| !begun.contains_key(*unit)) {
            causes.note(Cause::Settled { unit: unit.clone() });
        }
        self.waits.begin(begun);
        touched.policies.iter().for_each(|policy| self.reporting.counts_differ(policy.clone()));
        for service in &touched.changed_services {
            self.names.note_use(&ObjectRef::new(Kind::Service, service.clone()), &self.model.topology);
        }
        (touched, causes)
    }

    /// When [`Reconciler::reconcile`] must be called even without events.
    #[must_use]
    pub fn wake(&self) -> Option<Instant> {
        if self.running() {
            return self.waits.first_end();
        }
        self.listing.patience(&self.model.options.pace)
    }

    /// Returns `true` if keys wait.
    #[must_use]
    pub fn busy(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// The compiled routes that do not serve. `now` and `wall` are the same moment on both clocks.
    #[must_use]
    pub fn not_serving(&self, now: Instant, wall: SystemTime) -> NotServing {
        let waits = self.waits.iter().map(|(unit, AwaitedObjects { until, awaited })| not_serving::Wait {
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
        self.listing.running()
    }

    /// The inputs of the compiler and its last output.
    #[must_use]
    pub const fn model(&self) -> &Model {
        &self.model
    }

    /// The collections that have been listed, and those that fail.
    #[must_use]
    pub const fn listing(&self) -> &Listing {
        &self.listing
    }

    /// The number of findings by reason and severity, if it has changed since the last call.
    pub(crate) fn take_finding_counts(&mut self) -> Option<&FindingCounts> {
        self.model.compiled.take_finding_counts()
    }

    /// The desired reports to the cluster.
    #[must_use]
    pub const fn desired_reports(&self) -> DesiredReports<'_> {
        let Self { model, listing, reporting, gateway_services, .. } = self;
        DesiredReports { model, listing, reporting, gateway_services }
    }

    /// The reports to the cluster that may have to be made.
    pub const fn pending_reports(&mut self) -> PendingReports<'_> {
        let Self { model, listing, reporting, gateway_services, .. } = self;
        PendingReports { model, listing, reporting, gateway_services }
    }

    /// The first model, after the required collections were listed, and the optional ones too or their grace is over.
    fn start(&mut self, now: Instant) -> Option<Step> {
        let patient = self.wake().is_none_or(|deadline| now < deadline);
        if self.listing.waits() {
            return None;
        }
        if let Some(secrets) = self.first_secrets() {
            let (published, touched, oldest, names, key_sources) = (None, Touched::default(), None, None, None);
            return Some(Step { published, touched, oldest, names, key_sources, secrets: Some(secrets) });
        }
        if self.listing.any_unknown() && patient {
            return None;
        }
        for collection in self.listing.unsynced().iter().filter(|collection| self.listing.unknown(collection)) {
            tracing::warn!(%collection, "a kind could not be listed in time; the first model is compiled without it");
        }
        self.listing.start();
        self.model.world.compact();
        let compiled = self.model.compile_all();
        self.round = Round::new(compiled.values().sum());
        self.round.schedule(now, self.model.options.pace.units_max(), &self.model, 0);
        let touched = Touched { compiled, ..Touched::default() };
        self.names.note_all();
        self.key_sources.note_all();
        let (names, key_sources) = (self.names.refresh(&mut self.model), self.key_sources.refresh(&mut self.model));
        self.holding.publish_first();
        let secrets = self.secrets.all(&self.model.topology, &self.model.options);
        let published = self.holding.outgoing(Changes::default(), &self.model.compiled.parts);
        Some(Step { published, touched, oldest: None, names, key_sources, secrets })
    }

    /// The Secrets that the first model needs, if Secrets are read by name: known after the other lists. The model
    /// waits for them like for a list.
    fn first_secrets(&mut self) -> Option<Vec<SecretInterest>> {
        let open = self.listing.comes(|collection| collection.kind != Kind::Secret);
        if !secrets::by_name(&self.model.options) || !self.secrets.unreported() || open {
            return None;
        }
        self.secrets.all(&attach_all(&self.model.world, &self.model.options), &self.model.options)
    }
}
