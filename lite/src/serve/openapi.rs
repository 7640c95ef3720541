//! OpenAPI v3, which clients use to validate, explain and merge: the kinds with their schemas and operations.

use serde_json::{Map, Value, json};

use super::schemas::Components;
use crate::kind::{Kind, KindId, Kinds, describe, group_version};

/// The media types of patches of a custom kind: a strategic merge needs types that only built-in kinds have.
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

/// `/openapi/v3`: the index of documents. The hash changes with the crate's version, since the tables do, and with
/// every definition of a custom kind.
pub(super) fn index(kinds: &Kinds) -> Value {
    let paths = kinds.group_versions().into_iter().map(|(group, version)| {
        let path = document_path(group, version);
        let defined = kinds.of(group, version).filter_map(|kind| kind.description().custom());
        let hash: String = defined.map(|custom| format!("-{}", custom.revision)).collect();
        let url = format!("/openapi/v3/{path}?hash={}{hash}", env!("CARGO_PKG_VERSION"));
        (path, json!({"serverRelativeURL": url}))
    });
    json!({"paths": paths.collect::<Map<_, _>>()})
}

/// The document of one group and version.
pub(super) fn document(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let kinds: Vec<&Kind> = kinds.of(group, version).map(KindId::description).collect();
    if kinds.is_empty() {
        return None;
    }
    let (mut paths, mut components) = (Map::new(), Components::new());
    let mut named = Vec::new();
    for kind in kinds {
        let name = components.add(kind);
        let base = format!("/{}", document_path(group, version));
        let base = if kind.namespaced() { format!("{base}/namespaces/{{namespace}}") } else { base };
        paths.insert(format!("{base}/{}", kind.plural), json!({"post": operation(kind, "post", &name)}));
        let methods =
            ["get", "put", "patch", "delete"].map(|method| (method.to_owned(), operation(kind, method, &name)));
        paths.insert(format!("{base}/{}/{{name}}", kind.plural), methods.into_iter().collect());
        named.push((name, gvk(kind)));
    }
    let mut components = components.finish();
    for (name, gvk) in named {
        components.entry(name).or_insert_with(|| json!({}))["x-kubernetes-group-version-kind"] = json!([gvk]);
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

fn operation(kind: &Kind, method: &str, schema: &str) -> Value {
    let schema = json!({"schema": {"$ref": format!("#/components/schemas/{schema}")}});
    let query = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let mut operation = json!({
        "operationId": format!("{method}{}{}", kind.version, kind.kind),
        "responses": {"200": {"description": "OK", "content": {"application/json": schema}}},
        "x-kubernetes-action": method,
        "x-kubernetes-group-version-kind": gvk(kind),
    });
    if matches!(method, "post" | "put" | "patch") {
        operation["parameters"] = json!([query("dryRun"), query("fieldManager"), query("fieldValidation")]);
        let media: &[&str] = match method {
            "patch" if describe(&kind.group, &kind.kind).is_some() => PATCHES,
            "patch" => CUSTOM_PATCHES,
            _ => &["application/json"],
        };
        let content = media.iter().map(|media| ((*media).to_owned(), schema.clone()));
        operation["requestBody"] = json!({"required": true, "content": content.collect::<Map<_, _>>()});
    }
    operation
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fields::format::Format;
    use crate::fields::schema::{self, Shape, Width};

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

    /// Whether a field of the table has the type and the format of the published one.
    fn fits(shape: &Shape, published: &Value) -> bool {
        let reference = published["$ref"].as_str().or_else(|| published["allOf"][0]["$ref"].as_str());
        if let Some(reference) = reference {
            let last = reference.rsplit('.').next().unwrap();
            return match shape {
                Shape::Named(name, _) => *name == last,
                Shape::Formatted(Format::Quantity) => last == "Quantity",
                Shape::Formatted(Format::Time) => last == "Time",
                Shape::Formatted(Format::MicroTime) => last == "MicroTime",
                Shape::IntOrString => last == "IntOrString",
                Shape::Any => matches!(last, "FieldsV1" | "JSON" | "JSONSchemaProps"),
                Shape::String
                | Shape::OneOf(_)
                | Shape::Int(_)
                | Shape::Formatted(Format::Bytes)
                | Shape::Bool
                | Shape::List(..)
                | Shape::Map(_) => false,
            };
        }
        let of = (published["type"].as_str().unwrap_or_default(), published["format"].as_str().unwrap_or_default());
        match shape {
            Shape::String | Shape::OneOf(_) => of == ("string", ""),
            Shape::Int(Width::Int32) => of == ("integer", "int32"),
            Shape::Int(Width::Int64) => of == ("integer", "int64"),
            Shape::Formatted(Format::Bytes) => of == ("string", "byte"),
            Shape::Bool => of == ("boolean", ""),
            Shape::List(inner, _) => of.0 == "array" && fits(inner, &published["items"]),
            Shape::Map(inner) => of.0 == "object" && fits(inner, &published["additionalProperties"]),
            Shape::Any
            | Shape::Formatted(Format::Time | Format::MicroTime | Format::Quantity)
            | Shape::IntOrString
            | Shape::Named(..) => false,
        }
    }

    /// The table that writes are checked against has the same fields as the published schemas.
    #[test]
    fn the_table_of_fields_is_that_of_kubernetes() {
        let kinds = Kinds::built_in();
        let mut wrong = BTreeSet::new();
        for (group, version) in kinds.group_versions() {
            let document = document(&kinds, group, version).unwrap();
            for (name, component) in document["components"]["schemas"].as_object().unwrap() {
                let of = name.rsplit('.').next().unwrap();
                let Some(fields) = schema::types().get(of) else { continue };
                // Events are checked by their older names.
                if name.starts_with("io.k8s.api.events.") {
                    continue;
                }
                let none = serde_json::Map::new();
                let published = component["properties"].as_object().unwrap_or(&none);
                let (ours, theirs) = (fields.keys().copied(), published.keys().map(String::as_str));
                let (ours, theirs): (BTreeSet<_>, BTreeSet<_>) = (ours.collect(), theirs.collect());
                wrong.extend(ours.symmetric_difference(&theirs).map(|field| format!("{of}.{field}")));
                let misread =
                    fields.iter().filter(|(field, shape)| published.get(**field).is_some_and(|it| !fits(shape, it)));
                wrong.extend(misread.map(|(field, shape)| format!("{of}.{field} is not {shape:?}")));
            }
        }
        assert_eq!(wrong, BTreeSet::new());
    }

    #[test]
    fn merge_keys_are_published() {
        let document = document(&Kinds::built_in(), "apps", "v1").unwrap();
        let pod = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"];
        assert_eq!(pod["containers"]["x-kubernetes-patch-merge-key"], "name");
        assert_eq!(pod["volumes"]["x-kubernetes-patch-strategy"], "merge,retainKeys");
    }

    #[test]
    fn the_values_of_a_field_are_published() {
        let document = document(&Kinds::built_in(), "", "v1").unwrap();
        let service = &document["components"]["schemas"]["io.k8s.api.core.v1.ServiceSpec"]["properties"];
        assert_eq!(service["externalTrafficPolicy"]["enum"], serde_json::json!(["Cluster", "Local"]));
        assert_eq!(service["ipFamilies"]["items"]["enum"], serde_json::json!(["", "IPv4", "IPv6"]));
        assert!(service["externalName"]["enum"].is_null() && service["ipFamilies"]["enum"].is_null());
    }
}
