//! The last known state of the cluster on disk, so that it serves again after a restart while the API server is
//! unavailable.
//!
//! Informers send every object to a [`Sink`], as the bytes of its JSON, besides the event for the control loop. A
//! separate thread (`writer`) coalesces them (`pending`) and commits them to a [`Store`]: the values, with the
//! resourceVersion that they reflect, in one transaction. At the next start they are projected again and serve until
//! the API server answers; watches are resumed from the kept resourceVersion. A problem with the folder disables the
//! cache and affects nothing else.

mod backend;
mod budget;
mod folder;
mod kept_form;
mod metrics;
mod pending;
mod restore;
mod seal;
mod sink;
mod store;
mod unusable;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_config::object::Kind;
use tokio::sync::watch;

pub use metrics::CacheMetrics;
pub use restore::{Restored, RestoredCached, RestoredCollection};
pub use seal::{DecryptionError, Seal};
pub use sink::Sink;
pub use store::{Batch, FORMAT, PartitionChange, Position, Store};
pub use unusable::UnusableStore;

use crate::clock;
use crate::cluster::cached::{CachedKind, ServedKind};
use crate::event::Collection;
use crate::options::UnconfirmedRemovals;
use budget::Budget;
use pending::Pending;
use restore::{API_SERVER, DNS_NAMES, KEY_SETS};
use sink::{Form, Message, Partition, PartitionMessage};
pub(crate) use writer::seconds;
use writer::{Lists, Losses, PartitionState, PendingSince, Writer};

/// The capacity of the writer's queue, in messages.
const MESSAGES_MAX: usize = 1 << 16;

/// The operator's options for the cache.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// The folder; the cache creates its own folder in it.
    pub folder: PathBuf,
    /// The file with the key that encrypts Secrets; without a key no Secrets are kept.
    pub key_file: Option<PathBuf>,
    /// The maximum number of bytes written in a minute.
    pub write_budget: u64,
    /// The time that a change waits, so that later changes are written with it.
    pub flush_after: Duration,
    /// The URL of the API server as the operator configured it. The kept resourceVersions are invalid for another
    /// server.
    pub server: String,
}

/// The parameters of a collection in the cache.
#[derive(Clone, Debug)]
pub struct StoredCollection {
    /// The collection.
    pub collection: Collection,
    /// The selectors of the collection: objects that were kept with others are not restored.
    pub selection: String,
    /// Whether the collection is listed; otherwise objects are read by name.
    pub listed: bool,
    /// Whether complete objects are kept, with fields such as `status`, to serve them again; otherwise only the fields
    /// that routing reads.
    pub whole: bool,
}

impl StoredCollection {
    fn partition(&self) -> Arc<str> {
        self.collection_as(self.whole)
    }

    /// The name of its partition for complete objects, or for the fields that routing reads.
    fn collection_as(&self, whole: bool) -> Arc<str> {
        let Self { collection: Collection { kind, namespace }, selection, .. } = self;
        let whole = if whole { ", whole" } else { "" };
        format!("{kind} in {}: {selection}{whole}", namespace.as_deref().unwrap_or("*")).into()
    }
}

/// Records the connection to the API server.
#[derive(Clone, Debug)]
pub struct ConnectionRecord {
    sink: Sink,
    server: String,
}

impl ConnectionRecord {
    /// Records the API server's sockets, as far as they are known, and the uid of the cluster.
    pub fn learn(&self, sockets: &BTreeSet<SocketAddr>, cluster: Option<&str>) {
        self.learn_all(sockets, cluster, &BTreeMap::new());
    }

    /// The same, with the resources of cached kinds.
    pub(crate) fn learn_all(
        &self,
        sockets: &BTreeSet<SocketAddr>,
        cluster: Option<&str>,
        served: &BTreeMap<Arc<str>, ServedKind>,
    ) {
        let fixed = [restore::url_key(&self.server)].into_iter().chain(cluster.map(restore::cluster_key));
        let keys = sockets.iter().map(ToString::to_string).chain(fixed).map(|key| (key, Vec::new()));
        let kinds =
            served.iter().map(|(name, kind)| (restore::kind_key(name), serde_json::to_vec(kind).unwrap_or_default()));
        let values: BTreeMap<String, Vec<u8>> = keys.chain(kinds).collect();
        self.sink.retain(values.keys().cloned());
        values.iter().for_each(|(key, value)| self.sink.value(key, Some(value)));
    }
}

/// Reports the collections that must be listed because the cache has missed some of their events.
#[derive(Debug)]
pub struct Lost<S = Collection> {
    counts: watch::Receiver<Losses>,
    seen: Losses,
    collections: Vec<(S, Arc<str>)>,
}

impl<S: Clone> Lost<S> {
    /// Waits for the next of them; never returns after the cache is closed.
    pub async fn next(&mut self) -> Vec<S> {
        if self.counts.changed().await.is_err() {
            return std::future::pending().await;
        }
        let before = std::mem::replace(&mut self.seen, self.counts.borrow_and_update().clone());
        let lost = |name: &Arc<str>| self.seen.get(name) != before.get(name);
        self.collections.iter().filter(|(_, name)| lost(name)).map(|(collection, _)| collection.clone()).collect()
    }
}

/// An open cache.
pub struct Cache {
    messages: SyncSender<PartitionMessage>,
    queued: Arc<AtomicUsize>,
    metrics: CacheMetrics,
    partitions: BTreeMap<Collection, Arc<Partition>>,
    cached: BTreeMap<CachedKind, Arc<Partition>>,
    names: Arc<Partition>,
    key_sets: Arc<Partition>,
    api_server: Arc<Partition>,
    server: String,
    lost: watch::Receiver<Losses>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}

impl Cache {
    /// Opens the cache and reads its content for these collections and cached kinds. Blocks. Problems are logged, and
    /// there may be no cache then.
    #[must_use]
    pub fn open(
        options: CacheOptions,
        (mut collections, mut cached): (Vec<StoredCollection>, Vec<CachedKind>),
        removals: UnconfirmedRemovals,
        metrics: &CacheMetrics,
    ) -> (Option<Self>, Restored) {
        let folder = options.folder.display().to_string();
        let seal = match options.key_file.as_deref().map(Seal::read).transpose() {
            Ok(seal) => seal.map(Arc::new),
            Err(why) => {
                tracing::error!(folder, error = why, "--cache-key-file cannot be read; the cluster cache is disabled");
                return (None, Restored::default());
            }
        };
        if seal.is_none() {
            collections.retain(|kept| kept.collection.kind != Kind::Secret);
            cached.retain(|kind| !kind.is_secret());
            tracing::warn!(
                folder,
                "without --cache-key-file the cluster cache keeps no Secrets: after a restart, hosts have no certificates until the \
                 API server answers"
            );
        }
        let opened = restore::open(&options, seal.as_ref(), (&collections, &cached), metrics);
        let (store, restored) = match opened {
            Ok((store, restored)) => (Ok(store), restored),
            Err(why @ (UnusableStore::Newer | UnusableStore::WrongKey)) => {
                tracing::error!(folder, error = %why, "the cluster cache is disabled");
                return (None, Restored::default());
            }
            Err(why @ (UnusableStore::Locked | UnusableStore::Damaged(_) | UnusableStore::Io(_))) => {
                tracing::error!(folder, error = %why, "the cluster cache cannot be used; serving continues without it, and it is retried");
                (Err(why), Restored::default())
            }
        };
        (Some(Self::begin((options, seal), store, (&collections, &cached), (removals, metrics), &restored)), restored)
    }

    fn begin(
        (options, seal): (CacheOptions, Option<Arc<Seal>>),
        store: Result<Store, UnusableStore>,
        (collections, kinds): (&[StoredCollection], &[CachedKind]),
        (removals, metrics): (UnconfirmedRemovals, &CacheMetrics),
        restored: &Restored,
    ) -> Self {
        let (messages, received) = sync_channel(MESSAGES_MAX);
        let queued = Arc::new(AtomicUsize::default());
        let mut states = BTreeMap::new();
        let mut partition = |name: Arc<str>, form: Form, (listed, based, sealed): (bool, bool, bool)| {
            let pending = Pending::new(sealed, based || !listed).exactly(matches!(form, Form::Served));
            states.insert(Arc::clone(&name), PartitionState { pending, listed });
            Arc::new(Partition { name, form, listed, lost: AtomicBool::new(listed && !based) })
        };
        let mut partitions = BTreeMap::new();
        for kept in collections {
            let (based, kind) = (restored.resume(&kept.collection).is_some(), kept.collection.kind);
            let form = if kept.whole { Form::Served } else { Form::Routed(kind) };
            let made = partition(kept.partition(), form, (kept.listed, based, kind == Kind::Secret));
            partitions.insert(kept.collection.clone(), made);
        }
        let mut cached = BTreeMap::new();
        for kind in kinds {
            let based = restored.cached.iter().any(|it| it.wanted == *kind && it.resume.is_some());
            let made = partition(kind.partition(), Form::Served, (true, based, kind.is_secret()));
            cached.insert(kind.clone(), made);
        }
        let names = partition(DNS_NAMES.into(), Form::Value, (false, true, false));
        let key_sets = partition(KEY_SETS.into(), Form::Value, (false, true, false));
        let api_server = partition(API_SERVER.into(), Form::Value, (false, true, false));
        let now = clock::now();
        let (store, failed) = store.map_or_else(|why| (None, Some((now, why))), |store| (Some(store), None));
        let server = options.server.clone();
        let writer = Writer {
            budget: Budget::new(options.write_budget, now),
            options,
            removals,
            seal,
            metrics: metrics.clone(),
            queued: Arc::clone(&queued),
            store,
            states,
            waiting: PendingSince::default(),
            failed,
            lists: Lists::default(),
        };
        let lost = writer.lists.lost.subscribe();
        let spawned = std::thread::Builder::new().name("cluster-cache".to_owned()).spawn(move || writer.run(&received));
        let thread = spawned
            .map_err(|why| tracing::error!(error = %why, "the thread of the cluster cache cannot be started"))
            .ok();
        Self {
            messages,
            queued,
            metrics: metrics.clone(),
            partitions,
            cached,
            names,
            key_sets,
            api_server,
            server,
            lost,
            thread,
        }
    }

    /// The sink for a collection, if it is kept. `resumes` means that its watch is resumed from the restored state;
    /// otherwise the collection starts with a list.
    #[must_use]
    pub fn sink(&self, collection: &Collection, resumes: bool) -> Option<Sink> {
        self.partitions.get(collection).map(|partition| self.begun(partition, resumes))
    }

    /// The same for a cached kind.
    pub(crate) fn cached_sink(&self, kind: &CachedKind, resumes: bool) -> Option<Sink> {
        self.cached.get(kind).map(|partition| self.begun(partition, resumes))
    }

    fn begun(&self, partition: &Arc<Partition>, resumes: bool) -> Sink {
        if !resumes {
            partition.lost.store(partition.listed, Ordering::Relaxed);
        }
        self.sink_of(partition)
    }

    /// The sink for DNS names.
    #[must_use]
    pub fn names(&self) -> Sink {
        self.sink_of(&self.names)
    }

    /// The sink for the keys of issuers of tokens.
    #[must_use]
    pub fn key_sets(&self) -> Sink {
        self.sink_of(&self.key_sets)
    }

    /// The recorder of the connection to the API server.
    #[must_use]
    pub fn reached_by(&self) -> ConnectionRecord {
        ConnectionRecord { sink: self.sink_of(&self.api_server), server: self.server.clone() }
    }

    /// The collections that must be listed from now on.
    #[must_use]
    pub fn lost(&self) -> Lost {
        self.lost_of(&self.partitions)
    }

    /// The cached kinds that must be listed from now on.
    pub(crate) fn lost_cached(&self) -> Lost<CachedKind> {
        self.lost_of(&self.cached)
    }

    fn lost_of<S: Clone>(&self, partitions: &BTreeMap<S, Arc<Partition>>) -> Lost<S> {
        let (mut counts, listed) = (self.lost.clone(), partitions.iter().filter(|(_, it)| it.listed));
        let collections =
            listed.map(|(collection, partition)| (collection.clone(), Arc::clone(&partition.name))).collect();
        let seen = counts.borrow_and_update().clone();
        Lost { counts, seen, collections }
    }

    /// Writes pending changes and closes the cache. Blocks.
    pub fn close(mut self) {
        // An error means that the thread has ended.
        let closed = self.messages.send((Arc::clone(&self.names), Message::Close));
        if let Some(thread) = self.thread.take().filter(|_| closed.is_ok())
            && thread.join().is_err()
        {
            tracing::error!("the writer of the cluster cache panicked");
        }
    }

    fn sink_of(&self, partition: &Arc<Partition>) -> Sink {
        Sink {
            partition: Arc::clone(partition),
            messages: self.messages.clone(),
            queued: Arc::clone(&self.queued),
            losses: self.metrics.losses.clone(),
        }
    }
}
