//! Names of cluster objects: the kinds that Tidegate reads, and references to objects.

mod kind;
mod uid;

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

pub(crate) use kind::kinds;
pub use kind::{Kind, Layer};
use serde::Serialize;
pub use uid::Uid;

/// Namespace and name of an object; the namespace is empty for cluster-scoped kinds.
///
/// The order is that of the namespace, then the name: the last criterion of every precedence rule. Names are the keys
/// of many maps, so a name is one pointer, and its clones share the contents.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectName(Arc<NameParts>);

impl PartialOrd for ObjectName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Clones are compared by their pointers, and so are the namespaces that names share.
impl Ord for ObjectName {
    fn cmp(&self, other: &Self) -> Ordering {
        let (one, other) = (&self.0, &other.0);
        if Arc::ptr_eq(one, other) {
            return Ordering::Equal;
        }
        if !Arc::ptr_eq(&one.namespace, &other.namespace) {
            let order = one.namespace.cmp(&other.namespace);
            if order.is_ne() {
                return order;
            }
        }
        one.name.cmp(&other.name)
    }
}

/// The contents of an [`ObjectName`].
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NameParts {
    /// The namespace, or the empty string.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectName {
    /// The name of an object in a namespace.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(NameParts { namespace: namespace.into(), name: name.into() }))
    }

    /// The name of an object in the same namespace.
    #[must_use]
    pub fn beside(&self, name: impl Into<Arc<str>>) -> Self {
        Self::new(Arc::clone(&self.namespace), name)
    }
}

/// An empty name, which no object has and which is less than all others.
impl Default for ObjectName {
    fn default() -> Self {
        static NOBODY: LazyLock<ObjectName> = LazyLock::new(|| ObjectName::new("", ""));
        NOBODY.clone()
    }
}

impl Deref for ObjectName {
    type Target = NameParts;

    fn deref(&self) -> &NameParts {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            f.write_str(&self.namespace)?;
            f.write_str("/")?;
        }
        f.write_str(&self.name)
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ObjectName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One object of the cluster: its kind, namespace and name. Printed as `Ingress shop/web`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// The kind.
    pub kind: Kind,
    /// Namespace and name.
    pub name: ObjectName,
}

impl ObjectRef {
    /// A reference to an object.
    #[must_use]
    pub const fn new(kind: Kind, name: ObjectName) -> Self {
        Self { kind, name }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str())?;
        f.write_str(" ")?;
        fmt::Display::fmt(&self.name, f)
    }
}

impl fmt::Debug for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ObjectRef {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The age of an object: the older wins a conflict, and of two equally old ones the one whose `namespace/name` sorts
/// first. The derived order is that rule: the winner is the lesser.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Age {
    /// `metadata.creationTimestamp` in seconds since the Unix epoch.
    pub created_s: i64,
    /// Namespace and name of the object.
    pub name: ObjectName,
}
