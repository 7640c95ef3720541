//! The server itself: a store and a clock.

use std::fmt;
use std::sync::Arc;

use serde_json::json;

use crate::clock::{Clock, Moment};
use crate::kind::KindId;
use crate::serve::LiteService;
use crate::store::{Key, Store};
use crate::write::{self, BUILT_IN_NAMESPACES, Target, Terms, Validation};

/// An in-memory Kubernetes API server. Clones share one state.
#[derive(Clone)]
pub struct Lite {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    clock: Clock,
}

impl Lite {
    /// An empty server that knows the built-in kinds and has the namespaces `default` and `kube-system`.
    ///
    /// Its resourceVersions begin at the wall clock in microseconds, so that those of a former life of the process are
    /// older than everything here: a client that comes back with one is told to list again.
    pub fn new() -> Self {
        let clock = Clock::start();
        let now = clock.now();
        let version = u64::try_from(now.unix.as_micros()).unwrap_or(u64::MAX / 2).max(1);
        let store = Store::new(version);
        for (nth, name) in BUILT_IN_NAMESPACES.iter().enumerate() {
            create_namespace(&store, name, now.redrawn(nth as u128));
        }
        Self { inner: Arc::new(Inner { store, clock }) }
    }

    /// A server of no kinds, each of which another server will tell of.
    pub(crate) fn fed() -> Self {
        Self { inner: Arc::new(Inner { store: Store::fed(), clock: Clock::start() }) }
    }

    /// The door within the process: a tower service that needs no token and sets no limit on concurrent requests.
    pub fn service(&self) -> LiteService {
        LiteService::new(self.clone())
    }

    /// Ends every open watch cleanly, after what it has already been given. New watches can still begin.
    pub fn close_watches(&self) {
        self.inner.store.write(|state| state.close_watches());
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
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

/// Says nothing of what is stored: Secrets are in there.
impl fmt::Debug for Lite {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Lite").field("version", &self.inner.store.read().version()).finish_non_exhaustive()
    }
}

fn create_namespace(store: &Store, name: &str, moment: Moment) {
    let Some(kind) = KindId::built_in("Namespace") else { return };
    let target = Target { kind, key: Key { namespace: String::new(), name: String::new() }, subresource: None };
    let manager = "kube-apiserver".to_owned();
    let terms = Terms { dry_run: false, validation: Validation::Ignore, moment, manager };
    let namespace = json!({"metadata": {"name": name}});
    if store.write(|state| write::create(state, &target, namespace, &terms)).is_err() {
        tracing::error!(namespace = name, "a built-in namespace could not be made");
    }
}
