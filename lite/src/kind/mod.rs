//! The kinds this server knows. The built-in ones are rows of a static table; each served version of a
//! CustomResourceDefinition adds one more while it is established.

mod watch_cache;
mod set;
mod table;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

pub(crate) use self::set::{Kinds, Precedence, StoreIndex};
pub(crate) use self::table::{Describe, describe};
pub use self::watch_cache::{ExpectedKind, WatchCacheKind};
use crate::custom::Custom;

/// One kind in one version.
#[derive(Debug)]
pub(crate) struct Kind {
    /// API group, empty for the core one.
    pub(crate) group: String,
    pub(crate) version: String,
    /// The name in paths, for example `ingresses`.
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) scope: Scope,
    pub(crate) subresources: Vec<Subresource>,
    /// Whether `metadata.generation` is kept for this kind.
    pub(crate) generation: bool,
    /// Field selectors besides `metadata.name` and `metadata.namespace`.
    pub(crate) fields: Vec<String>,
    /// How long an object is kept that is not written any more; `None` for ever.
    pub(crate) kept: Option<Duration>,
    /// Whether an object is a question to the server: it is answered and not kept.
    pub(crate) question: bool,
    /// The warning of each answer, for a deprecated kind.
    pub(crate) deprecation: Option<String>,
    pub(crate) form: Form,
    pub(crate) writes: Writes,
    /// Where the store has the objects. All versions of a kind share one place.
    pub(crate) place: StoreIndex,
}

/// The shape of a kind's objects.
#[derive(Debug)]
pub(crate) enum Form {
    /// As the table of fields says, under this name.
    BuiltIn(&'static str),
    /// As a version of a CustomResourceDefinition says.
    Custom(Custom),
}

/// Where the objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Cluster,
    Namespaced,
}

/// The effect of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    Made,
    /// Objects can be read and not be written.
    Refused,
    /// The server that feeds this one makes them.
    Forwarded,
}

/// A part of an object with a path of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subresource {
    Status,
    Scale,
    /// The finalizers in the `spec` of a Namespace, which no other path changes.
    Finalize,
    /// The output of a Pod's containers. It is read and never written through the API.
    Log,
}

impl Subresource {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Finalize => "finalize",
            Self::Log => "log",
        }
    }

    /// Its verbs, as discovery lists them.
    pub(crate) fn verbs(self) -> &'static [&'static str] {
        match self {
            Self::Status | Self::Scale => &["get", "patch", "update"],
            Self::Finalize => &["update"],
            Self::Log => &["get"],
        }
    }
}

/// The verbs of a kind whose objects are stored, as discovery lists them.
const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The same of a custom kind, in the order in which the real server lists it.
const CUSTOM_VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// The verbs of a read-only kind.
const READ_VERBS: &[&str] = &["get", "list", "watch"];

static BUILT_IN: LazyLock<Vec<KindId>> = LazyLock::new(|| {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    let kind = |(nth, row): (usize, &table::Row)| {
        KindId(Arc::new(Kind {
            group: row.group.to_owned(),
            version: row.version.to_owned(),
            plural: row.plural.to_owned(),
            singular: row.kind.to_lowercase(),
            kind: row.kind.to_owned(),
            list_kind: format!("{}List", row.kind),
            short: texts(row.short),
            categories: texts(row.categories),
            scope: row.scope,
            subresources: row.subresources.to_vec(),
            generation: row.generation,
            fields: texts(row.fields),
            kept: row.kept,
            question: row.question,
            deprecation: row.deprecation.map(str::to_owned),
            form: Form::BuiltIn(row.kind),
            writes: Writes::Made,
            place: StoreIndex::built_in(nth),
        }))
    };
    table::ROWS.iter().enumerate().map(kind).collect()
});

/// A kind as a request found it: the definition that it begins with is the one that it ends with.
#[derive(Clone)]
pub(crate) struct KindId(Arc<Kind>);

impl KindId {
    pub(crate) fn new(kind: Kind) -> Self {
        Self(Arc::new(kind))
    }

    /// The built-in kind of this name, the first of its name in the table.
    pub(crate) fn built_in(kind: &str) -> Option<Self> {
        BUILT_IN.iter().find(|one| one.0.kind == kind).cloned()
    }

    pub(crate) fn description(&self) -> &Kind {
        &self.0
    }

    pub(crate) fn place(&self) -> StoreIndex {
        self.0.place
    }
}

/// Kinds are the same if their objects are.
impl PartialEq for KindId {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for KindId {}

impl fmt::Debug for KindId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.0.api_version(), self.0.plural)
    }
}

impl Kind {
    /// `v1`, or `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    /// `services`, or `deployments.apps`: how messages name a resource.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The verbs of this kind.
    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        match self.form {
            _ if self.writes == Writes::Refused => READ_VERBS,
            Form::BuiltIn(_) if self.question => &["create"],
            Form::BuiltIn(_) => VERBS,
            Form::Custom(_) => CUSTOM_VERBS,
        }
    }

    pub(crate) fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    pub(crate) fn has(&self, subresource: Subresource) -> bool {
        self.subresources.contains(&subresource)
    }

    /// The name of a built-in kind; `None` for a custom one, whatever it is called.
    pub(crate) fn built_in(&self) -> Option<&'static str> {
        match self.form {
            Form::BuiltIn(name) => Some(name),
            Form::Custom(_) => None,
        }
    }

    /// The facts in the definition of a custom kind.
    pub(crate) fn custom(&self) -> Option<&Custom> {
        match &self.form {
            Form::BuiltIn(_) => None,
            Form::Custom(custom) => Some(custom),
        }
    }
}

/// `v1` for the core group, `group/version` for the others.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
