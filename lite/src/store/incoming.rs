//! A list received from another server, and its differences. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::object::Sameness;
use super::{Key, Object};

/// The objects of a kind by their keys.
pub(super) type Objects = BTreeMap<Key, Arc<Object>>;

/// A list that is being received.
#[derive(Default)]
pub(super) struct Incoming {
    items: BTreeMap<Key, Item>,
    /// The last state in watch events of an object since the list began; `None` for a deleted one.
    watched: BTreeMap<Key, Option<Arc<Object>>>,
    /// The size of the items that are kept until the end.
    pub(super) bytes: usize,
}

/// One item, compared with the known state when it came.
enum Item {
    Same,
    /// The same object with the managed fields, which the disk does not keep.
    Completed(Arc<Object>),
    Other(Arc<Object>),
}

/// The end of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListEnd {
    /// The version reached with it.
    pub(crate) reached: u64,
    /// `true` if it names every object.
    pub(crate) complete: bool,
    /// `true` if it is at least as new as all watch events since it began.
    pub(crate) wins: bool,
    /// The share of the objects that may be removed without confirmation by another list, and the number that may be
    /// removed whatever their share.
    pub(crate) removals: (f64, usize),
}

/// A change found by a list: its version, and the object unless it was deleted.
pub(super) type Difference = (u64, Key, Option<Arc<Object>>);

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("items", &self.items.len()).finish_non_exhaustive()
    }
}

impl Incoming {
    /// Takes an item. An unchanged one costs no memory until the end of the list.
    pub(super) fn listed(&mut self, key: Key, known: Option<&Arc<Object>>, json: Bytes, version: u64) {
        let object = Object::raw(json, version);
        let same = known.filter(|known| known.version() == version).and_then(|known| known.same(&object));
        if same != Some(Sameness::Whole) {
            self.bytes += object.size();
        }
        let item = match same {
            Some(Sameness::Whole) => Item::Same,
            Some(Sameness::ButForManagedFields) => Item::Completed(Arc::new(object)),
            None => Item::Other(Arc::new(object)),
        };
        self.items.insert(key, item);
    }

    /// A watch event: an object, or its deletion.
    pub(super) fn event(&mut self, key: Key, object: Option<Arc<Object>>) {
        self.watched.insert(key, object);
    }

    /// Makes what watches told since the list began a part of it, which is as new as they are then. For a state that
    /// has not taken what they told.
    pub(super) fn overlay(&mut self, end: ListEnd) -> ListEnd {
        for (key, object) in std::mem::take(&mut self.watched).into_iter().filter(|_| !end.wins) {
            match object {
                Some(object) => drop(self.items.insert(key, Item::Other(object))),
                None => drop(self.items.remove(&key)),
            }
        }
        ListEnd { wins: true, ..end }
    }

    /// The objects that the list lacks, if it names everything.
    pub(super) fn gone(&self, objects: &Objects, end: ListEnd) -> Vec<Key> {
        let stays = |key: &Key| self.items.contains_key(key) || !end.wins && self.watched.contains_key(key);
        objects.keys().filter(|key| end.complete && !stays(key)).cloned().collect()
    }

    /// The differences from the objects known up to `version`, in the order of the versions. `None` if the list does
    /// not continue them: it is of an earlier version, or an object differs that had to be known already. That is the
    /// case for a server that was restored from a backup or replaced by another one, even if its versions are as high
    /// or the same.
    ///
    /// A deletion has a version as well, which lists do not contain: each gets the lowest free one, so that a client
    /// which resumes from it, here or at the upstream server, misses nothing.
    pub(super) fn differences(
        &self,
        objects: &Objects,
        version: u64,
        gone: Vec<Key>,
        end: ListEnd,
    ) -> Option<Vec<Difference>> {
        if end.reached < version {
            return None;
        }
        let mut differences = Vec::new();
        for (key, item) in &self.items {
            let Item::Other(object) = item else { continue };
            if self.overtaken(key, object, objects, end) {
                continue;
            }
            if object.version() <= version {
                return None;
            }
            differences.push((object.version(), key.clone(), Some(Arc::clone(object))));
        }
        let taken: BTreeSet<u64> = differences.iter().map(|(version, ..)| *version).collect();
        let mut free = (version + 1..=end.reached).filter(|version| !taken.contains(version));
        for key in gone {
            differences.push((free.next()?, key, None));
        }
        differences.sort_by_key(|(version, ..)| *version);
        Some(differences)
    }

    /// Returns `true` if a watch was faster than the list with an object.
    fn overtaken(&self, key: &Key, object: &Object, objects: &Objects, end: ListEnd) -> bool {
        let watched = self.watched.get(key);
        if end.wins {
            return watched.and_then(Option::as_ref).is_some_and(|watched| watched.version() >= object.version());
        }
        watched.is_some() || objects.get(key).is_some_and(|known| known.version() > object.version())
    }

    /// The items that complete known objects, unless those have changed since.
    pub(super) fn completions(self, objects: &Objects) -> Vec<(Key, Arc<Object>)> {
        let completions = self.items.into_iter().filter_map(|(key, item)| match item {
            Item::Completed(object) => Some((key, object)),
            Item::Same | Item::Other(_) => None,
        });
        let still = |key: &Key, object: &Object| objects.get(key).is_some_and(|it| it.version() == object.version());
        completions.filter(|(key, object)| still(key, object)).collect()
    }

    /// All objects as of the list; nothing else of `before` remains.
    pub(super) fn objects(self, mut before: Objects, end: ListEnd) -> Objects {
        let Self { items, watched, .. } = self;
        let mut objects = Objects::new();
        for (key, item) in items {
            let object = match item {
                Item::Same => before.remove(&key),
                Item::Completed(object) | Item::Other(object) => Some(object),
            };
            objects.extend(object.map(|object| (key, object)));
        }
        for (key, object) in watched.into_iter().filter(|_| !end.wins) {
            match object {
                Some(object) => drop(objects.insert(key, object)),
                None => drop(objects.remove(&key)),
            }
        }
        objects
    }
}
