//! An object against its schema, in the words of the real server.

use serde_json::Value;

use super::number::{float, real, whole};
use super::{lists, meta};
use crate::causes::{Cause, Causes};
use crate::custom::format;
use crate::custom::model::{Additional, Bound, Checks, Range, Schema, Type};

/// Causes of one refusal; a client reads no more.
const CAUSES_MAX: usize = 200;

/// The faults of an object. Its metadata is not checked here. A value that was there before (`old`) and has not changed
/// is let through: an older schema may have done so.
pub(crate) fn validate(schema: &Schema, object: &Value, old: Option<&Value>, causes: &mut Causes) {
    for (key, below) in &schema.properties {
        if let (Some(value), false) = (object.get(key), matches!(key.as_str(), "apiVersion" | "kind" | "metadata")) {
            check_changed(below, value, old.and_then(|old| old.get(key)), key, causes);
        }
    }
    check_fields_left(schema, object, old, "", causes);
    composites(&schema.checks, object, "", causes);
    lists_and_embedded(schema, object, old, "", causes);
    causes.0.truncate(CAUSES_MAX);
}

/// Whether rules are skipped for values with faults: they may not have the form that the rules rely on.
pub(crate) fn blocks(causes: &Causes) -> bool {
    const BLOCKING: &[&str] = &[
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    ];
    causes.0.iter().any(|cause| BLOCKING.contains(&cause.reason))
}

fn child(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The type of a value by its JSON.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Complains of the value at a path.
pub(super) fn check(schema: &Schema, value: &Value, path: &str, causes: &mut Causes) {
    check_changed(schema, value, None, path, causes);
}

fn check_changed(schema: &Schema, value: &Value, old: Option<&Value>, path: &str, causes: &mut Causes) {
    if causes.0.len() >= CAUSES_MAX || causes.is_full() || old == Some(value) {
        return;
    }
    check_type(schema, value, path, causes);
    if !value.is_null() {
        composites(&schema.checks, value, path, causes);
    }
    match value {
        Value::String(text) => check_text(schema, text, path, causes),
        Value::Number(number) => check_number(schema, number, path, causes),
        Value::Array(list) => check_list(schema, list, path, causes),
        Value::Object(_) | Value::Null | Value::Bool(_) => {}
    }
    if let Some(values) = &schema.checks.values
        && !values.set.contains(value)
    {
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let supported: Vec<String> = values.list.iter().map(plain).collect();
        let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
        causes.unsupported(path, value, &supported);
    }
    if let Value::Object(fields) = value {
        check_count(path, fields.len(), schema.checks.fields, "properties", causes);
        for (key, below) in fields {
            if let Some(schema) = schema.properties.get(key) {
                check_changed(schema, below, old.and_then(|old| old.get(key)), &child(path, key), causes);
            }
        }
        check_fields_left(schema, value, old, path, causes);
    }
}

/// Fields without a description of their own, and those that must be there.
fn check_fields_left(schema: &Schema, object: &Value, old: Option<&Value>, path: &str, causes: &mut Causes) {
    if let Some(Additional::Schema(below)) = &schema.additional {
        for (key, value) in object.as_object().into_iter().flatten() {
            if !schema.properties.contains_key(key) {
                check_changed(below, value, old.and_then(|old| old.get(key)), &child(path, key), causes);
            }
        }
    }
    for key in &schema.checks.required {
        if object.is_object() && object.get(key).is_none() {
            causes.required(child(path, key), "");
        }
    }
}

fn mistyped(path: &str, wanted: &str, got: &str, causes: &mut Causes) {
    causes.push("FieldValueTypeInvalid", path, || {
        format!("Invalid value: {got:?}: {path} in body must be of type {wanted}: {got:?}")
    });
}

/// A refusal that the real server gives no place to.
fn placeless(why: String, causes: &mut Causes) {
    causes.push("FieldValueInvalid", "<nil>", || format!("Invalid value: \"\": {why}"));
}

fn check_type(schema: &Schema, value: &Value, path: &str, causes: &mut Causes) {
    let got = type_of(value);
    if value.is_null() {
        if !schema.nullable
            && let Some(wanted) = wanted(schema)
        {
            mistyped(path, wanted, got, causes);
        }
        return;
    }
    let fits = match (schema.kind, schema.int_or_string) {
        (None, true) => matches!(got, "integer" | "string"),
        (None, false) => true,
        (Some(Type::Number), _) => matches!(got, "integer" | "number"),
        (Some(kind), _) => kind.name() == got,
    };
    if fits {
        return;
    }
    let format = &schema.checks.format;
    if schema.kind == Some(Type::Integer) && got == "number" && !format.is_empty() {
        mistyped(path, format, "float64", causes);
    } else if let Some(wanted) = wanted(schema) {
        mistyped(path, wanted, got, causes);
    }
}

fn wanted(schema: &Schema) -> Option<&'static str> {
    match (schema.kind, schema.int_or_string) {
        (Some(kind), _) => Some(kind.name()),
        (None, true) => Some("integer,string"),
        (None, false) => None,
    }
}

fn check_text(schema: &Schema, text: &str, path: &str, causes: &mut Causes) {
    let checks = &schema.checks;
    let letters = text.chars().count() as u64;
    let value = Value::from(text);
    if let Some(most) = checks.length.most.filter(|most| letters > *most) {
        causes.too_long(path, &format!("may not be more than {most} bytes"));
    } else if let Some(least) = checks.length.least.filter(|least| letters < *least) {
        causes.invalid(path, &value, &format!("{path} in body should be at least {least} chars long"));
    } else if let Some((pattern, _)) = checks.pattern.as_ref().filter(|(_, regex)| !regex.is_match(text)) {
        causes.invalid(path, &value, &format!("{path} in body should match '{pattern}'"));
    }
    let named = matches!(schema.kind, Some(Type::String) | None);
    if named && !checks.format.is_empty() && !format::fits(&checks.format, text) {
        causes.push("FieldValueTypeInvalid", path, || {
            format!("Invalid value: {value}: {path} in body must be of type {}: {value}", checks.format)
        });
    }
}

fn check_number(schema: &Schema, number: &serde_json::Number, path: &str, causes: &mut Causes) {
    let checks = &schema.checks;
    let value = Value::Number(number.clone());
    if schema.kind == Some(Type::Integer) {
        let (fits, format) = match checks.format.as_str() {
            "int32" => (number.as_i64().is_some_and(|value| i32::try_from(value).is_ok()), "with format int32"),
            "int64" => (number.is_i64(), "with format int64"),
            _ => (number.is_i64(), "(default format)"),
        };
        if !fits {
            placeless(format!("Checked value must be of type integer {format} in {path}"), causes);
        }
    }
    let (as_whole, as_real) = (number.as_i64(), number.as_f64().unwrap_or_default());
    if let Some(factor) = checks.multiple_of.filter(|factor| *factor > 0.0) {
        let times = as_real / factor;
        if times.fract() != 0.0 {
            causes.invalid(path, &value, &format!("{path} in body should be a multiple of {}", float(factor)));
        }
    }
    // A whole number is compared with the whole part of a bound.
    let shown = |bound: Bound| if as_whole.is_some() { whole(bound.value).to_string() } else { float(bound.value) };
    let least = |bound: Bound| if as_whole.is_some() { real(whole(bound.value)) } else { bound.value };
    if let Some(bound) = checks.maximum {
        let limit = least(bound);
        if as_real > limit || bound.exclusive && as_real >= limit {
            let or_equal = if bound.exclusive { "" } else { " or equal to" };
            causes.invalid(path, &value, &format!("{path} in body should be less than{or_equal} {}", shown(bound)));
        }
    }
    if let Some(bound) = checks.minimum {
        let limit = least(bound);
        if as_real < limit || bound.exclusive && as_real <= limit {
            let or_equal = if bound.exclusive { "" } else { " or equal to" };
            causes.invalid(path, &value, &format!("{path} in body should be greater than{or_equal} {}", shown(bound)));
        }
    }
}

fn check_list(schema: &Schema, list: &[Value], path: &str, causes: &mut Causes) {
    if let Some(items) = &schema.items {
        for (nth, below) in list.iter().enumerate() {
            check(items, below, &format!("{path}[{nth}]"), causes);
        }
    }
    check_count(path, list.len(), schema.checks.items, "items", causes);
}

fn check_count(path: &str, count: usize, range: Range, what: &str, causes: &mut Causes) {
    let count = count as u64;
    if let Some(most) = range.most.filter(|most| count > *most) {
        causes.push("FieldValueTooMany", path, || format!("Too many: {count}: must have at most {most} items"));
    }
    if let Some(least) = range.least.filter(|least| count < *least) {
        causes.invalid(path, &count.into(), &format!("{path} in body should have at least {least} {what}"));
    }
}

/// The constraints of several schemas at once. If none of the alternatives fits, the first gives the reason.
fn composites(checks: &Checks, value: &Value, path: &str, causes: &mut Causes) {
    let complaints = |schema: &Schema| {
        let mut causes = Causes::default();
        check(schema, value, path, &mut causes);
        causes.0
    };
    if !checks.any.is_empty() {
        let all: Vec<Vec<Cause>> = checks.any.iter().map(complaints).collect();
        if all.iter().all(|one| !one.is_empty()) {
            placeless(format!("{path:?} must validate at least one schema (anyOf)"), causes);
            causes.0.extend(all.into_iter().next().into_iter().flatten());
        }
    }
    if !checks.one.is_empty() {
        let all: Vec<Vec<Cause>> = checks.one.iter().map(complaints).collect();
        match all.iter().filter(|one| one.is_empty()).count() {
            0 => {
                let why = format!("{path:?} must validate one and only one schema (oneOf). Found none valid");
                placeless(why, causes);
                causes.0.extend(all.into_iter().next().into_iter().flatten());
            }
            1 => {}
            many => {
                let why =
                    format!("{path:?} must validate one and only one schema (oneOf). Found {many} valid alternatives");
                placeless(why, causes);
            }
        }
    }
    let mut failed = 0;
    for one in checks.all.iter().map(complaints) {
        failed += usize::from(!one.is_empty());
        causes.0.extend(one);
    }
    if failed > 0 {
        let none = if failed == checks.all.len() { ". None validated" } else { "" };
        placeless(format!("{path:?} must validate all the schemas (allOf){none}"), causes);
    }
    if checks.not.as_ref().is_some_and(|not| complaints(not).is_empty()) {
        placeless(format!("{path:?} must not validate the schema (not)"), causes);
    }
}

/// The checks that the real server makes apart from the schema's own validation, reported at the end.
fn lists_and_embedded(schema: &Schema, value: &Value, old: Option<&Value>, path: &str, causes: &mut Causes) {
    if old == Some(value) {
        return;
    }
    match value {
        Value::Object(fields) => {
            if schema.embedded {
                meta::check(path, value, causes);
            }
            for (key, below) in fields {
                if let Some(schema) = schema.field(key) {
                    lists_and_embedded(schema, below, old.and_then(|old| old.get(key)), &child(path, key), causes);
                }
            }
        }
        Value::Array(list) => {
            lists::check(schema, list, path, causes);
            if let Some(items) = &schema.items {
                for (nth, below) in list.iter().enumerate() {
                    lists_and_embedded(items, below, None, &format!("{path}[{nth}]"), causes);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
