//! Starts an informer for each cached kind. One that panics is restarted; the others are not affected.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use prometheus::Registry;
use tidegate_config::caught::panic_message;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::cluster_cache::{keep_reached_by, open_cache};
use crate::clock;
use crate::cluster::api_server::ApiServer;
use crate::cluster::cache::{Cache, CacheMetrics, CacheOptions, RestoredCached, seconds};
use crate::cluster::cached::{CachedCondition, CachedKind, CachedStates, ServedKind, StateReporter, unknown};
use crate::cluster::collection_metrics::CollectionMetrics;
use crate::cluster::copies::Copies;
use crate::cluster::informer::{CachedInformer, Identity, Limits, Recovery, Restarted};
use crate::options::UnconfirmedRemovals;

/// The pause before an informer that panicked is restarted.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The parameters for caching kinds without routing.
#[derive(Clone)]
pub struct CachedControl {
    /// The API server.
    pub client: kube::Client,
    /// Its known sockets.
    pub api_server: ApiServer,
    /// The kinds.
    pub kinds: Vec<CachedKind>,
    /// The limit for lists that lack many objects.
    pub removals: UnconfirmedRemovals,
    /// The limits of lists and watches.
    pub limits: Limits,
    /// The store of the cluster's state over restarts, if enabled.
    pub cache: Option<CacheOptions>,
    /// The copies that are served.
    pub copies: Copies<ServedKind>,
}

impl fmt::Debug for CachedControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedControl").field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

/// Registers the metrics. Returns the states of the kinds, and the future that runs the informers until `shutdown`.
///
/// # Errors
/// If a metric cannot be registered.
pub fn start_cached(
    control: CachedControl,
    registry: &Registry,
    shutdown: CancellationToken,
) -> prometheus::Result<(watch::Receiver<CachedStates>, impl Future<Output = ()> + Send + 'static)> {
    let metrics = CollectionMetrics::register(registry)?;
    let cache_metrics = CacheMetrics::register(registry)?;
    let states = watch::Sender::new(unknown(&control.kinds));
    let receiver = states.subscribe();
    let running = async move {
        let CachedControl { client, api_server, kinds, removals, limits, cache, copies } = control;
        let (cache, restored) = open_cache(cache, (Vec::new(), kinds.clone()), removals, &cache_metrics).await;
        api_server.recall(restored.sockets);
        let identity = Identity::new(client.clone(), limits.clone(), restored.cluster);
        let following = CachedFollower { client, kinds, removals, limits, metrics, copies: Some(copies), states };
        let keeping = keep_reached_by(cache.as_ref(), (&api_server, &identity), following.states.subscribe(), drop);
        let follow = follow(following, (restored.cached, cache.as_ref()), &identity, shutdown);
        tokio::select! {
            () = follow => {}
            never = keeping => match never {},
        }
        if let Some(cache) = cache
            && spawn_blocking(move || cache.close()).await.is_err()
        {
            tracing::error!("closing the cluster cache panicked");
        }
    };
    Ok((receiver, running))
}

/// The shared parameters of the informers of cached kinds.
#[derive(Clone)]
pub(crate) struct CachedFollower {
    pub(crate) client: kube::Client,
    pub(crate) kinds: Vec<CachedKind>,
    pub(crate) removals: UnconfirmedRemovals,
    pub(crate) limits: Limits,
    pub(crate) metrics: CollectionMetrics,
    pub(crate) copies: Option<Copies<ServedKind>>,
    pub(crate) states: watch::Sender<CachedStates>,
}

/// Runs all informers until `stop`, beginning with the restored objects.
pub(crate) fn follow(
    following: CachedFollower,
    (restored, cache): (Vec<RestoredCached>, Option<&Cache>),
    identity: &Identity,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static + use<> {
    if let Some(as_of_s) = restored.iter().map(|kept| kept.as_of_s).min() {
        let (kinds, objects) = (restored.len(), restored.iter().map(|kept| kept.objects.len()).sum::<usize>());
        let age_s = seconds(clock::wall()).saturating_sub(as_of_s);
        tracing::info!(objects, kinds, as_of_s, age_s, "cached kinds are restored from the cluster cache");
    }
    let mut restored: BTreeMap<CachedKind, RestoredCached> =
        restored.into_iter().map(|restored| (restored.wanted.clone(), restored)).collect();
    let recovery = Recovery::default();
    let mut lists: BTreeMap<CachedKind, watch::Sender<u64>> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    for (kind, seed) in following.kinds.iter().zip(fastrand::u64(..)..) {
        let (ask, asked) = watch::channel(0);
        lists.insert(kind.clone(), ask);
        let restarted = restored.remove(kind).map_or_else(Restarted::default, |kept| restart(&following, kept));
        let sink = cache.and_then(|cache| cache.cached_sink(kind, restarted.resume.is_some()));
        let informer = CachedInformer {
            client: following.client.clone(),
            wanted: kind.clone(),
            limits: following.limits.clone(),
            removals: following.removals,
            metrics: following.metrics.clone(),
            sink,
            copies: following.copies.clone(),
            identity: identity.clone(),
            reporter: StateReporter::of(&following.states, kind, &following.metrics),
            asked,
            rng: fastrand::Rng::with_seed(seed),
            recovery: recovery.clone(),
        };
        tasks.spawn(again_and_again(informer, restarted, stop.clone()));
    }
    let lost = cache.map(Cache::lost_cached);
    async move {
        let asking = async {
            let Some(mut lost) = lost else { return std::future::pending().await };
            loop {
                for kind in lost.next().await {
                    lists.get(&kind).into_iter().for_each(|ask| ask.send_modify(|asked| *asked += 1));
                }
            }
        };
        tokio::select! {
            () = async { while tasks.join_next().await.is_some() {} } => {}
            () = asking => {}
        }
        // Without any kind there is nothing to do until the end.
        stop.cancelled().await;
    }
}

/// The initial state of an informer, which is also given to the copies that are served.
fn restart(following: &CachedFollower, kept: RestoredCached) -> Restarted {
    let RestoredCached { wanted, served, objects, resume, as_of_s } = kept;
    // Before the state says that the kind can be served.
    if let (Some(copies), Some(version)) = (&following.copies, &resume) {
        copies.restore(&served, &objects, version);
    }
    StateReporter::of(&following.states, &wanted, &following.metrics).report(|state| {
        state.served = Some(served.clone());
        // Without a resourceVersion the later changes are unknown: the kind is served after it is listed.
        if resume.is_some() {
            state.standing = CachedCondition::Kept(as_of_s);
        }
    });
    let names = objects.into_iter().map(|(name, _)| name).collect();
    Restarted { served: Some(served), names, resume }
}

async fn again_and_again(informer: CachedInformer, restarted: Restarted, stop: CancellationToken) {
    let mut restarted = Some(restarted);
    while !stop.is_cancelled() {
        let life = informer.clone().run(restarted.take().unwrap_or_default(), stop.clone());
        if let Err(panic) = AssertUnwindSafe(life).catch_unwind().await {
            tracing::error!(kind = %informer.wanted, error = panic_message(&*panic), "the informer of a cached kind panicked; it restarts");
            stop.run_until_cancelled(tokio::time::sleep(AGAIN_AFTER)).await;
        }
    }
}
