//! The objects of another server, under the versions that it gave them: what its lists and watches tell becomes the same state and the
//! same history here. A list that comes beside or after a watch becomes the difference, so that watches of this server go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::incoming::{Incoming, ListEnd};
use super::{Change, Collection, Event, Gone, Key, Object, Ring, State, Store};
use crate::kind::{KindId, Kinds, Place, ReplicaKind};

/// Of the bytes that a replica may hold, the history of one kind takes at most one in so many.
const HISTORY_SHARE: usize = 8;

/// How far the other server has come with one kind.
#[derive(Debug, Default)]
pub(super) struct Upstream {
    /// Everything up to this version is known here.
    version: u64,
    state: Standing,
    /// Versions after the one that is reached, up to this one, are of a server that was set back since.
    void_until: u64,
    /// How often the state has begun again: watches of an earlier history cannot go on.
    histories: u64,
    /// A list that comes in.
    list: Option<Incoming>,
    /// Whether the last list lacked so much that another one has to confirm it. Until then nothing is taken: what watches tell goes on
    /// from that list, and the state here would claim a version whose changes it lacks.
    doubted: bool,
    /// Bytes of objects that are there, and of those that may be in all of the store.
    bytes: usize,
    bytes_max: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Standing {
    /// Nothing has been told.
    #[default]
    Unknown,
    Known,
    /// There is more than may be held.
    TooLarge,
}

/// Why a kind cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unready {
    /// Nothing has been told of it yet.
    Unknown,
    /// It takes more memory than it may.
    TooLarge,
}

impl Upstream {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Whether what watches tell continues the state that is known.
    fn follows(&self) -> bool {
        self.state == Standing::Known && !self.doubted
    }
}

impl Store {
    /// A replica of no kinds yet.
    pub(crate) fn fed() -> Self {
        let store = Self::new(0);
        store.write(|state| {
            state.collections = BTreeMap::new();
            state.kinds = Kinds::none();
        });
        store
    }

    /// Has news when anything has changed.
    pub(crate) fn pulse(&self) -> watch::Receiver<u64> {
        self.pulse.subscribe()
    }
}

/// A collection of which another server has told nothing yet.
fn fed(bytes_max: usize) -> Collection {
    let upstream = Upstream { bytes_max, ..Upstream::default() };
    let ring = Ring::after_version(0).within(bytes_max / HISTORY_SHARE);
    Collection { upstream: Some(upstream), ring, ..Collection::after_version(0) }
}

impl State {
    /// Serves a kind from now on that another server tells of, if it is not served already.
    pub(crate) fn follow(&mut self, kind: &ReplicaKind, bytes_max: usize) -> KindId {
        if let Some(known) = self.kinds.find(&kind.group, &kind.version, &kind.plural) {
            return known;
        }
        let id = kind.at(self.new_place());
        self.kinds = self.kinds.with(id.clone());
        self.collections.insert(id.place(), fed(bytes_max));
        self.told += 1;
        id
    }

    /// Does not serve a kind any more. Its watches end.
    pub(crate) fn unfollow(&mut self, kind: &KindId) {
        self.kinds = self.kinds.without(kind);
        self.collections.remove(&kind.place());
        self.told += 1;
    }

    /// The version that a kind has reached: that of everything, or of the server that this is a replica of.
    pub(crate) fn version_of(&self, kind: &KindId) -> u64 {
        self.upstream(kind.place()).map_or(self.version, Upstream::version)
    }

    /// Why a kind cannot be read, if it cannot.
    pub(crate) fn unready(&self, kind: &KindId) -> Option<Unready> {
        match self.upstream(kind.place())?.state {
            Standing::Unknown => Some(Unready::Unknown),
            Standing::TooLarge => Some(Unready::TooLarge),
            Standing::Known => None,
        }
    }

    /// Whether a version that is still to come was there before the other server was set back: nobody will ever reach it.
    pub(crate) fn void(&self, kind: &KindId, version: u64) -> Option<Gone> {
        let upstream = self.upstream(kind.place())?;
        (version > upstream.version && version <= upstream.void_until)
            .then_some(Gone { complete_after: upstream.version })
    }

    /// How often the state of a kind has begun again.
    pub(crate) fn histories(&self, kind: &KindId) -> u64 {
        self.upstream(kind.place()).map_or(0, |upstream| upstream.histories)
    }

    /// Objects and bytes that are held of a kind, and its open watches.
    pub(crate) fn figures(&self, kind: &KindId) -> (usize, usize, usize) {
        let Some(collection) = self.collections.get(&kind.place()) else { return (0, 0, 0) };
        let watches = collection.watchers.iter().filter(|watcher| !watcher.events.is_closed()).count();
        (collection.objects.len(), collection.upstream.as_ref().map_or(0, |upstream| upstream.bytes), watches)
    }

    fn upstream(&self, place: Place) -> Option<&Upstream> {
        self.collections.get(&place)?.upstream.as_ref()
    }

    fn parts(&mut self, kind: &KindId) -> Option<(&mut BTreeMap<Key, Arc<Object>>, &mut Upstream)> {
        let Collection { objects, upstream, .. } = self.collections.get_mut(&kind.place())?;
        self.told += 1;
        Some((objects, upstream.as_mut()?))
    }

    /// A list begins.
    pub(crate) fn list_begins(&mut self, kind: &KindId) {
        let Some((_, upstream)) = self.parts(kind) else { return };
        upstream.list = Some(Incoming::default());
    }

    /// An item of the list.
    pub(crate) fn listed(&mut self, kind: &KindId, key: Key, json: Bytes, version: u64) {
        let Some((objects, upstream)) = self.parts(kind) else { return };
        let Some(list) = &mut upstream.list else { return };
        let known = objects.get(&key);
        list.listed(key, known, json, version);
        if list.bytes > upstream.bytes_max {
            self.give_up(kind);
        }
    }

    /// The list that came in failed.
    pub(crate) fn list_failed(&mut self, kind: &KindId) {
        if let Some((_, upstream)) = self.parts(kind) {
            upstream.list = None;
        }
    }

    /// A watch told of an object, or of its last state.
    pub(crate) fn told(&mut self, kind: &KindId, key: Key, gone: bool, object: Arc<Object>, at: Duration) {
        let Some((_, upstream)) = self.parts(kind) else { return };
        if let Some(list) = &mut upstream.list {
            list.told(key.clone(), (!gone).then(|| Arc::clone(&object)));
        }
        // What came before the state that is known is part of it.
        if upstream.follows() && object.version() > upstream.version {
            let version = object.version();
            self.change(kind, key, gone, object, at);
            self.reached(kind, version);
        }
    }

    /// The other server has nothing more to tell up to this version.
    pub(crate) fn reached(&mut self, kind: &KindId, version: u64) {
        if let Some((_, upstream)) = self.parts(kind)
            && upstream.follows()
        {
            upstream.version = upstream.version.max(version);
        }
        self.bound(kind);
    }

    /// The list is over: what differs by it becomes changes, in the order of their versions. Where it is of another history than what is
    /// known, the state begins again with it.
    pub(crate) fn list_done(&mut self, kind: &KindId, end: ListEnd, at: Duration) {
        let Some((objects, upstream)) = self.parts(kind) else { return };
        let Some(mut list) = upstream.list.take() else { return };
        let (confirms, known) = (std::mem::take(&mut upstream.doubted), upstream.state == Standing::Known);
        // Nothing that was told since the list in doubt is part of the state yet.
        let end = if confirms { list.overlay(end) } else { end };
        let gone = list.gone(objects, end);
        if known && !confirms && doubtful(gone.len(), objects.len(), end.sweep) {
            upstream.doubted = true;
            return;
        }
        let differences = list.differences(objects, upstream.version, gone, end).filter(|_| known);
        let Some(differences) = differences else { return self.begin_again(kind, list, end) };
        for (key, object) in list.completions(objects) {
            upstream.bytes += object.size();
            upstream.bytes -= objects.insert(key, object).map_or(0, |before| before.size());
        }
        for (version, key, object) in differences {
            match object {
                Some(object) => self.change(kind, key, false, object, at),
                None => self.vanish(kind, key, version, at),
            }
        }
        self.reached(kind, end.reached);
    }

    /// The state is that of a list and of nothing before: the first one, or one of another history. Whoever watches has to begin again as
    /// well.
    fn begin_again(&mut self, kind: &KindId, list: Incoming, end: ListEnd) {
        let Some(collection) = self.collections.get_mut(&kind.place()) else { return };
        let Collection { objects, ring, watchers, upstream: Some(upstream), .. } = collection else { return };
        *objects = list.objects(std::mem::take(objects), end);
        watchers.clear();
        *ring = Ring::after_version(end.reached).within(upstream.bytes_max / HISTORY_SHARE);
        upstream.void_until = upstream.void_until.max(upstream.version);
        (upstream.version, upstream.state) = (end.reached, Standing::Known);
        upstream.histories += 1;
        upstream.bytes = objects.values().map(|object| object.size()).sum();
        self.bound(kind);
    }

    fn change(&mut self, kind: &KindId, key: Key, gone: bool, object: Arc<Object>, at: Duration) {
        let Some((objects, upstream)) = self.parts(kind) else { return };
        let previous = if gone {
            objects.remove(&key)
        } else {
            upstream.bytes += object.size();
            objects.insert(key.clone(), Arc::clone(&object))
        };
        upstream.bytes -= previous.as_ref().map_or(0, |previous| previous.size());
        let change = match (gone, &previous) {
            // Whatever it was, nobody here has heard of it.
            (true, None) => return,
            (true, Some(_)) => Change::Deleted,
            (false, None) => Change::Added,
            (false, Some(_)) => Change::Modified,
        };
        self.tell(kind, Event::new(key, change, object, previous), at);
    }

    fn vanish(&mut self, kind: &KindId, key: Key, version: u64, at: Duration) {
        let Some(last) = self.get(kind, &key) else { return };
        let object = Object::new(last.opened().value().clone(), version);
        let json = object.json();
        self.change(kind, key, true, Arc::new(Object::raw(json, version)), at);
    }

    /// Holds no more than may be held.
    fn bound(&mut self, kind: &KindId) {
        let held = |collection: &Collection| collection.upstream.as_ref().map_or(0, |upstream| upstream.bytes);
        let all: usize = self.collections.values().map(held).sum();
        if self.upstream(kind.place()).is_some_and(|upstream| upstream.bytes > 0 && all > upstream.bytes_max) {
            self.give_up(kind);
        }
    }

    /// Holds nothing of a kind any more: it takes too much. Its next list may be smaller.
    fn give_up(&mut self, kind: &KindId) {
        let Some(collection) = self.collections.get_mut(&kind.place()) else { return };
        let before = collection.upstream.take().unwrap_or_default();
        tracing::warn!(
            ?kind,
            bytes_max = before.bytes_max,
            "it exceeds the memory limit of the served API, and is not served"
        );
        let upstream = Upstream {
            state: Standing::TooLarge,
            bytes_max: before.bytes_max,
            void_until: before.void_until,
            histories: before.histories,
            ..Upstream::default()
        };
        *collection = Collection { upstream: Some(upstream), ..Collection::after_version(0) };
    }
}

#[allow(clippy::cast_precision_loss, reason = "a share of counts needs no more precision")]
fn doubtful(gone: usize, held: usize, (share_max, free): (f64, usize)) -> bool {
    gone as f64 > share_max * held as f64 && (gone > free || gone == held)
}
