//! Namespace (`v1`): its labels, by which listeners select the routes that may attach.

use super::label_selector::Labels;
use crate::object::ObjectName;
use crate::project::field::{FindingList, InvalidValue, read_or_default};
use crate::project::raw_object::RawObject;
use crate::project::{Projection, Sharing};

/// The parts of a Namespace that routing reads. One whose labels cannot be read is not selected, because its labels are
/// unknown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// Its name; the namespace part is empty.
    pub name: ObjectName,
    /// `metadata.labels`.
    pub labels: Labels,
}

impl Sharing for Namespace {}

impl Projection for Namespace {
    fn project(source: &RawObject<'_>, _findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let labels = read_or_default(source.labels, "metadata.labels")?;
        Ok(Self { name: source.name().clone(), labels })
    }
}
