//! The desired infrastructure of a Gateway in the cluster.

use std::net::IpAddr;

use tidegate_config::model::Transport;
use tidegate_config::object::ObjectName;
use tidegate_config::project::gateway::Options as Texts;

use crate::options::ServiceType;

/// The desired infrastructure of a Gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayInfrastructure {
    /// The name of the Service.
    pub service: ObjectName,
    /// Its labels.
    pub labels: Texts,
    /// Its annotations.
    pub annotations: Texts,
    /// Its type; `None` for a headless one.
    pub kind: Option<ServiceType>,
    /// Its ports, each with its target port, in ascending order.
    pub ports: Box<[(Transport, u16, u16)]>,
    /// The requested addresses.
    pub addresses: Box<[IpAddr]>,
    /// Its endpoints.
    pub endpoints: Endpoints,
}

/// The endpoints of a Gateway's Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Endpoints {
    /// The endpoints of this Service.
    Of(ObjectName),
    /// These addresses.
    At(Box<[IpAddr]>),
}
