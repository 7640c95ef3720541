//! The objects of another server, under its versions: its lists and watch events become the same state and the same
//! history here. A list that comes beside or after a watch becomes the difference, so that watches of this server go
//! on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::incoming::{Incoming, ListEnd};
use super::{Change, Collection, Event, Gone, Key, Object, Ring, State, Store};
use crate::kind::{ExpectedKind, KindId, Kinds, StoreIndex, WatchCacheKind};

/// The history of one kind takes at most this fraction of the memory of a watch cache: one in this number.
const HISTORY_SHARE: usize = 8;

/// The progress of the upstream server with one kind.
#[derive(Debug, Default)]
pub(super) struct Upstream {
    /// Everything up to this version is known here.
    version: u64,
    state: Standing,
    /// Versions after the reached one, up to this one, are from before the upstream server was set back.
    void_until: u64,
    /// The number of times that the state has begun again: watches of an earlier history cannot continue.
    histories: u64,
    /// The list being received.
    list: Option<Incoming>,
    /// Whether the last list lacked so much that another one has to confirm it. Until then nothing is taken: what
    /// watches tell goes on from that list, and the state here would claim a version whose changes it lacks.
    unconfirmed: bool,
    /// Bytes of existing objects, and the limit for all of the store.
    bytes: usize,
    bytes_max: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Standing {
    /// Nothing is known yet.
    #[default]
    Unknown,
    Known,
    /// It exceeds the memory limit.
    TooLarge,
}

/// The reason why a kind cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unready {
    /// Nothing is known of it yet.
    Unknown,
    /// It exceeds the memory limit.
    TooLarge,
}

impl Upstream {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Whether the events of watches continue the known state.
    fn follows(&self) -> bool {
        self.state == Standing::Known && !self.unconfirmed
    }
}

impl Store {
    /// A watch cache without kinds yet.
    pub(crate) fn fed() -> Self {
        let store = Self::new(0);
        store.write(|state| {
            state.collections = BTreeMap::new();
            state.kinds = Kinds::none();
        });
        store
    }

    /// These kinds are to be served, and nothing is known of them yet, unless they are served already.
    pub(crate) fn expect(&self, kinds: Vec<ExpectedKind>) {
        self.expected.send_replace(kinds.into());
    }

    /// The kinds that are to be served.
    pub(crate) fn expected(&self) -> watch::Receiver<Arc<[ExpectedKind]>> {
        self.expected.subscribe()
    }

    /// Signals every change.
    pub(crate) fn pulse(&self) -> watch::Receiver<u64> {
        self.pulse.subscribe()
    }
}

/// A collection without a state from the upstream server yet.
fn fed(bytes_max: usize) -> Collection {
    let upstream = Upstream { bytes_max, ..Upstream::default() };
    let ring = Ring::after_version(0).within(bytes_max / HISTORY_SHARE);
    Collection { upstream: Some(upstream), ring, ..Collection::after_version(0) }
}

impl State {
    /// Serves a kind of the upstream server from now on, if it is not served already.
    pub(crate) fn follow(&mut self, kind: &WatchCacheKind, bytes_max: usize) -> KindId {
        if let Some(known) = self.kinds.find(&kind.group, &kind.version, &kind.plural) {
            return known;
        }
        let id = kind.at(self.new_place());
        self.kinds = self.kinds.with(id.clone());
        self.collections.insert(id.place(), fed(bytes_max));
        self.upstream_events += 1;
        id
    }

    /// No longer serves a kind. Its watches end.
    pub(crate) fn unfollow(&mut self, kind: &KindId) {
        self.kinds = self.kinds.without(kind);
        self.collections.remove(&kind.place());
        self.upstream_events += 1;
    }

    /// The version that a kind has reached: that of everything, or that of the upstream server.
    pub(crate) fn version_of(&self, kind: &KindId) -> u64 {
        self.upstream(kind.place()).map_or(self.version, Upstream::version)
    }

    /// The reason why a kind cannot be read, if there is one.
    pub(crate) fn unready(&self, kind: &KindId) -> Option<Unready> {
        match self.upstream(kind.place())?.state {
            Standing::Unknown => Some(Unready::Unknown),
            Standing::TooLarge => Some(Unready::TooLarge),
            Standing::Known => None,
        }
    }

    /// Whether another list of a kind is needed: it exceeds the memory limit, or its last list is in doubt.
    pub(crate) fn lacks(&self, kind: &KindId) -> bool {
        self.upstream(kind.place()).is_some_and(|upstream| upstream.unconfirmed || upstream.state == Standing::TooLarge)
    }

    /// The refusal of a version from before the upstream server was set back, which will never be reached; `None` for
    /// any other.
    pub(crate) fn void(&self, kind: &KindId, version: u64) -> Option<Gone> {
        let upstream = self.upstream(kind.place())?;
        (version > upstream.version && version <= upstream.void_until)
            .then_some(Gone { complete_after: upstream.version })
    }

    /// The number of times that the state of a kind has begun again.
    pub(crate) fn histories(&self, kind: &KindId) -> u64 {
        self.upstream(kind.place()).map_or(0, |upstream| upstream.histories)
    }

    /// The objects and bytes of a kind, and its open watches.
    pub(crate) fn figures(&self, kind: &KindId) -> (usize, usize, usize) {
        let Some(collection) = self.collections.get(&kind.place()) else { return (0, 0, 0) };
        let watches = collection.watchers.iter().filter(|watcher| !watcher.events.is_closed()).count();
        (collection.objects.len(), collection.upstream.as_ref().map_or(0, |upstream| upstream.bytes), watches)
    }

    fn upstream(&self, place: StoreIndex) -> Option<&Upstream> {
        self.collections.get(&place)?.upstream.as_ref()
    }

    fn parts(&mut self, kind: &KindId) -> Option<(&mut BTreeMap<Key, Arc<Object>>, &mut Upstream)> {
        let Collection { objects, upstream, .. } = self.collections.get_mut(&kind.place())?;
        self.upstream_events += 1;
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

    /// The current list failed.
    pub(crate) fn list_failed(&mut self, kind: &KindId) {
        if let Some((_, upstream)) = self.parts(kind) {
            upstream.list = None;
        }
    }

    /// A watch event: an object, or its last state.
    pub(crate) fn event(&mut self, kind: &KindId, key: Key, gone: bool, object: Arc<Object>, at: Duration) {
        let Some((_, upstream)) = self.parts(kind) else { return };
        if let Some(list) = &mut upstream.list {
            list.event(key.clone(), (!gone).then(|| Arc::clone(&object)));
        }
        // Earlier events are part of the known state.
        if upstream.follows() && object.version() > upstream.version {
            let version = object.version();
            self.change(kind, key, gone, object, at);
            self.reached(kind, version);
        }
    }

    /// The upstream server has no more events up to this version.
    pub(crate) fn reached(&mut self, kind: &KindId, version: u64) {
        if let Some((_, upstream)) = self.parts(kind)
            && upstream.follows()
        {
            upstream.version = upstream.version.max(version);
        }
        self.bound(kind);
    }

    /// The list is over: its differences become changes, in the order of the versions. If it is of another history than
    /// the known state, the state begins again with it.
    pub(crate) fn list_done(&mut self, kind: &KindId, end: ListEnd, at: Duration) {
        let Some((objects, upstream)) = self.parts(kind) else { return };
        let Some(mut list) = upstream.list.take() else { return };
        let (confirms, known) = (std::mem::take(&mut upstream.unconfirmed), upstream.state == Standing::Known);
        // Nothing that was told since the list in doubt is part of the state yet.
        let end = if confirms { list.overlay(end) } else { end };
        let gone = list.gone(objects, end);
        if known && !confirms && needs_confirmation(gone.len(), objects.len(), end.removals) {
            upstream.unconfirmed = true;
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

    /// Replaces the state by that of a list: the first one, or one of another history. Watches have to begin again as
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
            // Whatever its state was, no client here has seen it.
            (true, None) => return,
            (true, Some(_)) => Change::Deleted,
            (false, None) => Change::Added,
            (false, Some(_)) => Change::Modified,
        };
        self.publish(kind, Event::new(key, change, object, previous), at);
    }

    fn vanish(&mut self, kind: &KindId, key: Key, version: u64, at: Duration) {
        let Some(last) = self.get(kind, &key) else { return };
        let object = Object::new(last.opened().value().clone(), version);
        let json = object.json();
        self.change(kind, key, true, Arc::new(Object::raw(json, version)), at);
    }

    /// Enforces the memory limit.
    fn bound(&mut self, kind: &KindId) {
        let known = |collection: &Collection| collection.upstream.as_ref().map_or(0, |upstream| upstream.bytes);
        let all: usize = self.collections.values().map(known).sum();
        if self.upstream(kind.place()).is_some_and(|upstream| upstream.bytes > 0 && all > upstream.bytes_max) {
            self.give_up(kind);
        }
    }

    /// Drops all objects of a kind that exceeds the limit. Its next list may be smaller.
    fn give_up(&mut self, kind: &KindId) {
        let Some(collection) = self.collections.get_mut(&kind.place()) else { return };
        let before = collection.upstream.take().unwrap_or_default();
        tracing::warn!(
            ?kind,
            bytes_max = before.bytes_max,
            "a kind exceeds the memory limit of the served API and is not served"
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
fn needs_confirmation(gone: usize, known: usize, (share_max, free): (f64, usize)) -> bool {
    gone as f64 > share_max * known as f64 && (gone > free || gone == known)
}
