//! Namespace (`v1`): its labels, by which listeners select the routes that may attach.

use super::label_selector::Labels;
use crate::object::ObjectName;
use crate::project::field::{InvalidValue, read_or_default};
use crate::project::raw_object::RawObject;

/// The parts of a Namespace that routing reads. One whose labels cannot be read is not selected, because its labels are
/// unknown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// Its name; the namespace part is empty.
    pub name: ObjectName,
    /// `metadata.labels`.
    pub labels: Labels,
}

pub(in crate::project) fn project(source: &RawObject<'_>) -> Result<Namespace, InvalidValue> {
    let labels = read_or_default(source.labels, "metadata.labels")?;
    Ok(Namespace { name: source.name().clone(), labels })
}
