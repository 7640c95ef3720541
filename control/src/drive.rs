//! The control loop itself: one `select!`, then synchronous calls on owned state.

mod contests;
mod drift;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tidegate_config::model::Generation;
use tidegate_config::object::Kind;
use tidegate_config::project::EndpointSlice;
use tidegate_config::published::Publisher;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use self::contests::ClassContests;
use crate::addresses::{KUBERNETES, api_server_sockets};
use crate::clock;
use crate::cluster::api_server::ApiServer;
use crate::command::{Command, CommandRefusal, Commanded};
use crate::event::{BindFailures, Collection, Event};
use crate::history::{History, Publication};
use crate::interest::{KeySources, Names, SecretInterest};
use crate::metrics::ControlMetrics;
use crate::reconcile::{Reconciler, Step};
use crate::report_queue::Reports;
use crate::view::{CollectionReadiness, HistoryFilter, Question, Readiness, RecentPublications};

/// The maximum number of events per turn, so that a burst of events cannot delay a publication.
const EVENTS_MAX: usize = 1024;

/// The outputs of the loop.
#[derive(Debug)]
pub(crate) struct LoopOutputs {
    pub(crate) generation: watch::Sender<Generation>,
    pub(crate) readiness: watch::Sender<Readiness>,
    pub(crate) names: watch::Sender<Arc<Names>>,
    /// The keys of issuers to fetch.
    pub(crate) key_sources: watch::Sender<Arc<KeySources>>,
    /// The sockets of the API server, for those who connect to addresses that objects name.
    pub(crate) sockets: watch::Sender<Arc<BTreeSet<SocketAddr>>>,
    /// The Secrets to watch by name.
    pub(crate) secrets: mpsc::UnboundedSender<Vec<SecretInterest>>,
    /// Sources that must be listed again.
    pub(crate) relist: mpsc::UnboundedSender<Collection>,
    /// The statuses and Events to write to the cluster.
    pub(crate) reports: Reports,
}

/// The state of the loop.
#[derive(Debug)]
pub(crate) struct Loop<'a> {
    reconciler: &'a mut Reconciler,
    publisher: &'a mut Publisher,
    history: &'a mut History,
    outputs: &'a LoopOutputs,
    metrics: &'a ControlMetrics,
    /// The known sockets of the API server.
    api_server: watch::Receiver<Arc<BTreeSet<SocketAddr>>>,
    /// The sockets that the data plane cannot open.
    unopened: watch::Receiver<BindFailures>,
    collections: BTreeMap<Collection, CollectionReadiness>,
    /// Whether the findings have been counted since the start.
    counted: bool,
    contests: ClassContests,
    told: Option<ToldApiServer>,
}

/// The sockets of the API server that were sent on, by what they were made of.
#[derive(Debug)]
struct ToldApiServer {
    reached: Arc<BTreeSet<SocketAddr>>,
    slice: Option<Arc<EndpointSlice>>,
}

impl<'a> Loop<'a> {
    pub(crate) fn new(
        reconciler: &'a mut Reconciler,
        publisher: &'a mut Publisher,
        history: &'a mut History,
        outputs: &'a LoopOutputs,
        metrics: &'a ControlMetrics,
        (api_server, unopened): (&ApiServer, &watch::Receiver<BindFailures>),
    ) -> Self {
        let state = |collection: &Collection| CollectionReadiness {
            kind: collection.kind,
            namespace: collection.namespace.as_deref().map(str::to_owned),
            synced: false,
            restored_as_of_s: reconciler.listing().restored_as_of_s(collection),
            failing: None,
            denied: false,
            resource_version: None,
        };
        let collections =
            reconciler.listing().unsynced().iter().map(|collection| (collection.clone(), state(collection))).collect();
        let (api_server, unopened) = (api_server.followed(), unopened.clone());
        let (counted, contests) = (false, ClassContests::default());
        Self {
            reconciler,
            publisher,
            history,
            outputs,
            metrics,
            api_server,
            unopened,
            collections,
            counted,
            contests,
            told: None,
        }
    }

    /// Runs until the shutdown, or until the events end.
    pub(crate) async fn run(
        mut self,
        events: &mut mpsc::Receiver<Event>,
        questions: &mut mpsc::Receiver<Question>,
        shutdown: &CancellationToken,
    ) {
        loop {
            let wake = [self.reconciler.wake(), self.reconciler.audit_due()].into_iter().flatten().min();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some(question) = questions.recv() => self.answer(question),
                event = events.recv() => match event {
                    None => return,
                    Some(event) => self.observe(event),
                },
                Ok(()) = self.api_server.changed() => {}
                Ok(()) = self.unopened.changed() => {}
                () = sleep_until(wake.unwrap_or_else(clock::now).into()), if wake.is_some() => {}
                () = std::future::ready(()), if self.reconciler.running() && self.reconciler.busy() => {}
            }
            // Whatever woke the loop, each turn takes events and at most one question: neither delays the other.
            let ended = self.drain(events);
            self.step(clock::now());
            self.report();
            self.count_findings();
            self.queue_reports();
            if ended {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Takes the pending events, up to the maximum. Returns `true` if the channel has closed.
    fn drain(&mut self, events: &mut mpsc::Receiver<Event>) -> bool {
        for _ in 0..EVENTS_MAX {
            match events.try_recv() {
                Ok(event) => self.observe(event),
                Err(why) => return why == TryRecvError::Disconnected,
            }
        }
        false
    }

    fn observe(&mut self, event: Event) {
        self.metrics.events.inc();
        self.count_drift(&event);
        self.note(&event);
        if let Some(collection) = self.reconciler.observe(event, clock::now()) {
            tracing::warn!(kind = %collection.kind, "a list would remove most of the known objects; it is ignored until a second list confirms it");
            // The receiver lives as long as the informers do; without them there is nothing to list again.
            drop(self.outputs.relist.send(collection));
        }
    }

    /// Updates the readiness of each collection.
    fn note(&mut self, event: &Event) {
        let (collection, version) = match event {
            Event::Listed { collection, resource_version, .. }
            | Event::Resumed { collection, resource_version, .. }
            | Event::Bookmark { collection, resource_version } => (collection.clone(), Some(resource_version)),
            Event::Watching { collection }
            | Event::Failing { collection, .. }
            | Event::Unreadable { collection, .. }
            | Event::Unserved { collection, .. } => (collection.clone(), None),
            Event::Applied { projected, .. } => {
                let object = &projected.meta.object;
                (self.collection_of(object.kind, &object.name.namespace), Some(&projected.meta.resource_version))
            }
            Event::Deleted { object, resource_version, .. } => {
                (self.collection_of(object.kind, &object.name.namespace), Some(resource_version))
            }
            Event::Unlisted { .. }
            | Event::Defined { .. }
            | Event::Resolved { .. }
            | Event::KeySet { .. }
            | Event::ApiServer { .. }
            | Event::BindFailures { .. } => return,
        };
        let Some(state) = self.collections.get_mut(&collection) else { return };
        if let Some(version) = version {
            state.resource_version = Some(version.to_string());
        }
        match event {
            Event::Listed { .. } | Event::Resumed { .. } => state.synced = true,
            Event::Unserved { .. } => {
                (state.synced, state.failing, state.denied, state.resource_version) = (true, None, false, None);
            }
            Event::Unreadable { why, .. } if state.restored_as_of_s.is_some() => {
                (state.failing, state.denied) = (Some(why.clone()), true);
            }
            Event::Unreadable { .. } => (state.synced, state.failing, state.denied) = (true, None, false),
            // A successful list says nothing about the watch, which keeps the objects up to date.
            Event::Watching { .. } => (state.failing, state.denied) = (None, false),
            Event::Failing { why, denied, .. } => (state.failing, state.denied) = (Some(why.clone()), *denied),
            Event::Applied { .. }
            | Event::Deleted { .. }
            | Event::Bookmark { .. }
            | Event::Unlisted { .. }
            | Event::Defined { .. }
            | Event::Resolved { .. }
            | Event::KeySet { .. }
            | Event::ApiServer { .. }
            | Event::BindFailures { .. } => {}
        }
        if state.synced {
            state.restored_as_of_s = None;
        }
    }

    fn collection_of(&self, kind: Kind, namespace: &Arc<str>) -> Collection {
        let near = Collection { kind, namespace: Some(Arc::clone(namespace)) };
        if self.collections.contains_key(&near) { near } else { Collection { kind, namespace: None } }
    }

    /// Compiles the next batch, or makes a step of the audit if there is none. The API server's sockets were known
    /// before the objects that are compiled here, so they are taken first.
    fn step(&mut self, now: Instant) {
        let sockets = Arc::clone(&self.api_server.borrow());
        if sockets != self.reconciler.model().world().api_server {
            self.observe(Event::ApiServer { sockets });
        }
        let sockets = Arc::clone(&self.unopened.borrow());
        if sockets != self.reconciler.model().world().unopened {
            self.observe(Event::BindFailures { sockets });
        }
        self.tell_api_server();
        match self.reconciler.reconcile(now) {
            Some(step) => self.publish_step(step, now),
            None => self.audit(now),
        }
    }

    /// Sends the sockets of the API server on, before anything else that follows from the same events.
    fn tell_api_server(&mut self) {
        let world = self.reconciler.model().world();
        let own = world.slices.get(&*KUBERNETES);
        let same = |ToldApiServer { reached, slice }: &ToldApiServer| {
            Arc::ptr_eq(reached, &world.api_server) && slice.as_ref().map(Arc::as_ptr) == own.map(Arc::as_ptr)
        };
        if !self.told.as_ref().is_some_and(same) {
            let sockets = api_server_sockets(&world.api_server, own.map(|slice| &**slice));
            send_if_changed(&self.outputs.sockets, Arc::new(sockets));
            self.told = Some(ToldApiServer { reached: Arc::clone(&world.api_server), slice: own.cloned() });
        }
    }

    fn publish_step(&mut self, step: Step, now: Instant) {
        let Step { published, touched, oldest, names, key_sources, secrets } = step;
        for (unit, compiled) in &touched.compiled {
            self.metrics.units_compiled.with_label_values(&[*unit]).inc_by(*compiled as u64);
        }
        if let Some((parts, changes)) = published {
            let held = self.reconciler.held();
            let ready = self.publisher.prepare(parts.clone());
            let generation = self.publisher.publish(ready);
            self.history.record(Publication { generation, at: clock::wall(), changes, held, coalesced: None }, &parts);
            self.metrics.held_generation.set(held.map_or(0, |held| i64::try_from(held.0).unwrap_or(i64::MAX)));
            self.outputs.generation.send_replace(generation);
            let done = clock::now();
            self.metrics.publish_seconds.observe((done - now).as_secs_f64());
            if let Some(oldest) = oldest {
                self.metrics.change_seconds.observe(done.saturating_duration_since(oldest).as_secs_f64());
            }
            self.metrics.generation.set(i64::try_from(generation.0).unwrap_or(i64::MAX));
            tracing::debug!(%generation, compiled = ?touched.compiled, "published");
        }
        self.reconciler.finish(clock::now());
        if let Some(secrets) = secrets {
            // The receiver lives as long as the loop; without it there is nothing to do.
            drop(self.outputs.secrets.send(secrets));
        }
        if let Some(names) = names {
            send_if_changed(&self.outputs.names, names);
        }
        if let Some(sources) = key_sources {
            send_if_changed(&self.outputs.key_sources, sources);
        }
    }

    fn count_findings(&mut self) {
        let Some(counts) = self.reconciler.take_finding_counts() else { return };
        if !std::mem::replace(&mut self.counted, true) {
            // An earlier loop, which failed, may have set reasons that have no findings now.
            self.metrics.findings.reset();
        }
        for ((reason, severity), count) in counts {
            self.metrics.findings.with_label_values(&[reason, severity.as_str()]).set(*count);
        }
    }

    /// After the publication, and without waiting for the writers.
    fn queue_reports(&mut self) {
        if self.outputs.reports.wanted() {
            let now = clock::now();
            self.outputs.reports.name(
                self.reconciler.pending_reports().status_updates(),
                self.reconciler.pending_reports().changed_findings(),
                &mut self.contests.objects,
                now,
            );
            self.report_contests(now);
            self.outputs.reports.make(self.reconciler.pending_reports().infrastructure());
        } else {
            self.reconciler.pending_reports().drop_all();
            self.drop_contests();
        }
    }

    fn report(&self) {
        let ready = self.reconciler.running() || self.outputs.readiness.borrow().ready;
        let collections = || self.collections.values();
        let degraded = ready && collections().any(|collection| collection.failing.is_some() || !collection.synced);
        self.metrics.ready.set(i64::from(ready));
        self.metrics.degraded.set(i64::from(degraded));
        let stale_since_s = collections().filter_map(|collection| collection.restored_as_of_s).min();
        self.metrics.stale_since.set(stale_since_s.and_then(|as_of_s| i64::try_from(as_of_s).ok()).unwrap_or_default());
        if self.reconciler.running() && !self.reconciler.busy() {
            self.report_versions();
        }
        let held = self.reconciler.held();
        self.outputs.readiness.send_if_modified(|before| {
            let states = (before.ready, before.degraded, before.stale_since_s, before.held);
            if states == (ready, degraded, stale_since_s, held) && before.collections.iter().eq(collections()) {
                return false;
            }
            if before.ready != ready {
                match stale_since_s {
                    None => tracing::info!("ready: the first complete model is published"),
                    Some(as_of_s) => {
                        tracing::warn!(
                            as_of_s,
                            "ready: the state restored from disk serves until the API server answers"
                        )
                    }
                }
            }
            if before.stale_since_s.is_some() && stale_since_s.is_none() {
                tracing::info!("serving the current state of the cluster instead of the restored one");
            }
            *before = Readiness { ready, degraded, stale_since_s, held, collections: collections().cloned().collect() };
            true
        });
    }

    /// Events are in effect once the queue is empty. With several namespaces, the oldest version counts.
    fn report_versions(&self) {
        for kind in Kind::ALL {
            let versions = self.collections.values().filter(|collection| collection.kind == kind);
            let versions = versions.filter_map(|collection| collection.resource_version.as_ref()?.parse::<f64>().ok());
            if let Some(version) = versions.reduce(f64::min) {
                self.metrics.applied_resource_version.with_label_values(&[kind.as_str()]).set(version);
            }
        }
    }

    fn recent_publications(&self, filter: &HistoryFilter) -> RecentPublications {
        RecentPublications {
            held: self.reconciler.held(),
            oldest: self.history.range().map(|(oldest, _)| oldest),
            apart: self.history.apart(),
            newest: *self.outputs.generation.borrow(),
            publications: self.history.latest(filter.last, filter.host.as_deref()),
        }
    }

    /// Executes a command and publishes the result.
    fn execute(&mut self, command: Command) -> Result<Commanded, CommandRefusal> {
        let now = clock::now();
        let kept = self.history.range().filter(|_| self.reconciler.running()).ok_or(CommandRefusal::Starting)?;
        let generation = match (command, self.reconciler.held()) {
            (Command::Thaw, None) => return Err(CommandRefusal::NotHeld),
            (Command::Freeze, Some(held)) => return Err(CommandRefusal::HeldAlready(held)),
            (Command::Thaw, Some(_)) => None,
            (Command::Freeze, None) => Some(kept.1),
            (Command::Rollback(generation), _) => Some(generation),
        };
        match generation {
            None => self.reconciler.thaw(command, now),
            Some(asked) => {
                let routes = self.history.parts(asked).ok_or(CommandRefusal::NotKept { asked, kept })?.clone();
                self.reconciler.hold(command, asked, routes, now);
            }
        }
        tracing::warn!(%command, "operator command");
        self.step(now);
        let changed = self.history.latest(1, None).pop().map(|newest| newest.changes.units.routing);
        Ok(Commanded { generation: *self.outputs.generation.borrow(), changed: changed.unwrap_or_default() })
    }

    /// The requester may be gone; then the answer is dropped.
    fn answer(&mut self, question: Question) {
        match question {
            Question::History(filter, answer) => drop(answer.send(self.recent_publications(&filter))),
            Question::NotServing(answer) => drop(answer.send(self.reconciler.not_serving(clock::now(), clock::wall()))),
            Question::Command(command, answer) => drop(answer.send(self.execute(command))),
            Question::Findings(answer) => drop(answer.send(self.reconciler.model().compiled().all_findings())),
            Question::DesiredStatus(object, answer) => {
                drop(answer.send(self.reconciler.desired_reports().status(&object)))
            }
            Question::DesiredInfrastructure(gateway, answer) => {
                drop(answer.send(self.reconciler.desired_reports().infrastructure(&gateway)))
            }
            Question::ObjectFindings(object, answer) => {
                drop(answer.send(self.reconciler.desired_reports().findings(&object)))
            }
            Question::LookAgain(answer) => {
                self.reconciler.pending_reports().look_again();
                answer.send(()).unwrap_or_default();
            }
            Question::StatusWriter(object, writer, answer) => {
                self.identified(&object, writer);
                answer.send(()).unwrap_or_default();
            }
            Question::Tree(query, answer) => drop(answer.send(self.reconciler.model().tree(&query))),
            Question::Refused(gateway, host, answer) => {
                drop(answer.send(self.reconciler.model().refused(&gateway, &host)));
            }
            Question::Ignored(host, answer) => drop(answer.send(self.reconciler.model().ignored(&host))),
            Question::Topology(answer) => {
                let edges = self.reconciler.model().topology().edges();
                drop(answer.send(edges.map(|(object, key)| (object.clone(), key.clone())).collect()));
            }
            Question::Verdicts(answer) => {
                let verdicts = self.reconciler.model().compiled().verdicts.iter();
                drop(answer.send(verdicts.map(|(name, verdict)| (name.clone(), verdict.clone())).collect()));
            }
        }
    }
}

fn send_if_changed<T: PartialEq>(to: &watch::Sender<T>, value: T) {
    to.send_if_modified(|before| {
        let changed = *before != value;
        *before = value;
        changed
    });
}

#[cfg(test)]
mod tests;
