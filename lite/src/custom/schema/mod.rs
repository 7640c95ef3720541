//! Structural schemas: the allowed content of objects of a custom kind. They are read once, when a definition arrives.
//!
//! The rules and the words of refusals are those of the API server's own validation, which no library has: its JSON
//! schema is a dialect with extensions, and clients and tests know its sentences.

mod check;
mod fill;
mod format;
mod lists;
mod meta;
mod number;
mod prune;
mod read;

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use super::cel::Rule;

pub(crate) use self::check::{blocks, validate};
pub(crate) use self::fill::{fill, normalise};
pub(in crate::custom) use self::format::{duration, fits};
pub(crate) use self::meta::coerce;
pub(crate) use self::prune::prune;
pub(crate) use self::read::read;

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
    checks: Checks,
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
struct Checks {
    format: String,
    pattern: Option<(String, Regex)>,
    length: Range,
    items: Range,
    fields: Range,
    minimum: Option<Bound>,
    maximum: Option<Bound>,
    multiple_of: Option<f64>,
    required: Vec<String>,
    values: Option<Vec<Value>>,
    all: Vec<Schema>,
    any: Vec<Schema>,
    one: Vec<Schema>,
    not: Option<Box<Schema>>,
}

/// How many there may be.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    least: Option<u64>,
    most: Option<u64>,
}

/// A bound of a number.
#[derive(Clone, Copy, Debug)]
struct Bound {
    value: f64,
    exclusive: bool,
}

impl Type {
    fn parse(name: &str) -> Option<Self> {
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
