//! The metadata of objects within objects.

use serde_json::Value;

use crate::causes::Causes;
use crate::custom::model::Schema;
use crate::fields::fit::{misfits, settle};
use crate::names::check_labels;

/// Drops from the metadata of embedded objects what metadata does not have; gives the paths of that.
///
/// # Errors
/// Says where metadata cannot be read.
pub(crate) fn coerce(schema: &Schema, object: &mut Value) -> Result<Vec<String>, String> {
    let mut unknown = Vec::new();
    visit(schema, object, "", &mut |path, object| {
        let field = format!("{path}.metadata");
        let Some(metadata) = object.get_mut("metadata") else { return Ok(()) };
        let found = misfits("ObjectMeta", metadata);
        if let Some(why) = found.mistyped {
            return Err(format!("{field}: Invalid value: {metadata}: {why}"));
        }
        unknown.extend(found.unknown.iter().map(|below| format!("{field}.{below}")));
        settle("ObjectMeta", metadata);
        Ok(())
    })?;
    Ok(unknown)
}

/// Checks the required fields of embedded objects.
pub(super) fn check(path: &str, object: &Value, causes: &mut Causes) {
    for key in ["apiVersion", "kind"] {
        let field = format!("{path}.{key}");
        match object.get(key) {
            None | Some(Value::Null) => causes.required(field, ""),
            Some(Value::String(text)) if text.is_empty() => {
                causes.invalid(field, &text.as_str().into(), "must not be empty");
            }
            Some(Value::String(_)) => {}
            Some(other) => causes.invalid(field, other, "must be a string"),
        }
    }
    check_labels(&format!("{path}.metadata.labels"), &object["metadata"]["labels"], causes);
}

/// Calls `act` with every embedded object and its path.
fn visit(
    schema: &Schema,
    value: &mut Value,
    path: &str,
    act: &mut impl FnMut(&str, &mut Value) -> Result<(), String>,
) -> Result<(), String> {
    if schema.embedded && value.is_object() {
        act(path, value)?;
    }
    match value {
        Value::Object(fields) => {
            for (key, below) in fields {
                if let Some(schema) = schema.field(key) {
                    let dot = if path.is_empty() { "" } else { "." };
                    visit(schema, below, &format!("{path}{dot}{key}"), act)?;
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (nth, below) in list.iter_mut().enumerate() {
                    visit(items, below, &format!("{path}[{nth}]"), act)?;
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}
