//! Wiring: informers, the resolver and the loop, in one supervised set. When one of them ends or panics, all are
//! started again with back-off, while the last snapshot serves.

mod kept;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use prometheus::Registry;
use tidegate_config::caught::panic_message;
use tidegate_config::model::Generation;
use tidegate_config::object::Kind;
use tidegate_config::published::{Published, Publisher};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api_server::ApiServer;
use crate::backoff::Backoff;
use crate::cached::{CachedFollower, CachedKind, CachedStates, ServedKind, unknown};
use crate::clock;
use crate::cluster_cache::{CacheMetrics, CacheOptions, SweepLimit};
use crate::copies::Copies;
use crate::drive::{Loop, LoopOutputs};
use crate::event::{Event, Source};
use crate::history::History;
use crate::informer::{Informer, Interest, Limits, Recovery, SecretPoller, SecretPollerMetrics};
use crate::metrics::{ControlMetrics, SnapshotCollector};
use crate::options::{Options, Secrets};
use crate::queue::Meter;
use crate::reconcile::Names;
use crate::reconcile::Reconciler;
use crate::resolve::Resolver;
use crate::selection::{field_selector, label_selector, sources};
use crate::source_metrics::SourceMetrics;
use crate::status::Reports;
use crate::view::{Question, Readiness, View};
use kept::Kept;

/// Events that wait for the loop before informers are held back.
const EVENTS_MAX: usize = 4096;
/// Questions that wait for the loop.
const QUESTIONS_MAX: usize = 16;
/// A life that has lasted this long was sound: the pauses between lives begin anew.
const SOUND_AFTER: Duration = Duration::from_secs(60);

/// What the control loop needs.
#[derive(Clone)]
pub struct Control {
    /// The API server.
    pub client: kube::Client,
    /// Where it is: what no object may lead to.
    pub api_server: ApiServer,
    /// The namespaces to watch; none means all of them.
    pub namespaces: Vec<Arc<str>>,
    /// What the operator decided.
    pub options: Options,
    /// Bounds of the list/watch loops.
    pub limits: Limits,
    /// Where the state of the cluster is kept over restarts, if it is.
    pub cache: Option<CacheOptions>,
    /// Who serves what is read again, if anybody does.
    pub copies: Option<Copies>,
    /// Kinds that are cached and served besides, and that routing does not read.
    pub cached: Vec<CachedKind>,
    /// Who serves those.
    pub cached_copies: Option<Copies<ServedKind>>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("namespaces", &self.namespaces).finish_non_exhaustive()
    }
}

/// Registers the metrics and returns the view of the loop with the future that runs it until `shutdown`.
///
/// # Errors
/// When a metric cannot be registered.
pub fn start(
    control: Control,
    (publisher, published): (Publisher, Published),
    registry: &Registry,
    shutdown: CancellationToken,
) -> Result<(View, impl Future<Output = ()> + Send + 'static), prometheus::Error> {
    let metrics = ControlMetrics::register(registry)?;
    let (source_metrics, named_metrics) =
        (SourceMetrics::register(registry)?, SecretPollerMetrics::register(registry)?);
    let cache_metrics = CacheMetrics::register(registry)?;
    registry.register(Box::new(SnapshotCollector::new(published)?))?;
    let (generation, generation_seen) = watch::channel(Generation::default());
    // Until it is known what the cache holds, everything may be of an earlier life.
    let stale_since_s = control.cache.as_ref().map(|_| 0);
    let (readiness, readiness_seen) = watch::channel(Readiness { stale_since_s, ..Readiness::default() });
    let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
    let (cached, cached_seen) = watch::channel(unknown(&control.cached));
    let meter = |name| Meter::register(registry, name);
    let reports = Reports::new([meter("status")?, meter("events")?, meter("gateways")?]);
    let view = View {
        generation: generation_seen,
        readiness: readiness_seen,
        cached: cached_seen,
        questions,
        reports: reports.clone(),
    };
    let sources = sources(&control.namespaces, &control.options);
    let reconciler =
        Reconciler::new(control.options.clone(), sources.clone()).metered(Meter::register(registry, "routes")?);
    let history = History::new(control.options.keep);
    let state = State {
        control,
        sources,
        reconciler,
        publisher,
        history,
        generation,
        readiness,
        asked,
        metrics,
        source_metrics,
        named_metrics,
        cache_metrics,
        reports,
        kept: Kept::default(),
        cached,
    };
    Ok((view, state.supervise(shutdown)))
}

struct State {
    control: Control,
    sources: Vec<Source>,
    reconciler: Reconciler,
    publisher: Publisher,
    history: History,
    generation: watch::Sender<Generation>,
    readiness: watch::Sender<Readiness>,
    asked: mpsc::Receiver<Question>,
    metrics: ControlMetrics,
    source_metrics: SourceMetrics,
    named_metrics: SecretPollerMetrics,
    cache_metrics: CacheMetrics,
    reports: Reports,
    kept: Kept,
    cached: watch::Sender<CachedStates>,
}

impl State {
    /// Runs one life after the other. A life starts with lists; of the one before, it keeps the publisher, and with it the
    /// snapshot that serves meanwhile, history, and World, so that what it lists is measured against what serves.
    async fn supervise(mut self, shutdown: CancellationToken) {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(30));
        let mut chance = fastrand::Rng::new();
        self.open_cache().await;
        let cached = self.follow_cached(&shutdown);
        let mut beside = JoinSet::new();
        beside.spawn(cached);
        while !shutdown.is_cancelled() {
            let started = clock::now();
            let ended = AssertUnwindSafe(self.live(&shutdown)).catch_unwind().await;
            if shutdown.is_cancelled() {
                break;
            }
            let why = ended.unwrap_or_else(|panic| format!("the loop panicked: {}", panic_message(&*panic)));
            self.metrics.restarts.inc();
            tracing::error!(%why, "the control loop is started again; the last snapshot serves meanwhile");
            if clock::now().saturating_duration_since(started) >= SOUND_AFTER {
                backoff.reset();
            }
            let delay = backoff.next(chance.u64(..));
            shutdown.run_until_cancelled(tokio::time::sleep(delay)).await;
            self.reconciler.start_over(self.sources.iter().cloned());
        }
        beside.shutdown().await;
        self.kept.close().await;
    }

    /// Follows the cached kinds, whatever becomes of the loop.
    fn follow_cached(&mut self, shutdown: &CancellationToken) -> impl Future<Output = ()> + Send + 'static {
        let Control { client, options, limits, cached, cached_copies, .. } = &self.control;
        let pace = options.pace;
        let following = CachedFollower {
            client: client.clone(),
            kinds: cached.clone(),
            sweep: SweepLimit { share_max: pace.sweep_share_max, free: pace.sweep_free },
            limits: limits.clone(),
            metrics: self.source_metrics.clone(),
            copies: cached_copies.clone(),
            states: self.cached.clone(),
        };
        self.kept.follow_cached(following, shutdown.clone())
    }

    /// One life, to its end; gives why it ended.
    async fn live(&mut self, shutdown: &CancellationToken) -> String {
        let (events, mut received) = mpsc::channel::<Event>(EVENTS_MAX);
        let (names, wanted) = watch::channel(Arc::new(Names::new()));
        let (relist, mut relists) = mpsc::unbounded_channel::<Source>();
        let stop = shutdown.child_token();
        // Whatever way this life ends, its tasks end with it.
        let _ended = stop.clone().drop_guard();
        let mut tasks = JoinSet::new();
        let (mut handles, recovery) = (Vec::new(), Recovery::default());
        let (secret_names, followed) = mpsc::unbounded_channel();
        let Control { client, namespaces, options, limits, api_server, .. } = &self.control;
        let identity = self.kept.identity(client, limits);
        let by_name = match options.secrets {
            Secrets::Watched => None,
            Secrets::Referenced { refresh } => Some(refresh),
        };
        if let Some(refresh) = by_name {
            let (metrics, seed) = (self.named_metrics.clone(), fastrand::u64(..));
            let (client, limits) = (client.clone(), limits.clone());
            let named = SecretPoller::new(client, (refresh, limits), followed, events.clone(), metrics, seed)
                .sharing(&recovery);
            let secrets = Source { kind: Kind::Secret, namespace: None };
            let restored = self.reconciler.restored_as_of_s(&secrets).is_some();
            let named = named.keeping(self.kept.secrets_by_name(), restored);
            tasks.spawn(ending("Secrets by name".to_owned(), named.run(stop.clone())));
        }
        let listed = self.sources.iter().filter(|source| source.kind != Kind::Secret || by_name.is_none());
        for (seed, source) in (fastrand::u64(..)..).zip(listed.cloned()) {
            let field_selector = field_selector(&source, namespaces, options);
            let label_selector = label_selector(&source, namespaces, options);
            let interest = Interest { field_selector, label_selector, ..Interest::in_all_of(source.clone()) };
            let (client, limits) = (client.clone(), limits.clone());
            let informer = Informer::new(client, interest, limits, events.clone(), &self.source_metrics, seed);
            let informer = informer.sharing(&recovery).copying(self.control.copies.clone());
            let informer = self.kept.begin(informer, &source, &identity);
            handles.push((source.clone(), informer.relist()));
            let name = format!("the informer of {source}");
            let optional = options.sources.gateway.as_ref().is_some_and(|gateway| gateway.optional);
            let versions = |kind: Kind| kind.versions().iter().map(|version| Arc::from(*version));
            if source.kind.is_of_gateway_api() {
                let informer = informer.while_served(versions(source.kind)).optional(optional);
                tasks.spawn(ending(name, informer.run(stop.clone())));
            } else if matches!(source.kind, Kind::Namespace | Kind::ConfigMap) {
                // Nothing but the Gateway API reads them.
                let beside = Kind::GatewayClass;
                let informer = informer.while_other_served(beside, versions(beside)).optional(optional);
                tasks.spawn(ending(name, informer.run(stop.clone())));
            } else {
                tasks.spawn(ending(name, informer.run(stop.clone())));
            }
        }
        let resolver = self.kept.resolver(Resolver::from_system(wanted, events));
        let keeping = self.kept.follow(api_server, &identity, self.cached.subscribe(), relist.clone());
        tasks.spawn(ending("keeping where the API server is".to_owned(), keeping));
        tasks.spawn(ending("the resolver".to_owned(), resolver.run(stop.clone())));
        tasks.spawn(ending("relisting".to_owned(), async move {
            while let Some(source) = relists.recv().await {
                handles.iter().filter(|(of, _)| *of == source).for_each(|(_, relist)| relist.ask());
            }
        }));
        let (generation, readiness) = (self.generation.clone(), self.readiness.clone());
        let (secrets, reports) = (secret_names, self.reports.clone());
        let told = LoopOutputs { generation, readiness, names, secrets, relist, reports };
        let Self { reconciler, publisher, history, metrics, asked, .. } = self;
        let running = Loop::new(reconciler, publisher, history, &told, metrics, api_server);
        first_end(running.run(&mut received, asked, &stop), &mut tasks).await
    }
}

/// Runs a task and says how it ended.
async fn ending(name: String, task: impl Future<Output = ()>) -> String {
    match AssertUnwindSafe(task).catch_unwind().await {
        Ok(()) => format!("{name} ended by itself"),
        Err(panic) => format!("{name} panicked: {}", panic_message(&*panic)),
    }
}

/// Waits until the loop or one of its tasks ends, in whatever way: none of them is to end before the others.
async fn first_end(running: impl Future<Output = ()>, tasks: &mut JoinSet<String>) -> String {
    tokio::select! {
        () = running => "the loop ended by itself".to_owned(),
        Some(ended) = tasks.join_next() => ended.unwrap_or_else(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why a life ends in which the loop goes on, beside one task that never ends and this one.
    #[track_caller]
    fn check_end(task: impl Future<Output = ()> + Send + 'static, want: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let ended = runtime.block_on(async {
            let mut tasks = JoinSet::new();
            tasks.spawn(ending("one".to_owned(), std::future::pending()));
            tasks.spawn(ending("another".to_owned(), task));
            let end = first_end(std::future::pending(), &mut tasks);
            tokio::time::timeout(Duration::from_secs(20), end).await
        });
        assert_eq!(ended.as_deref(), Ok(want));
    }

    #[test]
    fn a_task_that_ends_in_any_way_ends_the_life() {
        check_end(async {}, "another ended by itself");
        check_end(async { panic!("no {}", "luck") }, "another panicked: no luck");
    }
}
