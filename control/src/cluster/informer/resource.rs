//! The resources of kinds in the API server.

use std::sync::Arc;

use tidegate_config::object::Kind;

/// A resource, as in the paths `/apis/GROUP/VERSION/PLURAL`, and `/api/VERSION/PLURAL` for the core group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resource {
    /// The API group, empty for the core group.
    pub group: Arc<str>,
    /// The version, such as `v1`.
    pub version: Arc<str>,
    /// The plural of the kind in lower case, such as `services`.
    pub plural: Arc<str>,
}

impl Resource {
    /// The resource of a kind, in the version that is preferred.
    #[must_use]
    pub fn of(kind: Kind) -> Self {
        Self::new(kind.group(), kind.version(), kind.plural())
    }

    /// The resource of CustomResourceDefinitions.
    pub(super) fn of_definitions() -> Self {
        Self::new("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    }

    pub(super) fn new(group: &str, version: &str, plural: &str) -> Self {
        Self { group: group.into(), version: version.into(), plural: plural.into() }
    }

    /// The name of its CustomResourceDefinition, if it is a custom resource.
    pub(super) fn definition(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// The path of the collection, in a namespace or in all of them.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let Self { group, version, plural } = self;
        let version = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match namespace {
            Some(namespace) => format!("{version}/namespaces/{namespace}/{plural}"),
            None => format!("{version}/{plural}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: Kind, namespace: Option<&str>, expected: &str) {
        assert_eq!(Resource::of(kind).path(namespace), expected);
    }

    #[test]
    fn paths_of_collections() {
        check(Kind::Secret, None, "/api/v1/secrets");
        check(Kind::Service, Some("shop"), "/api/v1/namespaces/shop/services");
        check(Kind::Ingress, Some("shop"), "/apis/networking.k8s.io/v1/namespaces/shop/ingresses");
        check(Kind::IngressClass, None, "/apis/networking.k8s.io/v1/ingressclasses");
        check(Kind::EndpointSlice, None, "/apis/discovery.k8s.io/v1/endpointslices");
    }
}
