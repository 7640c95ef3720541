//! Services: type, addresses, ports, traffic.

mod address;
mod types;

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{check_port, check_value, child, default, elements, list, repeated, text};
use crate::causes::Causes;
use crate::names;

const NODE_PORTS: std::ops::Range<u64> = 30_000..32_768;
/// The seconds of session affinity, if a Service does not say how many.
const AFFINITY_SECONDS: u32 = 10_800;
const AFFINITY_SECONDS_MAX: i64 = 86_400;
const DISTRIBUTIONS: &[&str] = &["PreferClose", "PreferSameZone", "PreferSameNode"];
const RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const FOR_BALANCERS: &str = "may only be used when `type` is 'LoadBalancer'";

pub(super) fn defaults(new: &mut Value, old: Option<&Value>, serial: u64) {
    let spec = child(new, "spec");
    default(spec, "type", "ClusterIP");
    default(spec, "sessionAffinity", "None");
    let old_spec = old.map_or(&Value::Null, |old| &old["spec"]);
    if old.is_some() {
        types::drop_fields(spec, old_spec);
    }
    fill_in_affinity(spec);
    if text(spec, "type") != "ExternalName" {
        default(spec, "internalTrafficPolicy", "Cluster");
        address::fill_in(spec, old_spec, serial);
    }
    if types::is_reached_from_outside(spec) {
        default(spec, "externalTrafficPolicy", "Cluster");
    }
    if text(spec, "type") == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", true);
    }
    for port in elements(spec, "ports") {
        default(port, "protocol", "TCP");
        if matches!(&port["targetPort"], Value::Null) || port["targetPort"] == "" || port["targetPort"] == 0 {
            port["targetPort"] = port.get("port").cloned().unwrap_or_else(|| 0.into());
        }
    }
    give_node_ports(spec, old_spec, serial);
    default(child(new, "status"), "loadBalancer", json!({}));
}

fn fill_in_affinity(spec: &mut Value) {
    match text(spec, "sessionAffinity") {
        "None" => drop(spec.as_object_mut().and_then(|spec| spec.remove("sessionAffinityConfig"))),
        "ClientIP" if spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].is_null() => {
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
        }
        _ => {}
    }
}

/// Gives a port on nodes to each port that needs one and names none. An update keeps those that it leaves out.
fn give_node_ports(spec: &mut Value, old_spec: &Value, serial: u64) {
    let drawn = |nth: usize| {
        let nth = u64::try_from(nth).unwrap_or_default();
        NODE_PORTS.start + serial.wrapping_add(nth) % (NODE_PORTS.end - NODE_PORTS.start)
    };
    let gives = types::gives_node_ports(spec);
    let needs = types::needs_node_ports(spec);
    // Of two ports with one number, the first counts.
    let had = list(old_spec, "ports").iter().rev();
    let had: HashMap<(&Value, &Value), Option<u64>> =
        had.map(|port| ((&port["port"], &port["protocol"]), port["nodePort"].as_u64())).collect();
    for (nth, port) in elements(spec, "ports").enumerate().filter(|_| needs) {
        if port["nodePort"].as_i64().unwrap_or_default() != 0 {
            continue;
        }
        let kept = had.get(&(&port["port"], &port["protocol"])).copied().flatten();
        let given = kept.filter(|port| *port != 0).or_else(|| gives.then(|| drawn(nth)));
        if let Some(given) = given {
            port["nodePort"] = given.into();
        }
    }
    if types::needs_health_check(spec) && spec["healthCheckNodePort"].as_i64().unwrap_or_default() == 0 {
        let kept = old_spec["healthCheckNodePort"].as_u64().filter(|port| *port != 0);
        let after_ports = list(spec, "ports").len();
        spec["healthCheckNodePort"] = kept.unwrap_or_else(|| drawn(after_ports)).into();
    }
}

pub(super) fn validate(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    let spec = &new["spec"];
    let old_spec = old.map(|old| &old["spec"]);
    // Addresses and node ports are assigned first, and where that fails, nothing else is checked.
    let mut first = Causes::default();
    address::check_assigned(spec, old_spec, &mut first);
    if first.0.is_empty() {
        check_node_ports(spec, &mut first);
    }
    if !first.0.is_empty() {
        *causes = first;
        return;
    }
    if let Some(old_spec) = old_spec {
        address::check_change(spec, old_spec, causes);
        types::check_change(spec, old_spec, causes);
    }
    if list(spec, "ports").is_empty() && !address::is_headless(spec) && spec["type"] != "ExternalName" {
        causes.required("spec.ports", "");
    }
    types::check_names(spec, causes);
    check_ports(list(spec, "ports"), causes);
    crate::names::check_labels("spec.selector", &spec["selector"], causes);
    check_value("ServiceSpec", "sessionAffinity", "spec.sessionAffinity", &spec["sessionAffinity"], causes);
    let timeout = &spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"];
    if spec["sessionAffinity"] == "ClientIP"
        && !timeout.as_i64().is_some_and(|it| (1..=AFFINITY_SECONDS_MAX).contains(&it))
    {
        let why = "must be greater than 0 and less than 86400";
        causes.invalid("spec.sessionAffinityConfig.clientIP.timeoutSeconds", timeout, why);
    }
    address::check(spec, causes);
    check_value("ServiceSpec", "type", "spec.type", &spec["type"], causes);
    check_pairs(spec, causes);
    check_source_ranges(new, old, causes);
    types::check_fields(spec, causes);
    let distribution = &spec["trafficDistribution"];
    if !distribution.is_null() && !DISTRIBUTIONS.iter().any(|one| distribution == one) {
        causes.unsupported("spec.trafficDistribution", distribution, DISTRIBUTIONS);
    }
    super::load_balancer::check(&new["status"], causes);
}

/// Reports ports on nodes that cannot be assigned.
fn check_node_ports(spec: &Value, causes: &mut Causes) {
    if !types::needs_node_ports(spec) {
        return;
    }
    let ports = list(spec, "ports");
    let mut check = |field: String, number: &Value, is_taken: bool| {
        let in_range = |number: i64| u64::try_from(number).is_ok_and(|number| NODE_PORTS.contains(&number));
        if number.as_i64().is_some_and(|number| number != 0 && !in_range(number)) {
            let why = "provided port is not in the valid range. The range of valid ports is 30000-32767";
            causes.invalid(field, number, why);
        } else if is_taken {
            causes.invalid(field, number, "provided port is already allocated");
        }
    };
    let repeated = repeated(ports, |port| (&port["nodePort"], &port["protocol"]));
    for (nth, port) in ports.iter().enumerate() {
        let number = &port["nodePort"];
        let is_taken = number.as_i64().unwrap_or_default() != 0 && repeated[nth];
        check(format!("spec.ports[{nth}].nodePort"), number, is_taken);
    }
    if types::needs_health_check(spec) {
        check("spec.healthCheckNodePort".to_owned(), &spec["healthCheckNodePort"], false);
    }
}

fn check_ports(ports: &[Value], causes: &mut Causes) {
    let named_twice = repeated(ports, |port| text(port, "name"));
    for (nth, port) in ports.iter().enumerate() {
        let field = |name: &str| format!("spec.ports[{nth}].{name}");
        let name = text(port, "name");
        if name.is_empty() && ports.len() > 1 {
            causes.required(field("name"), "");
        }
        if !name.is_empty() {
            causes.all(&field("name"), &port["name"], names::label(name));
            if named_twice[nth] {
                causes.duplicate(field("name"), &port["name"]);
            }
        }
        check_port(&field("port"), &port["port"], causes);
        check_value("ServicePort", "protocol", field("protocol"), &port["protocol"], causes);
        let target = &port["targetPort"];
        match target.as_str() {
            Some(name) => causes.all(&field("targetPort"), target, names::port(name)),
            None => check_port(&field("targetPort"), target, causes),
        }
        if let Some(name) = port["appProtocol"].as_str() {
            causes.all(&field("appProtocol"), &port["appProtocol"], names::qualified(name));
        }
    }
}

/// Reports ports on nodes of a Service that has none, and ports that are there twice.
fn check_pairs(spec: &Value, causes: &mut Causes) {
    let ports = list(spec, "ports");
    let number = |port: &Value| port["nodePort"].as_i64().unwrap_or_default();
    for (nth, _) in ports.iter().enumerate().filter(|(_, port)| spec["type"] == "ClusterIP" && number(port) != 0) {
        causes.forbidden(format!("spec.ports[{nth}].nodePort"), "may not be used when `type` is 'ClusterIP'");
    }
    let twice = |key: &'static str| repeated(ports, move |port| (&port[key], &port["protocol"]));
    let (node_port_twice, port_twice) = (twice("nodePort"), twice("port"));
    for (nth, port) in ports.iter().enumerate().filter(|(nth, port)| number(port) != 0 && node_port_twice[*nth]) {
        causes.duplicate(format!("spec.ports[{nth}].nodePort"), &port["nodePort"]);
    }
    for (nth, port) in ports.iter().enumerate().filter(|(nth, _)| port_twice[*nth]) {
        // The real server shows its own form of a port, with nothing but these two.
        let shown = format!(
            r#"{{"Name":"","Protocol":{},"AppProtocol":null,"Port":{},"TargetPort":0,"NodePort":0}}"#,
            port["protocol"], port["port"]
        );
        causes.duplicate_shown(format!("spec.ports[{nth}]"), &shown);
    }
}

/// Reports source ranges, of the spec or else of the annotation that it replaces.
fn check_source_ranges(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    let spec = &new["spec"];
    let ranges = list(spec, "loadBalancerSourceRanges");
    let annotation = |object: &Value| object["metadata"]["annotations"][RANGES_ANNOTATION].as_str().map(str::to_owned);
    let check = |field: String, range: &str, causes: &mut Causes| {
        causes.all(&field, &range.into(), names::network(range));
    };
    if !ranges.is_empty() {
        // The real server writes this path with a capital letter.
        let field = "spec.LoadBalancerSourceRanges";
        if spec["type"] != "LoadBalancer" {
            causes.forbidden(field, FOR_BALANCERS);
        }
        for (nth, range) in ranges.iter().enumerate() {
            check(format!("{field}[{nth}]"), range.as_str().unwrap_or_default().trim(), causes);
        }
    } else if let Some(written) = annotation(new) {
        let field = format!("metadata.annotations[{RANGES_ANNOTATION}]");
        if spec["type"] != "LoadBalancer" {
            causes.forbidden(&field, FOR_BALANCERS);
        }
        let unchanged = old.and_then(annotation).is_some_and(|old| old == written);
        if !unchanged && !written.trim().is_empty() {
            written.split(',').for_each(|range| check(field.clone(), range.trim(), causes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::{check_refused, outcome};

    #[test]
    fn a_service_gets_its_defaults() {
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
    fn node_ports_are_allocated_and_kept() {
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
    fn another_type_drops_the_fields_that_it_lacks() {
        let balancer =
            json!({"spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]}});
        let mut balancer = outcome("Service", balancer, None).unwrap();
        assert_eq!(balancer["spec"]["healthCheckNodePort"], 30_008);
        let old = balancer.clone();
        balancer["spec"]["type"] = "ClusterIP".into();
        let new = outcome("Service", balancer.clone(), Some(&old)).unwrap();
        assert_eq!(new["spec"]["ports"], json!([{"port": 80, "protocol": "TCP", "targetPort": 80}]));
        for field in ["healthCheckNodePort", "externalTrafficPolicy", "allocateLoadBalancerNodePorts"] {
            assert_eq!(new["spec"][field], Value::Null, "{field}");
        }
        balancer["spec"]["ports"][0]["nodePort"] = 30_100.into();
        let why = "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'";
        check_refused("Service", balancer, Some(&old), why);
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
