//! The writer thread: it takes the messages of informers, coalesces them, and commits batches within the budget. A
//! failing disk costs only the cache: writing is retried, and the failure is logged once.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use super::budget::Budget;
use super::kept_form::kept_form;
use super::metrics::CacheMetrics;
use super::pending::{Pending, Stored};
use super::seal::Seal;
use super::sink::{Form, Message, Partition, PartitionMessage};
use super::store::{Batch, Store};
use super::unusable::UnusableStore;
use super::{CacheOptions, folder, restore};
use crate::clock;
use crate::options::UnconfirmedRemovals;

/// The interval for writing a changed resourceVersion without values: it costs as many pages as a change, and an older
/// one is good enough to resume a watch.
const VERSION_EVERY: Duration = Duration::from_secs(300);
/// The same after a list or a watch has failed: the process may end before the API server is back, and clients of the
/// served API know the latest resourceVersion.
const VERSION_INTERRUPTED: Duration = Duration::from_secs(1);
/// The delay before a failed store is opened again.
const OPEN_AGAIN: Duration = Duration::from_secs(30);
/// The minimum interval between requests for lists.
const ASK_AGAIN: Duration = Duration::from_secs(300);
/// The limit of pending bytes of one partition; beyond it they are dropped until the next list.
const PENDING_MAX: usize = 128 << 20;
/// The number of messages taken before the time is checked again.
const BATCH_MESSAGES_MAX: usize = 1024;

/// The state of the writer.
pub(super) struct Writer {
    pub(super) options: CacheOptions,
    pub(super) removals: UnconfirmedRemovals,
    pub(super) seal: Option<Arc<Seal>>,
    pub(super) metrics: CacheMetrics,
    pub(super) queued: Arc<AtomicUsize>,
    pub(super) store: Option<Store>,
    pub(super) states: BTreeMap<Arc<str>, PartitionState>,
    pub(super) budget: Budget,
    /// Since when values are pending, and since when only a resourceVersion is.
    pub(super) waiting: PendingSince,
    /// The time of the next attempt to open a failed store, with the reason of the failure.
    pub(super) failed: Option<(Instant, UnusableStore)>,
    /// The requests for lists of partitions.
    pub(super) lists: Lists,
}

/// The number of times that each partition was lost with a failed store.
pub(super) type Losses = BTreeMap<Arc<str>, u64>;

/// Requests for lists after a failure of the store.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) lost: watch::Sender<Losses>,
    asked: Option<Instant>,
}

impl Lists {
    /// Requests lists of these partitions, unless the last request is recent: a disk that fails repeatedly must not
    /// cause a list of everything each time.
    fn ask(&mut self, names: Vec<Arc<str>>, now: Instant) {
        if names.is_empty() || self.asked.is_some_and(|asked| now < asked + ASK_AGAIN) {
            return;
        }
        self.asked = Some(now);
        self.lost.send_modify(|lost| names.into_iter().for_each(|name| *lost.entry(name).or_default() += 1));
    }
}

/// One partition.
#[derive(Debug)]
pub(super) struct PartitionState {
    pub(super) pending: Pending,
    /// Whether the partition is listed; otherwise each value is sent separately.
    pub(super) listed: bool,
}

/// Since when changes are pending.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct PendingSince {
    values: Option<Instant>,
    version: Option<Instant>,
    /// Whether a list or a watch has failed since the last batch.
    interrupted: bool,
}

/// A partition in the store.
struct OnDisk<'a> {
    store: Option<&'a Store>,
    name: &'a str,
    failure: Cell<Option<UnusableStore>>,
}

impl Stored for OnDisk<'_> {
    fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.store?.get(self.name, key).unwrap_or_else(|why| {
            self.failure.set(Some(why));
            None
        })
    }

    fn keys(&self) -> Option<Vec<String>> {
        self.store?.keys(self.name).map_err(|why| self.failure.set(Some(why))).ok()
    }
}

impl Writer {
    /// Writes until it receives [`Message::Close`], or all senders are gone.
    pub(super) fn run(mut self, messages: &Receiver<PartitionMessage>) {
        self.metrics.usable.set(i64::from(self.store.is_some()));
        loop {
            let now = clock::now();
            if self.failed.as_ref().is_some_and(|(again, _)| *again <= now) {
                self.open_again(now);
            }
            let due = self.due(now);
            if due.is_some_and(|due| due <= now) {
                self.flush(now);
                continue;
            }
            let again = self.failed.as_ref().map(|(again, _)| *again);
            let wake = due.into_iter().chain(again).min();
            let wait = wake.map_or(VERSION_EVERY, |wake| wake.saturating_duration_since(now));
            let open = match messages.recv_timeout(wait) {
                Ok(message) => {
                    self.take(message) && messages.try_iter().take(BATCH_MESSAGES_MAX).all(|message| self.take(message))
                }
                Err(RecvTimeoutError::Timeout) => true,
                Err(RecvTimeoutError::Disconnected) => false,
            };
            self.note_waiting(clock::now());
            if !open {
                self.flush(clock::now());
                return;
            }
        }
    }

    /// Handles one message. Returns `false` for the last one.
    fn take(&mut self, (partition, message): PartitionMessage) -> bool {
        self.queued.fetch_sub(message.bytes(), Ordering::Relaxed);
        let Some(state) = self.states.get_mut(&partition.name) else { return !matches!(message, Message::Close) };
        let stored = OnDisk { store: self.store.as_ref(), name: &partition.name, failure: Cell::default() };
        let PartitionState { pending, .. } = state;
        match message {
            Message::ListBegins { after_loss } => pending.list_begins(after_loss),
            Message::Listed { key, raw } => {
                if let Some(value) = value(&partition, &raw) {
                    pending.listed(key, value, &stored);
                }
            }
            Message::ListFailed => pending.list_failed(),
            Message::ListDone(end) => {
                if !pending.list_done(end, self.removals, &stored) {
                    tracing::warn!(kind = %partition.name, "a list lacks most of the stored objects; they stay stored until a second list confirms their deletion");
                }
            }
            Message::Changed { key, raw, reached } => match raw.map(|raw| value(&partition, &raw)) {
                None => pending.event(key, None, reached, &stored),
                Some(Some(value)) => pending.event(key, Some(value), reached, &stored),
                Some(None) => {}
            },
            Message::Reached(version) => pending.reached(version),
            Message::Interrupted => self.waiting.interrupted = true,
            Message::Retain(keys) => pending.retain(&keys, &stored),
            Message::Close => return false,
        }
        let failure = stored.failure.take();
        self.metrics.unchanged.inc_by(std::mem::take(&mut pending.unchanged));
        if state.listed && pending.bytes() > PENDING_MAX {
            pending.lose();
            self.metrics.losses.inc();
        }
        if let Some(why) = failure {
            self.fail(why, clock::now());
        }
        true
    }

    fn note_waiting(&mut self, now: Instant) {
        let values = self.states.values().any(|state| state.pending.has_values());
        let version = self.states.values().any(|state| state.pending.has_version());
        let PendingSince { values: since, version: version_since, interrupted } = self.waiting;
        self.waiting = PendingSince {
            values: values.then(|| since.unwrap_or(now)),
            version: version.then(|| version_since.unwrap_or(now)),
            interrupted: interrupted && version,
        };
        let count: usize = self.states.values().map(|state| state.pending.len()).sum();
        self.metrics.pending.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The time of the next batch.
    fn due(&mut self, now: Instant) -> Option<Instant> {
        let values = self.waiting.values.map(|since| since + self.options.flush_after);
        let version_every = if self.waiting.interrupted { VERSION_INTERRUPTED } else { VERSION_EVERY };
        let version = self.waiting.version.map(|since| since + version_every);
        let due = values.into_iter().chain(version).min().filter(|_| self.store.is_some())?;
        Some(due.max(self.budget.ready(now)))
    }

    /// Writes all pending changes as one batch.
    fn flush(&mut self, now: Instant) {
        self.waiting = PendingSince::default();
        let wall = clock::wall();
        let Some(store) = &self.store else { return };
        let mut batch = Batch::new();
        for (name, state) in &mut self.states {
            batch.extend(state.pending.take(seconds(wall)).map(|change| (Arc::clone(name), change)));
        }
        if batch.is_empty() {
            return;
        }
        let values: usize = batch.values().map(|change| change.values.len()).sum();
        match restore::forget_other_cluster(store, &batch).and_then(|()| store.commit(&batch)) {
            Ok(bytes) => {
                self.budget.spend(bytes, now);
                self.metrics.written.inc_by(bytes);
                self.metrics.values.inc_by(values as u64);
                self.metrics.batches.with_label_values(&["ok"]).inc();
                self.metrics.last_written.set(wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
                self.metrics.pending.set(0);
                tracing::debug!(values, bytes, "the cluster cache is written");
            }
            Err(why) => {
                self.metrics.batches.with_label_values(&["failed"]).inc();
                for (name, change) in batch {
                    if let Some(state) = self.states.get_mut(&name) {
                        state.pending.restore(change);
                    }
                }
                self.fail(why, now);
            }
        }
    }

    fn fail(&mut self, why: UnusableStore, now: Instant) {
        self.store = None;
        self.metrics.usable.set(0);
        let known = self.failed.as_ref().is_some_and(|(_, before)| *before == why);
        if !known {
            tracing::error!(folder = %self.options.folder.display(), error = %why,
                "the cluster cache cannot be written; serving continues without it, and it is retried");
        }
        self.failed = Some((now + OPEN_AGAIN, why));
    }

    /// Opens a failed store again. Another process may have written to it, so the pending changes of a listed
    /// partition are only kept if they replace the whole partition.
    fn open_again(&mut self, now: Instant) {
        match Store::open(&self.options.folder, self.seal.clone()) {
            Ok(store) => {
                self.store = Some(store);
                self.failed = None;
                self.metrics.usable.set(1);
                tracing::info!(folder = %self.options.folder.display(), "writing to the cluster cache succeeds again");
                let mut lost = Vec::new();
                for (name, state) in &mut self.states {
                    if state.listed && !state.pending.replaces() {
                        state.pending.lose();
                        lost.push(Arc::clone(name));
                    }
                }
                self.metrics.losses.inc_by(lost.len() as u64);
                self.lists.ask(lost, now);
                self.note_waiting(now);
            }
            Err(why) => {
                if let UnusableStore::Damaged(_) = &why {
                    self.metrics.damaged.inc();
                    if let Err(why) = folder::set_aside(&self.options.folder) {
                        tracing::debug!(error = %why, "the damaged cluster cache cannot be set aside");
                    }
                }
                self.fail(why, now);
            }
        }
    }
}

/// The form of a value in the store.
fn value(partition: &Partition, raw: &[u8]) -> Option<Vec<u8>> {
    match partition.form {
        Form::Value => Some(raw.to_vec()),
        Form::Routed(kind) => kept_form(Some(kind), raw),
        Form::Served => kept_form(None, raw),
    }
}

/// Seconds since the epoch.
pub(crate) fn seconds(wall: SystemTime) -> u64 {
    wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests;
