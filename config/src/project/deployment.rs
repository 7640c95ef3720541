//! Deployment (`apps/v1`): the Deis router's own, whose annotations are settings for all applications. Others are not read.

use super::annotations::deis::{self, DeisRouter};
use super::field::{Found, Misread};
use super::source::Source;
use crate::object::ObjectName;

/// What routing reads of the Deployment of a Deis router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deployment {
    /// Its name.
    pub name: ObjectName,
    /// What its annotations ask for.
    pub router: DeisRouter,
}

pub(super) fn project(source: &Source<'_>, found: &mut Found) -> Result<Deployment, Misread> {
    let router = deis::of_router(&source.annotations()?, found);
    Ok(Deployment { name: source.name().clone(), router })
}
