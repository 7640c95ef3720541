//! Probes and hooks: each has one handler.

use serde_json::Value;

use super::super::{check_port, check_value, list, text};
use crate::causes::Causes;
use crate::names;

/// The handlers in the order in which the real server looks for a second one.
const HANDLERS: &[&str] = &["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

/// Reports the errors of the hooks and probes of a container.
pub(super) fn check_all(path: &str, container: &Value, grace_seconds: Option<i64>, causes: &mut Causes) {
    for hook in ["postStart", "preStop"].into_iter().filter(|hook| container["lifecycle"][*hook].is_object()) {
        check_handler(&format!("{path}.lifecycle.{hook}"), &container["lifecycle"][hook], grace_seconds, causes);
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let (probe, path) = (&container[name], format!("{path}.{name}"));
        if !probe.is_object() {
            continue;
        }
        check_handler(&path, probe, grace_seconds, causes);
        for number in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            super::super::check_count(&format!("{path}.{number}"), &probe[number], causes);
        }
        let (grace, field) = (&probe["terminationGracePeriodSeconds"], format!("{path}.terminationGracePeriodSeconds"));
        if grace.as_i64().is_some_and(|seconds| seconds <= 0) {
            causes.invalid(&field, grace, "must be greater than 0");
        }
        if name == "readinessProbe" {
            if !grace.is_null() {
                causes.invalid(field, grace, "must not be set for readinessProbes");
            }
        } else if probe["successThreshold"] != 1 {
            causes.invalid(format!("{path}.successThreshold"), &probe["successThreshold"], "must be 1");
        }
    }
}

fn check_handler(path: &str, handler: &Value, grace_seconds: Option<i64>, causes: &mut Causes) {
    let handlers: Vec<&str> = HANDLERS.iter().copied().filter(|name| handler[*name].is_object()).collect();
    if handlers.is_empty() {
        causes.required(path, "must specify a handler type");
    }
    for (nth, name) in handlers.into_iter().enumerate() {
        let (action, path) = (&handler[name], format!("{path}.{name}"));
        if nth > 0 {
            causes.forbidden(path, "may not specify more than 1 handler type");
            continue;
        }
        match name {
            "exec" if list(action, "command").is_empty() => causes.required(format!("{path}.command"), ""),
            "httpGet" => check_http(&path, action, causes),
            "tcpSocket" | "grpc" => check_port_or_name(&format!("{path}.port"), &action["port"], causes),
            "sleep" => {
                let seconds = action["seconds"].as_i64().unwrap_or_default();
                if let Some(grace) = grace_seconds.filter(|grace| seconds < 0 || seconds > *grace) {
                    let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    causes.invalid(path, &seconds.into(), &why);
                }
            }
            _ => {}
        }
    }
}

fn check_http(path: &str, action: &Value, causes: &mut Causes) {
    check_port_or_name(&format!("{path}.port"), &action["port"], causes);
    check_value("HTTPGetAction", "scheme", format!("{path}.scheme"), &action["scheme"], causes);
    for header in list(action, "httpHeaders") {
        let name = text(header, "name");
        causes.all(&format!("{path}.httpHeaders"), &name.into(), names::header(name));
    }
}

fn check_port_or_name(field: &str, port: &Value, causes: &mut Causes) {
    match port.as_str() {
        Some(name) => causes.all(field, port, names::port(name)),
        None => check_port(field, port, causes),
    }
}
