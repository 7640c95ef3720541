//! The kinds of a watch cache: any that another server has. Those that are built in keep their columns and field
//! selectors.

use super::{BUILT_IN, Form, Kind, KindId, Scope, StoreIndex, Writes};

/// A kind that is read from another server and served again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchCacheKind {
    /// API group, empty for the core one.
    pub group: String,
    /// The version that is read, such as `v1`.
    pub version: String,
    /// The name in paths, such as `ingresses`.
    pub plural: String,
    /// The name in objects, such as `Ingress`.
    pub kind: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether writes of its objects are forwarded.
    pub forwards_writes: bool,
    /// Its other names for clients, where they are not known here.
    pub short: Vec<String>,
}

/// A kind that a watch cache is to serve, and of which it does not know yet whether the other server has it, and in
/// which form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedKind {
    /// API group, empty for the core one.
    pub group: String,
    /// The version; `None` for any.
    pub version: Option<String>,
    /// The name in paths, such as `ingresses`.
    pub plural: String,
}

impl ExpectedKind {
    /// Returns `true` if it may be served in this group and version.
    pub(crate) fn may_be_in(&self, group: &str, version: &str) -> bool {
        self.group == group && self.version.as_ref().is_none_or(|own| own == version)
    }
}

impl WatchCacheKind {
    /// The kind with its objects at a place.
    pub(crate) fn at(&self, place: StoreIndex) -> KindId {
        KindId::new(self.described(place))
    }

    fn described(&self, place: StoreIndex) -> Kind {
        let known = BUILT_IN.iter().map(|kind| kind.description()).find(|description| {
            description.group == self.group
                && description.version == self.version
                && description.plural == self.plural
                && description.kind == self.kind
        });
        let texts =
            |of: fn(&Kind) -> &Vec<String>| known.map(|description| of(description).clone()).unwrap_or_default();
        Kind {
            group: self.group.clone(),
            version: self.version.clone(),
            plural: self.plural.clone(),
            singular: self.kind.to_lowercase(),
            kind: self.kind.clone(),
            list_kind: format!("{}List", self.kind),
            short: Some(texts(|description| &description.short))
                .filter(|known| !known.is_empty())
                .unwrap_or_else(|| self.short.clone()),
            categories: texts(|description| &description.categories),
            scope: if self.namespaced { Scope::Namespaced } else { Scope::Cluster },
            subresources: Vec::new(),
            generation: false,
            fields: texts(|description| &description.fields),
            // The other server drops old entries.
            kept: None,
            form: Form::BuiltIn(known.and_then(Kind::built_in).unwrap_or_default()),
            question: false,
            deprecation: known.and_then(|description| description.deprecation.clone()),
            writes: if self.forwards_writes { Writes::Forwarded } else { Writes::Refused },
            place,
        }
    }
}
