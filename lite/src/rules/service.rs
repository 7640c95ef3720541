//! Services: type, addresses, ports.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::{check_port, check_value, child, default, elements, list, text};
use crate::failure::Causes;
use crate::rules::metadata::{check_label, check_subdomain};

/// Made-up addresses are from 10.96.0.0/12, kubeadm's default for Services.
const CLUSTER_NET: u32 = 0x0a60_0000;
const CLUSTER_NET_SIZE: u64 = 1 << 20;
const NODE_PORTS: std::ops::Range<u64> = 30_000..32_768;

const PORT_NAME: &str =
    "must contain only alphanumeric characters (a-z, 0-9), and hyphens (-), at least one letter, at most 15 characters";

pub(super) fn defaults(new: &mut Value, old: Option<&Value>, serial: u64) {
    let spec = child(new, "spec");
    default(spec, "type", "ClusterIP");
    default(spec, "sessionAffinity", "None");
    let external = text(spec, "type") == "ExternalName";
    let on_nodes = matches!(text(spec, "type"), "NodePort" | "LoadBalancer");
    let old_spec = old.map_or(&Value::Null, |old| &old["spec"]);
    if external {
        // Fields that an ExternalName had as another type are cleared; those that the request names are refused below.
        if old_spec["type"] != "ExternalName" && spec["clusterIP"] == old_spec["clusterIP"] {
            spec.as_object_mut().map(|spec| (spec.remove("clusterIP"), spec.remove("clusterIPs")));
        }
    } else {
        default(spec, "internalTrafficPolicy", "Cluster");
        if text(spec, "clusterIP").is_empty() {
            let kept = text(old_spec, "clusterIP");
            spec["clusterIP"] = if kept.is_empty() { address(serial).into() } else { kept.into() };
        }
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
        let headless = spec["clusterIP"] == "None";
        if !headless || spec["selector"].is_object() {
            default(spec, "ipFamilies", json!(["IPv4"]));
            default(spec, "ipFamilyPolicy", "SingleStack");
        }
    }
    if on_nodes {
        default(spec, "externalTrafficPolicy", "Cluster");
    }
    for (nth, port) in elements(spec, "ports").enumerate() {
        default(port, "protocol", "TCP");
        if port["targetPort"].is_null() && port["port"].is_i64() {
            port["targetPort"] = port["port"].clone();
        }
        if on_nodes && port["nodePort"].as_i64().unwrap_or_default() == 0 {
            let kept = list(old_spec, "ports")
                .iter()
                .find(|one| one["port"] == port["port"] && one["protocol"] == port["protocol"]);
            let given = NODE_PORTS.start + (serial.wrapping_add(nth as u64)) % (NODE_PORTS.end - NODE_PORTS.start);
            let kept = kept.and_then(|one| one["nodePort"].as_u64()).filter(|port| *port != 0);
            port["nodePort"] = kept.unwrap_or(given).into();
        }
    }
    default(child(new, "status"), "loadBalancer", json!({}));
}

/// The n-th address, without the first and the last of the network.
fn address(serial: u64) -> String {
    let offset = serial % (CLUSTER_NET_SIZE - 2) + 1;
    Ipv4Addr::from(CLUSTER_NET + u32::try_from(offset).unwrap_or(1)).to_string()
}

pub(super) fn validate(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    let spec = &new["spec"];
    let external = spec["type"] == "ExternalName";
    for name in ["type", "sessionAffinity"] {
        check_value("ServiceSpec", name, format!("spec.{name}"), &spec[name], causes);
    }
    if external {
        if text(spec, "externalName").is_empty() {
            causes.required("spec.externalName", "");
        } else {
            check_subdomain("spec.externalName", text(spec, "externalName").trim_end_matches('.'), causes);
        }
        if !text(spec, "clusterIP").is_empty() && spec["clusterIP"] != "None" {
            causes.forbidden("spec.clusterIPs", "may not be set when `type` is 'ExternalName'");
        }
    }
    let ports = list(spec, "ports");
    if ports.is_empty() && !external && spec["clusterIP"] != "None" {
        causes.required("spec.ports", "");
    }
    check_ports(ports, causes);
    for (key, value) in spec["selector"].as_object().into_iter().flatten() {
        super::metadata::check_labels("spec.selector", &json!({key: value}), causes);
    }
    let had = old.filter(|old| old["spec"]["type"] != "ExternalName").map(|old| &old["spec"]["clusterIP"]);
    if !external && had.is_some_and(|had| *had != spec["clusterIP"]) {
        causes.invalid("spec.clusterIPs[0]", &json!([spec["clusterIP"]]), "may not change once set");
    }
    check_address(spec, causes);
}

fn check_address(spec: &Value, causes: &mut Causes) {
    let address = text(spec, "clusterIP");
    if !address.is_empty() && address != "None" && address.parse::<std::net::IpAddr>().is_err() {
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        causes.invalid("spec.clusterIPs[0]", &spec["clusterIP"], why);
    }
}

fn check_ports(ports: &[Value], causes: &mut Causes) {
    for (nth, port) in ports.iter().enumerate() {
        let field = |name: &str| format!("spec.ports[{nth}].{name}");
        let name = text(port, "name");
        if name.is_empty() && ports.len() > 1 {
            causes.required(field("name"), "");
        }
        if !name.is_empty() {
            check_label(&field("name"), name, causes);
            if ports[..nth].iter().any(|other| text(other, "name") == name) {
                causes.duplicate(field("name"), &port["name"]);
            }
        }
        check_port(&field("port"), &port["port"], causes);
        check_value("ServicePort", "protocol", field("protocol"), &port["protocol"], causes);
        let target = &port["targetPort"];
        match target.as_str() {
            Some(name) if is_port_name(name) => {}
            Some(_) => causes.invalid(field("targetPort"), target, PORT_NAME),
            None => check_port(&field("targetPort"), target, causes),
        }
        if ports[..nth].iter().any(|other| other["port"] == port["port"] && other["protocol"] == port["protocol"]) {
            causes
                .duplicate(format!("spec.ports[{nth}]"), &json!({"port": port["port"], "protocol": port["protocol"]}));
        }
    }
}

/// Returns `true` if this is an IANA service name, as ports of containers have.
fn is_port_name(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && name.bytes().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == b'-')
        && name.bytes().any(|one| one.is_ascii_lowercase())
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::{check_refused, outcome};

    #[test]
    fn a_service_gets_what_routing_needs() {
        let service = outcome("Service", json!({"spec": {"ports": [{"port": 80}]}}), None).unwrap();
        assert_eq!(service["spec"]["ports"], json!([{"port": 80, "protocol": "TCP", "targetPort": 80}]));
        assert_eq!(service["spec"]["clusterIP"], "10.96.0.8");
        assert_eq!(service["spec"]["type"], "ClusterIP");
        assert_eq!(service["spec"]["sessionAffinity"], "None");
    }

    #[test]
    fn an_address_stays_when_an_update_leaves_it_out() {
        let old =
            outcome("Service", json!({"spec": {"ports": [{"port": 80}], "clusterIP": "10.96.9.9"}}), None).unwrap();
        let new = outcome("Service", json!({"spec": {"ports": [{"port": 81}]}}), Some(&old)).unwrap();
        assert_eq!(new["spec"]["clusterIP"], "10.96.9.9");
        let moved = json!({"spec": {"ports": [{"port": 80}], "clusterIP": "10.96.9.8"}});
        check_refused(
            "Service",
            moved,
            Some(&old),
            "spec.clusterIPs[0]: Invalid value: [\"10.96.9.8\"]: may not change once set",
        );
        let external = json!({"spec": {"type": "ExternalName", "externalName": "a.b", "clusterIP": "10.96.9.9", "clusterIPs": ["10.96.9.9"]}});
        assert_eq!(outcome("Service", external, Some(&old)).unwrap()["spec"]["clusterIP"], Value::Null);
    }

    #[test]
    fn node_ports_are_given_and_kept() {
        let old = outcome("Service", json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}}), None).unwrap();
        assert_eq!(old["spec"]["ports"][0]["nodePort"], 30_007);
        let new =
            outcome("Service", json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "name": "a"}]}}), Some(&old))
                .unwrap();
        assert_eq!(new["spec"]["ports"][0]["nodePort"], 30_007);
    }

    #[test]
    fn headless_and_external_services_have_no_address() {
        let headless = outcome("Service", json!({"spec": {"clusterIP": "None"}}), None).unwrap();
        assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
        let external =
            outcome("Service", json!({"spec": {"type": "ExternalName", "externalName": "example.com"}}), None).unwrap();
        assert_eq!(external["spec"]["clusterIP"], Value::Null);
    }

    #[test]
    fn bad_services_are_refused() {
        check_refused("Service", json!({"spec": {}}), None, "spec.ports: Required value");
        check_refused(
            "Service",
            json!({"spec": {"ports": [{"port": 0}]}}),
            None,
            "[spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive, spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive]",
        );
        check_refused(
            "Service",
            json!({"spec": {"type": "Magic", "ports": [{"port": 1}]}}),
            None,
            "spec.type: Unsupported value: \"Magic\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
        );
        check_refused(
            "Service",
            json!({"spec": {"ports": [{"port": 1, "name": "a"}, {"port": 2}]}}),
            None,
            "spec.ports[1].name: Required value",
        );
        check_refused("Service", json!({"spec": {"type": "ExternalName"}}), None, "spec.externalName: Required value");
    }
}
