//! Server-side apply of custom kinds: the schema of the kind determines the merge.

use serde_json::{Value, json};

use crate::server::{Server, definition};

const ROUTERS: &str = "/apis/example.com/v1/namespaces/default/routers";

/// A kind with a list that merges as a map, a list that merges as a set, an atomic list, and a granular map.
fn routers() -> Value {
    let text = json!({"type": "string"});
    let port = json!({"type": "object", "required": ["number"], "properties": {
        "number": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": text,
    }});
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer"},
        "ports": {"type": "array", "items": port, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["number", "protocol"]},
        "names": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
        "order": {"type": "array", "items": text},
        "selector": {"type": "object", "additionalProperties": text, "x-kubernetes-map-type": "atomic"},
    }});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    definition("routers", "Router", &[("v1", schema)])
}

fn router(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Router", "metadata": {"name": "a"}, "spec": spec})
}

fn by(manager: &str) -> String {
    format!("APPLY {ROUTERS}/a?fieldManager={manager}")
}

#[tokio::test]
async fn lists_and_maps_merge_by_their_schema() {
    let server = Server::new();
    server.define(&routers()).await;
    let one = json!({"size": 1, "ports": [{"number": 80, "name": "http"}], "names": ["x"], "order": ["a"], "selector": {"a": "1"}});
    server.gives(&by("one"), Some(&router(&one)), 201).await;
    let two = json!({"ports": [{"number": 80, "protocol": "UDP"}, {"number": 443}], "names": ["x", "y"]});
    let made = server.gives(&by("two"), Some(&router(&two)), 200).await;
    let ports = made["spec"]["ports"].as_array().unwrap().iter().map(|port| {
        let (number, protocol, name) = (&port["number"], &port["protocol"], port["name"].as_str().unwrap_or("-"));
        format!("{number} {} {name}", protocol.as_str().unwrap())
    });
    assert_eq!(ports.collect::<Vec<_>>(), ["80 TCP http", "80 UDP -", "443 TCP -"]);
    assert_eq!(made["spec"]["names"], json!(["x", "y"]));

    // An atomic list has one owner.
    for (spec, field) in [(json!({"order": ["b"]}), ".spec.order"), (json!({"selector": {"b": "2"}}), ".spec.selector")]
    {
        let refused = server.gives(&by("two"), Some(&router(&spec)), 409).await;
        assert_eq!(refused["details"]["causes"][0]["field"], field, "{refused}");
        assert_eq!(refused["details"]["causes"][0]["message"], "conflict with \"one\"", "{refused}");
    }

    // A value that its manager no longer applies is removed, unless it has another owner.
    let made = server.gives(&by("one"), Some(&router(&json!({"size": 1}))), 200).await;
    let numbers: Vec<&Value> = made["spec"]["ports"].as_array().unwrap().iter().map(|port| &port["number"]).collect();
    assert_eq!((numbers, &made["spec"]["names"]), (vec![&json!(80), &json!(443)], &json!(["x", "y"])));
    assert_eq!((&made["spec"]["order"], &made["spec"]["selector"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn unknown_fields_are_refused() {
    let server = Server::new();
    server.define(&routers()).await;
    let refused = server.gives(&by("one"), Some(&router(&json!({"sizes": 1}))), 500).await;
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains(".spec.sizes: field not declared in schema"), "{message}");
}
