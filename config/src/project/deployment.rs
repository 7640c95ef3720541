//! Deployment (`apps/v1`): the Deis router's own, whose annotations are settings for all applications. Others are not
//! read.

use super::annotations::deis::{self, DeisRouter};
use super::field::{FindingList, InvalidValue};
use super::raw_object::RawObject;
use super::{Projection, Sharing};
use crate::object::ObjectName;

/// The parts of the Deis router's Deployment that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deployment {
    /// Its name.
    pub name: ObjectName,
    /// The settings in its annotations.
    pub router: DeisRouter,
}

impl Sharing for Deployment {}

impl Projection for Deployment {
    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let router = deis::of_router(&source.annotations()?, findings);
        Ok(Self { name: source.name().clone(), router })
    }
}
