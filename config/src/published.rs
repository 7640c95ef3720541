//! The publication of snapshots: one atomic pointer, one writer, many readers. Nothing else in Tidegate holds an
//! `ArcSwap` of the model.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::model::{Generation, Snapshot, SnapshotParts};

/// The only writer. It cannot be cloned, so there is one per process.
#[derive(Debug)]
pub struct Publisher {
    current: Arc<ArcSwap<Snapshot>>,
    generation: Generation,
}

/// A reader of the newest snapshot; cloning it costs one reference count.
#[derive(Clone, Debug)]
pub struct Published {
    current: Arc<ArcSwap<Snapshot>>,
}

/// An immutable snapshot with its generation, before publication.
#[must_use = "a snapshot that is not published serves nobody"]
#[derive(Debug)]
pub struct Unpublished(Arc<Snapshot>);

impl Unpublished {
    /// The generation it will be published as.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.0.generation()
    }
}

/// A publisher and its reader; until the first publication readers see the empty snapshot of generation 0.
#[must_use]
pub fn channel() -> (Publisher, Published) {
    let current = Arc::new(ArcSwap::from_pointee(Snapshot::default()));
    let published = Published { current: Arc::clone(&current) };
    (Publisher { current, generation: Generation::default() }, published)
}

impl Publisher {
    /// Freezes the parts under the next generation.
    pub fn prepare(&mut self, parts: SnapshotParts) -> Unpublished {
        self.generation = self.generation.next();
        Unpublished(Arc::new(Snapshot::freeze(self.generation, parts)))
    }

    /// The last published snapshot.
    #[must_use]
    pub fn serving(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Publishes a snapshot, which every new request then uses: one atomic store.
    pub fn publish(&mut self, ready: Unpublished) -> Generation {
        let generation = ready.generation();
        self.current.store(ready.0);
        generation
    }
}

impl Published {
    /// The newest snapshot. A request pins one and keeps it to its end.
    #[must_use]
    pub fn pin(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }
}
