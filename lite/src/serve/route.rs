//! The resource of a path.

use super::path;
use crate::kind::{KindId, Kinds, Subresource};
use crate::store::Key;
use crate::write::Target;

/// A path of this server.
#[derive(Debug)]
pub(super) enum Route {
    Document(Document),
    /// All objects of a kind, or of one namespace of it.
    Collection {
        kind: KindId,
        namespace: Option<String>,
    },
    Object(Target),
}

/// A path of a document about the server itself.
#[derive(Debug)]
pub(super) enum Document {
    Version,
    Health,
    /// `/api` and `/apis`: the groups, or everything at once.
    CoreVersions,
    Groups,
    /// One group, or one version of it.
    Group(String),
    Resources {
        group: String,
        version: String,
    },
    OpenApiV2,
    OpenApiIndex,
    OpenApi {
        group: String,
        version: String,
    },
}

impl Route {
    /// Reads a path, which may be percent-encoded. Returns `None` if there is no resource.
    pub(super) fn parse(path: &str, kinds: &Kinds) -> Option<Self> {
        let segments = segments(path)?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let own = str::to_owned;
        Some(Self::Document(match segments.as_slice() {
            ["version"] => Document::Version,
            ["healthz" | "livez" | "readyz"] => Document::Health,
            ["api"] => Document::CoreVersions,
            ["apis"] => Document::Groups,
            ["openapi", "v2"] => Document::OpenApiV2,
            ["openapi", "v3"] => Document::OpenApiIndex,
            ["openapi", "v3", "api", version] => Document::OpenApi { group: String::new(), version: own(version) },
            ["openapi", "v3", "apis", group, version] => Document::OpenApi { group: own(group), version: own(version) },
            ["api", version] => Document::Resources { group: String::new(), version: own(version) },
            ["apis", group] => Document::Group(own(group)),
            ["apis", group, version] => Document::Resources { group: own(group), version: own(version) },
            ["api", version, rest @ ..] => return resource(kinds, ("", version), rest),
            ["apis", group, version, rest @ ..] => return resource(kinds, (group, version), rest),
            _ => return None,
        }))
    }
}

impl Route {
    /// The kind of a path.
    pub(super) fn kind(&self) -> Option<&KindId> {
        match self {
            Self::Document(_) => None,
            Self::Collection { kind, .. } => Some(kind),
            Self::Object(target) => Some(&target.kind),
        }
    }
}

/// Returns `true` if a path leads into a container of a Pod, as those of `kubectl exec` do.
pub(super) fn needs_containers(path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').collect();
    let ["", "api", "v1", "namespaces", _, "pods", _, part, ..] = segments.as_slice() else { return false };
    matches!(*part, "attach" | "exec" | "portforward" | "proxy" | "ephemeralcontainers")
}

/// The decoded segments of a path.
pub(super) fn segments(path: &str) -> Option<Vec<String>> {
    let path = path::decoded(path)?;
    let path = path.strip_prefix('/')?;
    Some(path.strip_suffix('/').unwrap_or(path).split('/').map(str::to_owned).collect())
}

fn resource(kinds: &Kinds, (group, version): (&str, &str), rest: &[&str]) -> Option<Route> {
    let find = |plural: &str| kinds.find(group, version, plural);
    let object = |kind: KindId, namespace: &str, name: &str, subresource: Option<&str>| {
        let subresource = match subresource {
            None => None,
            Some(part) => Some(kind.description().subresources.iter().copied().find(|known| known.name() == part)?),
        };
        let key = Key { namespace: namespace.to_owned(), name: name.to_owned() };
        (!name.is_empty() && placed(&kind, namespace)).then_some(Route::Object(Target { kind, key, subresource }))
    };
    match rest {
        // `/namespaces/x/status` is a part of a Namespace; any other third segment is a kind within it.
        ["namespaces", name, part] if is_part(part) && group.is_empty() => {
            object(find("namespaces")?, "", name, Some(part))
        }
        ["namespaces", namespace, plural, rest @ ..] => {
            let kind = find(plural).filter(|kind| kind.description().namespaced() && !namespace.is_empty())?;
            match rest {
                [] => Some(Route::Collection { kind, namespace: Some((*namespace).to_owned()) }),
                [name] => object(kind, namespace, name, None),
                [name, part] => object(kind, namespace, name, Some(part)),
                _ => None,
            }
        }
        [plural] => Some(Route::Collection { kind: find(plural)?, namespace: None }),
        [plural, name] => object(find(plural)?, "", name, None),
        [plural, name, part] => object(find(plural)?, "", name, Some(part)),
        _ => None,
    }
}

fn is_part(segment: &str) -> bool {
    [Subresource::Status, Subresource::Scale, Subresource::Finalize].iter().any(|part| part.name() == segment)
}

/// A namespaced object has a namespace in its path, any other has none.
fn placed(kind: &KindId, namespace: &str) -> bool {
    kind.description().namespaced() != namespace.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Option<&str>) {
        let found = Route::parse(path, &Kinds::built_in()).map(|route| match route {
            Route::Collection { kind, namespace } => {
                format!("{} in {}", kind.description().plural, namespace.unwrap_or_else(|| "all".into()))
            }
            Route::Object(Target { kind, key, subresource }) => {
                format!("{} {}/{} {:?}", kind.description().plural, key.namespace, key.name, subresource)
            }
            Route::Document(document) => format!("{document:?}"),
        });
        assert_eq!(found.as_deref(), expected, "{path}");
    }

    #[test]
    fn paths_lead_to_objects() {
        check("/api/v1/services", Some("services in all"));
        check("/api/v1/namespaces/a/services", Some("services in a"));
        check("/api/v1/namespaces/a/services/b", Some("services a/b None"));
        check("/api/v1/namespaces/a/services/b/status", Some("services a/b Some(Status)"));
        check("/api/v1/namespaces", Some("namespaces in all"));
        check("/api/v1/namespaces/a", Some("namespaces /a None"));
        check("/api/v1/namespaces/a/status", Some("namespaces /a Some(Status)"));
        check("/apis/apps/v1/namespaces/a/deployments/b/scale", Some("deployments a/b Some(Scale)"));
        check("/apis/networking.k8s.io/v1/ingressclasses/b", Some("ingressclasses /b None"));
        check("/apis/networking.k8s.io/v1/ingresses/", Some("ingresses in all"));
        check("/apis/apps/v1", Some("Resources { group: \"apps\", version: \"v1\" }"));
        check("/livez", Some("Health"));
    }

    #[test]
    fn other_paths_lead_nowhere() {
        for path in [
            "",
            "/",
            "/apis/apps/v1/services",
            "/api/v1/namespaces/a/ingresses",
            "/api/v1/services/b",
            "/api/v1/namespaces/a/services/b/scale",
            "/api/v1/namespaces/a/services/b/status/c",
            "/api/v1/namespaces/a/namespaces/b",
            "/apis/networking.k8s.io/v1/namespaces/a/ingressclasses",
            "/api/v1/podtemplates",
            "/metrics",
        ] {
            check(path, None);
        }
    }
}
