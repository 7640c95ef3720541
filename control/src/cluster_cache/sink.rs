//! What informers tell the cache by. It never waits: where the disk cannot follow, what is told is lost up to the next list.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;

use prometheus::IntCounter;
use tidegate_config::object::{Kind, ObjectName};

use super::pending::Listed;

/// Bytes that wait for the writer, which takes them out as fast as it can.
const QUEUED_MAX: usize = 64 << 20;

/// Values that are kept together.
#[derive(Debug)]
pub(super) struct Collection {
    pub(super) name: Arc<str>,
    pub(super) form: Form,
    /// Whether lists tell what there is; without, every value is told for itself.
    pub(super) listed: bool,
    /// Whether something that was told is missing since the last list.
    pub(super) lost: AtomicBool,
}

/// What is kept of its values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// They are no objects, and kept as they are.
    Value,
    /// What routing reads of objects of this kind.
    Routed(Kind),
    /// All that is served of them.
    Served,
}

/// What is told of a collection.
pub(super) enum Message {
    ListBegins {
        after_loss: bool,
    },
    Listed {
        key: String,
        raw: Box<[u8]>,
    },
    ListFailed,
    ListDone(Listed),
    Told {
        key: String,
        raw: Option<Box<[u8]>>,
        reached: Option<Arc<str>>,
    },
    Reached(Arc<str>),
    Interrupted,
    Retain(BTreeSet<String>),
    /// Everything is written, and then nothing more.
    Close,
}

impl Message {
    /// About what it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Listed { raw, .. } | Self::Told { raw: Some(raw), .. } => raw.len(),
            Self::ListBegins { .. }
            | Self::ListFailed
            | Self::ListDone(_)
            | Self::Told { raw: None, .. }
            | Self::Reached(_)
            | Self::Interrupted
            | Self::Retain(_)
            | Self::Close => 0,
        }
    }
}

/// A message and the collection that it is about.
pub(super) type Letter = (Arc<Collection>, Message);

/// Where one collection is told of; clones are one and the same.
#[derive(Clone)]
pub struct Sink {
    pub(super) collection: Arc<Collection>,
    pub(super) letters: SyncSender<Letter>,
    pub(super) queued: Arc<AtomicUsize>,
    pub(super) losses: IntCounter,
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("collection", &self.collection.name).finish_non_exhaustive()
    }
}

impl Sink {
    /// A list begins.
    pub fn list_begins(&self) {
        let after_loss = self.collection.lost.swap(false, Ordering::Relaxed);
        self.send(Message::ListBegins { after_loss });
    }

    /// An item of the list.
    pub fn listed(&self, name: &ObjectName, raw: &[u8]) {
        if !self.lost() {
            self.send(Message::Listed { key: name.to_string(), raw: raw.into() });
        }
    }

    /// The list failed.
    pub fn list_failed(&self) {
        self.send(Message::ListFailed);
    }

    /// The list is over, and with it everything has been told up to a resourceVersion. `wins` says that it is as new as whatever
    /// watches told while it was made.
    pub fn list_done(&self, reached: Arc<str>, complete: bool, wins: bool) {
        self.send(Message::ListDone(Listed { reached, complete, wins }));
    }

    /// A watch told of an object, or that it is gone; without a resourceVersion where objects are asked for by name.
    pub fn told(&self, name: &ObjectName, raw: Option<&[u8]>, reached: Option<&Arc<str>>) {
        self.keep(name.to_string(), raw, reached);
    }

    /// A watch has reached a resourceVersion.
    pub fn reached(&self, version: &Arc<str>) {
        self.send(Message::Reached(Arc::clone(version)));
    }

    /// A list or a watch failed: for a while there may be no other version to write than the one that is reached.
    pub fn interrupted(&self) {
        self.send(Message::Interrupted);
    }

    /// A value that is no object, or that it is gone.
    pub fn value(&self, key: &str, value: Option<&[u8]>) {
        self.keep(key.to_owned(), value, None);
    }

    /// What is not named here is gone.
    pub fn retain(&self, keys: impl IntoIterator<Item = String>) {
        self.send(Message::Retain(keys.into_iter().collect()));
    }

    fn keep(&self, key: String, raw: Option<&[u8]>, reached: Option<&Arc<str>>) {
        if !self.lost() {
            self.send(Message::Told { key, raw: raw.map(Into::into), reached: reached.cloned() });
        }
    }

    fn lost(&self) -> bool {
        self.collection.lost.load(Ordering::Relaxed)
    }

    fn send(&self, message: Message) {
        if self.lost() {
            return;
        }
        let bytes = message.bytes();
        let full = self.queued.fetch_add(bytes, Ordering::Relaxed) > QUEUED_MAX;
        if full || self.letters.try_send((Arc::clone(&self.collection), message)).is_err() {
            self.queued.fetch_sub(bytes, Ordering::Relaxed);
            self.collection.lost.store(self.collection.listed, Ordering::Relaxed);
            self.losses.inc();
        }
    }
}
