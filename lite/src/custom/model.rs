//! The types of structural schemas and of their rules. `schema` reads schemas and checks objects by them, and `cel`
//! reads and evaluates the rules.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use cel::Program;
use regex::Regex;
use serde_json::Value;

/// The schema of one place of an object.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    /// `None` is anything, or a number or a string.
    pub(crate) kind: Option<Type>,
    pub(crate) int_or_string: bool,
    pub(crate) nullable: bool,
    /// Fields that are not described are kept.
    pub(crate) preserve: bool,
    /// An object with a kind and metadata of its own.
    pub(crate) embedded: bool,
    pub(crate) default: Option<Value>,
    pub(crate) properties: BTreeMap<String, Schema>,
    pub(crate) additional: Option<Additional>,
    pub(crate) items: Option<Box<Schema>>,
    pub(crate) list: List,
    /// Owned as a whole: `x-kubernetes-map-type: atomic`.
    pub(crate) atomic: bool,
    pub(super) checks: Checks,
    pub(super) rules: Vec<Rule>,
    /// Whether there is a rule here or below.
    pub(super) has_rules: bool,
}

/// The schema of fields without a description of their own.
#[derive(Debug)]
pub(crate) enum Additional {
    /// Allowed, and empty of fields.
    Allowed,
    Schema(Box<Schema>),
}

/// The identity of the elements of a list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum List {
    /// Nothing: the list is owned as a whole.
    #[default]
    Atomic,
    /// Their value.
    Set,
    /// The values of these fields.
    Map(Vec<String>),
}

/// A type of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// The constraints on a value beyond its type.
#[derive(Debug, Default)]
pub(super) struct Checks {
    pub(super) format: String,
    pub(super) pattern: Option<(String, Regex)>,
    pub(super) length: Range,
    pub(super) items: Range,
    pub(super) fields: Range,
    pub(super) minimum: Option<Bound>,
    pub(super) maximum: Option<Bound>,
    pub(super) multiple_of: Option<f64>,
    pub(super) required: Vec<String>,
    pub(super) values: Option<Values>,
    pub(super) all: Vec<Schema>,
    pub(super) any: Vec<Schema>,
    pub(super) one: Vec<Schema>,
    pub(super) not: Option<Box<Schema>>,
}

/// The values of an enumeration, in their order and to look one up.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) list: Vec<Value>,
    pub(super) set: HashSet<Value>,
}

/// How many there may be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Range {
    pub(super) least: Option<u64>,
    pub(super) most: Option<u64>,
}

/// A bound of a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) value: f64,
    pub(super) exclusive: bool,
}

/// One rule of a schema, ready to be evaluated.
pub(super) struct Rule {
    pub(super) source: String,
    pub(super) program: Arc<Program>,
    pub(super) message: String,
    pub(super) message_expression: Option<Arc<Program>>,
    pub(super) reason: Option<Reason>,
    /// Below the place of the schema, as it is written behind it: `.a.b`.
    pub(super) path: String,
    /// Whether it compares with the previous value.
    pub(super) uses_old: bool,
    /// Whether `oldSelf` is an optional, so that the rule acts without it too.
    pub(super) optional_old: bool,
}

/// Why a rule refuses, if not because a value is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Required,
    Forbidden,
    Duplicate,
}

impl Type {
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

impl Schema {
    /// The format of a text; empty if it has none.
    pub(super) fn format(&self) -> &str {
        &self.checks.format
    }

    /// The schema of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            Some(Additional::Allowed) | None => None,
        })
    }
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Rule").field(&self.source).finish()
    }
}
