//! The events for the control loop, in order. A closed list: the loop handles every variant in one place.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use tidegate_config::model::BindKey;
use tidegate_config::model::auth::{KeySet, KeySource};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::Projected;

/// The scope of a watch: a kind, in one namespace or in all of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Collection {
    /// The kind.
    pub kind: Kind,
    /// The namespace; `None` for all of them and for cluster-scoped kinds.
    pub namespace: Option<Arc<str>>,
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} in {namespace}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

/// An event for the control loop.
#[derive(Debug)]
pub enum Event {
    /// A watch event ADDED or MODIFIED.
    Applied {
        /// The object.
        projected: Box<Projected>,
        /// The arrival time of its bytes.
        received: Instant,
    },
    /// A watch event DELETED.
    Deleted {
        /// The object.
        object: ObjectRef,
        /// The resourceVersion of the deletion.
        resource_version: Arc<str>,
        /// The arrival time of its bytes.
        received: Instant,
    },
    /// A complete list, from its first to its last page. If `complete`, objects of the collection that are not in it
    /// have been deleted. Watch events during the list are included: they replace the listed objects. A failed or
    /// partial list is never an event.
    Listed {
        /// The collection.
        collection: Collection,
        /// Every identified object of it.
        objects: Vec<Projected>,
        /// Whether these are all objects. If an item cannot be identified, no object counts as deleted.
        complete: bool,
        /// The resourceVersion of the list.
        resource_version: Arc<str>,
        /// The arrival time of the last page.
        received: Instant,
    },
    /// A watch has resumed from the resourceVersion of the restored objects, and has sent all events since.
    Resumed {
        /// The collection.
        collection: Collection,
        /// The resourceVersion it has reached.
        resource_version: Arc<str>,
        /// The time of this event.
        received: Instant,
    },
    /// The cluster does not serve the kind: the collection has no objects. For kinds that a cluster may lack.
    Unserved {
        /// The collection.
        collection: Collection,
        /// The time of this event.
        received: Instant,
    },
    /// The collection may have objects that have not been listed: it had none, and the cluster has begun to serve the
    /// kind, or its definition may no longer be read.
    Unlisted {
        /// The collection.
        collection: Collection,
    },
    /// Whether the cluster serves the kind may not be read, and nobody has asked for the kind: nothing waits for the
    /// collection, and what is known of it stays.
    Unreadable {
        /// The collection.
        collection: Collection,
        /// The denial.
        why: String,
        /// The time of this event.
        received: Instant,
    },
    /// The CustomResourceDefinition of a kind of the Gateway API states another release, or is gone.
    Defined {
        /// The kind.
        kind: Kind,
        /// The release (`gateway.networking.k8s.io/bundle-version`); empty without the annotation, `None` without a
        /// definition.
        release: Option<Arc<str>>,
        /// The time of this event.
        received: Instant,
    },
    /// A bookmark of a watch: there are no older events.
    Bookmark {
        /// The collection.
        collection: Collection,
        /// The resourceVersion it has reached.
        resource_version: Arc<str>,
    },
    /// The watch is open again after one or more failures.
    Watching {
        /// The collection.
        collection: Collection,
    },
    /// A list or watch failed. The informer retries it, and the collection counts as failing until a watch is open.
    Failing {
        /// The collection.
        collection: Collection,
        /// The reason, in one line.
        why: String,
        /// Whether the API server denied access or has no such kind: 403 or 404.
        denied: bool,
    },
    /// The result of resolving a DNS name.
    Resolved {
        /// The name, in lower case without a trailing dot.
        name: Arc<str>,
        /// Its addresses.
        addresses: Result<Box<[IpAddr]>, String>,
    },
    /// The keys of an issuer have changed, or they can no longer be fetched.
    KeySet {
        /// Where they come from.
        source: KeySource,
        /// The keys, or why they could not be fetched.
        fetched: Result<Arc<KeySet>, Arc<str>>,
    },
    /// The sockets at which the API server is reached, or was before.
    ApiServer {
        /// All of them.
        sockets: Arc<BTreeSet<SocketAddr>>,
    },
    /// The sockets of the model that the data plane cannot open. It tries again by itself.
    BindFailures {
        /// All of them.
        sockets: BindFailures,
    },
}

/// The sockets that cannot be opened, with the errors.
pub type BindFailures = Arc<BTreeMap<BindKey, Arc<str>>>;
