//! One step of a path into an object, in the forms that `fieldsV1` knows.

use std::fmt;

use serde_json::{Map, Value};

/// A value of a list's key or of a set. It has an order, as the steps of a path need one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scalar {
    Null,
    Int(i64),
    /// A number that is not an `i64`, as JSON.
    Number(String),
    Text(String),
    Bool(bool),
    /// A list or an object, as JSON. No schema has one in this place; clients may write one.
    Compound(String),
}

impl Scalar {
    pub(crate) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => number.as_i64().map_or_else(|| Self::Number(number.to_string()), Self::Int),
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(_) | Value::Object(_) => Self::Compound(value.to_string()),
        }
    }

    fn value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Int(number) => (*number).into(),
            Self::Number(json) | Self::Compound(json) => serde_json::from_str(json).unwrap_or_default(),
            Self::Text(text) => text.clone().into(),
            Self::Bool(value) => (*value).into(),
        }
    }
}

/// The step from a value to one below it. The order is that of conflicts in the real server's messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// A field of an object.
    Field(String),
    /// The element of a list that has these keys, sorted by name.
    Key(Vec<(String, Scalar)>),
    /// The element of a set.
    Value(Scalar),
    /// An element by its index.
    Index(u64),
}

impl Step {
    pub(crate) fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    /// Reads a key of `fieldsV1`, such as `f:spec` or `k:{"name":"a"}`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (form, rest) = text.split_once(':')?;
        match form {
            "f" => Some(Self::field(rest)),
            "v" => Some(Self::Value(Scalar::of(&serde_json::from_str(rest).ok()?))),
            "i" => rest.parse().ok().map(Self::Index),
            "k" => {
                let keys: Map<String, Value> = serde_json::from_str(rest).ok()?;
                let mut keys: Vec<_> = keys.iter().map(|(name, value)| (name.clone(), Scalar::of(value))).collect();
                keys.sort();
                Some(Self::Key(keys))
            }
            _ => None,
        }
    }

    /// The key of `fieldsV1` for this step.
    pub(crate) fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Value(value) => format!("v:{}", value.value()),
            Self::Index(nth) => format!("i:{nth}"),
            Self::Key(keys) => {
                let keys: Map<_, _> = keys.iter().map(|(name, value)| (name.clone(), value.value())).collect();
                format!("k:{}", Value::Object(keys))
            }
        }
    }
}

/// The form of paths in messages about conflicts: `.spec.ports[port=80,protocol="TCP"].name`.
impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(out, ".{name}"),
            Self::Value(value) => write!(out, "[={}]", value.value()),
            Self::Index(nth) => write!(out, "[{nth}]"),
            Self::Key(keys) => {
                let keys: Vec<_> = keys.iter().map(|(name, value)| format!("{name}={}", value.value())).collect();
                write!(out, "[{}]", keys.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_round_trips() {
        for (text, shown) in [
            ("f:a.b", ".a.b"),
            ("k:{\"port\":80,\"protocol\":\"TCP\"}", "[port=80,protocol=\"TCP\"]"),
            ("v:\"a\"", "[=\"a\"]"),
            ("v:1.5", "[=1.5]"),
            ("i:3", "[3]"),
        ] {
            let step = Step::parse(text).unwrap();
            assert_eq!((step.encode().as_str(), step.to_string().as_str()), (text, shown));
        }
        for text in ["", "f", "x:a", "v:", "k:1", "k:[]", "i:-1"] {
            assert_eq!(Step::parse(text), None, "{text}");
        }
    }
}
