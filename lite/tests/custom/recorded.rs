//! The answers of a real API server (v1.36) to objects of one definition, compared with those of this one.

use serde_json::{Value, json};

use crate::server::{Said, Server};

/// A definition that uses every checked part of a schema.
const THINGS: &str = include_str!("recorded/things.json");
/// One object per line, with a real server's answer to its creation.
const OBJECTS: &str = include_str!("recorded/objects.jsonl");

/// One definition per line, likewise. Whole versions, which the real server shows in its internal form, are cut out.
const DEFINITIONS: &str = include_str!("recorded/definitions.jsonl");

/// A table of objects, and the results of field selectors.
const TABLE: &str = include_str!("recorded/table.json");

/// A definition with rules, one object of it per line, and one definition per line with a rule that may be invalid.
const RULED: &str = include_str!("recorded/ruled.json");
const RULED_OBJECTS: &str = include_str!("recorded/ruled.jsonl");
const RULES: &str = include_str!("recorded/rules.jsonl");

/// The examples of Gateway API v1.7.0, valid and invalid ones, one per line.
const GATEWAY_OBJECTS: &str = include_str!("recorded/gateway.jsonl");

/// Known differences, and their reasons.
const OTHERWISE: &[(&str, &str)] = &[
    ("wrong type", "types of operands are not checked when a rule comes, but when it is evaluated"),
    ("unknown function", "the first error of a rule is told"),
    ("duration none", "the words of the library"),
];

/// The causes, sorted: their order in a real server's answers differs from one time to the next.
fn causes(list: &Value) -> Vec<String> {
    let mut causes: Vec<String> =
        list.as_array().into_iter().flatten().map(|cause| brief(&cause.to_string())).collect();
    causes.sort();
    causes
}

/// A message without the parts that are specific to each implementation of regular expressions, and without whole
/// versions, which the real server shows in its internal form.
fn brief(text: &str) -> String {
    let text = text.split_once("but isn't:").map_or(text, |(before, _)| before);
    // Every parser has messages of its own.
    let text = text.split_once("compilation failed: ERROR: <input>:1:10: Syntax").map_or(text, |(before, _)| before);
    let text = text.split_once("compilation failed: Syntax").map_or(text, |(before, _)| before);
    match (text.find("Invalid value: [{"), text.find("}]: must")) {
        (Some(from), Some(to)) if from < to => format!("{}Invalid value: [...{}", &text[..from], &text[to + 1..]),
        _ => text.to_owned(),
    }
}

fn differs(row: &Value, said: &Said) -> Option<String> {
    let status = row["status"].as_u64();
    if status != Some(said.status.into()) {
        return Some(format!("{} instead of {}: {}", said.status, row["status"], said.body));
    }
    if said.status == 201 {
        let same = said.body["spec"] == row["stored"]["spec"] && said.body["status"] == row["stored"]["status"];
        let warnings: Vec<&str> = row["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !same || said.warnings != warnings {
            return Some(format!("{} {:?}", said.body, said.warnings));
        }
        return None;
    }
    let (wanted, got) = (causes(&row["causes"]), causes(&said.body["details"]["causes"]));
    // The text has the causes in their order, so it is compared only if there is at most one.
    let text = wanted.len() > 1 || brief(row["message"].as_str().unwrap_or_default()) == brief(said.message());
    (wanted != got || !text)
        .then(|| format!("{got:#?} {}\n  instead of {wanted:#?} {}", said.message(), row["message"]))
}

#[tokio::test]
async fn objects_are_answered_as_by_the_real_server() {
    let server = Server::new();
    server.define(&serde_json::from_str(THINGS).unwrap()).await;
    let mut wrong = Vec::new();
    for line in OBJECTS.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let validation = if row["strict"] == true { "Strict" } else { "Warn" };
        let path =
            format!("POST /apis/example.com/v1/namespaces/default/things?dryRun=All&fieldValidation={validation}");
        let mut object = row["object"].clone();
        object["kind"] = "Thing".into();
        let said = server.ask(&path, Some(&object)).await;
        wrong.extend(differs(&row, &said).map(|how| format!("{}: {how}", row["name"])));
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), OBJECTS.lines().count(), wrong.join("\n"));
}

#[tokio::test]
async fn definitions_are_answered_as_by_the_real_server() {
    let server = Server::new();
    let mut wrong = Vec::new();
    for line in DEFINITIONS.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let path = format!("POST {}?dryRun=All", crate::server::DEFINITIONS);
        let mut said = server.ask(&path, Some(&row["object"])).await;
        said.body["spec"].take();
        said.body["status"].take();
        wrong.extend(differs(&row, &said).map(|how| format!("{}: {how}", row["name"])));
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), DEFINITIONS.lines().count(), wrong.join("\n"));
}

#[tokio::test]
async fn tables_and_selectors_match_the_real_server() {
    const AT: &str = "/apis/example.com/v1/namespaces/default/things";
    let server = Server::new();
    server.define(&serde_json::from_str(THINGS).unwrap()).await;
    let recorded: Value = serde_json::from_str(TABLE).unwrap();
    for object in recorded["objects"].as_array().unwrap() {
        server.gives(&format!("POST {AT}"), Some(object), 201).await;
    }
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let mut table = server.send(&format!("GET {AT}"), None, accept).await.body;
    table["columnDefinitions"][0].as_object_mut().unwrap().remove("description");
    assert_eq!(table["columnDefinitions"], recorded["columns"]);
    for (row, wanted) in table["rows"].as_array().unwrap().iter().zip(recorded["rows"].as_array().unwrap()) {
        let (cells, wanted) = (row["cells"].as_array().unwrap(), wanted.as_array().unwrap());
        // Ages depend on the day.
        let aged = |(_, column): &(usize, &Value)| column["type"] == "date";
        let columns = recorded["columns"].as_array().unwrap().iter().enumerate();
        for (nth, column) in columns.filter(|one| !aged(one)) {
            assert_eq!(cells[nth], wanted[nth], "{column}");
        }
        assert!(cells.last().unwrap().is_string());
    }
    for (selector, wanted) in recorded["selected"].as_object().unwrap() {
        let query: String = form_urlencoded::byte_serialize(selector.as_bytes()).collect();
        let said = server.ask(&format!("GET {AT}?fieldSelector={query}"), None).await;
        let names = said.body["items"].as_array().into_iter().flatten().map(|one| one["metadata"]["name"].clone());
        let got = if said.status == 200 {
            names.collect()
        } else {
            Value::from(vec![Value::from(said.status), said.message().into()])
        };
        assert_eq!(got, *wanted, "{selector}");
    }
}

#[tokio::test]
async fn rules_evaluate_as_in_the_real_server() {
    const AT: &str = "/apis/example.com/v1/namespaces/default/ruled";
    let server = Server::new();
    server.define(&serde_json::from_str(RULED).unwrap()).await;
    let mut wrong = Vec::new();
    for line in RULED_OBJECTS.lines() {
        let mut row: Value = serde_json::from_str(line).unwrap();
        let name = row["object"]["metadata"]["name"].as_str().unwrap().to_owned();
        row["object"]["kind"] = "Ruled".into();
        let said = if row["old"].is_object() {
            row["old"]["kind"] = "Ruled".into();
            let mut object = server.gives(&format!("POST {AT}"), Some(&row["old"]), 201).await;
            object["spec"] = row["object"]["spec"].clone();
            let said = server.ask(&format!("PUT {AT}/{name}?dryRun=All"), Some(&object)).await;
            server.gives(&format!("DELETE {AT}/{name}"), None, 200).await;
            said
        } else {
            server.ask(&format!("POST {AT}?dryRun=All"), Some(&row["object"])).await
        };
        let known = OTHERWISE.iter().any(|(known, _)| row["name"] == *known) && row["status"] == said.status;
        wrong.extend(differs(&row, &said).filter(|_| !known).map(|how| format!("{}: {how}", row["name"])));
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), RULED_OBJECTS.lines().count(), wrong.join("\n"));
}

#[tokio::test]
async fn invalid_rules_are_refused() {
    let server = Server::new();
    let mut wrong = Vec::new();
    for line in RULES.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let path = format!("POST {}?dryRun=All", crate::server::DEFINITIONS);
        let mut said = server.ask(&path, Some(&row["object"])).await;
        said.body["spec"].take();
        said.body["status"].take();
        let known = OTHERWISE.iter().any(|(known, _)| row["name"] == *known);
        wrong.extend(differs(&row, &said).filter(|_| !known).map(|how| format!("{}: {how}", row["name"])));
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), RULES.lines().count(), wrong.join("\n"));
}

#[tokio::test]
async fn invalid_gateway_api_objects_are_refused() {
    let server = Server::new();
    for text in tidegate_lite::GATEWAY_API {
        server.define(&serde_saphyr::from_str(text).unwrap()).await;
    }
    let mut wrong = Vec::new();
    for line in GATEWAY_OBJECTS.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let path = format!("POST {}?dryRun=All", row["path"].as_str().unwrap());
        let said = server.ask(&path, Some(&row["object"])).await;
        wrong.extend(differs(&row, &said).map(|how| format!("{}: {how}", row["name"])));
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), GATEWAY_OBJECTS.lines().count(), wrong.join("\n"));
}

/// As large as the API allows: the cost of rules is estimated from the values, and none of these is near the limit.
#[tokio::test]
async fn the_largest_allowed_gateways_and_routes_are_accepted() {
    let server = Server::new();
    for text in tidegate_lite::GATEWAY_API {
        server.define(&serde_saphyr::from_str(text).unwrap()).await;
    }
    let at = |plural: &str| format!("POST /apis/gateway.networking.k8s.io/v1/namespaces/default/{plural}");
    let object = |kind: &str, spec: Value| {
        let metadata = json!({"name": "large", "namespace": "default"});
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec})
    };
    let listener = |number: u32| {
        let host = format!("{}.example.com", "a-long-label-of-a-host".repeat(2));
        json!({
            "name": format!("listener-{number}"), "port": 8000 + number, "protocol": "HTTPS",
            "hostname": format!("h{number}.{host}"), "allowedRoutes": {"namespaces": {"from": "All"}},
            "tls": {"mode": "Terminate", "certificateRefs": [{"name": format!("certificate-of-listener-{number}")}]},
        })
    };
    let listeners: Vec<Value> = (0..64).map(listener).collect();
    let gateway = object("Gateway", json!({"gatewayClassName": "tidegate", "listeners": listeners}));
    server.gives(&at("gateways"), Some(&gateway), 201).await;
    let rule = |number: u32| {
        let matched =
            |nth: u32| json!({"path": {"type": "PathPrefix", "value": format!("/a/rather/long/path/{number}/{nth}")}});
        let set = |nth: u32| json!({"name": format!("x-header-{nth}"), "value": "value"});
        json!({
            "matches": (0..8).map(matched).collect::<Vec<_>>(),
            "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": (0..16).map(set).collect::<Vec<_>>()}}],
            "backendRefs": (0..16).map(|nth| json!({"name": format!("service-{nth}"), "port": 80})).collect::<Vec<_>>(),
        })
    };
    let rules: Vec<Value> = (0..16).map(rule).collect();
    let route = object("HTTPRoute", json!({"parentRefs": [{"name": "large"}], "rules": rules}));
    server.gives(&at("httproutes"), Some(&route), 201).await;
}
