//! The type of a Service, and the fields that only some types have.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::{check_value, list, text};
use super::FOR_BALANCERS;
use crate::causes::Causes;
use crate::names;

pub(super) fn needs_node_ports(spec: &Value) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

/// Returns `true` if ports on nodes are assigned without being asked for.
pub(super) fn gives_node_ports(spec: &Value) -> bool {
    text(spec, "type") == "NodePort"
        || text(spec, "type") == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] != false
}

pub(super) fn needs_health_check(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

/// Returns `true` if clients outside of the cluster may reach a Service.
pub(super) fn is_reached_from_outside(spec: &Value) -> bool {
    needs_node_ports(spec) || text(spec, "type") == "ClusterIP" && !list(spec, "externalIPs").is_empty()
}

/// Whether a Service has a field, by its type.
type Has = fn(&Value) -> bool;

/// Drops the fields that an update has not touched and that only the old type has.
pub(super) fn drop_fields(spec: &mut Value, old: &Value) {
    let has_address: Has = |spec| spec["type"] != "ExternalName";
    let balances: Has = |spec| spec["type"] == "LoadBalancer";
    let lost = |has: Has, spec: &Value| has(old) && !has(spec);
    let mut fields = Vec::new();
    if lost(has_address, spec) {
        if spec["clusterIP"] == old["clusterIP"] && spec["clusterIPs"] == old["clusterIPs"] {
            fields.extend(["clusterIP", "clusterIPs"]);
        }
        let unchanged = |field: &&str| spec[*field] == old[*field];
        fields.extend(["ipFamilies", "ipFamilyPolicy"].iter().filter(|field| unchanged(field)));
        fields.push("internalTrafficPolicy");
    }
    let numbers = |spec: &Value| -> BTreeSet<i64> {
        let numbers = list(spec, "ports").iter().filter_map(|port| port["nodePort"].as_i64());
        numbers.filter(|number| *number != 0).collect()
    };
    let (had, has) = (numbers(old), numbers(spec));
    if lost(needs_node_ports, spec) && has.is_subset(&had) {
        for port in spec["ports"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            port.remove("nodePort");
        }
    }
    let rest: [(&str, Has); 4] = [
        ("healthCheckNodePort", needs_health_check),
        ("allocateLoadBalancerNodePorts", balances),
        ("loadBalancerClass", balances),
        ("externalTrafficPolicy", is_reached_from_outside),
    ];
    let dropped = rest.into_iter().filter(|(field, has)| lost(*has, spec) && spec[*field] == old[*field]);
    fields.extend(dropped.map(|(field, _)| field));
    for field in fields {
        spec.as_object_mut().and_then(|spec| spec.remove(field));
    }
}

/// Reports names and addresses that a type forbids or requires.
pub(super) fn check_names(spec: &Value, causes: &mut Causes) {
    match text(spec, "type") {
        kind @ ("LoadBalancer" | "NodePort") if spec["clusterIP"] == "None" => {
            let why = format!("may not be set to 'None' for {kind} services");
            causes.invalid("spec.clusterIPs[0]", &spec["clusterIP"], &why);
        }
        "ExternalName" => {
            let is_set = |field: &str| !matches!(&spec[field], Value::Null) && spec[field] != "";
            for (field, set) in [
                ("clusterIPs", is_set("clusterIP") || !list(spec, "clusterIPs").is_empty()),
                ("ipFamilies", !list(spec, "ipFamilies").is_empty()),
                ("ipFamilyPolicy", is_set("ipFamilyPolicy")),
            ] {
                if set {
                    causes.forbidden(format!("spec.{field}"), "may not be set for ExternalName services");
                }
            }
            let name = text(spec, "externalName").strip_suffix('.').unwrap_or(text(spec, "externalName"));
            if name.is_empty() {
                causes.required("spec.externalName", "");
            } else {
                causes.all("spec.externalName", &name.into(), names::subdomain(name));
            }
        }
        _ => {}
    }
}

/// Reports fields that a type does not have, and values that they cannot have.
pub(super) fn check_fields(spec: &Value, causes: &mut Causes) {
    let balances = spec["type"] == "LoadBalancer";
    if !balances && !spec["allocateLoadBalancerNodePorts"].is_null() {
        causes.forbidden("spec.allocateLoadBalancerNodePorts", FOR_BALANCERS);
    }
    if let Some(class) = spec["loadBalancerClass"].as_str() {
        if balances {
            causes.all("spec.loadBalancerClass", &class.into(), names::qualified(class));
        } else {
            causes.forbidden("spec.loadBalancerClass", FOR_BALANCERS);
        }
    }
    let policy = &spec["externalTrafficPolicy"];
    if is_reached_from_outside(spec) {
        check_value("ServiceSpec", "externalTrafficPolicy", "spec.externalTrafficPolicy", policy, causes);
    } else if !text(spec, "externalTrafficPolicy").is_empty() {
        causes.invalid("spec.externalTrafficPolicy", policy, "may only be set for externally-accessible services");
    }
    let (port, field) = (&spec["healthCheckNodePort"], "spec.healthCheckNodePort");
    if needs_health_check(spec) {
        super::super::check_port(field, port, causes);
    } else if port.as_i64().unwrap_or_default() != 0 {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        causes.invalid(field, port, why);
    }
    let policy = &spec["internalTrafficPolicy"];
    if spec["type"] != "ExternalName" || !policy.is_null() {
        check_value("ServiceSpec", "internalTrafficPolicy", "spec.internalTrafficPolicy", policy, causes);
    }
}

/// Reports changes of fields that stay as long as the type does.
pub(super) fn check_change(spec: &Value, old: &Value, causes: &mut Causes) {
    if spec["type"] == "LoadBalancer"
        && old["type"] == "LoadBalancer"
        && spec["loadBalancerClass"] != old["loadBalancerClass"]
    {
        causes.invalid("spec.loadBalancerClass", &spec["loadBalancerClass"], "may not change once set");
    }
    if needs_health_check(spec) && needs_health_check(old) && spec["healthCheckNodePort"] != old["healthCheckNodePort"]
    {
        causes.forbidden("spec.healthCheckNodePort", "field is immutable");
    }
}
