//! The changes that are not on disk yet, and their return after a failed write. Only the last change of each object
//! counts.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use super::writer::Task;
use super::{Key, Object, State};
use crate::disk::{Batch, Name};
use crate::kind::{KindId, StoreIndex};

/// The pending changes, and their writer.
pub(super) struct Journal {
    changes: BTreeMap<Name, Option<Arc<Object>>>,
    /// The version of the last change.
    version: u64,
    tasks: SyncSender<Task>,
}

/// Changes on their way to the disk.
pub(super) struct Taken {
    changes: BTreeMap<Name, Option<Arc<Object>>>,
    version: u64,
    serial: u64,
}

impl Taken {
    /// The changes as the disk keeps them. The objects are written out here, without the lock.
    pub(super) fn batch(self) -> Batch {
        let json = |object: Option<Arc<Object>>| object.map(|object| object.json());
        let objects = self.changes.into_iter().map(|(name, object)| (name, json(object))).collect();
        Batch { objects, version: self.version, serial: self.serial }
    }
}

impl State {
    /// Records every change from now on, and notifies the writer.
    pub(crate) fn keep_journal(&mut self, tasks: SyncSender<Task>) {
        self.journal = Some(Journal { changes: BTreeMap::new(), version: self.version, tasks });
    }

    /// The version of the last change that has to be on disk; `None` without a disk.
    pub(crate) fn journaled(&self) -> Option<u64> {
        self.journal.as_ref().map(|journal| journal.version)
    }

    /// Takes all changes that are not on disk; `None` if there are none.
    pub(super) fn take_journal(&mut self) -> Option<Taken> {
        let (version, serial) = (self.version, self.serial());
        let changes = std::mem::take(&mut self.journal.as_mut()?.changes);
        (!changes.is_empty()).then_some(Taken { changes, version, serial })
    }

    /// Takes back changes that could not be written, except those with newer ones.
    pub(crate) fn give_back_journal(&mut self, batch: Batch) {
        let version = batch.version;
        let Some(journal) = &mut self.journal else { return };
        for (name, json) in batch.objects {
            if let Entry::Vacant(vacant) = journal.changes.entry(name) {
                vacant.insert(json.map(|json| Arc::new(Object::raw(json, version))));
            }
        }
    }

    /// Records a change of an object.
    pub(super) fn note(&mut self, kind: &KindId, key: &Key, object: Option<&Arc<Object>>) {
        if self.journal.is_some() {
            self.note_named(&kind.description().qualified().into(), key, object);
        }
    }

    /// Records the removal of the objects of all other places.
    pub(super) fn note_dropped(&mut self, kept: impl Fn(StoreIndex) -> bool) {
        if self.journal.is_none() {
            return;
        }
        let gone = self.collections.iter().filter(|(place, _)| !kept(**place));
        let gone: Vec<(Arc<str>, Vec<Key>)> = gone
            .map(|(_, collection)| (collection.name.clone(), collection.objects.keys().cloned().collect()))
            .collect();
        for (name, keys) in gone {
            keys.iter().for_each(|key| self.note_named(&name, key, None));
        }
    }

    fn note_named(&mut self, kind: &Arc<str>, key: &Key, object: Option<&Arc<Object>>) {
        let Some(journal) = &mut self.journal else { return };
        journal.version = self.version;
        let name = Name { kind: kind.clone(), namespace: key.namespace.clone(), name: key.name.clone() };
        journal.changes.insert(name, object.cloned());
        // A task that waits already covers this change too.
        let _ = journal.tasks.try_send(Task::Write);
    }

    /// Puts an object in its place as it was, under its version, without notifying watches.
    pub(crate) fn restore(&mut self, place: StoreIndex, key: Key, object: Arc<Object>) {
        let expires = self.kinds.iter().any(|kind| kind.place() == place && kind.description().kept.is_some());
        let Some(collection) = self.collections.get_mut(&place) else { return };
        if expires {
            // Its age is unknown; it stays as long as one that has just been written.
            collection.written.push_back((Duration::ZERO, key.clone(), object.version()));
        }
        self.owned.note(place, &key, None, Some(object.value()));
        collection.objects.insert(key, object);
    }
}
