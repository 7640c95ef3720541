//! Namespace (`v1`): its labels, by which listeners select the routes that may attach to them.

use super::label_selector::Labels;
use crate::object::ObjectName;
use crate::project::field::{Misread, read_or_default};
use crate::project::source::Source;

/// What routing reads of a Namespace. One whose labels cannot be read is not selected: its labels could be any.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// Its name; the namespace of that is empty.
    pub name: ObjectName,
    /// `metadata.labels`.
    pub labels: Labels,
}

pub(in crate::project) fn project(source: &Source<'_>) -> Result<Namespace, Misread> {
    let labels = read_or_default(source.labels, "metadata.labels")?;
    Ok(Namespace { name: source.name().clone(), labels })
}
