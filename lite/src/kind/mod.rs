//! The kinds this server knows, as data: one row a kind. What is particular to a kind beyond a row is in `rules`.

pub(crate) mod schema;
mod schema_table;

use std::time::Duration;

/// One row of the table of kinds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// API group, empty for the core one.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    /// The name in paths, for example `ingresses`.
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) short: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) scope: Scope,
    pub(crate) subresources: &'static [Subresource],
    /// Whether `metadata.generation` is kept for this kind.
    pub(crate) generation: bool,
    /// Field selectors besides `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [&'static str],
    /// How long an object is kept that is not written any more; `None` for ever.
    pub(crate) kept: Option<Duration>,
}

/// Where the objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Cluster,
    Namespaced,
}

/// A part of an object with a path of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subresource {
    Status,
    Scale,
}

impl Subresource {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
        }
    }
}

/// What every kind can be asked to do, as discovery lists it.
pub(crate) const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// What every subresource can be asked to do.
pub(crate) const SUBRESOURCE_VERBS: &[&str] = &["get", "patch", "update"];

const BASE: Kind = Kind {
    group: "",
    version: "v1",
    plural: "",
    singular: "",
    kind: "",
    short: &[],
    categories: &[],
    scope: Scope::Namespaced,
    subresources: &[],
    generation: false,
    fields: &[],
    kept: None,
};

/// Kept for as long as by the real server (`--event-ttl`).
const EVENT: Kind = Kind {
    plural: "events",
    singular: "event",
    kind: "Event",
    short: &["ev"],
    fields: &[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ],
    kept: Some(Duration::from_secs(3600)),
    ..BASE
};

/// Every kind served. The order is that of discovery; groups stay together.
pub(crate) static KINDS: &[Kind] = &[
    Kind {
        plural: "namespaces",
        singular: "namespace",
        kind: "Namespace",
        short: &["ns"],
        scope: Scope::Cluster,
        subresources: &[Subresource::Status],
        fields: &["status.phase"],
        ..BASE
    },
    Kind {
        plural: "services",
        singular: "service",
        kind: "Service",
        short: &["svc"],
        categories: &["all"],
        subresources: &[Subresource::Status],
        fields: &["spec.clusterIP", "spec.type"],
        ..BASE
    },
    Kind { plural: "secrets", singular: "secret", kind: "Secret", fields: &["type"], ..BASE },
    Kind { plural: "configmaps", singular: "configmap", kind: "ConfigMap", short: &["cm"], ..BASE },
    EVENT,
    Kind {
        group: "apps",
        plural: "deployments",
        singular: "deployment",
        kind: "Deployment",
        short: &["deploy"],
        categories: &["all"],
        subresources: &[Subresource::Status, Subresource::Scale],
        generation: true,
        ..BASE
    },
    Kind {
        group: "networking.k8s.io",
        plural: "ingresses",
        singular: "ingress",
        kind: "Ingress",
        short: &["ing"],
        subresources: &[Subresource::Status],
        generation: true,
        ..BASE
    },
    Kind {
        group: "networking.k8s.io",
        plural: "ingressclasses",
        singular: "ingressclass",
        kind: "IngressClass",
        scope: Scope::Cluster,
        generation: true,
        ..BASE
    },
    Kind {
        group: "discovery.k8s.io",
        plural: "endpointslices",
        singular: "endpointslice",
        kind: "EndpointSlice",
        generation: true,
        ..BASE
    },
    Kind { group: "coordination.k8s.io", plural: "leases", singular: "lease", kind: "Lease", ..BASE },
    // Another name for the Events above (`serve/events.rs`): nothing is ever kept under this one.
    Kind { group: "events.k8s.io", ..EVENT },
];

/// A position in [`KINDS`]; objects of a kind are kept under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KindId(pub(crate) usize);

impl KindId {
    /// The kind with this plural name, if it is served.
    pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<Self> {
        KINDS.iter().position(|kind| (kind.group, kind.version, kind.plural) == (group, version, plural)).map(Self)
    }

    /// Every kind with its id.
    pub(crate) fn all() -> impl Iterator<Item = (Self, &'static Kind)> {
        KINDS.iter().enumerate().map(|(nth, kind)| (Self(nth), kind))
    }

    pub(crate) fn row(self) -> &'static Kind {
        &KINDS[self.0]
    }
}

impl Kind {
    /// `v1`, or `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        group_version(self.group, self.version)
    }

    /// `services`, or `deployments.apps`: how messages name a resource.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `Service`, or `Ingress.networking.k8s.io`: how messages name a kind.
    pub(crate) fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    pub(crate) fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    pub(crate) fn has(&self, subresource: Subresource) -> bool {
        self.subresources.contains(&subresource)
    }
}

/// `v1` for the core group, `group/version` for the others.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The groups and versions served, each once, in the order of the table.
pub(crate) fn group_versions() -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    for kind in KINDS {
        if !found.contains(&(kind.group, kind.version)) {
            found.push((kind.group, kind.version));
        }
    }
    found
}
