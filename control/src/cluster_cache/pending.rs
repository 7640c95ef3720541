//! What is to be written of one collection: what the informer told since the last batch, one value a key, up to one position. A
//! pure state machine; what the store holds is asked through [`Stored`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::kept_form::same;
use super::store::{Change, Position};

/// Of a list that changes more bytes than this, the collection is written in parts.
const PART_BYTES: usize = 32 << 20;

/// What the store holds of the collection; without a store, nothing is known of it.
pub(super) trait Stored {
    /// A value.
    fn get(&self, key: &str) -> Option<Vec<u8>>;
    /// All keys; `None` where the store cannot be asked.
    fn keys(&self) -> Option<Vec<String>>;
}

/// When a list is believed that lacks much of what was there: as [`crate::options::Pace`] has it for the control loop.
#[derive(Clone, Copy, Debug)]
pub struct SweepLimit {
    /// The share that may be gone.
    pub share_max: f64,
    /// So many may be gone, whatever their share, as long as some are left.
    pub free: usize,
}

/// What came at the end of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Listed {
    /// The resourceVersion up to which everything has been told with this list.
    pub(super) reached: Arc<str>,
    /// Whether the list named everything.
    pub(super) complete: bool,
    /// Whether the list is as new as whatever watches told while it was made.
    pub(super) wins: bool,
}

/// The state of one collection.
pub(super) struct Pending {
    sealed: bool,
    /// Whether a new resourceVersion alone is a change.
    exact: bool,
    /// Whether what the store holds and what is pending make a state that the next event can be added to.
    based: bool,
    /// Whether the next batch replaces all that the store holds.
    replace: bool,
    changes: BTreeMap<String, Option<Vec<u8>>>,
    bytes: usize,
    /// The version reached, where it moved since the last batch.
    reached: Option<Option<Arc<str>>>,
    /// A list that is being made.
    list: Option<List>,
    /// Whether the last list lacked so much that another one has to confirm it.
    doubted: bool,
    /// Whether a list is written in parts, the last of which is still to come.
    parts: bool,
    /// Whether the last list may have lacked objects: no watch can go on from what follows it, because nothing would ever tell that
    /// one of those is gone.
    incomplete: bool,
    pub(super) unchanged: u64,
}

#[derive(Default)]
struct List {
    items: BTreeMap<String, Item>,
    bytes: usize,
    /// What watches told since the list began.
    told: BTreeMap<String, Option<Vec<u8>>>,
}

enum Item {
    /// As what is known.
    Same,
    Value(Vec<u8>),
}

/// Values may be Secrets, and are not shown.
impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("values", &self.changes.len()).finish_non_exhaustive()
    }
}

impl Pending {
    /// Nothing. `based` says that what the store holds is what the informer begins with.
    pub(super) const fn new(sealed: bool, based: bool) -> Self {
        Self {
            sealed,
            exact: false,
            based,
            replace: false,
            changes: BTreeMap::new(),
            bytes: 0,
            reached: None,
            list: None,
            doubted: false,
            parts: false,
            incomplete: false,
            unchanged: 0,
        }
    }

    /// The same where values are served again, under their own resourceVersions.
    pub(super) fn exactly(mut self, exact: bool) -> Self {
        self.exact = exact;
        self
    }

    /// A list begins. What was told before it may have been lost.
    pub(super) fn list_begins(&mut self, after_loss: bool) {
        self.based &= !after_loss;
        self.list = Some(List::default());
    }

    /// An item of the list.
    pub(super) fn listed(&mut self, key: String, value: Vec<u8>, stored: &impl Stored) {
        let known = self.current(&key, stored);
        let same = known.is_some_and(|known| self.is_same(&known, &value));
        let Some(list) = &mut self.list else { return };
        let item = if same {
            Item::Same
        } else {
            list.bytes += value.len();
            Item::Value(value)
        };
        list.items.insert(key, item);
        // What is kept whole stays so until the list is over and believed.
        if list.bytes > PART_BYTES && !self.based {
            list.bytes = 0;
            self.parts = true;
            let moved: Vec<(String, Vec<u8>)> = list.items.iter_mut().filter_map(taken).collect();
            moved.into_iter().for_each(|(key, value)| self.put(key, Some(value)));
        }
    }

    /// A watch told of an object, or that it is gone.
    pub(super) fn told(
        &mut self,
        key: String,
        value: Option<Vec<u8>>,
        reached: Option<Arc<str>>,
        stored: &impl Stored,
    ) {
        if let Some(list) = &self.list
            && matches!(list.items.get(&key), Some(Item::Same))
            && let Some(known) = self.current(&key, stored)
            && let Some(list) = &mut self.list
        {
            // What the list said is no longer what is known.
            list.bytes += known.len();
            list.items.insert(key.clone(), Item::Value(known));
        }
        if let Some(list) = &mut self.list {
            list.told.insert(key.clone(), value.clone());
        }
        if !self.based {
            return;
        }
        let known = self.current(&key, stored);
        let differs = match (&known, &value) {
            (Some(known), Some(value)) => !self.is_same(known, value),
            (None, None) => false,
            (Some(_), None) | (None, Some(_)) => true,
        };
        if differs {
            self.put(key, value);
        } else {
            self.unchanged += 1;
        }
        self.reached = Some(reached.filter(|_| !self.incomplete));
    }

    /// A watch has reached a version.
    pub(super) fn reached(&mut self, version: Arc<str>) {
        if self.based && !self.incomplete {
            self.reached = Some(Some(version));
        }
    }

    /// Only these keys are left.
    pub(super) fn retain(&mut self, keep: &BTreeSet<String>, stored: &impl Stored) {
        let known: BTreeSet<String> = self.keys(stored);
        for key in known.difference(keep).cloned().collect::<Vec<_>>() {
            self.put(key, None);
            self.reached.get_or_insert(None);
        }
    }

    /// The list is over. Gives whether it is believed; one that is not has to be followed by another.
    pub(super) fn list_done(&mut self, end: Listed, limit: SweepLimit, stored: &impl Stored) -> bool {
        let Some(list) = self.list.take() else { return true };
        let List { mut items, told, .. } = list;
        let told = if end.wins { BTreeMap::new() } else { told };
        items.retain(|key, _| !told.contains_key(key));
        if end.complete {
            let unknown = stored.keys().is_none();
            if unknown && items.values().any(|item| matches!(item, Item::Same)) {
                // The store went away while the list was made: what was the same as there is not known any more.
                self.lose();
                return true;
            }
            let held = self.keys(stored);
            let gone: Vec<&String> =
                held.iter().filter(|key| !items.contains_key(*key) && !told.contains_key(*key)).collect();
            if limit.doubts(gone.len(), held.len()) && !std::mem::replace(&mut self.doubted, true) {
                self.based = false;
                return false;
            }
            self.doubted = false;
            gone.into_iter().cloned().for_each(|key| self.put(key, None));
            self.replace |= unknown;
        }
        for (key, item) in items {
            if let Item::Value(value) = item {
                self.put(key, Some(value));
            }
        }
        told.into_iter().for_each(|(key, value)| self.put(key, value));
        self.based = true;
        self.parts = false;
        self.incomplete = !end.complete;
        self.reached = Some(end.complete.then_some(end.reached));
        true
    }

    /// The list that was being made failed.
    pub(super) fn list_failed(&mut self) {
        self.list = None;
    }

    /// Whether the next batch is all that there is of the collection.
    pub(super) const fn replaces(&self) -> bool {
        self.replace
    }

    /// Everything is forgotten: what comes next needs a list.
    pub(super) fn lose(&mut self) {
        let lost = Self::new(self.sealed, false).exactly(self.exact);
        *self = Self { unchanged: self.unchanged, doubted: self.doubted, ..lost };
    }

    /// Whether values wait to be written.
    pub(super) fn has_values(&self) -> bool {
        !self.changes.is_empty() || self.replace
    }

    /// Whether only a newer version waits to be written.
    pub(super) const fn has_version(&self) -> bool {
        self.reached.is_some()
    }

    /// Bytes that wait, of what was told and of a list that is being made.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.list.as_ref().map_or(0, |list| list.bytes)
    }

    /// How many values wait.
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    /// What is to be written now, if anything; from then on it counts as stored.
    pub(super) fn take(&mut self, as_of_s: u64) -> Option<Change> {
        if !self.has_values() && !self.has_version() {
            return None;
        }
        let reached = self.reached.take().flatten().map(|version| version.to_string());
        self.bytes = 0;
        Some(Change {
            sealed: self.sealed,
            replace: std::mem::take(&mut self.replace),
            values: std::mem::take(&mut self.changes),
            position: Position { resource_version: reached, as_of_s, whole: !self.parts },
        })
    }

    /// What was taken could not be written: it waits again, beneath what has come since.
    pub(super) fn restore(&mut self, change: Change) {
        self.replace |= change.replace;
        let version = change.position.resource_version.map(Arc::from);
        self.reached.get_or_insert(version);
        for (key, value) in change.values {
            if !self.changes.contains_key(&key) {
                self.put(key, value);
            }
        }
    }

    fn is_same(&self, known: &[u8], value: &[u8]) -> bool {
        if self.exact { known == value } else { same(known, value) }
    }

    fn put(&mut self, key: String, value: Option<Vec<u8>>) {
        self.bytes += value.as_ref().map_or(0, Vec::len);
        let before = self.changes.insert(key, value);
        self.bytes -= before.flatten().map_or(0, |before| before.len());
    }

    fn current(&self, key: &str, stored: &impl Stored) -> Option<Vec<u8>> {
        match self.changes.get(key) {
            Some(change) => change.clone(),
            None if self.replace => None,
            None => stored.get(key),
        }
    }

    fn keys(&self, stored: &impl Stored) -> BTreeSet<String> {
        let mut keys: BTreeSet<String> =
            if self.replace { BTreeSet::new() } else { stored.keys().unwrap_or_default().into_iter().collect() };
        for (key, value) in &self.changes {
            if value.is_some() {
                keys.insert(key.clone());
            } else {
                keys.remove(key);
            }
        }
        keys
    }
}

/// Takes the value out of an item.
fn taken((key, item): (&String, &mut Item)) -> Option<(String, Vec<u8>)> {
    match std::mem::replace(item, Item::Same) {
        Item::Same => None,
        Item::Value(value) => Some((key.clone(), value)),
    }
}

impl SweepLimit {
    /// Whether another list has to confirm that so many of those that were held are gone.
    #[allow(clippy::cast_precision_loss, reason = "a share of counts needs no more precision")]
    pub(crate) fn doubts(self, gone: usize, held: usize) -> bool {
        gone as f64 > self.share_max * held as f64 && (gone > self.free || gone == held)
    }
}

#[cfg(test)]
mod tests;
