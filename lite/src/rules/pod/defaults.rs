//! The defaults of Pods and templates.

use serde_json::{Value, json};

use super::super::{child, default, elements, text};
use super::is_on_host;
use crate::quantity;

/// The mode of files in volumes: 0644.
const MODE: i64 = 0o644;

/// Sets the defaults in the spec of a pod.
pub(in crate::rules) fn fill_in(pod: &mut Value) {
    default(pod, "restartPolicy", "Always");
    default(pod, "terminationGracePeriodSeconds", 30);
    if pod["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        pod["terminationGracePeriodSeconds"] = 1.into();
    }
    default(pod, "dnsPolicy", "ClusterFirst");
    default(pod, "schedulerName", "default-scheduler");
    default(pod, "securityContext", json!({}));
    for volume in elements(pod, "volumes") {
        fill_in_volume(volume);
    }
    for containers in ["initContainers", "containers"] {
        for container in elements(pod, containers) {
            fill_in_container(container);
        }
    }
}

fn fill_in_container(container: &mut Value) {
    let latest = !text(container, "image").rsplit('/').next().unwrap_or_default().contains([':', '@'])
        || text(container, "image").ends_with(":latest");
    default(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
    default(container, "resources", json!({}));
    round_up(&mut container["resources"]);
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    for port in elements(container, "ports") {
        default(port, "protocol", "TCP");
    }
    for variable in elements(container, "env") {
        fill_in_reference(variable.get_mut("valueFrom"));
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).filter(|probe| probe.is_object()) {
            for (field, value) in
                [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
            {
                default_number(probe, field, value);
            }
            fill_in_handler(probe);
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(hook) = container.get_mut("lifecycle").and_then(|lifecycle| lifecycle.get_mut(hook)) {
            fill_in_handler(hook);
        }
    }
}

/// Sets a number that is absent or zero.
fn default_number(object: &mut Value, field: &str, value: i64) {
    if object[field].as_i64().unwrap_or_default() == 0 {
        object[field] = value.into();
    }
}

fn fill_in_handler(handler: &mut Value) {
    if let Some(http) = handler.get_mut("httpGet").filter(|http| http.is_object()) {
        for (field, value) in [("path", "/"), ("scheme", "HTTP")] {
            if text(http, field).is_empty() {
                http[field] = value.into();
            }
        }
    }
    if let Some(grpc) = handler.get_mut("grpc").filter(|grpc| grpc.is_object()) {
        default(grpc, "service", "");
    }
}

/// A reference to a field of the Pod names the version of its paths.
fn fill_in_reference(from: Option<&mut Value>) {
    let Some(from) = from.filter(|from| from.is_object()) else { return };
    if let Some(reference) = from.get_mut("fieldRef").filter(|reference| reference.is_object()) {
        default(reference, "apiVersion", "v1");
    }
    if let Some(reference) = from.get_mut("resourceFieldRef").filter(|reference| reference.is_object()) {
        default(reference, "divisor", "0");
    }
}

fn fill_in_volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|volume| volume.keys().all(|key| key == "name")) {
        volume["emptyDir"] = json!({});
    }
    for kind in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(kind).filter(|source| source.is_object()) {
            default(source, "defaultMode", MODE);
            for item in elements(source, "items").filter(|_| kind == "downwardAPI") {
                fill_in_reference(Some(item));
            }
            for source in elements(source, "sources") {
                fill_in_projection(source);
            }
        }
    }
    if let Some(path) = volume.get_mut("hostPath").filter(|path| path.is_object()) {
        default(path, "type", "");
    }
}

fn fill_in_projection(source: &mut Value) {
    const HOUR_SECONDS: i64 = 3_600;
    if let Some(token) = source.get_mut("serviceAccountToken").filter(|token| token.is_object()) {
        default(token, "expirationSeconds", HOUR_SECONDS);
    }
    if let Some(fields) = source.get_mut("downwardAPI").filter(|fields| fields.is_object()) {
        for item in elements(fields, "items") {
            fill_in_reference(Some(item));
        }
    }
}

/// Amounts of resources are in thousandths.
fn round_up(resources: &mut Value) {
    for part in ["limits", "requests"] {
        for (_, amount) in resources.get_mut(part).and_then(Value::as_object_mut).into_iter().flatten() {
            if let Some(Ok(rounded)) = amount.as_str().map(quantity::canonical_in_thousandths) {
                *amount = rounded.into();
            }
        }
    }
}

/// In a Pod on the network of its host, though not in a template, a port of a container is one of the host.
pub(super) fn fill_in_host_ports(pod: &mut Value) {
    if !is_on_host(pod) {
        return;
    }
    for containers in ["initContainers", "containers"] {
        for port in elements(pod, containers).flat_map(|container| elements(container, "ports")) {
            if port["hostPort"].as_i64().unwrap_or_default() == 0 && port["containerPort"].is_i64() {
                port["hostPort"] = port["containerPort"].clone();
            }
        }
    }
}

/// In a Pod, though not in a template, a limit without a request requests as much.
pub(super) fn fill_in_requests(pod: &mut Value) {
    for containers in ["initContainers", "containers"] {
        for container in elements(pod, containers).filter(|container| container["resources"]["limits"].is_object()) {
            let limits = container["resources"]["limits"].clone();
            let requests = child(child(container, "resources"), "requests");
            for (name, amount) in limits.as_object().into_iter().flatten() {
                default(requests, name, amount.clone());
            }
        }
    }
}
