//! EndpointSlices: addresses of one family, and ports.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use super::{check_immutable, check_port, check_value, default, elements, list, text};
use crate::failure::Causes;
use crate::rules::metadata::check_subdomain;

/// Endpoints of one slice.
const ENDPOINTS_MAX: usize = 1_000;
/// The maximum number of addresses of one endpoint.
const ADDRESSES_MAX: usize = 100;

pub(super) fn defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    // Both are always present in the real server's answers, if only as an empty list.
    for key in ["endpoints", "ports"] {
        default(new, key, Vec::<Value>::new());
    }
    for port in elements(new, "ports") {
        default(port, "name", "");
        default(port, "protocol", "TCP");
    }
}

pub(super) fn validate(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    let family = text(new, "addressType");
    if family.is_empty() {
        causes.required("addressType", "");
    } else {
        check_value("EndpointSlice", "addressType", "addressType", &new["addressType"], causes);
    }
    let endpoints = list(new, "endpoints");
    if endpoints.len() > ENDPOINTS_MAX {
        causes.invalid("endpoints", &endpoints.len().into(), "must have at most 1000 items");
    }
    for (nth, endpoint) in endpoints.iter().enumerate() {
        check_addresses(&format!("endpoints[{nth}].addresses"), family, list(endpoint, "addresses"), causes);
    }
    for (nth, port) in list(new, "ports").iter().enumerate().filter(|(_, port)| !port["port"].is_null()) {
        check_port(&format!("ports[{nth}].port"), &port["port"], causes);
    }
    if let Some(old) = old {
        check_immutable("addressType", &new["addressType"], &old["addressType"], causes);
    }
}

fn check_addresses(field: &str, family: &str, addresses: &[Value], causes: &mut Causes) {
    if addresses.is_empty() {
        causes.required(field, "must contain at least 1 address");
    }
    if addresses.len() > ADDRESSES_MAX {
        causes.invalid(field, &addresses.len().into(), "must have at most 100 items");
    }
    for (nth, address) in addresses.iter().enumerate() {
        let field = format!("{field}[{nth}]");
        let written = address.as_str().unwrap_or_default();
        match family {
            "IPv4" if written.parse::<Ipv4Addr>().is_err() => {
                causes.invalid(field, address, "must be a valid IPv4 address")
            }
            "IPv6" if written.parse::<Ipv6Addr>().is_err() => {
                causes.invalid(field, address, "must be a valid IPv6 address")
            }
            "FQDN" => check_subdomain(&field, written, causes),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::rules::tests::{check_refused, outcome};

    #[test]
    fn a_slice_gets_lists_and_protocols() {
        let slice = outcome("EndpointSlice", json!({"addressType": "IPv4", "ports": [{"port": 80}]}), None).unwrap();
        assert_eq!(slice["endpoints"], json!([]));
        assert_eq!(slice["ports"], json!([{"name": "", "port": 80, "protocol": "TCP"}]));
    }

    #[test]
    fn bad_slices_are_refused() {
        check_refused("EndpointSlice", json!({}), None, "addressType: Required value");
        check_refused(
            "EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["::1"]}]}),
            None,
            "endpoints[0].addresses[0]: Invalid value: \"::1\": must be a valid IPv4 address",
        );
        check_refused(
            "EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": [{}]}),
            None,
            "endpoints[0].addresses: Required value: must contain at least 1 address",
        );
    }
}
