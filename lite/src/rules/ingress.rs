//! Ingresses: rules, paths and backends.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{check_port, child, default, list, text};
use crate::causes::Causes;
use crate::fields::schema;
use crate::names::is_subdomain;
use crate::rules::metadata::{check_label, check_subdomain};

/// The sequences that an exact or prefix path must not contain.
const NOT_IN_PATHS: &[&str] = &["//", "/./", "/../", "%2f", "%2F"];
const NOT_AT_END: &[&str] = &["/..", "/."];

pub(super) fn defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    default(child(new, "status"), "loadBalancer", json!({}));
}

pub(super) fn validate(new: &Value, _old: Option<&Value>, causes: &mut Causes) {
    let spec = &new["spec"];
    super::load_balancer::check(&new["status"], causes);
    let rules = list(spec, "rules");
    if rules.is_empty() && !spec["defaultBackend"].is_object() {
        causes.invalid("spec", &Value::Null, "either `defaultBackend` or `rules` must be specified");
    }
    if spec["defaultBackend"].is_object() {
        check_backend("spec.defaultBackend", &spec["defaultBackend"], causes);
    }
    if let Some(class) = spec["ingressClassName"].as_str() {
        check_subdomain("spec.ingressClassName", class, causes);
    }
    for (nth, tls) in list(spec, "tls").iter().enumerate() {
        for (at, host) in list(tls, "hosts").iter().enumerate() {
            check_host(&format!("spec.tls[{nth}].hosts[{at}]"), host.as_str().unwrap_or_default(), causes);
        }
    }
    for (nth, rule) in rules.iter().enumerate() {
        check_rule(&format!("spec.rules[{nth}]"), rule, causes);
    }
}

fn check_rule(field: &str, rule: &Value, causes: &mut Causes) {
    let host = text(rule, "host");
    if !host.is_empty() {
        check_host(&format!("{field}.host"), host, causes);
    }
    if !rule["http"].is_object() {
        return;
    }
    let paths = list(&rule["http"], "paths");
    if paths.is_empty() {
        causes.required(format!("{field}.http.paths"), "");
    }
    for (nth, path) in paths.iter().enumerate() {
        check_path(&format!("{field}.http.paths[{nth}]"), path, causes);
    }
}

fn check_host(field: &str, host: &str, causes: &mut Causes) {
    if host.parse::<IpAddr>().is_ok() {
        causes.invalid(field, &host.into(), "must be a DNS name, not an IP address");
    } else if host.contains('*') {
        // One whole label, the first, may be the wildcard, and something must follow it.
        if !host.strip_prefix("*.").is_some_and(is_subdomain) {
            let why = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
            causes.invalid(field, &host.into(), why);
        }
    } else {
        check_subdomain(field, host, causes);
    }
}

fn check_path(field: &str, path: &Value, causes: &mut Causes) {
    let written = text(path, "path");
    match path["pathType"].as_str() {
        None => causes.required(format!("{field}.pathType"), "pathType must be specified"),
        Some("Exact" | "Prefix") => {
            let field = format!("{field}.path");
            if !written.starts_with('/') {
                causes.invalid(&field, &written.into(), "must be an absolute path");
            }
            for wrong in NOT_IN_PATHS.iter().filter(|wrong| written.contains(**wrong)) {
                causes.invalid(&field, &written.into(), &format!("must not contain '{wrong}'"));
            }
            for wrong in NOT_AT_END.iter().filter(|wrong| written.ends_with(**wrong)) {
                causes.invalid(&field, &written.into(), &format!("cannot end with '{wrong}'"));
            }
        }
        Some("ImplementationSpecific") => {
            if !written.is_empty() && !written.starts_with('/') {
                causes.invalid(format!("{field}.path"), &written.into(), "must be an absolute path");
            }
        }
        Some(_) => causes.unsupported(
            format!("{field}.pathType"),
            &path["pathType"],
            schema::values("HTTPIngressPath", "pathType"),
        ),
    }
    check_backend(&format!("{field}.backend"), &path["backend"], causes);
}

fn check_backend(field: &str, backend: &Value, causes: &mut Causes) {
    let service = &backend["service"];
    match (service.is_object(), backend["resource"].is_object()) {
        (true, true) => causes.invalid(field, &"".into(), "cannot set both resource and service backends"),
        (false, true) => {}
        (false, false) => causes.required(field, "resource or service backend is required"),
        (true, false) => {
            let name = text(service, "name");
            if name.is_empty() {
                causes.required(format!("{field}.service.name"), "");
            } else {
                check_label(&format!("{field}.service.name"), name, causes);
            }
            let port = &service["port"];
            let field = format!("{field}.service.port");
            match (text(port, "name").is_empty(), port["number"].as_i64().unwrap_or_default() == 0) {
                (true, true) => causes.required(field, "port name or number is required"),
                (true, false) => check_port(&format!("{field}.number"), &port["number"], causes),
                (false, true) => {}
                (false, false) => causes.invalid(field, port, "cannot set both port name & port number"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::tests::{check_refused, outcome};

    fn ingress(host: &str, path: Value) -> Value {
        json!({"spec": {"rules": [{"host": host, "http": {"paths": [path]}}]}})
    }

    fn path(path: &str, path_type: &str) -> Value {
        json!({"path": path, "pathType": path_type, "backend": {"service": {"name": "s", "port": {"number": 80}}}})
    }

    #[test]
    fn good_ingresses_pass() {
        for good in [
            ingress("", path("/", "Prefix")),
            ingress("*.example.com", path("", "ImplementationSpecific")),
            ingress("a.b", path("/a", "Exact")),
        ] {
            assert!(outcome("Ingress", good, None).is_ok());
        }
        assert!(
            outcome(
                "Ingress",
                json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"name": "web"}}}}}),
                None
            )
            .is_ok()
        );
    }

    #[test]
    fn bad_ingresses_are_refused() {
        let at = "spec.rules[0].http.paths[0]";
        check_refused(
            "Ingress",
            json!({"spec": {}}),
            None,
            "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified",
        );
        check_refused(
            "Ingress",
            json!({"spec": {"rules": [{"http": {}}]}}),
            None,
            "spec.rules[0].http.paths: Required value",
        );
        let mut untyped = path("/", "");
        untyped.as_object_mut().unwrap().remove("pathType");
        check_refused(
            "Ingress",
            ingress("a", untyped),
            None,
            &format!("{at}.pathType: Required value: pathType must be specified"),
        );
        check_refused(
            "Ingress",
            ingress("a", path("x", "Prefix")),
            None,
            &format!("{at}.path: Invalid value: \"x\": must be an absolute path"),
        );
        check_refused(
            "Ingress",
            ingress("a", path("/a//b", "Exact")),
            None,
            &format!("{at}.path: Invalid value: \"/a//b\": must not contain '//'"),
        );
        check_refused(
            "Ingress",
            ingress("a", path("/", "Regex")),
            None,
            &format!(
                "{at}.pathType: Unsupported value: \"Regex\": supported values: \"Exact\", \"ImplementationSpecific\", \"Prefix\""
            ),
        );
        check_refused(
            "Ingress",
            ingress("10.0.0.1", path("/", "Prefix")),
            None,
            "spec.rules[0].host: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address",
        );
        let bare = json!({"pathType": "Prefix", "path": "/", "backend": {"service": {"name": "s"}}});
        check_refused(
            "Ingress",
            ingress("a", bare),
            None,
            &format!("{at}.backend.service.port: Required value: port name or number is required"),
        );
    }
}
