//! The server itself: a store, a clock, and the disk if objects are to outlive the process.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use crate::clock::{Clock, Moment};
use crate::disk::{DataDirError, Disk};
use crate::failure::Failure;
use crate::kind::KindId;
use crate::logs::{ContainerLog, Logs};
use crate::store::{Key, Store, Writer};
use crate::write::{self, BUILT_IN_NAMESPACES, Target, Validation, WriteOptions};

/// The number of versions skipped after a restart: more than were given to changes that did not reach the disk.
const LEAP: u64 = 1 << 20;

/// A Kubernetes API server with its state in memory. Clones share one state.
#[derive(Clone)]
pub struct Lite {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<Store>,
    clock: Clock,
    writer: Option<Writer>,
    logs: Arc<Logs>,
}

impl Inner {
    fn of(store: Arc<Store>, clock: Clock, writer: Option<Writer>) -> Self {
        Self { store, clock, writer, logs: Arc::new(Logs::new()) }
    }
}

impl Lite {
    /// An empty server that knows the built-in kinds and has the namespaces `default` and `kube-system`.
    ///
    /// Its resourceVersions begin at the wall clock in microseconds, so that those of an earlier process are older than
    /// everything here, unless the clock was set back meanwhile: a client that comes back with one is told to list
    /// again.
    pub fn new() -> Self {
        let clock = Clock::start();
        let store = Arc::new(Store::new(first_version(&clock.now())));
        create_namespaces(&store, &clock.now());
        Self { inner: Arc::new(Inner::of(store, clock, None)) }
    }

    /// A server whose objects are kept in a folder, and are there again when it is opened the next time. A write is
    /// answered when it is on disk. Objects keep their resourceVersions, and new ones are higher than all earlier ones;
    /// a client that comes back with one of those is told to list again.
    ///
    /// The folder is created if it does not exist. Everything in it can be read by its user: Secrets are not encrypted.
    ///
    /// # Errors
    /// When the folder cannot be used, or its contents cannot be read.
    pub fn open(folder: &Path) -> Result<Self, DataDirError> {
        let disk = Disk::open(folder)?;
        let found = disk.read()?;
        let clock = Clock::start();
        let version = first_version(&clock.now()).max(found.version.saturating_add(LEAP));
        let store = Arc::new(Store::new(version));
        store.write(|state| state.count_from(found.serial));
        let writer = Writer::start(disk, store.clone())?;
        store.write(|state| write::restore(state, &found, &clock.now()))?;
        create_namespaces(&store, &clock.now());
        Ok(Self { inner: Arc::new(Inner::of(store, clock, Some(writer))) })
    }

    /// A server without kinds, each of which will be fed from another server.
    pub(crate) fn fed() -> Self {
        Self { inner: Arc::new(Inner::of(Arc::new(Store::fed()), Clock::start(), None)) }
    }

    /// Waits until every earlier write is durable.
    pub(crate) async fn durable(&self) -> Result<(), Failure> {
        let Some(writer) = &self.inner.writer else { return Ok(()) };
        let Some(version) = self.store().look(|state| state.journaled()).await else { return Ok(()) };
        let undone = |why| Failure::internal(format!("the change is made, but could not be written to disk: {why}"));
        writer.durable(version).await.map_err(undone)
    }

    /// Opens the log of a container of a Pod for the program that runs it; it can be read through the Pod until the
    /// handle is dropped.
    pub fn open_log(&self, namespace: &str, pod: &str, container: &str) -> ContainerLog {
        let key = (namespace.to_owned(), pod.to_owned(), container.to_owned());
        self.inner.logs.open(key, self.inner.clock)
    }

    /// Ends every open watch cleanly, after the events it has already received, and every follower of a log. New ones
    /// can still begin.
    pub fn close_watches(&self) {
        self.inner.store.write(|state| state.close_watches());
        self.inner.logs.close();
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn logs(&self) -> &Logs {
        &self.inner.logs
    }

    pub(crate) fn now(&self) -> Moment {
        self.inner.clock.now()
    }
}

impl Default for Lite {
    fn default() -> Self {
        Self::new()
    }
}

/// Does not show stored objects, which include Secrets.
impl fmt::Debug for Lite {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Lite").field("version", &self.inner.store.read().version()).finish_non_exhaustive()
    }
}

/// The wall clock in microseconds: higher than the versions of every earlier process, which began there and counted
/// changes, unless the clock was set back.
fn first_version(now: &Moment) -> u64 {
    u64::try_from(now.unix.as_micros()).unwrap_or(u64::MAX / 2).max(1)
}

/// Creates the built-in namespaces, if they do not exist.
fn create_namespaces(store: &Store, now: &Moment) {
    for (nth, name) in BUILT_IN_NAMESPACES.iter().enumerate() {
        create_namespace(store, name, now.redrawn(nth as u128));
    }
}

fn create_namespace(store: &Store, name: &str, moment: Moment) {
    let Some(kind) = KindId::built_in("Namespace") else { return };
    let target = Target { kind, key: Key { namespace: String::new(), name: String::new() }, subresource: None };
    let manager = "kube-apiserver".to_owned();
    let options = WriteOptions { dry_run: false, validation: Validation::Ignore, faults: Vec::new(), moment, manager };
    let namespace = json!({"metadata": {"name": name}});
    let key = Key { namespace: String::new(), name: name.to_owned() };
    let made = store.write(|state| {
        let there = state.get(&target.kind, &key).is_some();
        there
            || write::create(state, &target, namespace, &options)
                .map(|checked| write::commit(state, checked, &options.moment))
                .is_ok()
    });
    if !made {
        tracing::error!(namespace = name, "a built-in namespace could not be made");
    }
}
