//! Objects as rules see them: by their schemas, with names that the language can write.

use std::collections::HashMap;
use std::sync::Arc;

use cel::objects::Key;
use serde_json::Value;

use crate::custom::schema::{Schema, Type};

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
pub(super) fn convert(schema: Option<&Schema>, value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::Number(number) => {
            let real = schema.is_some_and(|schema| schema.kind == Some(Type::Number));
            match number.as_i64().filter(|_| !real) {
                Some(whole) => cel::Value::Int(whole),
                None => cel::Value::Float(number.as_f64().unwrap_or_default()),
            }
        }
        Value::String(text) => match schema.map(Schema::format) {
            Some("date-time") => moment(text),
            _ => cel::Value::String(Arc::new(text.clone())),
        },
        Value::Array(list) => {
            let items = schema.and_then(|schema| schema.items.as_deref());
            cel::Value::List(Arc::new(list.iter().map(|one| convert(items, one)).collect()))
        }
        Value::Object(fields) => {
            let mut map = HashMap::with_capacity(fields.len());
            for (key, value) in fields {
                let below = schema.and_then(|schema| schema.field(key));
                let value = convert(below, value);
                let escaped = escape(key);
                if escaped != *key && schema.is_some_and(|schema| schema.properties.contains_key(key)) {
                    map.insert(Key::from(escaped), value.clone());
                }
                map.insert(Key::from(key.clone()), value);
            }
            cel::Value::from(map)
        }
    }
}

fn moment(text: &str) -> cel::Value {
    match chrono::DateTime::parse_from_rfc3339(text) {
        Ok(moment) => cel::Value::Timestamp(moment),
        Err(_) => cel::Value::String(Arc::new(text.to_owned())),
    }
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
