//! Defaults, and nulls that mean absent.

use serde_json::Value;

use crate::custom::model::{Additional, Schema};

/// Drops nulls from fields that are neither nullable nor have a default, and fills in defaults of absent fields.
pub(crate) fn fill(schema: &Schema, object: &mut Value) {
    drop_nulls(schema, object);
    default(schema, object);
}

fn drop_nulls(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => fields.retain(|key, below| {
            let Some(schema) = schema.field(key) else { return true };
            if below.is_null() && !schema.nullable && schema.default.is_none() {
                return false;
            }
            drop_nulls(schema, below);
            true
        }),
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                list.iter_mut().for_each(|below| drop_nulls(items, below));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn default(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, below) in &schema.properties {
                let Some(default) = &below.default else { continue };
                let absent = fields.get(key).is_none_or(|value| value.is_null() && !below.nullable);
                if absent {
                    fields.insert(key.clone(), default.clone());
                }
            }
            for (key, below) in fields {
                match (schema.properties.get(key), &schema.additional) {
                    (Some(schema), _) => default(schema, below),
                    (None, Some(Additional::Schema(schema))) => element(schema, below),
                    (None, Some(Additional::Allowed) | None) => {}
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                list.iter_mut().for_each(|below| element(items, below));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn element(schema: &Schema, value: &mut Value) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        *value = default.clone();
    }
    default(schema, value);
}

/// Whole numbers that were written with a fraction of zero become whole, as a Go decoder keeps them.
pub(crate) fn normalise(value: &mut Value) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT);
            if let Some(float) = whole {
                *value = super::number::whole(float).into();
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(normalise),
        Value::Array(list) => list.iter_mut().for_each(normalise),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
