//! The functions that rules may call, on a real API server (v1.36) and here: whether a definition with a rule is
//! accepted, and the answers to its objects.

use serde_json::{Value, json};

use crate::server::{Server, definition};

/// The schema that every rule applies to.
const SCHEMA: &str = include_str!("recorded/calls.json");
/// One call a line: a rule, and an object with the answer to its creation (or to a change of `old`). Lines without an
/// object have the answer to the definition; only their first error is compared.
const CALLS: &str = include_str!("recorded/calls.jsonl");

const TYPES: &str = "types of operands are not checked when a rule comes, but when it is evaluated";

/// Definitions with a different answer here, and the reason.
const OTHERWISE: &[(&str, &str)] = &[
    ("self.text.findAll('(') == []", "a library of regular expressions has its own words"),
    ("quantity(self.text).sign() == 1", TYPES),
    ("self.list.first() == 'a'", TYPES),
    ("ip(self.text) == cidr(self.text)", TYPES),
    ("quantity(self.text)", TYPES),
    ("semver(self.text, 1).major() == 1", TYPES),
    ("self.list.sum() == 'a'", TYPES),
    ("self.text.reverse() == 'a'", TYPES),
    ("isQuantity(self.numbers)", TYPES),
    ("self.span == '1s'", TYPES),
];

/// Objects with a different answer here, and the reason: the rule, and a part of the object.
const OBJECTS_OTHERWISE: &[(&str, &str, &str)] = &[
    ("quantity(self.text) == quantity(self.other)", "1e30", "quantities above 1.7e29 are one"),
    ("self.numbers.min() == 1 && self.numbers.max() == 3", "[]", "where both sides of && fail, the right one is told"),
];

fn ruled(plural: &str, rule: &Value) -> Value {
    let mut schema: Value = serde_json::from_str(SCHEMA).unwrap();
    schema["x-kubernetes-validations"] = json!([{"rule": rule}]);
    definition(plural, "Call", &[("v1", json!({"type": "object", "properties": {"spec": schema}}))])
}

/// The messages of all causes; only the first line of an error in a rule.
fn causes(list: impl Iterator<Item = String>) -> Vec<String> {
    let mut causes: Vec<String> = list
        .map(|cause| match cause.split_once("compilation failed: ") {
            Some((_, error)) => error.lines().next().unwrap_or_default().to_owned(),
            None => cause,
        })
        .collect();
    causes.sort();
    causes
}

fn differs(row: &Value, status: u16, body: &Value) -> Option<String> {
    let wanted = row["why"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let got = body["details"]["causes"].as_array().into_iter().flatten();
    let (wanted, got) = (causes(wanted), causes(got.filter_map(|cause| cause["message"].as_str()).map(str::to_owned)));
    (row["status"] != status || wanted != got)
        .then(|| format!("{} {}: {status} {got:?} instead of {} {wanted:?}", row["rule"], row["value"], row["status"]))
}

#[tokio::test]
async fn cel_functions_evaluate_as_in_the_real_server() {
    let server = Server::new();
    let (mut wrong, mut defined) = (Vec::new(), Value::Null);
    for line in CALLS.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        if row["value"].is_null() {
            continue;
        }
        if defined != row["rule"] {
            if !defined.is_null() {
                server.gives(&format!("DELETE {}/calls.example.com", crate::server::DEFINITIONS), None, 200).await;
            }
            server.define(&ruled("calls", &row["rule"])).await;
            defined = row["rule"].clone();
        }
        let at = "/apis/example.com/v1/namespaces/default/calls";
        let object = |spec: &Value| json!({"apiVersion": "example.com/v1", "kind": "Call", "metadata": {"name": "t"}, "spec": spec});
        let mut value = row["value"].clone();
        let old = value.as_object_mut().unwrap().remove("old");
        let said = match old {
            None => server.ask(&format!("POST {at}?dryRun=All"), Some(&object(&value))).await,
            Some(old) => {
                let mut changed = server.gives(&format!("POST {at}"), Some(&object(&old)), 201).await;
                changed["spec"] = value;
                let said = server.ask(&format!("PUT {at}/t?dryRun=All"), Some(&changed)).await;
                server.gives(&format!("DELETE {at}/t"), None, 200).await;
                said
            }
        };
        let text = row["value"].to_string();
        let known = OBJECTS_OTHERWISE.iter().find(|(rule, part, _)| row["rule"] == *rule && text.contains(part));
        match (known, differs(&row, said.status, &said.body)) {
            (None, Some(how)) => wrong.push(how),
            (Some((rule, _, why)), None) => wrong.push(format!("{rule} is answered as by the real server: {why}?")),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn rules_with_unknown_functions_are_refused() {
    let server = Server::new();
    let mut wrong = Vec::new();
    for line in CALLS.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        if !row["value"].is_null() {
            continue;
        }
        let path = format!("POST {}?dryRun=All", crate::server::DEFINITIONS);
        let said = server.ask(&path, Some(&ruled("calls", &row["rule"]))).await;
        let known = OTHERWISE.iter().find(|(rule, _)| row["rule"] == *rule);
        match (known, differs(&row, said.status, &said.body)) {
            (None, Some(how)) => wrong.push(how),
            (Some((rule, why)), None) => wrong.push(format!("{rule} is answered as by the real server: {why}?")),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
