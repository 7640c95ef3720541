//! Validation of a manager's configuration against the schema: without it the owners of its fields would be undefined.

use std::collections::BTreeSet;

use serde_json::Value;

use super::node::{Form, Node};

/// The maximum number of errors reported for one configuration.
const MISTAKES_MAX: usize = 32;

/// Refuses fields that the schema does not have, values of the wrong type, and lists whose elements have no identity.
/// The error is in the words of the real server.
pub(crate) fn validate(node: Node<'_>, config: &Value) -> Result<(), String> {
    let mut found = Vec::new();
    look(node, config, &mut String::new(), &mut found);
    match found.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("errors:\n  {}", many.join("\n  "))),
    }
}

/// A value of the wrong type, as the real server shows it: of numbers, the type alone.
fn shown(expected: &str, value: &Value) -> String {
    if !expected.starts_with("numeric") {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        return format!("&value.valueUnstructured{{Value:{text}}}");
    }
    let name = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    name.to_owned()
}

fn look(node: Node<'_>, value: &Value, path: &mut String, found: &mut Vec<String>) {
    if found.len() >= MISTAKES_MAX {
        return;
    }
    if let Some(expected) = node.expected(value) {
        found.push(format!("{path}: expected {expected}, got {}", shown(expected, value)));
        return;
    }
    let length = path.len();
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let (below, named) = node.field(key);
                path.push_str(&format!(".{key}"));
                if node.is_closed() && !named {
                    found.push(format!("{path}: field not declared in schema"));
                } else {
                    look(below, value, path, found);
                }
                path.truncate(length);
            }
        }
        Value::Array(list) if node.form(value) == Form::List => {
            let mut seen = BTreeSet::new();
            for (nth, value) in list.iter().enumerate() {
                match node.step_of(value) {
                    Err(why) => found.push(format!("{path}: element {nth}: {why}")),
                    Ok(step) => {
                        path.push_str(&step.to_string());
                        look(node.element(), value, path, found);
                        path.truncate(length);
                        if !seen.insert(step.clone()) {
                            found.push(format!("{path}: duplicate entries for key {step}"));
                        }
                    }
                }
            }
        }
        Value::Array(list) => {
            for (nth, value) in list.iter().enumerate() {
                path.push_str(&format!("[{nth}]"));
                look(node.element(), value, path, found);
                path.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
