//! What is served, as clients ask for it: the old documents, one a level, and the new one with everything.

use serde_json::{Value, json};

use crate::kind::{KINDS, Kind, SUBRESOURCE_VERBS, Subresource, VERBS, group_version, group_versions};

/// Media type of the aggregated documents. Clients take an answer for one only if it carries these parameters.
pub(super) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Whether an Accept entry asks for the aggregated form.
pub(super) fn is_aggregated(entry: &str) -> bool {
    let has = |wanted: &str| entry.split(';').any(|part| part.trim() == wanted);
    has("g=apidiscovery.k8s.io") && has("v=v2") && has("as=APIGroupDiscoveryList")
}

/// `/api` in the old form.
pub(super) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/apis` in the old form.
pub(super) fn groups() -> Value {
    let groups: Vec<Value> = named_groups().map(|(group, version)| describe_group(group, version)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/{group}`.
pub(super) fn group(wanted: &str) -> Option<Value> {
    let (group, version) = named_groups().find(|(group, _)| *group == wanted)?;
    let mut document = describe_group(group, version);
    document["kind"] = "APIGroup".into();
    document["apiVersion"] = "v1".into();
    Some(document)
}

fn named_groups() -> impl Iterator<Item = (&'static str, &'static str)> {
    group_versions().into_iter().filter(|(group, _)| !group.is_empty())
}

fn describe_group(group: &str, version: &str) -> Value {
    let version = json!({"groupVersion": group_version(group, version), "version": version});
    json!({"name": group, "versions": [version.clone()], "preferredVersion": version})
}

/// `/api/v1` and `/apis/{group}/{version}`.
pub(super) fn resources(group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in kinds_of(group, version) {
        resources.push(json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced(), "kind": kind.kind,
            "verbs": VERBS, "shortNames": kind.short, "categories": kind.categories,
        }));
        for part in kind.subresources {
            let (group, version, name) = part_kind(kind, *part);
            resources.push(json!({
                "name": format!("{}/{}", kind.plural, part.name()), "singularName": "", "namespaced": kind.namespaced(),
                "group": group, "version": version, "kind": name, "verbs": SUBRESOURCE_VERBS,
            }));
        }
    }
    let list = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version(group, version), "resources": resources,
    });
    (list["resources"] != json!([])).then_some(list)
}

fn kinds_of(group: &str, version: &str) -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(move |kind| kind.group == group && kind.version == version)
}

/// The group, version and kind of what a subresource's path answers with.
fn part_kind(kind: &'static Kind, part: Subresource) -> (&'static str, &'static str, &'static str) {
    match part {
        Subresource::Status => (kind.group, kind.version, kind.kind),
        Subresource::Scale => ("autoscaling", "v1", "Scale"),
    }
}

/// `/api` and `/apis` in the new form: the core group, or all others.
pub(super) fn aggregated(core: bool) -> Value {
    let items: Vec<Value> = group_versions()
        .into_iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, version)| {
            let resources: Vec<Value> = kinds_of(group, version).map(describe_resource).collect();
            json!({
                "metadata": {"name": group, "creationTimestamp": null},
                "versions": [{"version": version, "freshness": "Current", "resources": resources}],
            })
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn describe_resource(kind: &'static Kind) -> Value {
    let response =
        |(group, version, kind): (&str, &str, &str)| json!({"group": group, "version": version, "kind": kind});
    let parts: Vec<Value> = kind
        .subresources
        .iter()
        .map(|part| {
            let kind = response(part_kind(kind, *part));
            json!({"subresource": part.name(), "responseKind": kind, "verbs": SUBRESOURCE_VERBS})
        })
        .collect();
    json!({
        "resource": kind.plural, "responseKind": response((kind.group, kind.version, kind.kind)),
        "scope": if kind.namespaced() { "Namespaced" } else { "Cluster" }, "singularResource": kind.singular,
        "verbs": VERBS, "shortNames": kind.short, "categories": kind.categories, "subresources": parts,
    })
}

/// `/version`.
pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0+tidegate", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none (rust)", "compiler": "rustc", "platform": "linux/amd64",
    })
}
