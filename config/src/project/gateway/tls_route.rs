//! TLSRoute (`gateway.networking.k8s.io/v1`): routes of the connections for a server name.

use std::sync::Arc;

use super::http_route::SpecJson;
use super::parent::{Hostnames, ParentRef, hostnames, parents};
use super::stream_rule::{StreamRule, stream_rule};
use crate::object::Age;
use crate::project::Projection;
use crate::project::field::{FindingList, InvalidValue, read_or_default};
use crate::project::raw_object::{RawObject, created_s};

/// The maximum number of hostnames of one route.
const HOSTNAMES_MAX: usize = 1024;

/// The parts of a TLSRoute that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsRoute {
    /// Its name and age.
    pub age: Age,
    /// `spec.parentRefs`.
    pub parents: Arc<[ParentRef]>,
    /// `spec.hostnames`: the server names.
    pub hostnames: Hostnames,
    /// The one rule of `spec.rules`, if it is valid.
    pub rule: Option<StreamRule>,
}

impl Projection for TlsRoute {
    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let spec: SpecJson<'_> = read_or_default(source.spec, "spec")?;
        let own = source.name();
        Ok(Self {
            age: Age { created_s: created_s(source.created, findings), name: own.clone() },
            parents: parents(spec.parent_refs, own, findings),
            hostnames: hostnames(spec.hostnames, HOSTNAMES_MAX, findings),
            rule: stream_rule(spec.rules, own, findings),
        })
    }
}
