//! Service (`v1`): the ports that backends are.

use std::sync::Arc;

use crate::model::AppProtocol;
use crate::object::ObjectName;

/// What routing reads of a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// Its name.
    pub name: ObjectName,
    /// Where its endpoints come from.
    pub kind: ServiceKind,
    /// Its TCP ports.
    pub ports: Box<[ServicePort]>,
}

/// Where a Service's endpoints come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServiceKind {
    /// EndpointSlices, whether the Service has a cluster address or is headless.
    Slices,
    /// `spec.externalName`, in lower case without a trailing dot: a DNS name to resolve.
    ExternalName(Arc<str>),
}

/// One of `spec.ports`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServicePort {
    /// `name`; empty for the only port of a Service.
    pub name: Arc<str>,
    /// `port`.
    pub number: u16,
    /// `targetPort` where it is a number: the port of an ExternalName's addresses.
    pub target: Option<u16>,
    /// `appProtocol`.
    pub protocol: AppProtocol,
}
