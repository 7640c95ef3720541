//! Wiring: informers, the resolver and the loop run as one supervised set. When one of them ends or panics, all are
//! restarted with back-off, while the last snapshot serves.

mod cached;
mod cluster_cache;
mod kept;

use std::collections::BTreeSet;
use std::net::SocketAddr;
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

use crate::backoff::Backoff;
use crate::clock;
use crate::cluster::api_server::ApiServer;
use crate::cluster::cache::{CacheMetrics, CacheOptions};
use crate::cluster::cached::{CachedKind, CachedStates, ServedKind, unknown};
use crate::cluster::collection_metrics::CollectionMetrics;
use crate::cluster::copies::Copies;
use crate::cluster::informer::{Informer, Interest, Limits, Recovery, SecretPoller, SecretPollerMetrics};
use crate::cluster::key_sets::{KeyClient, KeySetFollower, KeySetLimits, KeySetMetrics};
use crate::cluster::resolve::{Resolver, Upstream};
use crate::cluster::selection::{collections, field_selector, label_selector};
use crate::drive::{Loop, LoopOutputs};
use crate::event::{BindFailures, Collection, Event};
use crate::history::History;
use crate::interest::{KeySources, Names, SecretInterest};
use crate::metrics::{ControlMetrics, SnapshotCollector};
use crate::options::{Options, Secrets};
use crate::order::Order;
use crate::queue::Meter;
use crate::reconcile::Reconciler;
use crate::report_queue::Reports;
use crate::sources::watched_beside;
use crate::view::{Question, Readiness, View};
use cached::CachedFollower;
pub use cached::{CachedControl, start_cached};
use kept::CacheState;

/// The capacity of the event queue; informers wait when it is full.
const EVENTS_MAX: usize = 4096;
/// The capacity of the queue of questions to the loop.
const QUESTIONS_MAX: usize = 16;
/// A run of this length counts as healthy and resets the back-off.
const SOUND_AFTER: Duration = Duration::from_secs(60);

/// The parameters of the control loop.
#[derive(Clone)]
pub struct Control {
    /// The client for the API server.
    pub client: kube::Client,
    /// The addresses of the API server, which no route may use.
    pub api_server: ApiServer,
    /// The sockets that the data plane cannot open, as it reports them.
    pub unopened: watch::Receiver<BindFailures>,
    /// The namespaces to watch; empty for all of them.
    pub namespaces: Vec<Arc<str>>,
    /// The operator's options.
    pub options: Options,
    /// The order of compilation after a list.
    pub order: Order,
    /// Limits of lists and watches.
    pub limits: Limits,
    /// The cache on disk that keeps the state of the cluster over restarts, if enabled.
    pub cache: Option<CacheOptions>,
    /// The server of copies of the watched kinds, if enabled.
    pub copies: Option<Copies>,
    /// Further kinds that are cached and served, and that routing does not read.
    pub cached: Vec<CachedKind>,
    /// The server of copies of those kinds, if enabled.
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
/// If a metric cannot be registered.
pub fn start(
    control: Control,
    (publisher, published): (Publisher, Published),
    registry: &Registry,
    shutdown: CancellationToken,
) -> Result<(View, impl Future<Output = ()> + Send + 'static), prometheus::Error> {
    let metrics = ControlMetrics::register(registry)?;
    let (collection_metrics, named_metrics) =
        (CollectionMetrics::register(registry)?, SecretPollerMetrics::register(registry)?);
    let cache_metrics = CacheMetrics::register(registry)?;
    let key_set_metrics = KeySetMetrics::register(registry)?;
    registry.register(Box::new(SnapshotCollector::new(published)?))?;
    let (generation, generation_seen) = watch::channel(Generation::default());
    // Until the cache has been read, any state may be of before the restart.
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
    let collections = collections(&control.namespaces, &control.options);
    let reconciler = Reconciler::new(control.options.clone(), collections.clone());
    let reconciler = reconciler.metered(Meter::register(registry, "routes")?).ordered(control.order.clone());
    let history = History::new(control.options.keep);
    let state = State {
        control,
        collections,
        reconciler,
        publisher,
        history,
        generation,
        readiness,
        asked,
        metrics,
        collection_metrics,
        named_metrics,
        cache_metrics,
        key_set_metrics,
        reports,
        kept: CacheState::default(),
        cached,
    };
    Ok((view, state.supervise(shutdown)))
}

struct State {
    control: Control,
    collections: Vec<Collection>,
    reconciler: Reconciler,
    publisher: Publisher,
    history: History,
    generation: watch::Sender<Generation>,
    readiness: watch::Sender<Readiness>,
    asked: mpsc::Receiver<Question>,
    metrics: ControlMetrics,
    collection_metrics: CollectionMetrics,
    named_metrics: SecretPollerMetrics,
    cache_metrics: CacheMetrics,
    key_set_metrics: KeySetMetrics,
    reports: Reports,
    kept: CacheState,
    cached: watch::Sender<CachedStates>,
}

impl State {
    /// Runs the loop again and again. Each run begins with lists; it keeps the publisher of the previous one, and with
    /// it the snapshot that serves meanwhile, the history, and World, so that the lists are compared with the state
    /// that serves.
    async fn supervise(mut self, shutdown: CancellationToken) {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(30));
        let mut rng = fastrand::Rng::new();
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
            tracing::error!(error = %why, "the control loop failed and restarts; the last snapshot serves meanwhile");
            if clock::now().saturating_duration_since(started) >= SOUND_AFTER {
                backoff.reset();
            }
            let delay = backoff.next(rng.u64(..));
            shutdown.run_until_cancelled(tokio::time::sleep(delay)).await;
            self.reconciler.start_over(self.collections.iter().cloned());
        }
        beside.shutdown().await;
        self.kept.close().await;
    }

    /// Watches the cached kinds, independently of the loop.
    fn follow_cached(&mut self, shutdown: &CancellationToken) -> impl Future<Output = ()> + Send + 'static {
        let Control { client, options, limits, cached, cached_copies, .. } = &self.control;
        let following = CachedFollower {
            client: client.clone(),
            kinds: cached.clone(),
            removals: options.pace.unconfirmed_removals,
            limits: limits.clone(),
            metrics: self.collection_metrics.clone(),
            copies: cached_copies.clone(),
            states: self.cached.clone(),
        };
        self.kept.follow_cached(following, shutdown.clone())
    }

    /// One run of the loop; returns the reason for its end.
    async fn live(&mut self, shutdown: &CancellationToken) -> String {
        let (events, mut received) = mpsc::channel::<Event>(EVENTS_MAX);
        let (names, wanted) = watch::channel(Arc::new(Names::new()));
        let (relist, mut relists) = mpsc::unbounded_channel::<Collection>();
        let stop = shutdown.child_token();
        // The tasks end with the run, however it ends.
        let _ended = stop.clone().drop_guard();
        let mut tasks = JoinSet::new();
        let (mut handles, recovery) = (Vec::new(), Recovery::default());
        let (secret_names, followed) = mpsc::unbounded_channel();
        let Control { client, namespaces, options, limits, api_server, unopened, .. } = &self.control;
        let identity = self.kept.identity(client, limits);
        let by_name = match options.secrets {
            Secrets::Watched => None,
            Secrets::Referenced { refresh } => Some(refresh),
        };
        if let Some(refresh) = by_name {
            let named = self.secret_poller(refresh, followed, events.clone()).sharing(&recovery);
            tasks.spawn(ending("Secrets by name".to_owned(), named.run(stop.clone())));
        }
        let listed = self.collections.iter().filter(|collection| collection.kind != Kind::Secret || by_name.is_none());
        for (seed, collection) in (fastrand::u64(..)..).zip(listed.cloned()) {
            let field_selector = field_selector(&collection, namespaces, options);
            let label_selector = label_selector(&collection, namespaces, options);
            let interest = Interest { field_selector, label_selector, ..Interest::in_all_of(collection.clone()) };
            let (client, limits) = (client.clone(), limits.clone());
            let informer = Informer::new(client, interest, limits, events.clone(), &self.collection_metrics, seed);
            let informer = informer.sharing(&recovery).copying(self.control.copies.clone());
            let informer = self.kept.begin(informer, &collection, &identity);
            handles.push((collection.clone(), informer.relist()));
            let name = format!("the informer of {collection}");
            let optional = options.sources.optional(collection.kind);
            let versions = |kind: Kind| kind.versions().iter().map(|version| Arc::from(*version));
            if collection.kind.is_custom() {
                let informer = informer.while_served(versions(collection.kind)).optional(optional);
                tasks.spawn(ending(name, informer.run(stop.clone())));
            } else if let Some(beside) = watched_beside(collection.kind, options) {
                let informer = informer.while_other_served(beside, versions(beside)).optional(optional);
                tasks.spawn(ending(name, informer.run(stop.clone())));
            } else {
                tasks.spawn(ending(name, informer.run(stop.clone())));
            }
        }
        let (key_sources, sockets) = (watch::Sender::default(), watch::Sender::default());
        match self.key_set_follower(key_sources.subscribe(), sockets.subscribe(), events.clone()) {
            Ok(follower) => drop(tasks.spawn(ending("the keys of issuers".to_owned(), follower.run(stop.clone())))),
            Err(why) => return format!("the client for URLs in policies cannot be created: {why}"),
        }
        let resolver = self.kept.resolver(Resolver::from_system(wanted, events));
        let keeping = self.kept.follow(api_server, &identity, self.cached.subscribe(), relist.clone());
        tasks.spawn(ending("the record of the API server's address".to_owned(), keeping));
        tasks.spawn(ending("the resolver".to_owned(), resolver.run(stop.clone())));
        tasks.spawn(ending("relisting".to_owned(), async move {
            while let Some(collection) = relists.recv().await {
                handles.iter().filter(|(of, _)| *of == collection).for_each(|(_, relist)| relist.ask());
            }
        }));
        let (generation, readiness) = (self.generation.clone(), self.readiness.clone());
        let (secrets, reports) = (secret_names, self.reports.clone());
        let outputs = LoopOutputs { generation, readiness, names, key_sources, sockets, secrets, relist, reports };
        let Self { reconciler, publisher, history, metrics, asked, .. } = self;
        let running = Loop::new(reconciler, publisher, history, &outputs, metrics, (api_server, unopened));
        first_end(running.run(&mut received, asked, &stop), &mut tasks).await
    }
}

impl State {
    /// The task that reads Secrets by name.
    fn secret_poller(
        &self,
        refresh: Duration,
        followed: mpsc::UnboundedReceiver<Vec<SecretInterest>>,
        events: mpsc::Sender<Event>,
    ) -> SecretPoller {
        let (client, limits) = (self.control.client.clone(), self.control.limits.clone());
        let (metrics, seed) = (self.named_metrics.clone(), fastrand::u64(..));
        let secrets = Collection { kind: Kind::Secret, namespace: None };
        let restored = self.reconciler.listing().restored_as_of_s(&secrets).is_some();
        let named = SecretPoller::new(client, (refresh, limits), followed, events, metrics, seed);
        named.keeping(self.kept.secrets_by_name(), restored)
    }

    /// The task that fetches the keys of issuers of tokens, with the keys that the loop has already.
    fn key_set_follower(
        &self,
        wanted: watch::Receiver<Arc<KeySources>>,
        api_server: watch::Receiver<Arc<BTreeSet<SocketAddr>>>,
        events: mpsc::Sender<Event>,
    ) -> Result<KeySetFollower, rustls::Error> {
        let Options { addresses, policy_authorities, policy_url_hosts, .. } = &self.control.options;
        let client = KeyClient::new(
            Upstream::System,
            addresses.clone(),
            api_server,
            policy_authorities.as_ref(),
            KeyClient::WITHIN,
        )?;
        let client = client.only_to(policy_url_hosts.clone());
        let (limits, metrics) = (KeySetLimits::default(), self.key_set_metrics.clone());
        let follower = KeySetFollower::new(client, limits, wanted, events, metrics, fastrand::u64(..));
        let sets = self.reconciler.model().world().key_sets.iter();
        let known = sets.filter_map(|(source, fetched)| Some((source.clone(), fetched.keys.clone()?))).collect();
        Ok(self.kept.key_sets(follower, known))
    }
}

/// Runs a task and returns a description of its end.
async fn ending(name: String, task: impl Future<Output = ()>) -> String {
    match AssertUnwindSafe(task).catch_unwind().await {
        Ok(()) => format!("{name} ended by itself"),
        Err(panic) => format!("{name} panicked: {}", panic_message(&*panic)),
    }
}

/// Waits until the loop or one of its tasks ends, in whatever way: none of them should end before the others.
async fn first_end(running: impl Future<Output = ()>, tasks: &mut JoinSet<String>) -> String {
    tokio::select! {
        () = running => "the loop ended by itself".to_owned(),
        Some(ended) = tasks.join_next() => ended.unwrap_or_else(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the reason for the end of a run, with one task that never ends and this one.
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
    fn any_end_of_a_task_ends_the_run() {
        check_end(async {}, "another ended by itself");
        check_end(async { panic!("no {}", "luck") }, "another panicked: no luck");
    }
}
