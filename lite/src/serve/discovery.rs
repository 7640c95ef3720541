//! Discovery: the legacy documents, one per level, and the aggregated one with everything.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kind::{Kind, KindId, Kinds, Subresource, group_version};

/// The media type of the aggregated documents. Clients recognise a response as one only by these parameters.
pub(super) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Returns `true` if an Accept entry requests the aggregated form.
pub(super) fn is_aggregated(entry: &str) -> bool {
    let has = |wanted: &str| entry.split(';').any(|part| part.trim() == wanted);
    has("g=apidiscovery.k8s.io") && has("v=v2") && has("as=APIGroupDiscoveryList")
}

/// `/api` in the legacy form.
pub(super) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/apis` in the legacy form.
pub(super) fn groups(kinds: &Kinds) -> Value {
    let groups: Vec<Value> = by_group(kinds)
        .iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| describe_group(group, versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/{group}`.
pub(super) fn group(kinds: &Kinds, wanted: &str) -> Option<Value> {
    let groups = by_group(kinds);
    let (group, versions) = groups.iter().find(|(group, _)| !group.is_empty() && *group == wanted)?;
    let mut document = describe_group(group, versions);
    document["kind"] = "APIGroup".into();
    document["apiVersion"] = "v1".into();
    Some(document)
}

/// Every group with its versions, the preferred one first.
fn by_group(kinds: &Kinds) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut places = BTreeMap::new();
    for (group, version) in kinds.group_versions() {
        let place = *places.entry(group).or_insert(groups.len());
        match groups.get_mut(place) {
            Some((_, versions)) => versions.push(version),
            None => groups.push((group, vec![version])),
        }
    }
    groups
}

fn describe_group(group: &str, versions: &[&str]) -> Value {
    let describe = |version: &&str| json!({"groupVersion": group_version(group, version), "version": *version});
    let versions: Vec<Value> = versions.iter().map(describe).collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

/// `/api/v1` and `/apis/{group}/{version}`.
pub(super) fn resources(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in kinds.of(group, version).map(KindId::description) {
        resources.push(json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced(), "kind": kind.kind,
            "verbs": kind.verbs(), "shortNames": kind.short, "categories": kind.categories,
        }));
        for part in &kind.subresources {
            let (group, version, name) = part_kind(kind, *part);
            resources.push(json!({
                "name": format!("{}/{}", kind.plural, part.name()), "singularName": "", "namespaced": kind.namespaced(),
                "group": group, "version": version, "kind": name, "verbs": part.verbs(),
            }));
        }
    }
    let list = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version(group, version), "resources": resources,
    });
    (list["resources"] != json!([])).then_some(list)
}

/// The group, version and kind of the response at a subresource's path.
fn part_kind(kind: &Kind, part: Subresource) -> (&str, &str, &str) {
    match part {
        Subresource::Status | Subresource::Finalize | Subresource::Log => (&kind.group, &kind.version, &kind.kind),
        Subresource::Scale => ("autoscaling", "v1", "Scale"),
    }
}

/// `/api` and `/apis` in the aggregated form: the core group, or all others.
pub(super) fn aggregated(kinds: &Kinds, core: bool) -> Value {
    let describe = |group: &str, version: &&str| {
        let resources: Vec<Value> =
            kinds.of(group, version).map(|kind| describe_resource(kind.description())).collect();
        json!({"version": *version, "freshness": "Current", "resources": resources})
    };
    let items: Vec<Value> = by_group(kinds)
        .into_iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions.iter().map(|version| describe(group, version)).collect();
            json!({"metadata": {"name": group, "creationTimestamp": null}, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn describe_resource(kind: &Kind) -> Value {
    let response =
        |(group, version, kind): (&str, &str, &str)| json!({"group": group, "version": version, "kind": kind});
    let parts: Vec<Value> = kind
        .subresources
        .iter()
        .map(|part| {
            let kind = response(part_kind(kind, *part));
            json!({"subresource": part.name(), "responseKind": kind, "verbs": part.verbs()})
        })
        .collect();
    json!({
        "resource": kind.plural, "responseKind": response((&kind.group, &kind.version, &kind.kind)),
        "scope": if kind.namespaced() { "Namespaced" } else { "Cluster" }, "singularResource": kind.singular,
        "verbs": kind.verbs(), "shortNames": kind.short, "categories": kind.categories, "subresources": parts,
    })
}

/// `/version`.
pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0+tidegate", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none (rust)", "compiler": "rustc", "platform": "linux/amd64",
    })
}
