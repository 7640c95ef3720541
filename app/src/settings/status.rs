//! Writes to the cluster, and the election of the writer.

use std::net::IpAddr;
use std::sync::Arc;

use tidegate_config::model::HostPattern;
use tidegate_config::object::ObjectName;
use tidegate_config::project::PublicAddress;
use tidegate_control::options::Publish;

use super::{InvalidValue, Mode};
use crate::args::StatusArgs;

/// The Lease of the election.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LeaseName {
    /// `None` for the client's default namespace.
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) name: Arc<str>,
}

/// The settings of writes to the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Written {
    /// The addresses in the status of Ingresses.
    pub(super) publish: Publish,
    /// `true` if findings are reported as Events.
    pub(super) events: bool,
    /// The Lease of the writers; `None` if nothing may be written.
    pub(super) lease: Option<LeaseName>,
}

pub(super) fn read(args: &StatusArgs, mode: Mode) -> Result<Written, InvalidValue> {
    let (on, events) = (switch("--status", &args.status)?, switch("--events", &args.events)?);
    let mut addresses = Vec::new();
    for text in &args.publish_status_address {
        addresses.push(address(text)?);
    }
    let service = args.publish_service.as_deref().map(service).transpose()?;
    let lease = lease(&args.lease)?;
    let publish = match service {
        Some(_) if !addresses.is_empty() => {
            let service = args.publish_service.as_deref().unwrap_or_default();
            return Err(InvalidValue::new("--publish-service", service, "contradicts --publish-status-address"));
        }
        Some(service) => Publish::Service(service),
        None if !addresses.is_empty() => Publish::Addresses(addresses),
        None if mode == Mode::Dev => Publish::Addresses(vec![PublicAddress::of_ip("127.0.0.1")]),
        None => Publish::Nothing,
    };
    let (publish, events) = if on { (publish, events) } else { (Publish::Nothing, false) };
    let lease = on.then_some(lease);
    Ok(Written { publish, events, lease })
}

/// Parses `on` or `off`.
pub(super) fn switch(flag: &'static str, text: &str) -> Result<bool, InvalidValue> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(InvalidValue::new(flag, other, "is neither on nor off")),
    }
}

fn address(text: &str) -> Result<PublicAddress, InvalidValue> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(PublicAddress::of_ip(ip.to_string()));
    }
    match HostPattern::parse(text) {
        Ok(HostPattern::Exact(name)) => Ok(PublicAddress::of_hostname(name)),
        Ok(HostPattern::Wildcard(..) | HostPattern::FirstLabel(_) | HostPattern::Expression(_) | HostPattern::Any)
        | Err(_) => Err(InvalidValue::new("--publish-status-address", text, "is neither an IP address nor a DNS name")),
    }
}

fn service(text: &str) -> Result<ObjectName, InvalidValue> {
    let parts = text.split_once('/').filter(|(ns, name)| !ns.is_empty() && !name.is_empty() && !name.contains('/'));
    let (namespace, name) =
        parts.ok_or_else(|| InvalidValue::new("--publish-service", text, "is not of the form NAMESPACE/NAME"))?;
    Ok(ObjectName::new(namespace, name))
}

fn lease(text: &str) -> Result<LeaseName, InvalidValue> {
    let (namespace, name) = text.split_once('/').map_or((None, text), |(namespace, name)| (Some(namespace), name));
    if name.is_empty() || name.contains('/') || namespace.is_some_and(str::is_empty) {
        return Err(InvalidValue::new("--lease", text, "is not of the form NAME or NAMESPACE/NAME"));
    }
    Ok(LeaseName { namespace: namespace.map(Arc::from), name: name.into() })
}
