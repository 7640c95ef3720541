//! The interface of informers to the cache. It never blocks: if the disk is too slow, updates are dropped and the next
//! list makes up for them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;

use prometheus::IntCounter;
use tidegate_config::object::{Kind, ObjectName};

use super::pending::Listed;

/// The limit of queued bytes; the writer dequeues quickly.
const QUEUED_MAX: usize = 64 << 20;

/// A group of values that are kept together.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) name: Arc<str>,
    pub(super) form: Form,
    /// Whether the partition is listed; otherwise each value is sent separately.
    pub(super) listed: bool,
    /// Whether an update was dropped since the last list.
    pub(super) lost: AtomicBool,
}

/// The form in which values are kept.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// A value that is not an object is kept unchanged.
    Value,
    /// The fields that routing reads of objects of this kind.
    Routed(Kind),
    /// Complete objects, to serve them again.
    Served,
}

/// A message to the writer.
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
    Changed {
        key: String,
        raw: Option<Box<[u8]>>,
        reached: Option<Arc<str>>,
    },
    Reached(Arc<str>),
    Interrupted,
    Retain(BTreeSet<String>),
    /// Writes everything and ends.
    Close,
}

impl Message {
    /// The approximate size in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Listed { raw, .. } | Self::Changed { raw: Some(raw), .. } => raw.len(),
            Self::ListBegins { .. }
            | Self::ListFailed
            | Self::ListDone(_)
            | Self::Changed { raw: None, .. }
            | Self::Reached(_)
            | Self::Interrupted
            | Self::Retain(_)
            | Self::Close => 0,
        }
    }
}

/// A message with its partition.
pub(super) type PartitionMessage = (Arc<Partition>, Message);

/// The sink of one partition; clones share the queue.
#[derive(Clone)]
pub struct Sink {
    pub(super) partition: Arc<Partition>,
    pub(super) messages: SyncSender<PartitionMessage>,
    pub(super) queued: Arc<AtomicUsize>,
    pub(super) losses: IntCounter,
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("partition", &self.partition.name).finish_non_exhaustive()
    }
}

impl Sink {
    /// A list begins.
    pub fn list_begins(&self) {
        let after_loss = self.partition.lost.swap(false, Ordering::Relaxed);
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

    /// The list is complete, up to a resourceVersion. `wins` means that it takes precedence over events of watches that
    /// arrived during it.
    pub fn list_done(&self, reached: Arc<str>, complete: bool, wins: bool) {
        self.send(Message::ListDone(Listed { reached, complete, wins }));
    }

    /// The server does not serve the kind, so it has no objects. Unlike an empty list this needs no confirmation, and
    /// no watch can begin at it, so its version is empty.
    pub fn unserved(&self) {
        self.retain([]);
        self.list_begins();
        self.list_done(Arc::from(""), true, true);
    }

    /// An event of a watch: the object, or `None` if it was deleted. Without a resourceVersion if objects are read by
    /// name.
    pub fn event(&self, name: &ObjectName, raw: Option<&[u8]>, reached: Option<&Arc<str>>) {
        self.keep(name.to_string(), raw, reached);
    }

    /// A watch has reached a resourceVersion.
    pub fn reached(&self, version: &Arc<str>) {
        self.send(Message::Reached(Arc::clone(version)));
    }

    /// A list or a watch failed: for a while there may be no later resourceVersion to write.
    pub fn interrupted(&self) {
        self.send(Message::Interrupted);
    }

    /// A value that is not an object, or `None` to remove it.
    pub fn value(&self, key: &str, value: Option<&[u8]>) {
        self.keep(key.to_owned(), value, None);
    }

    /// Removes all other keys.
    pub fn retain(&self, keys: impl IntoIterator<Item = String>) {
        self.send(Message::Retain(keys.into_iter().collect()));
    }

    fn keep(&self, key: String, raw: Option<&[u8]>, reached: Option<&Arc<str>>) {
        if !self.lost() {
            self.send(Message::Changed { key, raw: raw.map(Into::into), reached: reached.cloned() });
        }
    }

    fn lost(&self) -> bool {
        self.partition.lost.load(Ordering::Relaxed)
    }

    fn send(&self, message: Message) {
        if self.lost() {
            return;
        }
        let bytes = message.bytes();
        let full = self.queued.fetch_add(bytes, Ordering::Relaxed) > QUEUED_MAX;
        if full || self.messages.try_send((Arc::clone(&self.partition), message)).is_err() {
            self.queued.fetch_sub(bytes, Ordering::Relaxed);
            self.partition.lost.store(self.partition.listed, Ordering::Relaxed);
            self.losses.inc();
        }
    }
}
