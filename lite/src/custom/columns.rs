//! The columns that a definition wants `kubectl get` to print.

use serde_json::{Value, json};

use super::path::Path;
use crate::clock;

/// Columns of one version.
const COLUMNS_MAX: usize = 64;

/// One column after the name.
#[derive(Debug)]
pub(crate) struct Column {
    title: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    /// `None` if it cannot be read; then no object has anything there.
    path: Option<Path>,
}

impl Column {
    /// The columns of a version; an age if it names none.
    pub(super) fn read(version: &Value) -> Vec<Self> {
        let list = version["additionalPrinterColumns"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |column: &Value, key: &str| column[key].as_str().unwrap_or_default().to_owned();
        let read = |column: &Value| {
            let path = text(column, "jsonPath");
            let given = text(column, "description");
            let described = format!("Custom resource definition column (in JSONPath format): {path}");
            Self {
                title: text(column, "name"),
                kind: text(column, "type"),
                format: text(column, "format"),
                description: if given.is_empty() { described } else { given },
                priority: column["priority"].as_i64().unwrap_or_default(),
                path: Path::parse(&path),
            }
        };
        if list.is_empty() {
            let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
            return vec![Self { description: "When it was made.".into(), ..read(&age) }];
        }
        list.iter().take(COLUMNS_MAX).map(read).collect()
    }

    /// The head of the column in a Table.
    pub(crate) fn definition(&self) -> Value {
        json!({
            "name": self.title, "type": self.kind, "format": self.format, "description": self.description,
            "priority": self.priority,
        })
    }

    /// Its cell for an object; null if it is empty.
    pub(crate) fn cell(&self, object: &Value, unix_seconds: u64) -> Value {
        let Some(value) = self.path.as_ref().and_then(|path| path.first(object)).filter(|value| !value.is_null())
        else {
            return Value::Null;
        };
        match (self.kind.as_str(), value) {
            ("string", Value::String(_)) => value.clone(),
            ("string", other) => other.to_string().into(),
            ("integer", Value::Number(number)) => number.as_i64().map_or(Value::Null, Value::from),
            ("number", Value::Number(number)) => number.as_f64().map_or(Value::Null, Value::from),
            ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(text)) => match clock::seconds(text) {
                Some(moment) => clock::age(unix_seconds.saturating_sub(moment)).into(),
                None => "<invalid>".into(),
            },
            _ => Value::Null,
        }
    }
}
