//! EndpointSlice (`discovery.k8s.io/v1`): the pod addresses of a Service.

use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Projection;
use super::field::{FindingList, InvalidValue, read_or_default};
use super::raw_object::RawObject;
use super::service::{port_number, transport};
use crate::model::Transport;
use crate::object::ObjectName;

/// The maximum number of endpoints read of one slice; the API allows 1000.
const ENDPOINTS_MAX: usize = 10_000;

/// The maximum number of ports read of one slice.
const PORTS_MAX: usize = 1024;

/// The parts of an EndpointSlice that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointSlice {
    /// Its name.
    pub name: ObjectName,
    /// The label `kubernetes.io/service-name`: the Service, in the slice's namespace. `None` for a slice of no Service.
    pub service: Option<ObjectName>,
    /// Its TCP and UDP ports that have a number.
    pub ports: Box<[SlicePort]>,
    /// Its endpoints.
    pub endpoints: Box<[SliceEndpoint]>,
}

/// One of `ports`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlicePort {
    /// `name`: that of the Service's port; empty if that has none.
    pub name: Arc<str>,
    /// `port`: the number that the pods listen on.
    pub number: u16,
    /// `protocol`.
    pub transport: Transport,
}

/// One of `endpoints`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SliceEndpoint {
    /// `addresses[0]`: the API defines the addresses of one endpoint as interchangeable; consumers use the first.
    pub address: IpAddr,
    /// The condition `ready`; unknown counts as ready, as the API defines.
    pub ready: bool,
    /// The condition `serving`; unknown counts as `ready` does.
    pub serving: bool,
    /// `targetRef.uid`: the pod's.
    pub pod: Option<Arc<str>>,
}

#[derive(Deserialize, Default)]
#[serde(expecting = "an object")]
struct LabelsJson {
    #[serde(rename = "kubernetes.io/service-name")]
    service: Option<Arc<str>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct PortJson {
    name: Option<Arc<str>>,
    protocol: Option<String>,
    port: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct EndpointJson {
    addresses: Option<Vec<String>>,
    conditions: Option<ConditionsJson>,
    target_ref: Option<TargetJson>,
}

#[derive(Deserialize, Default)]
#[serde(expecting = "an object")]
struct ConditionsJson {
    ready: Option<bool>,
    serving: Option<bool>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct TargetJson {
    uid: Option<Arc<str>>,
}

/// The address family of all addresses of a slice (`addressType`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Projection for EndpointSlice {
    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let labels: LabelsJson = read_or_default(source.labels, "metadata.labels")?;
        let ports = read_or_default(source.ports, "ports")?;
        let ports = findings
            .entries(ports, PORTS_MAX, "ports")
            .filter_map(|(field, raw)| port(raw, &field, findings))
            .collect();
        let address_type: Option<String> = read_or_default(source.address_type, "addressType")?;
        let endpoints = match family(address_type.as_deref().unwrap_or_default(), findings) {
            None => Box::default(),
            Some(family) => {
                let endpoints =
                    findings.entries(read_or_default(source.endpoints, "endpoints")?, ENDPOINTS_MAX, "endpoints");
                endpoints.filter_map(|(field, raw)| endpoint(raw, family, &field, findings)).collect()
            }
        };
        let service = labels.service.filter(|service| !service.is_empty()).map(|service| source.name().beside(service));
        Ok(Self { name: source.name().clone(), service, ports, endpoints })
    }
}

fn family(address_type: &str, findings: &mut FindingList) -> Option<Family> {
    match address_type {
        "IPv4" => return Some(Family::V4),
        "IPv6" => return Some(Family::V6),
        "FQDN" => findings.dropped("addressType", address_type, "is deprecated by the API and names no address"),
        _ => findings.dropped("addressType", address_type, "is neither IPv4 nor IPv6"),
    }
    None
}

/// A port of another protocol is ignored. One without a number stands for all ports and gives no port to connect to.
fn port(raw: &RawValue, field: &str, findings: &mut FindingList) -> Option<SlicePort> {
    let json: PortJson = findings.entry(raw, field)?;
    let transport = transport(json.protocol.as_deref())?;
    let number = json.port?;
    let Some(number) = port_number(number) else {
        findings.dropped(&format!("{field}.port"), &number.to_string(), "is not between 1 and 65535");
        return None;
    };
    Some(SlicePort { name: json.name.unwrap_or_default(), number, transport })
}

/// The condition `terminating` is not read: `ready` is already false for a pod that terminates, unless its Service
/// publishes pods that are not ready, which includes this one.
fn endpoint(raw: &RawValue, family: Family, field: &str, findings: &mut FindingList) -> Option<SliceEndpoint> {
    let json: EndpointJson = findings.entry(raw, field)?;
    let first = json.addresses.as_ref().and_then(|addresses| addresses.first()).map_or("", |first| &**first);
    let address = match (first.parse(), family) {
        (Ok(address @ IpAddr::V4(_)), Family::V4) | (Ok(address @ IpAddr::V6(_)), Family::V6) => address,
        (_, Family::V4) => {
            findings.dropped(&format!("{field}.addresses[0]"), first, "is not an IPv4 address");
            return None;
        }
        (_, Family::V6) => {
            findings.dropped(&format!("{field}.addresses[0]"), first, "is not an IPv6 address");
            return None;
        }
    };
    let conditions = json.conditions.unwrap_or_default();
    let ready = conditions.ready.unwrap_or(true);
    let serving = conditions.serving.unwrap_or(ready);
    Some(SliceEndpoint { address, ready, serving, pod: json.target_ref.and_then(|target| target.uid) })
}
