//! Pods, alone and as templates: containers and fields for a node. Nothing runs them here; the embedding program may.

use serde_json::{Value, json};

use super::{check_port, child, default, elements, list, text};
use crate::failure::Causes;
use crate::quantity;
use crate::rules::metadata::check_label;

const RESTARTS: &[&str] = &["Always", "OnFailure", "Never"];

pub(super) fn defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    let spec = child(new, "spec");
    fill_in(spec);
    default(spec, "enableServiceLinks", true);
    let status = child(new, "status");
    default(status, "phase", "Pending");
    default(status, "qosClass", "BestEffort");
}

pub(super) fn validate(new: &Value, _old: Option<&Value>, causes: &mut Causes) {
    check("spec", &new["spec"], RESTARTS, causes);
}

/// Sets the defaults in the spec of a pod.
pub(super) fn fill_in(pod: &mut Value) {
    default(pod, "restartPolicy", "Always");
    default(pod, "terminationGracePeriodSeconds", 30);
    default(pod, "dnsPolicy", "ClusterFirst");
    default(pod, "schedulerName", "default-scheduler");
    default(pod, "securityContext", json!({}));
    for containers in ["initContainers", "containers"] {
        for container in elements(pod, containers) {
            let latest = !text(container, "image").rsplit('/').next().unwrap_or_default().contains([':', '@'])
                || text(container, "image").ends_with(":latest");
            default(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
            default(container, "resources", json!({}));
            fill_in_requests(&mut container["resources"]);
            default(container, "terminationMessagePath", "/dev/termination-log");
            default(container, "terminationMessagePolicy", "File");
            for port in elements(container, "ports") {
                default(port, "protocol", "TCP");
            }
        }
    }
}

/// A limit without a request requests as much. Both are in thousandths.
fn fill_in_requests(resources: &mut Value) {
    for part in ["limits", "requests"] {
        for (_, amount) in resources.get_mut(part).and_then(Value::as_object_mut).into_iter().flatten() {
            if let Some(Ok(rounded)) = amount.as_str().map(quantity::canonical_in_thousandths) {
                *amount = rounded.into();
            }
        }
    }
    if let Some(Value::Object(limits)) = resources.get("limits").cloned()
        && !limits.is_empty()
    {
        let requests = child(resources, "requests");
        limits.into_iter().for_each(|(name, amount)| default(requests, &name, amount));
    }
}

/// Reports the errors of the spec of a pod, which is at `path` and may have these restart policies.
pub(super) fn check(path: &str, pod: &Value, restarts: &[&str], causes: &mut Causes) {
    if list(pod, "containers").is_empty() {
        causes.required(format!("{path}.containers"), "");
    }
    if !restarts.contains(&text(pod, "restartPolicy")) {
        causes.unsupported(format!("{path}.restartPolicy"), &pod["restartPolicy"], restarts);
    }
    for containers in ["initContainers", "containers"] {
        check_containers(&format!("{path}.{containers}"), list(pod, containers), causes);
    }
}

fn check_containers(path: &str, containers: &[Value], causes: &mut Causes) {
    for (nth, container) in containers.iter().enumerate() {
        let field = |name: &str| format!("{path}[{nth}].{name}");
        let name = text(container, "name");
        if name.is_empty() {
            causes.required(field("name"), "");
        } else {
            check_label(&field("name"), name, causes);
        }
        if containers[..nth].iter().any(|other| other["name"] == container["name"]) {
            causes.duplicate(field("name"), &container["name"]);
        }
        if text(container, "image").is_empty() {
            causes.required(field("image"), "");
        }
        for (at, port) in list(container, "ports").iter().enumerate() {
            check_port(&field(&format!("ports[{at}].containerPort")), &port["containerPort"], causes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::{check_refused, outcome};

    #[test]
    fn a_pod_waits_until_it_runs() {
        let pod = json!({"spec": {"containers": [{"name": "c", "image": "echo"}]}});
        let filled = outcome("Pod", pod, None).unwrap();
        assert_eq!(filled["status"]["phase"], "Pending");
        assert_eq!(filled["spec"]["containers"][0]["imagePullPolicy"], "Always");
    }

    #[test]
    fn bad_pods_are_refused() {
        let pod = json!({"spec": {"restartPolicy": "Often", "containers": [{"name": "c"}]}});
        check_refused(
            "Pod",
            pod,
            None,
            "[spec.restartPolicy: Unsupported value: \"Often\": supported values: \"Always\", \"OnFailure\", \"Never\", spec.containers[0].image: Required value]",
        );
    }
}
