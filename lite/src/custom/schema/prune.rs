//! Fields that a schema does not know are dropped, and told by their paths.

use serde_json::Value;

use crate::custom::model::{Additional, Schema};
use crate::json::Paths;

/// The fields of every object, and of an embedded one.
const META: &[&str] = &["apiVersion", "kind", "metadata"];

/// Drops unknown fields; gives their paths, in order.
pub(crate) fn prune(schema: &Schema, object: &mut Value) -> Vec<String> {
    let mut found = Paths::default();
    visit(Some(schema), object, true, &mut String::new(), &mut found);
    found.0.sort();
    found.0
}

/// `schema` is `None` where anything is unknown.
fn visit(schema: Option<&Schema>, value: &mut Value, root: bool, path: &mut String, found: &mut Paths) {
    let length = path.len();
    match value {
        Value::Object(fields) => {
            let has_meta = root || schema.is_some_and(|schema| schema.embedded);
            fields.retain(|key, below| {
                if has_meta && META.contains(&key.as_str()) {
                    return true;
                }
                push(path, key);
                let kept = match below_key(schema, key) {
                    Below::Known(schema) => {
                        visit(schema, below, false, path, found);
                        true
                    }
                    Below::Kept => true,
                    Below::Unknown => {
                        found.push(path);
                        false
                    }
                };
                path.truncate(length);
                kept
            });
        }
        Value::Array(list) => {
            let items = schema.and_then(|schema| schema.items.as_deref());
            if items.is_none() && schema.is_some_and(|schema| schema.preserve) {
                return;
            }
            for (nth, below) in list.iter_mut().enumerate() {
                path.push_str(&format!("[{nth}]"));
                visit(items, below, false, path, found);
                path.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The known facts about a field.
enum Below<'a> {
    Known(Option<&'a Schema>),
    Kept,
    Unknown,
}

fn below_key<'a>(schema: Option<&'a Schema>, key: &str) -> Below<'a> {
    let Some(schema) = schema else { return Below::Unknown };
    match (schema.properties.get(key), &schema.additional) {
        (Some(below), _) => Below::Known(Some(below)),
        (None, Some(Additional::Schema(below))) => Below::Known(Some(below)),
        (None, Some(Additional::Allowed)) => Below::Known(None),
        (None, None) if schema.preserve => Below::Kept,
        (None, None) => Below::Unknown,
    }
}

fn push(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}
