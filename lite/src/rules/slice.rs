//! EndpointSlices: addresses of one family, and ports.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{check_immutable, check_value, default, elements, list, repeated, text};
use crate::causes::Causes;
use crate::names;
use crate::rules::metadata::{check_label, check_subdomain};

/// Endpoints of one slice.
const ENDPOINTS_MAX: usize = 1_000;
/// The maximum number of addresses of one endpoint.
const ADDRESSES_MAX: usize = 100;

/// The maximum number of zones, and of nodes, that one endpoint is for.
const HINTS_MAX: usize = 8;

pub(super) fn defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    // Both are always present in the real server's answers, if only as an empty list.
    for key in ["endpoints", "ports"] {
        default(new, key, Vec::<Value>::new());
    }
    for endpoint in elements(new, "endpoints") {
        // The real server drops this field of an older version too.
        endpoint.as_object_mut().and_then(|endpoint| endpoint.remove("deprecatedTopology"));
        default(endpoint, "conditions", json!({}));
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
    check_ports(list(new, "ports"), causes);
    let endpoints = list(new, "endpoints");
    if endpoints.len() > ENDPOINTS_MAX {
        causes.too_many("endpoints", endpoints.len(), ENDPOINTS_MAX);
    } else {
        for (nth, endpoint) in endpoints.iter().enumerate() {
            check_endpoint(&format!("endpoints[{nth}]"), family, endpoint, causes);
        }
    }
    if let Some(old) = old {
        check_immutable("addressType", &new["addressType"], &old["addressType"], causes);
    }
}

/// Reports ports that cannot be told apart. The real server does not look at their numbers.
fn check_ports(ports: &[Value], causes: &mut Causes) {
    let repeated = repeated(ports, |port| text(port, "name"));
    for (nth, port) in ports.iter().enumerate() {
        let field = |name: &str| format!("ports[{nth}].{name}");
        let name = text(port, "name");
        if !name.is_empty() {
            causes.all(&field("name"), &port["name"], names::label(name));
        }
        if repeated[nth] {
            causes.duplicate(field("name"), &port["name"]);
        }
        check_value("EndpointPort", "protocol", field("protocol"), &port["protocol"], causes);
        if let Some(protocol) = port["appProtocol"].as_str() {
            causes.all(&field("appProtocol"), &port["appProtocol"], names::qualified(protocol));
        }
    }
}

fn check_endpoint(path: &str, family: &str, endpoint: &Value, causes: &mut Causes) {
    check_addresses(&format!("{path}.addresses"), family, list(endpoint, "addresses"), causes);
    if let Some(node) = endpoint["nodeName"].as_str() {
        check_subdomain(&format!("{path}.nodeName"), node, causes);
    }
    if let Some(host) = endpoint["hostname"].as_str() {
        check_label(&format!("{path}.hostname"), host, causes);
    }
    for (field, form) in [("forZones", names::label_value as fn(&str) -> Vec<String>), ("forNodes", names::subdomain)] {
        let hints = list(&endpoint["hints"], field);
        let path = format!("{path}.hints.{field}");
        if hints.len() > HINTS_MAX {
            causes.too_many(path, hints.len(), HINTS_MAX);
            return;
        }
        let repeated = repeated(hints, |hint| &hint["name"]);
        for (nth, hint) in hints.iter().enumerate() {
            let path = format!("{path}[{nth}].name");
            if repeated[nth] {
                causes.duplicate(path.as_str(), &hint["name"]);
            }
            causes.all(&path, &hint["name"], form(text(hint, "name")));
        }
    }
}

/// Reports addresses that are not of the family, or to which no endpoint can be. Loopback is allowed, unlike in the
/// real server: the processes of `dev` are there.
fn check_addresses(field: &str, family: &str, addresses: &[Value], causes: &mut Causes) {
    if addresses.is_empty() {
        causes.required(field, "must contain at least 1 address");
    }
    if addresses.len() > ADDRESSES_MAX {
        causes.too_many(field, addresses.len(), ADDRESSES_MAX);
    }
    for (nth, address) in addresses.iter().enumerate() {
        let whole = field;
        let field = format!("{field}[{nth}]");
        let written = address.as_str().unwrap_or_default();
        match (family, written.parse::<IpAddr>()) {
            ("IPv4" | "IPv6", Err(_)) => causes.all(&field, address, names::address(written)),
            ("IPv4" | "IPv6", Ok(parsed)) => {
                if parsed.is_ipv4() != (family == "IPv4") {
                    causes.invalid(whole, address, &format!("must be an {family} address"));
                }
                if !parsed.is_loopback() {
                    causes.all(&field, address, names::endpoint_address(parsed, written));
                }
            }
            ("FQDN", _) => check_subdomain(&field, written, causes),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let ports = json!({"addressType": "IPv4", "ports": [{"name": "a"}, {"name": "a"}]});
        check_refused("EndpointSlice", ports, None, "ports[1].name: Duplicate value: \"a\"");
        check_refused(
            "EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["::1"]}]}),
            None,
            "endpoints[0].addresses: Invalid value: \"::1\": must be an IPv4 address",
        );
        check_refused(
            "EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": [{}]}),
            None,
            "endpoints[0].addresses: Required value: must contain at least 1 address",
        );
    }
}
