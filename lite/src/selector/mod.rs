//! Which objects of a kind a list or watch is about: labels and fields together.

mod field;
mod label;

use serde_json::Value;

pub(crate) use self::field::Fields;
pub(crate) use self::label::{Labels, valid_name, valid_value};
use crate::failure::Failure;
use crate::kind::Kind;

/// The selectors of one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Whether there is nothing to compare.
    pub(crate) all: bool,
    labels: Labels,
    pub(crate) fields: Fields,
}

impl Selection {
    /// Reads both selectors of a query. What can't be read, or is about a field that the kind has no selector for, is a
    /// bad request.
    pub(crate) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, Failure> {
        let all = labels.is_empty() && fields.is_empty();
        let labels =
            Labels::parse(labels).map_err(|why| Failure::bad_request(format!("unable to parse requirement: {why}")))?;
        Ok(Self { all, labels, fields: Fields::parse(kind, fields)? })
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.fields.matches(object) && self.labels.matches(&object["metadata"]["labels"])
    }
}
