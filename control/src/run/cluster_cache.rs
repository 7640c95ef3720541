//! The cache of a running process: opened with a timeout, and updated with the connection to the API server.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::backoff::Backoff;
use crate::cluster::api_server::ApiServer;
use crate::cluster::cache::{Cache, CacheMetrics, CacheOptions, Restored, StoredCollection};
use crate::cluster::cached::{CachedKind, CachedStates, ServedKind, served};
use crate::cluster::informer::Identity;
use crate::event::Collection;
use crate::options::UnconfirmedRemovals;

/// The timeout for opening the cache at start: a disk that hangs costs only the cache.
const OPEN_MAX: Duration = Duration::from_secs(30);

/// Opens the cache, if it is enabled. Returns its content, which is empty without a cache.
pub(crate) async fn open_cache(
    options: Option<CacheOptions>,
    kept: (Vec<StoredCollection>, Vec<CachedKind>),
    removals: UnconfirmedRemovals,
    metrics: &CacheMetrics,
) -> (Option<Cache>, Restored) {
    let Some(options) = options else { return (None, Restored::default()) };
    let metrics = metrics.clone();
    let opening = spawn_blocking(move || Cache::open(options, kept, removals, &metrics));
    let Ok(opened) = timeout(OPEN_MAX, opening).await else {
        tracing::error!(within = ?OPEN_MAX, "the cluster cache does not open in time and is disabled");
        return (None, Restored::default());
    };
    opened.unwrap_or_else(|_| {
        tracing::error!("opening the cluster cache panicked; it is disabled");
        (None, Restored::default())
    })
}

/// Records the API server's addresses, the cluster's uid and the resources of cached kinds, and requests the lists that
/// the cache needs; never returns.
pub(crate) fn keep_reached_by(
    cache: Option<&Cache>,
    (api_server, identity): (&ApiServer, &Identity),
    mut states: watch::Receiver<CachedStates>,
    relist: impl Fn(Collection) + Send + 'static,
) -> impl Future<Output = Infallible> + Send + 'static {
    let signals = cache.map(|cache| (cache.reached_by(), cache.lost()));
    let (api_server, identity) = (api_server.clone(), identity.clone());
    let (mut learned, mut cluster) = (api_server.learned(), identity.known());
    async move {
        let Some((reached_by, mut lost)) = signals else { return pending().await };
        let mut asking = pin!(identify(&identity).fuse());
        let mut kinds = served(&states.borrow_and_update());
        loop {
            let own = Arc::clone(&learned.borrow_and_update());
            // Until this process has resolved an address, those of the previous process are used.
            let sockets = if own.is_empty() { api_server.sockets() } else { own };
            let uid = cluster.borrow_and_update().clone();
            reached_by.learn_all(&sockets, uid.as_deref(), &kinds);
            tokio::select! {
                Ok(()) = learned.changed() => {}
                Ok(()) = cluster.changed() => {}
                Ok(now) = others(&mut states, &kinds) => kinds = now,
                // If the receiver is gone, the supervisor of both notices.
                collections = lost.next() => collections.into_iter().for_each(&relist),
                () = &mut asking => {}
            }
        }
    }
}

/// Waits until the resources of cached kinds have changed.
async fn others(
    states: &mut watch::Receiver<CachedStates>,
    known: &BTreeMap<Arc<str>, ServedKind>,
) -> Result<BTreeMap<Arc<str>, ServedKind>, RecvError> {
    states.wait_for(|states| served(states) != *known).await.map(|states| served(&states))
}

/// Requests the uid of the cluster until the API server has answered.
async fn identify(identity: &Identity) {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1), Duration::from_secs(60));
    while !identity.learn().await {
        sleep(backoff.next(fastrand::u64(..))).await;
    }
}
