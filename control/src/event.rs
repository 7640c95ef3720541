//! What happened outside, in the order in which it is told to the control loop. A closed list: the loop answers
//! every variant in one place.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::Projected;

/// What a watch covers: a kind, in one namespace or in all of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Source {
    /// The kind.
    pub kind: Kind,
    /// The namespace; `None` for all of them and for cluster-scoped kinds.
    pub namespace: Option<Arc<str>>,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} in {namespace}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

/// Something that happened outside.
#[derive(Debug)]
pub enum Event {
    /// A watch told of a new or changed object.
    Applied {
        /// The object.
        projected: Box<Projected>,
        /// When its bytes arrived.
        received: Instant,
    },
    /// A watch told that an object is gone.
    Deleted {
        /// The object.
        object: ObjectRef,
        /// The resourceVersion of the deletion.
        resource_version: Arc<str>,
        /// When the bytes arrived.
        received: Instant,
    },
    /// A list came in to its last page. When it is complete, what the source covers and the list does not name is gone.
    /// What a watch told while the list was made is told here too, in the place of what was listed. A failed or half list is
    /// never an event.
    Listed {
        /// What was listed.
        source: Source,
        /// Every object of it that says which one it is.
        objects: Vec<Projected>,
        /// Whether these are all. An item that does not say which object it is may be any, so nothing counts as gone then.
        complete: bool,
        /// The resourceVersion of the list.
        resource_version: Arc<str>,
        /// When the last page arrived.
        received: Instant,
    },
    /// A watch goes on from the resourceVersion of what was restored, and has told of whatever happened since.
    Resumed {
        /// The source.
        source: Source,
        /// The resourceVersion it has reached.
        resource_version: Arc<str>,
        /// When that was known.
        received: Instant,
    },
    /// The cluster does not have the kind: nothing of what the source covers is there. For kinds that it may lack.
    Unserved {
        /// The source.
        source: Source,
        /// When that was heard.
        received: Instant,
    },
    /// The definition of a kind says of which release of its API it is, or is gone. For kinds of the Gateway API.
    Defined {
        /// The kind.
        kind: Kind,
        /// The release (`gateway.networking.k8s.io/bundle-version`); empty where the definition says none, `None` without a definition.
        release: Option<Arc<str>>,
        /// When that was heard.
        received: Instant,
    },
    /// A watch told that it has nothing older than this left to tell.
    Bookmark {
        /// The source.
        source: Source,
        /// The resourceVersion it has reached.
        resource_version: Arc<str>,
    },
    /// A watch is open that follows one or more failures.
    Watching {
        /// The source.
        source: Source,
    },
    /// A list or watch failed; it is tried again by itself, and fails until a watch is open.
    Failing {
        /// The source.
        source: Source,
        /// Why, in one line.
        why: String,
        /// Whether the API server answered that we may not read it, or that there is nothing of the kind: 403 or 404.
        denied: bool,
    },
    /// A DNS name that was asked for has these addresses now, or none for this reason.
    Resolved {
        /// The name, in lower case without a trailing dot.
        name: Arc<str>,
        /// Its addresses.
        addresses: Result<Box<[IpAddr]>, String>,
    },
    /// The API server is reached, or has been, at these sockets and no others.
    ApiServer {
        /// All of them.
        sockets: Arc<BTreeSet<SocketAddr>>,
    },
}
