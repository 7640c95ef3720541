//! Containers: names, ports, variables, mounts, and fields of some of them only.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::metadata::check_label;
use super::super::{check_port, check_value, list, repeated, text};
use super::{INT32_MAX, probe, resources, source};
use crate::causes::Causes;
use crate::names;

const MESSAGE_POLICIES: &[&str] = &["File", "FallbackToLogsOnError"];

/// The parts of a Pod that containers refer to.
pub(super) struct Siblings<'a> {
    pub(super) volumes: &'a BTreeSet<&'a str>,
    pub(super) grace_seconds: Option<i64>,
}

/// Reports the errors of the containers that run.
pub(super) fn check_all(path: &str, containers: &[Value], siblings: &Siblings<'_>, causes: &mut Causes) {
    let repeated = repeated(containers, |container| text(container, "name"));
    for (nth, container) in containers.iter().enumerate() {
        let at = format!("{path}[{nth}]");
        check(&at, container, siblings, causes);
        if repeated[nth] {
            causes.duplicate(format!("{at}.name"), &json!(text(container, "name")));
        }
        probe::check_all(&at, container, siblings.grace_seconds, causes);
    }
    check_host_port_conflicts(path, containers, causes);
}

/// Reports the errors of the containers that run first, one by one, beside those of the containers that are always
/// restarted.
pub(super) fn check_init(
    path: &str,
    containers: &[Value],
    regular: &[Value],
    siblings: &Siblings<'_>,
    causes: &mut Causes,
) {
    let mut names: BTreeSet<&str> = regular.iter().map(|container| text(container, "name")).collect();
    for (nth, container) in containers.iter().enumerate() {
        let at = format!("{path}[{nth}]");
        check(&at, container, siblings, causes);
        let name = text(container, "name");
        if !names.insert(name) && !name.is_empty() {
            causes.duplicate(format!("{at}.name"), &container["name"]);
        }
        if container["restartPolicy"] == "Always" {
            probe::check_all(&at, container, siblings.grace_seconds, causes);
            continue;
        }
        let kept = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];
        for field in kept.into_iter().filter(|field| container[*field].is_object()) {
            let why = "may not be set for init containers without restartPolicy=Always";
            causes.forbidden(format!("{at}.{field}"), why);
        }
    }
}

fn check(path: &str, container: &Value, siblings: &Siblings<'_>, causes: &mut Causes) {
    let field = |name: &str| format!("{path}.{name}");
    if text(container, "name").is_empty() {
        causes.required(field("name"), "");
    } else {
        check_label(&field("name"), text(container, "name"), causes);
    }
    if text(container, "image").is_empty() {
        causes.required(field("image"), "");
    }
    if !MESSAGE_POLICIES.contains(&text(container, "terminationMessagePolicy")) {
        let policy = &container["terminationMessagePolicy"];
        causes.unsupported(field("terminationMessagePolicy"), policy, MESSAGE_POLICIES);
    }
    check_ports(&field("ports"), list(container, "ports"), causes);
    for (nth, variable) in list(container, "env").iter().enumerate() {
        source::check_variable(&field(&format!("env[{nth}]")), variable, causes);
    }
    source::check_all_from(&field("envFrom"), list(container, "envFrom"), causes);
    check_mounts(&field("volumeMounts"), list(container, "volumeMounts"), siblings, causes);
    let policy = &container["imagePullPolicy"];
    check_value("Container", "imagePullPolicy", field("imagePullPolicy"), policy, causes);
    resources::check(&field("resources"), &container["resources"], causes);
    check_users(&field("securityContext"), &container["securityContext"], causes);
}

fn check_ports(path: &str, ports: &[Value], causes: &mut Causes) {
    let mut seen = BTreeSet::new();
    for (nth, port) in ports.iter().enumerate() {
        let field = |name: &str| format!("{path}[{nth}].{name}");
        let name = text(port, "name");
        let complaints = names::port(name);
        if !name.is_empty() && complaints.is_empty() && !seen.insert(name) {
            causes.duplicate(field("name"), &port["name"]);
        } else if !name.is_empty() {
            causes.all(&field("name"), &port["name"], complaints);
        }
        if port["containerPort"].as_i64().unwrap_or_default() == 0 {
            causes.required(field("containerPort"), "");
        } else {
            check_port(&field("containerPort"), &port["containerPort"], causes);
        }
        if port["hostPort"].as_i64().unwrap_or_default() != 0 {
            check_port(&field("hostPort"), &port["hostPort"], causes);
        }
        check_value("ContainerPort", "protocol", field("protocol"), &port["protocol"], causes);
    }
}

/// Reports ports of the host that differ from those of a container on the host's network.
pub(super) fn check_host_ports(path: &str, container: &Value, causes: &mut Causes) {
    for (nth, port) in list(container, "ports").iter().enumerate() {
        if port["hostPort"] != port["containerPort"] {
            let why = "must match `containerPort` when `hostNetwork` is true";
            causes.invalid(format!("{path}.ports[{nth}].hostPort"), &port["hostPort"], why);
        }
    }
}

fn check_host_port_conflicts(path: &str, containers: &[Value], causes: &mut Causes) {
    let mut seen = BTreeSet::new();
    for (nth, container) in containers.iter().enumerate() {
        for (at, port) in list(container, "ports").iter().enumerate() {
            let number = port["hostPort"].as_i64().unwrap_or_default();
            let shown = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
            if number != 0 && !seen.insert(shown.clone()) {
                causes.duplicate(format!("{path}[{nth}].ports[{at}].hostPort"), &shown.into());
            }
        }
    }
}

fn check_mounts(path: &str, mounts: &[Value], siblings: &Siblings<'_>, causes: &mut Causes) {
    let repeated = repeated(mounts, |mount| text(mount, "mountPath"));
    for (nth, mount) in mounts.iter().enumerate() {
        let field = |name: &str| format!("{path}[{nth}].{name}");
        let (name, at) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            causes.required(field("name"), "");
        }
        if !siblings.volumes.contains(name) {
            causes.not_found(field("name"), &name.into());
        }
        if at.is_empty() {
            causes.required(field("mountPath"), "");
        }
        if repeated[nth] {
            causes.invalid(field("mountPath"), &at.into(), "must be unique");
        }
        for below in ["subPath", "subPathExpr"].into_iter().filter(|below| !text(mount, below).is_empty()) {
            // The real server leaves out the place of the mount.
            causes.all(&format!("{path}.{below}"), &mount[below], names::path_below(text(mount, below)));
        }
    }
}

/// Reports users and groups that cannot be.
pub(super) fn check_users(path: &str, context: &Value, causes: &mut Causes) {
    for name in ["runAsUser", "runAsGroup", "fsGroup"] {
        let id = &context[name];
        if id.as_i64().is_some_and(|id| !(0..=INT32_MAX).contains(&id)) {
            causes.invalid(format!("{path}.{name}"), id, "must be between 0 and 2147483647, inclusive");
        }
    }
}
