//! Objects as rules see them: by their schemas, with names that the language can write.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use cel::common::types::{
    CelBool, CelBytes, CelDouble, CelDuration, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelTimestamp,
};
use cel::common::value::Val;
use chrono::{DateTime, NaiveDate};
use serde_json::Value;

use super::keyed::KeyedList;
use crate::custom::format::duration;
use crate::custom::model::{List, Schema, Type};

/// Fields of whole objects, and of embedded ones.
pub(super) const META: &[&str] = &["apiVersion", "kind", "metadata"];

/// Words of the language, which are no names.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// A field's name as rules write it.
pub(super) fn escape(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if name.contains("__") || name.contains(['.', '-', '/', '$']) {
        let name = name.replace("__", "__underscores__").replace('.', "__dot__");
        return name.replace('-', "__dash__").replace('/', "__slash__").replace('$', "__dollar__");
    }
    name.to_owned()
}

/// A value as the language has it. `schema` is `None` where nothing is described.
pub(super) fn convert(schema: Option<&Schema>, value: &Value) -> Box<dyn Val> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(value) => Box::new(CelBool::from(*value)),
        Value::Number(number) => {
            let real = schema.is_some_and(|schema| schema.kind == Some(Type::Number));
            match number.as_i64().filter(|_| !real) {
                Some(whole) => Box::new(CelInt::from(whole)),
                None => Box::new(CelDouble::from(number.as_f64().unwrap_or_default())),
            }
        }
        Value::String(text) => {
            let formatted = schema.and_then(|schema| formatted(schema.format(), text));
            formatted.unwrap_or_else(|| Box::new(CelString::from(text.clone())))
        }
        Value::Array(list) => {
            let items = schema.and_then(|schema| schema.items.as_deref());
            let elements = list.iter().map(|one| convert(items, one)).collect();
            match schema.map(|schema| &schema.list) {
                Some(List::Set) => Box::new(KeyedList::new(elements, None)),
                Some(List::Map(keys)) => {
                    Box::new(KeyedList::new(elements, Some(keys.iter().map(|key| escape(key)).collect())))
                }
                Some(List::Atomic) | None => Box::new(CelList::from(elements)),
            }
        }
        Value::Object(fields) => {
            let mut map = HashMap::with_capacity(fields.len());
            for (key, value) in fields {
                let below = schema.and_then(|schema| schema.field(key));
                let value = convert(below, value);
                let escaped = escape(key);
                if escaped != *key && schema.is_some_and(|schema| schema.properties.contains_key(key)) {
                    map.insert(CelMapKey::from(escaped), value.clone());
                }
                map.insert(CelMapKey::from(key.clone()), value);
            }
            Box::new(CelMap::from(map))
        }
    }
}

/// A text whose format the language has a type for.
fn formatted(format: &str, text: &str) -> Option<Box<dyn Val>> {
    Some(match format {
        "date-time" => Box::new(CelTimestamp::from(DateTime::parse_from_rfc3339(text).ok()?)),
        "date" => {
            let midnight = text.parse::<NaiveDate>().ok()?.and_hms_opt(0, 0, 0)?;
            Box::new(CelTimestamp::from(midnight.and_utc().fixed_offset()))
        }
        "duration" => Box::new(CelDuration::from(duration(text)?)),
        "byte" => Box::new(CelBytes::from(URL_SAFE.decode(text).or_else(|_| STANDARD.decode(text)).ok()?)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        for (name, escaped) in [
            ("plain", "plain"),
            ("namespace", "__namespace__"),
            ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
            ("a__b", "a__underscores__b"),
        ] {
            assert_eq!(escape(name), escaped);
        }
    }
}
