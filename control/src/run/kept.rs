//! The wiring of the cache on disk: the first run of the loop starts with its content, and every run writes to it.

use std::collections::BTreeMap;
use std::mem::take;
use std::net::IpAddr;
use std::sync::Arc;

use tidegate_config::object::Kind;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::State;
use super::cached::{CachedFollower, follow};
use super::cluster_cache::{keep_reached_by, open_cache};
use crate::clock;
use crate::cluster::api_server::ApiServer;
use crate::cluster::cache::{Cache, Restored, RestoredCached, Sink, StoredCollection, seconds};
use crate::cluster::cached::CachedStates;
use crate::cluster::informer::{Identity, Informer, Limits};
use crate::cluster::key_sets::{KeySetFollower, KnownKeys};
use crate::cluster::resolve::Resolver;
use crate::cluster::selection::{field_selector, label_selector};
use crate::event::Collection;
use crate::options::Secrets;

/// The cache, if enabled, and the restored state that is not yet in use.
#[derive(Debug, Default)]
pub(super) struct CacheState {
    cache: Option<Cache>,
    /// The resourceVersions at which the first run resumes watches.
    resume: BTreeMap<Collection, Arc<str>>,
    names: BTreeMap<Arc<str>, Box<[IpAddr]>>,
    /// The restored cached kinds.
    cached: Vec<RestoredCached>,
    /// The uid of the cluster that the restored state belongs to.
    cluster: Option<Arc<str>>,
}

impl State {
    /// Opens the cache, if enabled, and restores its content.
    pub(super) async fn open_cache(&mut self) {
        let removals = self.control.options.pace.unconfirmed_removals;
        let kept = (self.kept_collections(), self.control.cached.clone());
        let (cache, mut restored) = open_cache(self.control.cache.clone(), kept, removals, &self.cache_metrics).await;
        self.kept.cache = cache;
        self.kept.cached = take(&mut restored.cached);
        let stale_since_s = restored.collections.iter().map(|collection| collection.as_of_s).min();
        self.restore(restored);
        // An empty cache restores no state: neither its staleness nor the end of it is logged.
        self.readiness.send_modify(|readiness| readiness.stale_since_s = stale_since_s);
    }

    fn restore(&mut self, Restored { collections, names, key_sets, sockets, cluster, .. }: Restored) {
        let now = clock::now();
        let objects: usize = collections.iter().map(|collection| collection.objects.len()).sum();
        if let Some(as_of_s) = collections.iter().map(|collection| collection.as_of_s).min() {
            let age_s = seconds(clock::wall()).saturating_sub(as_of_s);
            tracing::info!(objects, kinds = collections.len(), as_of_s, age_s, "restored from the cluster cache");
        }
        self.control.api_server.recall(sockets);
        self.reconciler.restore_followed(names.clone(), key_sets);
        (self.kept.names, self.kept.cluster) = (names, cluster);
        for restored in collections {
            // Without a resourceVersion watches could not continue: such a collection is served once it is listed.
            if let (Some(copies), Some(version)) = (&self.control.copies, &restored.resume) {
                copies.restore(&restored.collection, &restored.raw, version);
            }
            self.reconciler.restore(&restored.collection, restored.objects, restored.as_of_s, now);
            self.kept.resume.extend(restored.resume.map(|version| (restored.collection, version)));
        }
    }

    fn kept_collections(&self) -> Vec<StoredCollection> {
        let (options, namespaces) = (&self.control.options, &self.control.namespaces);
        let kept = |collection: &Collection| {
            let listed = collection.kind != Kind::Secret || options.secrets == Secrets::Watched;
            let selectors =
                [label_selector(collection, namespaces, options), field_selector(collection, namespaces, options)];
            let [labels, fields] = selectors.map(|selector| selector.unwrap_or_else(|| "all".to_owned()));
            let selection = if listed { format!("{labels}; {fields}") } else { "by name".to_owned() };
            let whole = listed && self.control.copies.is_some() && collection.kind != Kind::ConfigMap;
            StoredCollection { collection: collection.clone(), selection, listed, whole }
        };
        self.collections.iter().map(kept).collect()
    }
}

impl CacheState {
    /// Prepares an informer for this run.
    pub(super) fn begin(&mut self, informer: Informer, collection: &Collection, identity: &Identity) -> Informer {
        let resume = self.resume.remove(collection);
        let sink = self.cache.as_ref().and_then(|cache| cache.sink(collection, resume.is_some()));
        let informer = informer.keeping(sink);
        match resume {
            Some(version) => informer.resuming(version).of_cluster(identity.clone()),
            None => informer,
        }
    }

    /// The restored cluster identity, to compare with that of the API server.
    pub(super) fn identity(&self, client: &kube::Client, limits: &Limits) -> Identity {
        Identity::new(client.clone(), limits.clone(), self.cluster.clone())
    }

    pub(super) fn secrets_by_name(&self) -> Option<Sink> {
        self.cache.as_ref()?.sink(&Collection { kind: Kind::Secret, namespace: None }, false)
    }

    pub(super) fn resolver(&mut self, resolver: Resolver) -> Resolver {
        resolver.keeping(self.cache.as_ref().map(|cache| cache.names()), take(&mut self.names))
    }

    /// `known` are the keys that the loop has already.
    pub(super) fn key_sets(&self, follower: KeySetFollower, known: KnownKeys) -> KeySetFollower {
        follower.keeping(self.cache.as_ref().map(Cache::key_sets), known)
    }

    /// Keeps the API server's addresses and the cluster's identity, and requests the lists that the cache needs; never
    /// returns.
    pub(super) fn follow(
        &self,
        api_server: &ApiServer,
        identity: &Identity,
        states: watch::Receiver<CachedStates>,
        relist: UnboundedSender<Collection>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let ask = move |collection| drop(relist.send(collection));
        let keeping = keep_reached_by(self.cache.as_ref(), (api_server, identity), states, ask);
        async move { match keeping.await {} }
    }

    /// Watches the cached kinds until `stop` is cancelled, with the restored objects to start with.
    pub(super) fn follow_cached(
        &mut self,
        following: CachedFollower,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let identity = self.identity(&following.client, &following.limits);
        follow(following, (take(&mut self.cached), self.cache.as_ref()), &identity, stop)
    }

    /// Writes pending entries and closes the cache.
    pub(super) async fn close(self) {
        let Some(cache) = self.cache else { return };
        if spawn_blocking(move || cache.close()).await.is_err() {
            tracing::error!("closing the cluster cache panicked");
        }
    }
}
