//! The history of publications: a journal, and the generations whose routes can be restored.

mod changes;
mod journal;
mod kept;

use tidegate_config::model::{Generation, SnapshotParts};

pub use self::changes::{Cause, Changes, Coalesced, Publication};
use self::journal::Journal;
use self::kept::RetainedModels;
use crate::options::Keep;

/// Past publications, and routes that can be restored. Limited in number and in the memory of the routes.
#[derive(Debug)]
pub struct History {
    journal: Journal,
    kept: RetainedModels,
}

impl Default for History {
    fn default() -> Self {
        Self::new(Keep::default())
    }
}

impl History {
    /// A history with these limits. The journal covers every generation that can be restored.
    #[must_use]
    pub fn new(keep: Keep) -> Self {
        let journal = Journal::new(keep.publications.max(keep.generations));
        Self { journal, kept: RetainedModels::new(keep.generations, keep.routes) }
    }

    /// Records a publication, and keeps its parts if its routes have changed.
    pub fn record(&mut self, mut publication: Publication, parts: &SnapshotParts) {
        self.kept.record(&mut publication, parts);
        self.journal.record(publication);
    }

    /// The latest `last` entries of the journal, the newest last; with a host, those that may have changed it.
    #[must_use]
    pub fn latest(&self, last: usize, host: Option<&str>) -> Vec<Publication> {
        self.journal.latest(last, host)
    }

    /// The oldest and the newest generation of the range that can be restored completely.
    #[must_use]
    pub fn range(&self) -> Option<(Generation, Generation)> {
        self.kept.range()
    }

    /// The last held generation, if it is older than the range and can be restored too.
    #[must_use]
    pub fn apart(&self) -> Option<Generation> {
        self.kept.apart()
    }

    /// The routes of a generation; `None` if they are not kept.
    #[must_use]
    pub fn parts(&self, generation: Generation) -> Option<&SnapshotParts> {
        self.kept.parts(generation)
    }
}
