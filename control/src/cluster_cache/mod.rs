//! The last known state of the cluster on disk, so that a restart while the API server is away serves it again.
//!
//! Informers tell a [`Sink`] of every object, in the bytes of its JSON, beside what they tell the control loop. A thread of its own
//! (`writer`) lets that coalesce (`pending`) and commits it to a [`Store`]: values, and the resourceVersion that they are the
//! state of, in one transaction. At the next start they are projected again and serve until the API server answers; watches go on
//! from the kept resourceVersion. Whatever is wrong with the folder costs the cache and nothing else.

mod backend;
mod budget;
mod folder;
mod kept_form;
mod metrics;
mod pending;
mod reached;
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
pub use pending::SweepLimit;
pub(crate) use reached::{keep_reached_by, open_cache};
pub use restore::{Restored, RestoredCached, RestoredSource};
pub use seal::{Seal, Unopened};
pub use sink::Sink;
pub use store::{Batch, Change, FORMAT, Position, Store};
pub use unusable::Unusable;

use crate::cached::{CachedKind, ServedKind};
use crate::clock;
use crate::event::Source;
use budget::Budget;
use pending::Pending;
use restore::{API_SERVER, DNS_NAMES};
use sink::{Collection, Form, Letter, Message};
pub(crate) use writer::seconds;
use writer::{Lists, Losses, Slot, Waiting, Writer};

/// Letters that wait for the writer.
const LETTERS_MAX: usize = 1 << 16;

/// What the operator decides about the cache.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// The folder; a folder of our own is made in it.
    pub folder: PathBuf,
    /// The file of the key that Secrets are sealed by; without one none is kept.
    pub key_file: Option<PathBuf>,
    /// Bytes that may be written in a minute.
    pub write_budget: u64,
    /// How long a change waits for others to be written with.
    pub flush_after: Duration,
    /// Where the API server is, as the operator names it. Kept resourceVersions mean nothing to another one.
    pub server: String,
}

/// A source as the cache keeps it.
#[derive(Clone, Debug)]
pub struct KeptSource {
    /// The source.
    pub source: Source,
    /// What of it is read, such as its selectors: what was kept of something else is not restored.
    pub selection: String,
    /// Whether lists tell what there is; without, objects are asked for by name.
    pub listed: bool,
    /// Whether objects are kept with all that is served of them again, such as their status, and not only with what routing reads.
    pub whole: bool,
}

impl KeptSource {
    fn collection(&self) -> Arc<str> {
        self.collection_as(self.whole)
    }

    /// Its collection where objects are kept whole, or as far as routing reads them.
    fn collection_as(&self, whole: bool) -> Arc<str> {
        let Self { source: Source { kind, namespace }, selection, .. } = self;
        let whole = if whole { ", whole" } else { "" };
        format!("{kind} in {}: {selection}{whole}", namespace.as_deref().unwrap_or("*")).into()
    }
}

/// Where it is told how the API server is reached.
#[derive(Clone, Debug)]
pub struct ReachedBy {
    sink: Sink,
    server: String,
}

impl ReachedBy {
    /// By these sockets, as far as is known, and which cluster it is of, by its uid.
    pub fn learn(&self, sockets: &BTreeSet<SocketAddr>, cluster: Option<&str>) {
        self.learn_all(sockets, cluster, &BTreeMap::new());
    }

    /// The same, and what it has by the names of cached kinds.
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

/// Tells which sources have to be listed for the cache: something that was told of them is missing there.
#[derive(Debug)]
pub struct Lost<S = Source> {
    counts: watch::Receiver<Losses>,
    seen: Losses,
    sources: Vec<(S, Arc<str>)>,
}

impl<S: Clone> Lost<S> {
    /// Waits for the next of them, and for ever once the cache is closed.
    pub async fn next(&mut self) -> Vec<S> {
        if self.counts.changed().await.is_err() {
            return std::future::pending().await;
        }
        let before = std::mem::replace(&mut self.seen, self.counts.borrow_and_update().clone());
        let lost = |name: &Arc<str>| self.seen.get(name) != before.get(name);
        self.sources.iter().filter(|(_, name)| lost(name)).map(|(source, _)| source.clone()).collect()
    }
}

/// A running cache.
pub struct Cache {
    letters: SyncSender<Letter>,
    queued: Arc<AtomicUsize>,
    metrics: CacheMetrics,
    collections: BTreeMap<Source, Arc<Collection>>,
    cached: BTreeMap<CachedKind, Arc<Collection>>,
    names: Arc<Collection>,
    api_server: Arc<Collection>,
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
    /// Opens the cache, and reads what it holds of these sources and cached kinds. Blocks. What is wrong is logged, and there may be no cache then.
    #[must_use]
    pub fn open(
        options: CacheOptions,
        (mut sources, mut cached): (Vec<KeptSource>, Vec<CachedKind>),
        sweep: SweepLimit,
        metrics: &CacheMetrics,
    ) -> (Option<Self>, Restored) {
        let folder = options.folder.display().to_string();
        let seal = match options.key_file.as_deref().map(Seal::read).transpose() {
            Ok(seal) => seal.map(Arc::new),
            Err(why) => {
                tracing::error!(folder, why, "--cache-key-file cannot be read: there is no cluster cache");
                return (None, Restored::default());
            }
        };
        if seal.is_none() {
            sources.retain(|kept| kept.source.kind != Kind::Secret);
            cached.retain(|kind| !kind.is_secret());
            tracing::warn!(
                folder,
                "without --cache-key-file the cluster cache keeps no Secrets: after a restart, hosts have no certificates until the \
                 API server answers"
            );
        }
        let opened = restore::open(&options, seal.as_ref(), (&sources, &cached));
        let (store, restored) = match opened {
            Ok((store, restored)) => (Ok(store), restored),
            Err(why @ (Unusable::Newer | Unusable::WrongKey)) => {
                tracing::error!(folder, %why, "there is no cluster cache");
                return (None, Restored::default());
            }
            Err(why @ (Unusable::Locked | Unusable::Damaged(_) | Unusable::Io(_))) => {
                tracing::error!(folder, %why, "the cluster cache cannot be used; what serves goes on without it, and it is tried again");
                (Err(why), Restored::default())
            }
        };
        (Some(Self::begin((options, seal), store, (&sources, &cached), (sweep, metrics), &restored)), restored)
    }

    fn begin(
        (options, seal): (CacheOptions, Option<Arc<Seal>>),
        store: Result<Store, Unusable>,
        (sources, kinds): (&[KeptSource], &[CachedKind]),
        (sweep, metrics): (SweepLimit, &CacheMetrics),
        restored: &Restored,
    ) -> Self {
        let (letters, received) = sync_channel(LETTERS_MAX);
        let queued = Arc::new(AtomicUsize::default());
        let mut slots = BTreeMap::new();
        let mut collection = |name: Arc<str>, form: Form, (listed, based, sealed): (bool, bool, bool)| {
            let pending = Pending::new(sealed, based || !listed).exactly(matches!(form, Form::Served));
            slots.insert(Arc::clone(&name), Slot { pending, listed });
            Arc::new(Collection { name, form, listed, lost: AtomicBool::new(listed && !based) })
        };
        let mut collections = BTreeMap::new();
        for kept in sources {
            let (based, kind) = (restored.resume(&kept.source).is_some(), kept.source.kind);
            let form = if kept.whole { Form::Served } else { Form::Routed(kind) };
            let made = collection(kept.collection(), form, (kept.listed, based, kind == Kind::Secret));
            collections.insert(kept.source.clone(), made);
        }
        let mut cached = BTreeMap::new();
        for kind in kinds {
            let based = restored.cached.iter().any(|it| it.wanted == *kind && it.resume.is_some());
            let made = collection(kind.collection(), Form::Served, (true, based, kind.is_secret()));
            cached.insert(kind.clone(), made);
        }
        let names = collection(DNS_NAMES.into(), Form::Value, (false, true, false));
        let api_server = collection(API_SERVER.into(), Form::Value, (false, true, false));
        let now = clock::now();
        let (store, failed) = store.map_or_else(|why| (None, Some((now, why))), |store| (Some(store), None));
        let server = options.server.clone();
        let writer = Writer {
            budget: Budget::new(options.write_budget, now),
            options,
            sweep,
            seal,
            metrics: metrics.clone(),
            queued: Arc::clone(&queued),
            store,
            slots,
            waiting: Waiting::default(),
            failed,
            lists: Lists::default(),
        };
        let lost = writer.lists.lost.subscribe();
        let spawned = std::thread::Builder::new().name("cluster-cache".to_owned()).spawn(move || writer.run(&received));
        let thread = spawned.map_err(|why| tracing::error!(%why, "no thread for the cluster cache")).ok();
        Self { letters, queued, metrics: metrics.clone(), collections, cached, names, api_server, server, lost, thread }
    }

    /// Where a source is told of, if it is kept. `resumes` says that its watch goes on from what was restored; everything else begins
    /// with a list.
    #[must_use]
    pub fn sink(&self, source: &Source, resumes: bool) -> Option<Sink> {
        self.collections.get(source).map(|collection| self.begun(collection, resumes))
    }

    /// The same for a cached kind.
    pub(crate) fn cached_sink(&self, kind: &CachedKind, resumes: bool) -> Option<Sink> {
        self.cached.get(kind).map(|collection| self.begun(collection, resumes))
    }

    fn begun(&self, collection: &Arc<Collection>, resumes: bool) -> Sink {
        if !resumes {
            collection.lost.store(collection.listed, Ordering::Relaxed);
        }
        self.sink_of(collection)
    }

    /// Where DNS names are told of.
    #[must_use]
    pub fn names(&self) -> Sink {
        self.sink_of(&self.names)
    }

    /// Where it is told how the API server is reached.
    #[must_use]
    pub fn reached_by(&self) -> ReachedBy {
        ReachedBy { sink: self.sink_of(&self.api_server), server: self.server.clone() }
    }

    /// What has to be listed from now on.
    #[must_use]
    pub fn lost(&self) -> Lost {
        self.lost_of(&self.collections)
    }

    /// Which cached kinds have to be listed from now on.
    pub(crate) fn lost_cached(&self) -> Lost<CachedKind> {
        self.lost_of(&self.cached)
    }

    fn lost_of<S: Clone>(&self, collections: &BTreeMap<S, Arc<Collection>>) -> Lost<S> {
        let (mut counts, listed) = (self.lost.clone(), collections.iter().filter(|(_, it)| it.listed));
        let sources = listed.map(|(source, collection)| (source.clone(), Arc::clone(&collection.name))).collect();
        let seen = counts.borrow_and_update().clone();
        Lost { counts, seen, sources }
    }

    /// Writes what waits, and ends. Blocks.
    pub fn close(mut self) {
        // An error means that the thread is gone.
        let told = self.letters.send((Arc::clone(&self.names), Message::Close));
        if let Some(thread) = self.thread.take().filter(|_| told.is_ok())
            && thread.join().is_err()
        {
            tracing::error!("the writer of the cluster cache panicked");
        }
    }

    fn sink_of(&self, collection: &Arc<Collection>) -> Sink {
        Sink {
            collection: Arc::clone(collection),
            letters: self.letters.clone(),
            queued: Arc::clone(&self.queued),
            losses: self.metrics.losses.clone(),
        }
    }
}
