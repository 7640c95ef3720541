//! EndpointSlice (`discovery.k8s.io/v1`): the pod addresses of a Service.

use std::net::IpAddr;
use std::sync::Arc;

use crate::object::ObjectName;

/// What routing reads of an EndpointSlice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointSlice {
    /// Its name.
    pub name: ObjectName,
    /// The label `kubernetes.io/service-name`: the Service, in its namespace. `None` belongs to none.
    pub service: Option<Arc<str>>,
    /// Its TCP ports that have a number.
    pub ports: Box<[SlicePort]>,
    /// Its endpoints, one for each address.
    pub endpoints: Box<[SliceEndpoint]>,
}

/// One of `ports`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlicePort {
    /// `name`: that of the Service's port; empty where it has none.
    pub name: Arc<str>,
    /// `port`: the number that the pods listen on.
    pub number: u16,
}

/// One address of one of `endpoints`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SliceEndpoint {
    /// The address.
    pub address: IpAddr,
    /// The condition `ready`; unknown counts as ready, as the API says.
    pub ready: bool,
    /// The condition `serving`; unknown counts as `ready` does.
    pub serving: bool,
    /// `targetRef.uid`: the pod's.
    pub pod: Option<Arc<str>>,
}
