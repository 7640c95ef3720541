//! Definitions, and writes of the kinds that they define.

use serde_json::{Value, json};

use super::cases::{APPLY, Case, MERGE, each, properties};
use super::work::Call;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BOATS: &str = "/apis/example.com/v1/namespaces/default/boats";
const BOAT: &str = "/apis/example.com/v1/namespaces/default/boats/x";

pub(crate) fn all() -> Vec<Case> {
    let mut cases = custom();
    cases.extend(definitions());
    cases
}

fn definition(schema: &Value, more: Value) -> Value {
    let mut version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}},
    });
    version.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boats.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"}, "versions": [version]},
    })
}

fn define(schema: &Value) -> Call {
    Call::new("POST", DEFINITIONS, &definition(schema, json!({})))
}

fn list_of(kind: &str, items: Value) -> Value {
    json!({"type": "object", "properties": {"list": {
        "type": "array", "x-kubernetes-list-type": kind, "items": items,
    }}})
}

/// A list that is a map by name, with a rule that compares each element with the one before.
fn keyed() -> Value {
    let rule = json!({"rule": "self.name == oldSelf.name"});
    let item = json!({
        "type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
        "x-kubernetes-validations": [rule],
    });
    let mut schema = list_of("map", item);
    schema["properties"]["list"]["x-kubernetes-list-map-keys"] = json!(["name"]);
    schema
}

fn boat(list: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "x"}, "spec": {"list": list}})
}

fn named(length: usize, n: usize) -> Value {
    boat(each(length, |nth| json!({"name": format!("x{nth}"), "n": n})))
}

fn custom() -> Vec<Case> {
    vec![
        Case {
            name: "a list that is a set",
            before: |_| vec![define(&list_of("set", json!({"type": "string"})))],
            measured: |length| Call::new("POST", BOATS, &boat(each(length, |nth| format!("x{nth}").into()))),
            code: 201,
        },
        Case {
            name: "a list that is a map, with a rule of changes",
            before: |length| vec![define(&keyed()), Call::new("POST", BOATS, &named(length, 1))],
            measured: |length| {
                let mut changed = named(length, 2);
                changed["metadata"]["resourceVersion"] = "0".into();
                Call::patch(MERGE, BOAT, &json!({"spec": changed["spec"]}))
            },
            code: 200,
        },
        Case {
            name: "an apply of a list that is a map",
            before: |length| vec![define(&keyed()), Call::new("POST", BOATS, &named(length, 1))],
            measured: |length| Call::patch(APPLY, &format!("{BOAT}?fieldManager=a&force=true"), &named(length, 2)),
            code: 200,
        },
        Case {
            name: "values of an enumeration",
            before: |length| {
                let values = each(length, |nth| format!("x{nth}").into());
                vec![define(&list_of("atomic", json!({"type": "string", "enum": values})))]
            },
            measured: |length| Call::new("POST", BOATS, &boat(each(length, |nth| format!("x{nth}").into()))),
            code: 201,
        },
        Case {
            name: "values that are not of an enumeration",
            before: |length| {
                let values = each(length, |nth| format!("x{nth}").into());
                vec![define(&list_of("atomic", json!({"type": "string", "enum": values})))]
            },
            measured: |length| Call::new("POST", BOATS, &boat(each(length, |nth| format!("y{nth}").into()))),
            code: 422,
        },
    ]
}

fn definitions() -> Vec<Case> {
    let nothing: fn(usize) -> Vec<Call> = |_| Vec::new();
    vec![
        Case {
            name: "selectable fields",
            before: nothing,
            measured: |length| {
                let schema = json!({"type": "object", "properties": properties(length, |_| json!({"type": "string"}))});
                let fields = each(length, |nth| json!({"jsonPath": format!(".spec.f{nth}")}));
                Call::new("POST", DEFINITIONS, &definition(&schema, json!({"selectableFields": fields})))
            },
            code: 422,
        },
        Case {
            name: "keys of a list",
            before: nothing,
            measured: |length| {
                let properties = properties(length, |_| json!({"type": "string"}));
                let keys = each(length, |nth| format!("f{nth}").into());
                let item = json!({"type": "object", "required": keys, "properties": properties});
                let mut schema = list_of("map", item);
                schema["properties"]["list"]["x-kubernetes-list-map-keys"] = keys;
                Call::new("POST", DEFINITIONS, &definition(&schema, json!({})))
            },
            code: 201,
        },
        Case {
            name: "unknown keys of a list",
            before: nothing,
            measured: |length| {
                let mut schema = list_of("map", json!({"type": "object", "properties": {"a": {"type": "string"}}}));
                schema["properties"]["list"]["x-kubernetes-list-map-keys"] =
                    each(length, |nth| format!("f{nth}").into());
                Call::new("POST", DEFINITIONS, &definition(&schema, json!({})))
            },
            code: 422,
        },
        Case {
            name: "short names",
            before: nothing,
            measured: |length| {
                let mut boats = definition(&json!({"type": "object"}), json!({}));
                boats["spec"]["names"]["shortNames"] = each(length, |nth| format!("s{nth}").into());
                Call::new("POST", DEFINITIONS, &boats)
            },
            code: 201,
        },
    ]
}
