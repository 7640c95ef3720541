//! The selectors of a list or watch: labels and fields together.

mod field;
mod label;
mod marks;

pub(crate) use self::field::Fields;
pub(crate) use self::label::{LabelSelector, valid_name};
pub(crate) use self::marks::{Marks, Selectable};
use crate::failure::Failure;
use crate::kind::Kind;

/// The selectors of one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// `true` if there is nothing to compare.
    pub(crate) all: bool,
    /// Whether it takes more than the name and the namespace of an object to tell.
    pub(crate) looks_inside: bool,
    labels: LabelSelector,
    pub(crate) fields: Fields,
}

impl Selection {
    /// Reads both selectors of a query. A malformed one, or one about a field that is not selectable, is a bad request.
    pub(crate) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, Failure> {
        let all = labels.is_empty() && fields.is_empty();
        let labels = LabelSelector::parse(labels)
            .map_err(|why| Failure::bad_request(format!("unable to parse requirement: {why}")))?;
        let fields = Fields::parse(kind, fields)?;
        let looks_inside = !labels.is_empty() || !fields.only_names();
        Ok(Self { all, looks_inside, labels, fields })
    }

    pub(crate) fn matches(&self, object: &impl Selectable) -> bool {
        self.fields.matches(object) && self.labels.match_by(|key| object.label(key))
    }
}
