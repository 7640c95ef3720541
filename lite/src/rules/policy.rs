//! NetworkPolicies, PodDisruptionBudgets and HorizontalPodAutoscalers. They are stored, so that charts can be applied,
//! with the defaults and the first checks of the real server; nothing acts on them.

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{check_port, check_value, child, default, elements, list, text};
use crate::causes::Causes;
use crate::names;
use crate::rules::deployment::{check_requirements, percent};

pub(super) fn network_policy_defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    let spec = child(new, "spec");
    child(spec, "podSelector");
    for direction in ["ingress", "egress"] {
        for rule in elements(spec, direction) {
            elements(rule, "ports").for_each(|port| default(port, "protocol", "TCP"));
        }
    }
    if list(spec, "policyTypes").is_empty() {
        let leaves = !list(spec, "egress").is_empty();
        spec["policyTypes"] = if leaves { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    }
}

pub(super) fn network_policy(new: &Value, _old: Option<&Value>, causes: &mut Causes) {
    let spec = &new["spec"];
    check_requirements("spec.podSelector", &spec["podSelector"], causes);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (nth, rule) in list(spec, direction).iter().enumerate() {
            for (at, port) in list(rule, "ports").iter().enumerate() {
                check_policy_port(&format!("spec.{direction}[{nth}].ports[{at}]"), port, causes);
            }
            for (at, peer) in list(rule, peers).iter().enumerate() {
                check_peer(&format!("spec.{direction}[{nth}].{peers}[{at}]"), peer, causes);
            }
        }
    }
    for (nth, one) in list(spec, "policyTypes").iter().enumerate() {
        if !matches!(one.as_str(), Some("Ingress" | "Egress")) {
            causes.unsupported(format!("spec.policyTypes[{nth}]"), one, &["Ingress", "Egress"]);
        }
    }
}

fn check_policy_port(field: &str, port: &Value, causes: &mut Causes) {
    let (protocol, number, end) = (&port["protocol"], &port["port"], &port["endPort"]);
    if !matches!(protocol.as_str(), None | Some("TCP" | "UDP" | "SCTP")) {
        causes.unsupported(format!("{field}.protocol"), protocol, &["TCP", "UDP", "SCTP"]);
    }
    let end_field = format!("{field}.endPort");
    match (number.as_i64(), number.as_str()) {
        (Some(first), _) => {
            check_port(&format!("{field}.port"), number, causes);
            if end.as_i64().is_some_and(|end| end < first) {
                causes.invalid(end_field, number, "must be greater than or equal to `port`");
            }
        }
        (None, Some(name)) => {
            if !end.is_null() {
                causes.invalid(end_field, end, "may not be specified when `port` is non-numeric");
            }
            causes.all(&format!("{field}.port"), number, names::port(name));
        }
        (None, None) if !end.is_null() => {
            causes.invalid(end_field, end, "may not be specified when `port` is not specified");
        }
        (None, None) => {}
    }
}

fn check_peer(field: &str, peer: &Value, causes: &mut Causes) {
    let selects = peer["podSelector"].is_object() || peer["namespaceSelector"].is_object();
    match (&peer["ipBlock"], selects) {
        (block, true) if block.is_object() => {
            causes.forbidden(field, "may not specify both ipBlock and another peer");
        }
        (block, false) if block.is_object() => {
            let cidr = text(block, "cidr");
            causes.all(&format!("{field}.ipBlock.cidr"), &cidr.into(), names::network(cidr));
            let whole = cidr.parse::<IpNet>().ok();
            for (nth, except) in list(block, "except").iter().enumerate() {
                let part = except.as_str().and_then(|text| text.parse::<IpNet>().ok());
                if let (Some(whole), Some(part)) = (&whole, &part)
                    && (!whole.contains(part) || whole == part)
                {
                    let why = "must be a strict subset of `cidr`";
                    causes.invalid(format!("{field}.ipBlock.except[{nth}]"), except, why);
                }
            }
        }
        (_, false) => causes.required(field, "must specify a peer"),
        (_, true) => {}
    }
}

pub(super) fn budget_defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    child(new, "spec");
    let status = child(new, "status");
    for count in ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"] {
        default(status, count, 0);
    }
}

pub(super) fn budget(new: &Value, _old: Option<&Value>, causes: &mut Causes) {
    let spec = &new["spec"];
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let mut shown = json!({"MinAvailable": spec["minAvailable"], "Selector": spec["selector"]});
        shown["MaxUnavailable"] = spec["maxUnavailable"].clone();
        shown["UnhealthyPodEvictionPolicy"] = spec["unhealthyPodEvictionPolicy"].clone();
        causes.invalid("spec", &shown, "minAvailable and maxUnavailable cannot be both set");
    }
    for name in ["minAvailable", "maxUnavailable"] {
        let (field, amount) = (format!("spec.{name}"), &spec[name]);
        match (amount.as_i64(), amount.as_str().map(percent)) {
            (Some(..0), _) => causes.invalid(field, amount, "must be greater than or equal to 0"),
            (_, Some(None)) => causes.invalid(field, amount, super::deployment::PERCENT),
            (_, Some(Some(101..))) => causes.invalid(field, amount, "must not be greater than 100%"),
            (_, Some(Some(_)) | None) => {}
        }
    }
    check_requirements("spec.selector", &spec["selector"], causes);
    let eviction = &spec["unhealthyPodEvictionPolicy"];
    if !eviction.is_null() {
        let field = "unhealthyPodEvictionPolicy";
        check_value("PodDisruptionBudgetSpec", field, "spec.unhealthyPodEvictionPolicy", eviction, causes);
    }
}

pub(super) fn autoscaler_defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    let spec = child(new, "spec");
    child(spec, "scaleTargetRef");
    default(spec, "minReplicas", 1);
    if list(spec, "metrics").is_empty() {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        spec["metrics"] = json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
    }
    if spec["behavior"].is_object() {
        let of = |kind: &str, value: u8| json!({"type": kind, "value": value, "periodSeconds": 15});
        let up = child(&mut spec["behavior"], "scaleUp");
        default(up, "stabilizationWindowSeconds", 0);
        default(up, "policies", json!([of("Pods", 4), of("Percent", 100)]));
        default(up, "selectPolicy", "Max");
        let down = child(&mut spec["behavior"], "scaleDown");
        default(down, "policies", json!([of("Percent", 100)]));
        default(down, "selectPolicy", "Max");
    }
    let status = child(new, "status");
    if status.get("currentMetrics").is_none() {
        status["currentMetrics"] = Value::Null;
    }
    default(status, "desiredReplicas", 0);
}

pub(super) fn autoscaler(new: &Value, _old: Option<&Value>, causes: &mut Causes) {
    let spec = &new["spec"];
    let (min, max) = (&spec["minReplicas"], &spec["maxReplicas"]);
    let (least, most) = (min.as_i64().unwrap_or(1), max.as_i64().unwrap_or_default());
    if least < 1 {
        causes.invalid("spec.minReplicas", min, "must be greater than or equal to 1");
    }
    if most < 1 {
        causes.required("spec.maxReplicas", "must be set and greater than 0");
    } else if most < least {
        causes.invalid("spec.maxReplicas", max, "must be greater than or equal to `minReplicas`");
    }
    for name in ["kind", "name"] {
        let (field, value) = (format!("spec.scaleTargetRef.{name}"), &spec["scaleTargetRef"][name]);
        match value.as_str().unwrap_or_default() {
            "" => causes.required(field, ""),
            given if given.contains('/') => causes.invalid(field, value, "may not contain '/'"),
            _ => {}
        }
    }
    if text(&spec["scaleTargetRef"], "apiVersion").is_empty() {
        causes.invalid("spec.scaleTargetRef.apiVersion", &"".into(), "apiVersion must specify API group");
    }
    for (nth, metric) in list(spec, "metrics").iter().enumerate() {
        check_metric(&format!("spec.metrics[{nth}]"), metric, causes);
    }
}

fn check_metric(field: &str, metric: &Value, causes: &mut Causes) {
    const KINDS: [(&str, &str); 5] = [
        ("ContainerResource", "containerResource"),
        ("External", "external"),
        ("Object", "object"),
        ("Pods", "pods"),
        ("Resource", "resource"),
    ];
    match KINDS.iter().find(|(kind, _)| metric["type"] == *kind) {
        None => causes.unsupported(format!("{field}.type"), &text(metric, "type").into(), &KINDS.map(|(kind, _)| kind)),
        Some((_, source)) if !metric[*source].is_object() => {
            causes.required(format!("{field}.{source}"), "must populate information for the given metric source");
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::rules::tests::{check_refused, outcome};

    use super::*;

    #[test]
    fn a_network_policy_names_peers() {
        let policy = |peer: Value| json!({"spec": {"podSelector": {}, "ingress": [{"from": [peer]}]}});
        let one = outcome("NetworkPolicy", policy(json!({"podSelector": {}})), None).unwrap();
        assert_eq!(one["spec"]["policyTypes"], json!(["Ingress"]));
        let field = "spec.ingress[0].from[0]";
        check_refused(
            "NetworkPolicy",
            policy(json!({})),
            None,
            &format!("{field}: Required value: must specify a peer"),
        );
        let both = json!({"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}});
        let message = format!("{field}: Forbidden: may not specify both ipBlock and another peer");
        check_refused("NetworkPolicy", policy(both), None, &message);
    }

    #[test]
    fn a_budget_has_one_bound() {
        let budget = |spec: Value| json!({"spec": spec});
        assert_eq!(outcome("PodDisruptionBudget", budget(json!({})), None).unwrap()["status"]["expectedPods"], 0);
        let message = "spec.minAvailable: Invalid value: \"200%\": must not be greater than 100%";
        check_refused("PodDisruptionBudget", budget(json!({"minAvailable": "200%"})), None, message);
        let message = "spec.maxUnavailable: Invalid value: -1: must be greater than or equal to 0";
        check_refused("PodDisruptionBudget", budget(json!({"maxUnavailable": -1})), None, message);
    }

    #[test]
    fn an_autoscaler_has_a_target_and_bounds() {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let of = |spec: Value| json!({"spec": spec});
        let one =
            outcome("HorizontalPodAutoscaler", of(json!({"scaleTargetRef": target, "maxReplicas": 3})), None).unwrap();
        assert_eq!(one["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
        let message = "spec.maxReplicas: Invalid value: 2: must be greater than or equal to `minReplicas`";
        let narrow = json!({"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 2});
        check_refused("HorizontalPodAutoscaler", of(narrow), None, message);
        let message = "spec.metrics[0].type: Unsupported value: \"X\": supported values: \"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\"";
        let odd = json!({"scaleTargetRef": target, "maxReplicas": 2, "metrics": [{"type": "X"}]});
        check_refused("HorizontalPodAutoscaler", of(odd), None, message);
    }
}
