//! Cached kinds: as the operator names them, and as the API server serves them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A kind that is cached and served, as named by the operator.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CachedKind {
    /// The plural in lower case, such as `pods`.
    pub plural: Arc<str>,
    /// The API group, empty for the core group.
    pub group: Arc<str>,
    /// The version, such as `v1`; `None` for the one that the API server prefers.
    pub version: Option<Arc<str>>,
    /// The label selector of its objects.
    pub label_selector: Option<Arc<str>>,
    /// The field selector of its objects.
    pub field_selector: Option<Arc<str>>,
}

/// The resource as served by the API server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServedKind {
    /// The API group, empty for the core group.
    pub group: String,
    /// The version that is used.
    pub version: String,
    /// The plural, as in paths.
    pub plural: String,
    /// The kind, as in objects.
    pub kind: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Its short names, such as `po`.
    pub short: Vec<String>,
}

impl CachedKind {
    /// Without selectors.
    #[must_use]
    pub fn new(plural: &str, group: &str, version: Option<&str>) -> Self {
        let version = version.map(Arc::from);
        Self { plural: plural.into(), group: group.into(), version, label_selector: None, field_selector: None }
    }

    /// The name in the form of kubectl, `pods` or `deployments.apps`.
    pub(crate) fn resource_name(&self) -> String {
        qualified(&self.plural, &self.group)
    }

    /// Returns `true` for Secrets, which are stored on disk only encrypted.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        (&*self.plural, &*self.group) == ("secrets", "")
    }

    /// The name of its partition on disk. Another selection is another partition.
    pub(crate) fn partition(&self) -> Arc<str> {
        let of = |selector: &Option<Arc<str>>| selector.as_deref().unwrap_or("all").to_owned();
        format!("cached {self}: {}; {}", of(&self.label_selector), of(&self.field_selector)).into()
    }
}

/// In the form of the operator's option: `pods`, `deployments.apps`, `certificates.cert-manager.io/v1`.
impl fmt::Display for CachedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource_name())?;
        self.version.as_ref().map_or(Ok(()), |version| write!(f, "/{version}"))
    }
}

impl ServedKind {
    /// The name in the form of kubectl, `pods` or `deployments.apps`. Other kinds of the cluster may have the same
    /// `kind`; this name is unique.
    #[must_use]
    pub fn resource_name(&self) -> String {
        qualified(&self.plural, &self.group)
    }
}

fn qualified(plural: &str, group: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_prints_in_the_form_of_its_option() {
        let text = |plural, group, version| CachedKind::new(plural, group, version).to_string();
        assert_eq!(text("pods", "", None), "pods");
        assert_eq!(text("deployments", "apps", None), "deployments.apps");
        assert_eq!(text("certificates", "cert-manager.io", Some("v1")), "certificates.cert-manager.io/v1");
    }

    #[test]
    fn another_selection_is_another_collection() {
        let all = CachedKind::new("pods", "", None);
        let some = CachedKind { field_selector: Some("spec.nodeName=one".into()), ..all.clone() };
        assert_ne!(all.partition(), some.partition());
        assert!(CachedKind::new("secrets", "", None).is_secret() && !CachedKind::new("secrets", "x", None).is_secret());
    }
}
