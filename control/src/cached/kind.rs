//! Which kinds are cached: as the operator names them, and as the API server has them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::informer::Resource;

/// A kind that is cached and served, as the operator names it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CachedKind {
    /// The plural in lower case, such as `pods`.
    pub plural: Arc<str>,
    /// The API group, empty for the core group.
    pub group: Arc<str>,
    /// The version, such as `v1`; without one, the one that the API server prefers.
    pub version: Option<Arc<str>>,
    /// Which of its objects, by label.
    pub label_selector: Option<Arc<str>>,
    /// Which of its objects, by field.
    pub field_selector: Option<Arc<str>>,
}

/// The same as the API server has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServedKind {
    /// The API group, empty for the core group.
    pub group: String,
    /// The version that is read.
    pub version: String,
    /// The name in paths.
    pub plural: String,
    /// The name in objects.
    pub kind: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// What else clients call it, such as `po`.
    pub short: Vec<String>,
}

impl CachedKind {
    /// Without selectors.
    #[must_use]
    pub fn new(plural: &str, group: &str, version: Option<&str>) -> Self {
        let version = version.map(Arc::from);
        Self { plural: plural.into(), group: group.into(), version, label_selector: None, field_selector: None }
    }

    /// The name as kubectl writes resources, `pods` or `deployments.apps`.
    pub(crate) fn resource_name(&self) -> String {
        qualified(&self.plural, &self.group)
    }

    /// Whether its objects are Secrets, which are kept on disk only encrypted.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        (&*self.plural, &*self.group) == ("secrets", "")
    }

    /// The name of its collection on disk: what was kept of another selection is another collection.
    pub(crate) fn collection(&self) -> Arc<str> {
        let of = |selector: &Option<Arc<str>>| selector.as_deref().unwrap_or("all").to_owned();
        format!("cached {self}: {}; {}", of(&self.label_selector), of(&self.field_selector)).into()
    }
}

/// As the operator writes it: `pods`, `deployments.apps`, `certificates.cert-manager.io/v1`.
impl fmt::Display for CachedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource_name())?;
        self.version.as_ref().map_or(Ok(()), |version| write!(f, "/{version}"))
    }
}

impl ServedKind {
    /// The name as kubectl writes resources, `pods` or `deployments.apps`. Other kinds of the cluster may share `kind`; none shares this.
    #[must_use]
    pub fn resource_name(&self) -> String {
        qualified(&self.plural, &self.group)
    }

    pub(crate) fn resource(&self) -> Resource {
        Resource::new(&self.group, &self.version, &self.plural)
    }
}

fn qualified(plural: &str, group: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_written_as_it_is_named() {
        let text = |plural, group, version| CachedKind::new(plural, group, version).to_string();
        assert_eq!(text("pods", "", None), "pods");
        assert_eq!(text("deployments", "apps", None), "deployments.apps");
        assert_eq!(text("certificates", "cert-manager.io", Some("v1")), "certificates.cert-manager.io/v1");
    }

    #[test]
    fn another_selection_is_another_collection() {
        let all = CachedKind::new("pods", "", None);
        let some = CachedKind { field_selector: Some("spec.nodeName=one".into()), ..all.clone() };
        assert_ne!(all.collection(), some.collection());
        assert!(CachedKind::new("secrets", "", None).is_secret() && !CachedKind::new("secrets", "x", None).is_secret());
    }
}
