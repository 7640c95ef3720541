//! Deployment (`apps/v1`): the Deis router's own, whose annotations are settings for all applications. Others are not
//! read.

use super::annotations::deis::{self, DeisRouter};
use super::field::{FindingList, InvalidValue};
use super::source::Source;
use crate::object::ObjectName;

/// The parts of the Deis router's Deployment that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deployment {
    /// Its name.
    pub name: ObjectName,
    /// The settings in its annotations.
    pub router: DeisRouter,
}

pub(super) fn project(source: &Source<'_>, found: &mut FindingList) -> Result<Deployment, InvalidValue> {
    let router = deis::of_router(&source.annotations()?, found);
    Ok(Deployment { name: source.name().clone(), router })
}
