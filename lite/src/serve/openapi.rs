//! OpenAPI v3, drawn from the tables of kinds and fields: enough for kubectl to validate, explain and merge.

use serde_json::{Map, Value, json};

use super::events;
use crate::kind::schema::{self, Join, Retain, Shape};
use crate::kind::{Form, Kind, KindId, Kinds, group_version};

/// Where a custom kind finds the type of its metadata.
const OF_METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// What a patch of a custom kind may be: a strategic merge needs types that only built-in kinds have.
const CUSTOM_PATCHES: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `/openapi/v3`: which documents there are. The hash changes with the crate's version, since the tables do, and with
/// every definition of a custom kind.
pub(super) fn index(kinds: &Kinds) -> Value {
    let paths = kinds.group_versions().into_iter().map(|(group, version)| {
        let path = document_path(group, version);
        let defined = kinds.of(group, version).filter_map(|kind| kind.row().custom());
        let hash: String = defined.map(|custom| format!("-{}", custom.revision)).collect();
        let url = format!("/openapi/v3/{path}?hash={}{hash}", env!("CARGO_PKG_VERSION"));
        (path, json!({"serverRelativeURL": url}))
    });
    json!({"paths": paths.collect::<Map<_, _>>()})
}

/// The document of one group and version.
pub(super) fn document(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let kinds: Vec<&Kind> = kinds.of(group, version).map(KindId::row).collect();
    if kinds.is_empty() {
        return None;
    }
    let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or(group) };
    let built_in = format!("io.k8s.api.{package}.{version}.");
    let reversed: Vec<&str> = group.rsplit('.').collect();
    let custom = format!("{}.{version}.", reversed.join("."));
    let mut paths = Map::new();
    let mut components = Map::new();
    for kind in kinds {
        let prefix = if kind.built_in().is_some() { &built_in } else { &custom };
        let base = format!("/{}", document_path(group, version));
        let base = if kind.namespaced() { format!("{base}/namespaces/{{namespace}}") } else { base };
        paths.insert(format!("{base}/{}", kind.plural), json!({"post": operation(kind, "post", prefix)}));
        let object = json!({
            "get": operation(kind, "get", prefix), "put": operation(kind, "put", prefix), "patch": operation(kind, "patch", prefix),
            "delete": operation(kind, "delete", prefix),
        });
        paths.insert(format!("{base}/{}/{{name}}", kind.plural), object);
        let name = format!("{prefix}{}", kind.kind);
        match &kind.form {
            Form::BuiltIn(of) => describe(of, prefix, &mut components),
            Form::Custom(custom) => {
                describe("ObjectMeta", OF_METADATA, &mut components);
                components.insert(name.clone(), custom.openapi(&format!("{OF_METADATA}ObjectMeta")));
            }
        }
        components[&name]["x-kubernetes-group-version-kind"] = json!([gvk(kind)]);
        if group == events::GROUP {
            events::rename_fields(&mut components[&name]["properties"]);
        }
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": format!("Tidegate {}", group_version(group, version)), "version": "unversioned"},
        "paths": paths,
        "components": {"schemas": components},
    }))
}

fn gvk(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

fn operation(kind: &Kind, method: &str, prefix: &str) -> Value {
    let schema = json!({"schema": {"$ref": format!("#/components/schemas/{prefix}{}", kind.kind)}});
    let query = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let action = if method == "delete" { "delete" } else { method };
    let mut operation = json!({
        "operationId": format!("{method}{}{}", kind.version, kind.kind),
        "responses": {"200": {"description": "OK", "content": {"application/json": schema}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk(kind),
    });
    if matches!(method, "post" | "put" | "patch") {
        operation["parameters"] = json!([query("dryRun"), query("fieldManager"), query("fieldValidation")]);
        let media: &[&str] = match (method, kind.built_in()) {
            ("patch", Some(_)) => PATCHES,
            ("patch", None) => CUSTOM_PATCHES,
            _ => &["application/json"],
        };
        let content = media.iter().map(|media| ((*media).to_owned(), schema.clone()));
        operation["requestBody"] = json!({"required": true, "content": content.collect::<Map<_, _>>()});
    }
    operation
}

/// Adds a type, and every type it names, to the components.
fn describe(of: &'static str, prefix: &str, components: &mut Map<String, Value>) {
    let name = format!("{prefix}{of}");
    if components.contains_key(&name) {
        return;
    }
    components.insert(name.clone(), Value::Null);
    let Some(fields) = schema::types().get(of) else { return };
    let mut properties = Map::new();
    for (field, shape) in fields {
        let mut property = property(shape, prefix, components);
        strategies(shape, &mut property);
        properties.insert((*field).to_owned(), property);
    }
    components.insert(name, json!({"type": "object", "properties": properties}));
}

fn property(shape: &Shape, prefix: &str, components: &mut Map<String, Value>) -> Value {
    match shape {
        Shape::String => json!({"type": "string"}),
        Shape::Int => json!({"type": "integer", "format": "int64"}),
        Shape::Bool => json!({"type": "boolean"}),
        Shape::IntOrString => json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
        Shape::Any => json!({"x-kubernetes-preserve-unknown-fields": true}),
        Shape::List(element, _) => json!({"type": "array", "items": property(element, prefix, components)}),
        Shape::Map(value) => json!({"type": "object", "additionalProperties": property(value, prefix, components)}),
        Shape::Named(name, _) => {
            describe(name, prefix, components);
            json!({"allOf": [{"$ref": format!("#/components/schemas/{prefix}{name}")}]})
        }
    }
}

/// Says how a strategic merge treats a field.
fn strategies(shape: &Shape, property: &mut Value) {
    let retains = |shape: &Shape| matches!(shape, Shape::Named(_, Retain::Named));
    let (strategy, key) = match shape.join() {
        Join::ByKey(key) if retains(shape.element()) => ("merge,retainKeys", Some(key)),
        Join::ByKey(key) => ("merge", Some(key)),
        Join::Set => ("merge", None),
        Join::Replace if retains(shape) => ("retainKeys", None),
        Join::Replace => return,
    };
    property["x-kubernetes-patch-strategy"] = strategy.into();
    if let Some(key) = key {
        property["x-kubernetes-patch-merge-key"] = key.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_somewhere() {
        fn references(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(map) => {
                    found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                    map.values().for_each(|value| references(value, found));
                }
                Value::Array(list) => list.iter().for_each(|value| references(value, found)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let kinds = Kinds::built_in();
        for (group, version) in kinds.group_versions() {
            let document = document(&kinds, group, version).unwrap();
            let mut found = Vec::new();
            references(&document, &mut found);
            for reference in found {
                assert!(
                    document.pointer(reference.trim_start_matches('#')).is_some_and(Value::is_object),
                    "{reference}"
                );
            }
        }
    }

    #[test]
    fn merge_keys_are_told() {
        let document = document(&Kinds::built_in(), "apps", "v1").unwrap();
        let pod = &document["components"]["schemas"]["io.k8s.api.apps.v1.PodSpec"]["properties"];
        assert_eq!(pod["containers"]["x-kubernetes-patch-merge-key"], "name");
        assert_eq!(pod["volumes"]["x-kubernetes-patch-strategy"], "merge,retainKeys");
    }
}
