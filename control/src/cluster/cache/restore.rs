//! Restores the content of the store for the control loop: every kept object is projected again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use tidegate_config::model::auth::KeySet;
use tidegate_config::object::ObjectName;
use tidegate_config::project::{ExpressionPool, Projected, project_listed};

use super::folder;
use super::seal::Seal;
use super::store::{Batch, Position, Store};
use super::unusable::UnusableStore;
use super::{CacheMetrics, CacheOptions, StoredCollection};
use crate::cluster::cached::{CachedKind, ServedKind};
use crate::cluster::key_sets::{KnownKeys, kept_source};
use crate::event::Collection;

/// The partition of resolved DNS names.
pub(super) const DNS_NAMES: &str = "DNS names";
/// The partition of the keys of issuers of tokens, as they were fetched.
pub(super) const KEY_SETS: &str = "key sets";
/// The partition of facts about the API server: its sockets, and the URL that the resourceVersions belong to.
pub(super) const API_SERVER: &str = "API server";
/// The prefix of a key with the URL.
const URL: &str = "url ";
/// The prefix of a key with the uid of the cluster.
const CLUSTER: &str = "cluster ";
/// The prefix of a key with the name of a cached kind; the value is its resource in the API server.
const KIND: &str = "kind ";

/// The restored state.
#[derive(Debug, Default)]
pub struct Restored {
    /// The collections that were completely stored.
    pub collections: Vec<RestoredCollection>,
    /// The cached kinds that were completely stored and whose resource is known.
    pub cached: Vec<RestoredCached>,
    /// The resolved DNS names.
    pub names: BTreeMap<Arc<str>, Box<[IpAddr]>>,
    /// The keys of issuers of tokens.
    pub key_sets: KnownKeys,
    /// The sockets of the API server.
    pub sockets: Vec<SocketAddr>,
    /// The uid of the cluster, if it is known.
    pub cluster: Option<Arc<str>>,
}

/// The restored state of one collection.
#[derive(Debug)]
pub struct RestoredCollection {
    /// The collection.
    pub collection: Collection,
    /// Its objects.
    pub objects: Vec<Projected>,
    /// The same as JSON, if complete objects were kept.
    pub raw: Vec<(ObjectName, Bytes)>,
    /// The resourceVersion to resume a watch from; without one, a list must come first.
    pub resume: Option<Arc<str>>,
    /// The time of this state, in seconds since the epoch.
    pub as_of_s: u64,
}

/// The restored state of one cached kind.
#[derive(Debug)]
pub struct RestoredCached {
    /// The kind.
    pub wanted: CachedKind,
    /// Its resource in the API server.
    pub served: ServedKind,
    /// Its objects, as JSON.
    pub objects: Vec<(ObjectName, Bytes)>,
    /// The resourceVersion to resume a watch from; without one, a list must come first.
    pub resume: Option<Arc<str>>,
    /// The time of this state, in seconds since the epoch.
    pub as_of_s: u64,
}

impl Restored {
    /// The resourceVersion to resume the watch of a collection from.
    #[must_use]
    pub fn resume(&self, collection: &Collection) -> Option<&Arc<str>> {
        self.collections.iter().find(|restored| restored.collection == *collection)?.resume.as_ref()
    }
}

/// Opens the store and reads it. A damaged one is set aside and replaced by an empty one.
pub(super) fn open(
    options: &CacheOptions,
    seal: Option<&Arc<Seal>>,
    (collections, cached): (&[StoredCollection], &[CachedKind]),
    metrics: &CacheMetrics,
) -> Result<(Store, Restored), UnusableStore> {
    let attempt = Store::open(&options.folder, seal.cloned()).and_then(|store| {
        let restored = read(&store, options, (collections, cached))?;
        let kinds = cached.iter().map(CachedKind::partition);
        drop_replaced(&store, &collections.iter().map(StoredCollection::partition).chain(kinds).collect())?;
        Ok((store, restored))
    });
    let why = match attempt {
        Err(UnusableStore::Damaged(why)) => why,
        other => return other,
    };
    let aside = folder::set_aside(&options.folder).map_err(|why| UnusableStore::Io(why.to_string()))?;
    metrics.damaged.inc();
    tracing::error!(error = why, aside = %aside.display(), "the cluster cache is damaged and set aside; a new one is created");
    Ok((Store::open(&options.folder, seal.cloned())?, Restored::default()))
}

/// Removes partitions that were kept with other options, once newer ones were kept with the current options. Until
/// then they are the last good state for a process that is started with the earlier options again while the API server
/// is unavailable.
fn drop_replaced(store: &Store, wanted: &BTreeSet<Arc<str>>) -> Result<(), UnusableStore> {
    let positions = store.partitions()?;
    let is_current = |name: &str| wanted.contains(name) || [DNS_NAMES, KEY_SETS, API_SERVER].contains(&name);
    let newest_s = wanted.iter().filter_map(|name| Some(positions.get(&**name)?.as_of_s)).max();
    let is_last = |position: &Position| newest_s.is_none_or(|newest_s| position.as_of_s >= newest_s);
    let other = positions.iter().filter(|(name, position)| !is_current(name) && is_last(position));
    let other: BTreeSet<&str> = other.map(|(name, _)| name.as_str()).collect();
    store.retain(|name| is_current(name) || other.contains(name))?;
    if !other.is_empty() {
        tracing::warn!(
            partitions = ?other,
            "the cluster cache has partitions that were kept with other options; they are removed once newer ones have been kept"
        );
    }
    Ok(())
}

/// The partition that a collection is restored from: its own, or that of the other form if it is newer. No watch can be
/// resumed from the latter: a list must create the collection's own.
fn kept_in(positions: &BTreeMap<String, Position>, kept: &StoredCollection) -> Option<(Arc<str>, Position, bool)> {
    let of = |whole: bool| {
        let name = kept.collection_as(whole);
        positions.get(&*name).cloned().map(|position| (name, position, whole))
    };
    let (own, other) = (of(kept.whole), of(!kept.whole));
    let is_newer = |(_, position, _): &(Arc<str>, Position, bool)| {
        own.as_ref().is_none_or(|(_, own, _)| own.as_of_s < position.as_of_s)
    };
    other.filter(is_newer).or(own)
}

fn read(
    store: &Store,
    options: &CacheOptions,
    (collections, cached): (&[StoredCollection], &[CachedKind]),
) -> Result<Restored, UnusableStore> {
    let positions = store.partitions()?;
    let mut restored = Restored::default();
    store.read(DNS_NAMES, |name, value| {
        restored.names.extend(serde_json::from_slice(value).ok().map(|addresses| (name.into(), addresses)));
    })?;
    store.read(KEY_SETS, |name, text| {
        let read = kept_source(name).zip(KeySet::read(text).ok());
        restored.key_sets.extend(read.map(|(source, keys)| (source, Arc::new(keys))));
    })?;
    let (mut same_server, mut served) = (false, BTreeMap::new());
    store.read(API_SERVER, |key, value| {
        if let Some(url) = key.strip_prefix(URL) {
            same_server |= url == options.server;
        } else if let Some(uid) = key.strip_prefix(CLUSTER) {
            restored.cluster = Some(uid.into());
        } else if let Some(kind) = key.strip_prefix(KIND) {
            served.extend(serde_json::from_slice::<ServedKind>(value).ok().map(|has| (kind.to_owned(), has)));
        } else {
            restored.sockets.extend(key.parse::<SocketAddr>());
        }
    })?;
    for wanted in cached {
        let position = positions.get(&*wanted.partition()).cloned();
        if let Some((served, position)) = served.remove(&wanted.to_string()).zip(position) {
            restored.cached.push(read_cached(store, wanted.clone(), served, position)?);
        }
    }
    // Reading and projecting dominate the time; kinds are independent.
    restored.collections = std::thread::scope(|scope| {
        let read = |kept: &StoredCollection| {
            let (name, position, whole) = kept_in(&positions, kept)?;
            let (collection, own) = (kept.collection.clone(), whole == kept.whole);
            let position = Position { resource_version: position.resource_version.filter(|_| own), ..position };
            Some(scope.spawn(move || read_collection(store, &name, (collection, own && whole), position)))
        };
        let reading: Vec<_> = collections.iter().filter_map(read).collect();
        let panicked = |_| Err(UnusableStore::Damaged("its reader panicked".to_owned()));
        reading.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect::<Result<Vec<_>, _>>()
    })?;
    if !same_server {
        // Also on disk, before the URL of this server is written there.
        store.forget_versions()?;
        restored.collections.iter_mut().for_each(|collection| collection.resume = None);
        restored.cached.iter_mut().for_each(|kind| kind.resume = None);
    }
    Ok(restored)
}

fn read_collection(
    store: &Store,
    name: &str,
    (collection, whole): (Collection, bool),
    position: Position,
) -> Result<RestoredCollection, UnusableStore> {
    let (mut objects, mut raw, mut unread, mut pool) = (Vec::new(), Vec::new(), 0, ExpressionPool::default());
    store.read(name, |_, value| match project_listed(collection.kind, value, &mut pool) {
        Ok(projected) => {
            let name = &projected.meta.object.name;
            raw.extend(whole.then(|| (name.clone(), Bytes::copy_from_slice(value))));
            objects.push(projected);
        }
        Err(_) => unread += 1,
    })?;
    if unread > 0 {
        tracing::warn!(%collection, unread, "kept objects cannot be read and are skipped; the collection is listed again");
    }
    // It is empty if the server did not serve the kind.
    let resume = position.resource_version.filter(|version| unread == 0 && !version.is_empty()).map(Arc::from);
    Ok(RestoredCollection { collection, objects, raw, resume, as_of_s: position.as_of_s })
}

fn read_cached(
    store: &Store,
    wanted: CachedKind,
    served: ServedKind,
    position: Position,
) -> Result<RestoredCached, UnusableStore> {
    let mut objects = Vec::new();
    store.read(&wanted.partition(), |key, value| {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        objects.push((ObjectName::new(namespace, name), Bytes::copy_from_slice(value)));
    })?;
    let resume = position.resource_version.map(Arc::from);
    Ok(RestoredCached { wanted, served, objects, resume, as_of_s: position.as_of_s })
}

/// The key of the resource of a cached kind.
pub(super) fn kind_key(name: &str) -> String {
    format!("{KIND}{name}")
}

/// The key of the API server's URL, which the resourceVersions belong to.
pub(super) fn url_key(server: &str) -> String {
    format!("{URL}{server}")
}

/// The key of the cluster's uid, which they belong to.
pub(super) fn cluster_key(uid: &str) -> String {
    format!("{CLUSTER}{uid}")
}

/// Removes the stored resourceVersions if a batch removes the uid of their cluster or adds another one, so that they
/// are never stored with the uid of another cluster.
///
/// # Errors
/// Returns an error if the store cannot be read or written.
pub(super) fn forget_other_cluster(store: &Store, batch: &Batch) -> Result<(), UnusableStore> {
    let Some(change) = batch.get(API_SERVER) else { return Ok(()) };
    let is_uid = |key: &String| key.starts_with(CLUSTER);
    let leaves = |key: &String| is_uid(key) && !matches!(change.values.get(key), Some(Some(_)));
    if change.values.keys().any(is_uid) && store.keys(API_SERVER)?.iter().any(leaves) {
        store.forget_versions()?;
    }
    Ok(())
}
