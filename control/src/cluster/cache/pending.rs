//! The pending changes of one partition: the informer's updates since the last batch, one value for each key, up to
//! one resourceVersion. A pure state machine; it reads the content of the store through [`Stored`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::kept_form::same;
use super::store::{PartitionChange, Position};
use crate::options::UnconfirmedRemovals;

/// A first list with more changed bytes than this is written in parts.
const PART_BYTES: usize = 32 << 20;

/// The stored values of the partition.
pub(super) trait Stored {
    /// The value of a key, if it is stored and the store is available.
    fn get(&self, key: &str) -> Option<Vec<u8>>;
    /// All keys; `None` if the store is unavailable.
    fn keys(&self) -> Option<Vec<String>>;
}

/// The end of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Listed {
    /// The resourceVersion of the list.
    pub(super) reached: Arc<str>,
    /// Whether the list has every object.
    pub(super) complete: bool,
    /// Whether the list takes precedence over events of watches that arrived during it.
    pub(super) wins: bool,
}

/// The state of one partition.
pub(super) struct Pending {
    sealed: bool,
    /// Whether a change of the resourceVersion alone must be written.
    exact: bool,
    /// Whether the stored and pending values are a consistent state that events can be applied to.
    based: bool,
    /// Whether the next batch replaces all stored values.
    replace: bool,
    changes: BTreeMap<String, Option<Vec<u8>>>,
    bytes: usize,
    /// The latest resourceVersion, if it has changed since the last batch.
    reached: Option<Option<Arc<str>>>,
    /// The list in progress.
    list: Option<List>,
    /// Whether the last list lacked so many objects that another one must confirm it.
    unconfirmed: bool,
    /// Whether a list is written in parts, and the last one is still to come.
    parts: bool,
    /// Whether the last list may have lacked objects: no watch can be resumed after it, because the deletion of such an
    /// object would be missed.
    incomplete: bool,
    pub(super) unchanged: u64,
}

#[derive(Default)]
struct List {
    items: BTreeMap<String, Item>,
    bytes: usize,
    /// Events of watches since the list began.
    watched: BTreeMap<String, Option<Vec<u8>>>,
}

enum Item {
    /// Equal to the known value.
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
    /// An empty state. `based` means that the informer starts from the stored values.
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
            unconfirmed: false,
            parts: false,
            incomplete: false,
            unchanged: 0,
        }
    }

    /// Sets whether values are served again with their own resourceVersions, so that a new version alone is a change.
    pub(super) fn exactly(mut self, exact: bool) -> Self {
        self.exact = exact;
        self
    }

    /// A list begins. `after_loss` means that earlier events were lost.
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
        // A consistent state stays stored until the list is complete and accepted.
        if list.bytes > PART_BYTES && !self.based {
            list.bytes = 0;
            self.parts = true;
            let moved: Vec<(String, Vec<u8>)> = list.items.iter_mut().filter_map(taken).collect();
            moved.into_iter().for_each(|(key, value)| self.put(key, Some(value)));
        }
    }

    /// An event of a watch: the new value, or `None` for a deletion.
    pub(super) fn event(
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
            // The event replaces the known value, so the list's equal one is stored explicitly.
            list.bytes += known.len();
            list.items.insert(key.clone(), Item::Value(known));
        }
        if let Some(list) = &mut self.list {
            list.watched.insert(key.clone(), value.clone());
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

    /// A watch has reached a resourceVersion.
    pub(super) fn reached(&mut self, version: Arc<str>) {
        if self.based && !self.incomplete {
            self.reached = Some(Some(version));
        }
    }

    /// Removes all other keys.
    pub(super) fn retain(&mut self, keep: &BTreeSet<String>, stored: &impl Stored) {
        let known: BTreeSet<String> = self.keys(stored);
        for key in known.difference(keep).cloned().collect::<Vec<_>>() {
            self.put(key, None);
            self.reached.get_or_insert(None);
        }
    }

    /// The list is complete. Returns whether it is accepted; otherwise another list must follow.
    pub(super) fn list_done(&mut self, end: Listed, limit: UnconfirmedRemovals, stored: &impl Stored) -> bool {
        let Some(list) = self.list.take() else { return true };
        let List { mut items, watched, .. } = list;
        let watched = if end.wins { BTreeMap::new() } else { watched };
        items.retain(|key, _| !watched.contains_key(key));
        if end.complete {
            let unknown = stored.keys().is_none();
            if unknown && items.values().any(|item| matches!(item, Item::Same)) {
                // The store became unavailable during the list, so the values that were equal to stored ones are
                // unknown now.
                self.lose();
                return true;
            }
            let known = self.keys(stored);
            let gone: Vec<&String> =
                known.iter().filter(|key| !items.contains_key(*key) && !watched.contains_key(*key)).collect();
            if limit.needs_confirmation(gone.len(), known.len()) && !std::mem::replace(&mut self.unconfirmed, true) {
                self.based = false;
                return false;
            }
            self.unconfirmed = false;
            gone.into_iter().cloned().for_each(|key| self.put(key, None));
            self.replace |= unknown;
        }
        for (key, item) in items {
            if let Item::Value(value) = item {
                self.put(key, Some(value));
            }
        }
        watched.into_iter().for_each(|(key, value)| self.put(key, value));
        self.based = true;
        self.parts = false;
        self.incomplete = !end.complete;
        self.reached = Some(end.complete.then_some(end.reached));
        true
    }

    /// The list in progress failed.
    pub(super) fn list_failed(&mut self) {
        self.list = None;
    }

    /// Whether the next batch replaces the whole partition.
    pub(super) const fn replaces(&self) -> bool {
        self.replace
    }

    /// Drops the state: only a list can continue from here.
    pub(super) fn lose(&mut self) {
        let lost = Self::new(self.sealed, false).exactly(self.exact);
        *self = Self { unchanged: self.unchanged, unconfirmed: self.unconfirmed, ..lost };
    }

    /// Whether values are pending.
    pub(super) fn has_values(&self) -> bool {
        !self.changes.is_empty() || self.replace
    }

    /// Whether a resourceVersion is pending.
    pub(super) const fn has_version(&self) -> bool {
        self.reached.is_some()
    }

    /// The size of pending values and of the list in progress, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.list.as_ref().map_or(0, |list| list.bytes)
    }

    /// The number of pending values.
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Takes the pending changes, if there are any; from then on they count as stored.
    pub(super) fn take(&mut self, as_of_s: u64) -> Option<PartitionChange> {
        if !self.has_values() && !self.has_version() {
            return None;
        }
        let reached = self.reached.take().flatten().map(|version| version.to_string());
        self.bytes = 0;
        Some(PartitionChange {
            sealed: self.sealed,
            replace: std::mem::take(&mut self.replace),
            values: std::mem::take(&mut self.changes),
            position: Position { resource_version: reached, as_of_s, whole: !self.parts },
        })
    }

    /// Puts changes back that could not be written; later changes take precedence.
    pub(super) fn restore(&mut self, change: PartitionChange) {
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

#[cfg(test)]
mod tests;
