//! CustomResourceDefinition: whether a kind is served, and in which version.

use std::sync::Arc;

use serde::Deserialize;

use super::Presence;
use crate::cluster::informer::failure::Failure;

/// The part of a CustomResourceDefinition that determines whether a kind is served.
#[derive(Deserialize)]
pub(super) struct DefinitionObject {
    pub(super) metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    #[serde(default)]
    uid: String,
    pub(super) resource_version: String,
    #[serde(default)]
    annotations: Option<Annotations>,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "gateway.networking.k8s.io/bundle-version", default)]
    release: Option<Arc<str>>,
}

#[derive(Deserialize)]
struct Spec {
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    name: String,
    served: bool,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    what: String,
    status: String,
}

impl DefinitionObject {
    /// The release of the Gateway API in the annotation; empty without one.
    pub(super) fn release(&self) -> Arc<str> {
        self.metadata.annotations.as_ref().and_then(|them| them.release.clone()).unwrap_or_default()
    }

    /// Whether the kind is served in one of the supported versions. A definition counts once it is established, and
    /// remains so.
    pub(super) fn presence(&self, versions: &[Arc<str>], before: &Presence) -> Presence {
        let served = |wanted: &&Arc<str>| self.spec.versions.iter().any(|it| it.served && *it.name == ***wanted);
        let Some(version) = versions.iter().find(served) else { return Presence::Absent };
        let now = Presence::Served { version: Arc::clone(version), uid: self.metadata.uid.as_str().into() };
        let mut conditions = self.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let established = |condition: &Condition| condition.what == "Established" && condition.status == "True";
        let was = matches!(before, Presence::Served { uid, .. } if **uid == *self.metadata.uid);
        if was || conditions.any(established) { now } else { Presence::Absent }
    }
}

/// Parses a definition.
///
/// # Errors
/// Returns [`Failure::Unreadable`] if it is not one.
pub(super) fn read(object: &[u8]) -> Result<DefinitionObject, Failure> {
    serde_json::from_slice(object).map_err(|why| Failure::Unreadable {
        why: format!("not a CustomResourceDefinition at line {}, column {}", why.line(), why.column()),
    })
}
