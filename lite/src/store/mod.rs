//! The objects and their recent history. One lock over all of it: a list and the watch that follows it see the same
//! state. A check and the commit that relies on it do so because writes take turns.

#![allow(clippy::disallowed_types, reason = "a list and its watch must see one state; no traffic thread comes here")]

mod incoming;
mod journal;
mod object;
mod owned;
mod watch_cache;
mod ring;
mod turns;
mod writer;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{self as turn, mpsc, watch};

pub(crate) use self::incoming::ListEnd;
use self::journal::Journal;
pub(crate) use self::object::{Change, Event, Key, Object, frame};
use self::owned::Owned;
pub(crate) use self::ring::Gone;
use self::ring::Ring;
pub(crate) use self::watch_cache::Unready;
use self::watch_cache::Upstream;
pub(crate) use self::writer::Writer;
use crate::definition::Defined;
use crate::kind::{ExpectedKind, KindId, Kinds, StoreIndex};

/// The maximum number of changes waiting for a slow watch; beyond it, the watch ends and its client resumes.
const WATCH_DEPTH: usize = 1_024;

/// The state behind its lock, and the version it has reached.
pub(crate) struct Store {
    state: RwLock<State>,
    /// Held by a write of a client from its check to its commit, and by every other change that may meet one. Whoever
    /// waits here holds no thread.
    turn: Arc<turn::Mutex<()>>,
    /// Held exclusively during a commit, and shared by reads that may meet one, so that these hold no thread either.
    commits: turn::RwLock<()>,
    /// Signals every new version.
    pulse: watch::Sender<u64>,
    /// The kinds that are to be served once they are known, if this is a watch cache.
    expected: watch::Sender<Arc<[ExpectedKind]>>,
}

/// The state that a write may read and change.
pub(crate) struct State {
    version: u64,
    /// The number of events received from the upstream server, if this is a watch cache.
    upstream_events: u64,
    /// The version before the first change.
    began: u64,
    kinds: Kinds,
    /// One of each kind, under the place that all its versions share.
    collections: BTreeMap<StoreIndex, Collection>,
    /// The dependents of each owner.
    owned: Owned,
    /// The place of the next kind that a definition adds.
    next_place: StoreIndex,
    /// The custom kinds by the name of their definition.
    pub(crate) defined: BTreeMap<String, Defined>,
    /// The changes that are not on disk yet, if objects are kept on disk.
    journal: Option<Journal>,
}

/// All objects of one kind.
struct Collection {
    /// `plural.group`.
    name: Arc<str>,
    objects: BTreeMap<Key, Arc<Object>>,
    ring: Ring<Arc<Event>>,
    /// For objects that expire, every write: its time, its object, and its version. The oldest first.
    written: VecDeque<(Duration, Key, u64)>,
    watchers: Vec<Watcher>,
    /// The progress of the upstream server, if this is a watch cache.
    upstream: Option<Upstream>,
}

impl Collection {
    /// An empty collection, with every change after `version` still to come.
    fn after_version(version: u64) -> Self {
        Self {
            name: Arc::default(),
            objects: BTreeMap::new(),
            ring: Ring::after_version(version),
            written: VecDeque::new(),
            watchers: Vec::new(),
            upstream: None,
        }
    }

    fn named(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Takes the oldest write if it has expired: the object and its version then.
    fn outdated(&mut self, kept: Duration, now: Duration) -> Option<(Key, u64)> {
        self.written.front().filter(|(at, ..)| *at + kept <= now)?;
        self.written.pop_front().map(|(_, key, version)| (key, version))
    }
}

struct Watcher {
    part: Part,
    /// Whether it looks into objects.
    selects: bool,
    events: mpsc::Sender<Arc<Event>>,
}

/// A part of a kind that a list or watch can be restricted to without reading objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
}

impl Part {
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
            && self.name.as_ref().is_none_or(|name| *name == key.name)
    }
}

impl Store {
    /// An empty store whose first change gets the version after `version`.
    pub(crate) fn new(version: u64) -> Self {
        let kinds = Kinds::built_in();
        let collection =
            |kind: &KindId| (kind.place(), Collection::after_version(version).named(&kind.description().qualified()));
        let collections = kinds.iter().map(collection).collect();
        let (owned, next_place, defined) = (Owned::default(), StoreIndex::first_custom(), BTreeMap::new());
        let (upstream_events, began, journal) = (0, version, None);
        let state = State { version, upstream_events, began, kinds, collections, owned, next_place, defined, journal };
        Self {
            state: RwLock::new(state),
            turn: Arc::default(),
            commits: turn::RwLock::default(),
            pulse: watch::Sender::new(version),
            expected: watch::Sender::default(),
        }
    }

    /// The state, shared while the guard lives. Not held across an await.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state.
    pub(crate) fn write<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        // A panic under the lock leaves whole objects behind: commits are the last step of a write.
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let done = act(&mut state);
        let pulse = state.version + state.upstream_events;
        self.pulse.send_if_modified(|seen| std::mem::replace(seen, pulse) != pulse);
        done
    }

    /// Waits until a kind has reached `version`.
    pub(crate) async fn reach(&self, kind: &KindId, version: u64) {
        let mut pulse = self.pulse.subscribe();
        // The sender lives as long as the store, so this ends only when the version is there.
        while self.look(|state| state.version_of(kind)).await < version && pulse.changed().await.is_ok() {}
    }
}

impl State {
    /// The version of the last change of any kind.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The number of changes.
    pub(crate) fn serial(&self) -> u64 {
        self.version - self.began
    }

    /// Continues the count of changes of an earlier process.
    pub(crate) fn count_from(&mut self, serial: u64) {
        self.began = self.version.saturating_sub(serial);
    }

    /// The kinds served now.
    pub(crate) fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// Returns `true` if the objects of a kind that was served a moment ago still have a place.
    pub(crate) fn serves(&self, kind: &KindId) -> bool {
        self.collections.contains_key(&kind.place())
    }

    /// A place for a kind that is about to be served.
    pub(crate) fn new_place(&mut self) -> StoreIndex {
        let place = self.next_place;
        self.next_place = place.next();
        place
    }

    /// Serves these kinds from now on. The objects of a kind without a definition are removed, and its watches end.
    pub(crate) fn serve(&mut self, kinds: Kinds) {
        let version = self.version;
        // A definition without a served version keeps its objects.
        let defined = self.defined.iter().map(|(name, defined)| (defined.place, name.clone()));
        let served = kinds.iter().map(|kind| (kind.place(), kind.description().qualified()));
        let served: BTreeMap<StoreIndex, String> = served.chain(defined).collect();
        self.note_dropped(|place| served.contains_key(&place));
        self.collections.retain(|place, _| served.contains_key(place));
        self.owned.retain(|place| served.contains_key(&place));
        for (place, name) in served {
            self.collections.entry(place).or_insert_with(|| Collection::after_version(version).named(&name));
        }
        self.kinds = kinds;
    }

    /// Converts the objects of a kind under their versions. Watches are not notified: nothing has been written.
    pub(crate) fn reread(&mut self, kind: &KindId, read: impl Fn(&Value) -> Value) {
        let Some(collection) = self.collections.get_mut(&kind.place()) else { return };
        for object in collection.objects.values_mut() {
            let value = read(object.value());
            if value != *object.value() {
                *object = Arc::new(Object::new(value, object.version()));
            }
        }
    }

    pub(crate) fn get(&self, kind: &KindId, key: &Key) -> Option<&Arc<Object>> {
        self.collections.get(&kind.place())?.objects.get(key)
    }

    /// The objects of a part of a kind, in the order of their keys.
    pub(crate) fn list<'a>(
        &'a self,
        kind: &KindId,
        part: &'a Part,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Object>)> {
        self.list_after(kind, part, None)
    }

    /// Those of them that come after a key.
    pub(crate) fn list_after<'a>(
        &'a self,
        kind: &KindId,
        part: &'a Part,
        after: Option<&Key>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Object>)> {
        let first = Key { namespace: part.namespace.clone().unwrap_or_default(), name: String::new() };
        let from = after.filter(|after| **after >= first).cloned().map_or(Bound::Included(first), Bound::Excluded);
        let within = |key: &Key| part.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace);
        let collection = self.collections.get(&kind.place()).into_iter();
        let objects = collection.flat_map(move |collection| collection.objects.range((from.clone(), Bound::Unbounded)));
        objects.take_while(move |(key, _)| within(key)).filter(|(key, _)| part.has(key))
    }

    /// The objects of a part of a kind after a key as they were at a version, as far as the history goes back.
    pub(crate) fn list_at<'a>(
        &'a self,
        kind: &KindId,
        part: &'a Part,
        version: u64,
        after: Option<&Key>,
    ) -> Result<impl Iterator<Item = (&'a Key, &'a Arc<Object>)>, Gone> {
        // For each object the first change after the version has the state before it.
        let mut undone: BTreeMap<&Key, Option<&Arc<Object>>> = BTreeMap::new();
        for event in self.changes_after(kind, version)?.filter(|event| part.has(&event.key)) {
            undone.entry(&event.key).or_insert(event.before());
        }
        let before = undone.iter().filter_map(|(key, object)| Some((*key, (*object)?)));
        let before: Vec<_> = before.filter(|(key, _)| after.is_none_or(|after| *key > after)).collect();
        let mut before = before.into_iter().peekable();
        let unchanged = self.list_after(kind, part, after).filter(move |(key, _)| !undone.contains_key(key));
        let mut unchanged = unchanged.peekable();
        Ok(std::iter::from_fn(move || match (before.peek(), unchanged.peek()) {
            (Some((changed, _)), Some((next, _))) if changed > next => unchanged.next(),
            (Some(_), _) => before.next(),
            (None, _) => unchanged.next(),
        }))
    }

    /// Returns `true` if a namespace holds any object of any kind.
    pub(crate) fn holds_any(&self, namespace: &str) -> bool {
        let part = Part { namespace: Some(namespace.to_owned()), name: None };
        self.kinds.iter().any(|kind| kind.description().namespaced() && self.list(kind, &part).next().is_some())
    }

    /// Stores an object under the next version and notifies the watches. The kind must be served.
    pub(crate) fn put(&mut self, kind: &KindId, key: Key, value: Value, at: Duration) -> Arc<Object> {
        self.expire(at);
        self.version += 1;
        let object = Arc::new(Object::new(value, self.version));
        let Some(collection) = self.collections.get_mut(&kind.place()) else { return object };
        if kind.description().kept.is_some() {
            collection.written.push_back((at, key.clone(), self.version));
        }
        let previous = collection.objects.insert(key.clone(), object.clone());
        self.owned.note(kind.place(), &key, previous.as_deref().map(Object::value), Some(object.value()));
        self.note(kind, &key, Some(&object));
        let change = if previous.is_some() { Change::Modified } else { Change::Added };
        self.publish(kind, Event::new(key, change, object.clone(), previous), at);
        object
    }

    /// Removes an object and sends the watches its last state under the next version.
    pub(crate) fn remove(&mut self, kind: &KindId, key: &Key, at: Duration) -> Option<Arc<Object>> {
        let previous = self.collections.get_mut(&kind.place())?.objects.remove(key)?;
        self.version += 1;
        self.note(kind, key, None);
        self.owned.note(kind.place(), key, Some(previous.value()), None);
        let last = Arc::new(Object::new(previous.value().clone(), self.version));
        self.publish(kind, Event::new(key.clone(), Change::Deleted, last.clone(), Some(previous)), at);
        Some(last)
    }

    fn publish(&mut self, kind: &KindId, event: Event, at: Duration) {
        let Some(collection) = self.collections.get_mut(&kind.place()) else { return };
        let selected = collection.watchers.iter().any(|watcher| watcher.selects && watcher.part.has(&event.key));
        let event = Arc::new(if selected { event.selectable(&kind.description().fields) } else { event });
        let bytes = collection.upstream.as_ref().map_or(0, |_| event.bytes());
        let version = event.version().max(collection.upstream.as_ref().map_or(0, Upstream::version));
        collection.ring.push(at, version, bytes, event.clone());
        // A full channel is a slow watch: dropping the sender ends it after what it already has.
        collection.watchers.retain(|watcher| {
            if watcher.part.has(&event.key) {
                watcher.events.try_send(event.clone()).is_ok()
            } else {
                !watcher.events.is_closed()
            }
        });
    }

    /// Every change after `version`, in order.
    pub(crate) fn changes_after(&self, kind: &KindId, version: u64) -> Result<impl Iterator<Item = &Arc<Event>>, Gone> {
        let collection = self.collections.get(&kind.place()).ok_or(Gone { complete_after: self.version })?;
        collection.ring.after(version)
    }

    /// Drops history that clients no longer need, and expired objects.
    pub(crate) fn trim(&mut self, now: Duration) {
        self.expire(now);
        self.collections.values_mut().for_each(|collection| collection.ring.trim(now));
    }

    /// Removes objects that have expired.
    fn expire(&mut self, now: Duration) {
        let kinds = self.kinds.clone();
        for (kind, kept) in kinds.iter().filter_map(|kind| Some((kind, kind.description().kept?))) {
            while let Some((key, version)) = self.outdated(kind, kept, now) {
                if self.get(kind, &key).is_some_and(|object| object.version() == version) {
                    drop(self.remove(kind, &key, now));
                }
            }
        }
    }

    fn outdated(&mut self, kind: &KindId, kept: Duration, now: Duration) -> Option<(Key, u64)> {
        self.collections.get_mut(&kind.place())?.outdated(kept, now)
    }

    /// From now on the changes of a part of a kind, until the receiver is too far behind. `selects` says that it looks
    /// into objects.
    pub(crate) fn subscribe(&mut self, kind: &KindId, part: Part, selects: bool) -> mpsc::Receiver<Arc<Event>> {
        let (events, receiver) = mpsc::channel(WATCH_DEPTH);
        // The watch of a kind that is no longer served is over.
        if let Some(collection) = self.collections.get_mut(&kind.place()) {
            collection.watchers.retain(|watcher| !watcher.events.is_closed());
            collection.watchers.push(Watcher { part, selects, events });
        }
        receiver
    }

    /// Ends every watch after the events it already has.
    pub(crate) fn close_watches(&mut self) {
        self.collections.values_mut().for_each(|collection| collection.watchers.clear());
    }
}

#[cfg(test)]
mod tests;
