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
