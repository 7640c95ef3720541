//! The resource of a name, according to the API server's discovery documents, which every user may read. Only an
//! existing document proves that a kind does not exist: a 404 may come from any proxy in between.

use serde::Deserialize;

use super::Limits;
use super::api::document;
use super::failure::Failure;
use crate::cluster::cached::{CachedKind, ServedKind};

/// All groups (`APIGroupList`).
#[derive(Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

/// The versions of a group, and the preferred one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    versions: Vec<GroupVersion>,
    #[serde(default)]
    preferred_version: Option<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

/// The resources of one version (`APIResourceList`).
#[derive(Deserialize)]
struct Resources {
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiResource {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Option<Vec<String>>,
}

/// Looks up a kind. `None` if the API server has no such kind, or none that can be listed and watched.
pub(super) async fn look_up(
    client: &kube::Client,
    limits: &Limits,
    wanted: &CachedKind,
) -> Result<Option<ServedKind>, Failure> {
    let group = &wanted.group;
    let (prefix, mut versions) = if group.is_empty() {
        ("/api".to_owned(), vec!["v1".to_owned()])
    } else {
        let all: Groups = parsed(&document(client, limits, "/apis").await?)?;
        let Some(found) = all.groups.into_iter().find(|one| *one.name == **group) else { return Ok(None) };
        (format!("/apis/{group}"), in_order(found))
    };
    versions.retain(|version| wanted.version.as_ref().is_none_or(|wanted| **wanted == **version));
    for version in versions {
        let list: Resources = parsed(&document(client, limits, &format!("{prefix}/{version}")).await?)?;
        let followed =
            |named: &ApiResource| ["list", "watch"].iter().all(|verb| named.verbs.iter().any(|has| has == verb));
        let found = list.resources.into_iter().find(|named| *named.name == *wanted.plural && followed(named));
        if let Some(ApiResource { name, kind, namespaced, short_names, .. }) = found {
            let (group, short) = (group.to_string(), short_names.unwrap_or_default());
            return Ok(Some(ServedKind { group, version, plural: name, kind, namespaced, short }));
        }
    }
    Ok(None)
}

/// The versions of a group, the preferred one first.
fn in_order(group: Group) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for GroupVersion { version } in group.preferred_version.into_iter().chain(group.versions) {
        if !names.contains(&version) {
            names.push(version);
        }
    }
    names
}

fn parsed<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|why| Failure::Unreadable {
        why: format!("no discovery document at line {}, column {}", why.line(), why.column()),
    })
}
