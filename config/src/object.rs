//! Names of cluster objects: which kinds Tidegate reads, and how one object is pointed at.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

/// A kind of cluster object that Tidegate reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// `networking.k8s.io/v1` Ingress.
    Ingress,
    /// `networking.k8s.io/v1` IngressClass (cluster scoped).
    IngressClass,
    /// `v1` Service.
    Service,
    /// `discovery.k8s.io/v1` EndpointSlice.
    EndpointSlice,
    /// `v1` Secret.
    Secret,
}

impl Kind {
    /// Every kind, in the order in which watches are started.
    pub const ALL: [Self; 5] = [Self::IngressClass, Self::Ingress, Self::Service, Self::EndpointSlice, Self::Secret];

    /// The kind that is least in order.
    pub const FIRST: Self = Self::Ingress;

    /// The kind as manifests write it, for example `EndpointSlice`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ingress => "Ingress",
            Self::IngressClass => "IngressClass",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Secret => "Secret",
        }
    }

    /// The API group, empty for the core group.
    #[must_use]
    pub const fn group(self) -> &'static str {
        match self {
            Self::Ingress | Self::IngressClass => "networking.k8s.io",
            Self::EndpointSlice => "discovery.k8s.io",
            Self::Service | Self::Secret => "",
        }
    }

    /// The plural of API paths, for example `endpointslices`.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Ingress => "ingresses",
            Self::IngressClass => "ingressclasses",
            Self::Service => "services",
            Self::EndpointSlice => "endpointslices",
            Self::Secret => "secrets",
        }
    }

    /// Whether objects of this kind live in a namespace.
    #[must_use]
    pub const fn namespaced(self) -> bool {
        !matches!(self, Self::IngressClass)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Namespace and name of an object; the namespace is empty for cluster-scoped kinds.
///
/// The order is that of the namespace, then the name: the last word of every precedence rule. Maps are full of names, so
/// a name is one pointer, and its clones share what it says.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(Arc<NameParts>);

/// What an [`ObjectName`] says.
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

/// The name that no object has, which stands before all others.
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
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
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
    /// Points at an object.
    #[must_use]
    pub const fn new(kind: Kind, name: ObjectName) -> Self {
        Self { kind, name }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
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

/// How old an object is: the older wins a conflict, and of two equally old the one whose
/// `namespace/name` sorts first. The derived order is that rule: the winner is the lesser.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Age {
    /// `metadata.creationTimestamp` in seconds since the Unix epoch.
    pub created_s: i64,
    /// Namespace and name of the object.
    pub name: ObjectName,
}
