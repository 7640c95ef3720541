//! What was published and why: a journal, and the generations whose routes can be taken back.

mod changes;
mod journal;
mod kept;

use tidegate_config::model::{Generation, SnapshotParts};

pub use self::changes::{Cause, Changes, Coalesced, Publication, Sample};
use self::journal::Journal;
use self::kept::Kept;
use crate::options::Keep;

/// Publications of the past, and routes that can be taken back. Bounded in number and in what the routes take of memory.
#[derive(Debug)]
pub struct History {
    journal: Journal,
    kept: Kept,
}

impl Default for History {
    fn default() -> Self {
        Self::new(Keep::default())
    }
}

impl History {
    /// One that keeps so much. Whatever can be taken back has its causes beside it.
    #[must_use]
    pub fn new(keep: Keep) -> Self {
        let journal = Journal::new(keep.publications.max(keep.generations));
        Self { journal, kept: Kept::new(keep.generations, keep.routes) }
    }

    /// Writes a publication down, and keeps its parts where its routes are others than before.
    pub fn record(&mut self, publication: Publication, parts: &SnapshotParts) {
        self.kept.record(&publication, parts);
        self.journal.record(publication);
    }

    /// The latest entries of the journal, at most so many, the newest last; with a host, those that may have changed it.
    #[must_use]
    pub fn latest(&self, last: usize, host: Option<&str>) -> Vec<Publication> {
        self.journal.latest(last, host)
    }

    /// Generations that can be gone back to, each of them: the oldest and the newest.
    #[must_use]
    pub fn range(&self) -> Option<(Generation, Generation)> {
        self.kept.range()
    }

    /// The generation that was held last, where it is older than those and can be gone back to as well.
    #[must_use]
    pub fn apart(&self) -> Option<Generation> {
        self.kept.apart()
    }

    /// The routes that a generation had; `None` where they are not kept.
    #[must_use]
    pub fn parts(&self, generation: Generation) -> Option<&SnapshotParts> {
        self.kept.parts(generation)
    }
}
