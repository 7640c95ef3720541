//! The sources of variables.

use serde_json::Value;

use super::super::metadata::check_subdomain;
use super::super::text;
use crate::causes::Causes;
use crate::names;

/// The fields of a Pod that variables and files can have.
const FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.host",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.phase",
    "status.podIP",
    "status.podIPs",
];

pub(super) fn check_variable(path: &str, variable: &Value, causes: &mut Causes) {
    const SOURCES: &[&str] = &["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    let name = text(variable, "name");
    if name.is_empty() {
        causes.required(format!("{path}.name"), "");
    } else {
        causes.all(&format!("{path}.name"), &name.into(), names::variable(name));
    }
    let (from, path) = (&variable["valueFrom"], format!("{path}.valueFrom"));
    if !from.is_object() {
        return;
    }
    if from["fieldRef"].is_object() {
        check_field(&format!("{path}.fieldRef"), &from["fieldRef"], causes);
    }
    for source in ["configMapKeyRef", "secretKeyRef"].into_iter().filter(|source| from[*source].is_object()) {
        let (of, path) = (&from[source], format!("{path}.{source}"));
        check_subdomain(&format!("{path}.name"), text(of, "name"), causes);
        let key = text(of, "key");
        if key.is_empty() {
            causes.required(format!("{path}.key"), "");
        } else {
            causes.all(&format!("{path}.key"), &key.into(), names::key(key));
        }
    }
    let why = match SOURCES.iter().filter(|source| from[**source].is_object()).count() {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if !text(variable, "value").is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    causes.invalid(path, &"".into(), why);
}

fn check_field(path: &str, reference: &Value, causes: &mut Causes) {
    let (version, field) = (text(reference, "apiVersion"), text(reference, "fieldPath"));
    let at = format!("{path}.fieldPath");
    if field.is_empty() {
        causes.required(at, "");
        return;
    }
    let plain = field.split_once("['").map_or(field, |(plain, _)| plain);
    let why = if version != "v1" {
        format!("unsupported pod version: {version}")
    } else if !FIELDS.contains(&plain) {
        format!("field label not supported: {field}")
    } else {
        return;
    };
    causes.invalid(at, &field.into(), &format!("error converting fieldPath: {why}"));
}

pub(super) fn check_all_from(path: &str, sources: &[Value], causes: &mut Causes) {
    for (nth, source) in sources.iter().enumerate() {
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            causes.all(&format!("{path}[{nth}].prefix"), &prefix.into(), names::variable(prefix));
        }
        let named = ["configMapRef", "secretRef"].map(|of| source[of].is_object().then_some(of));
        for of in named.into_iter().flatten().filter(|of| text(&source[*of], "name").is_empty()) {
            causes.required(format!("{path}[{nth}].{of}.name"), "");
        }
        match named {
            [None, None] => causes.invalid(path, &"".into(), "must specify one of: `configMapRef` or `secretRef`"),
            [Some(_), Some(_)] => {
                causes.invalid(path, &"".into(), "may not have more than one field specified at a time");
            }
            _ => {}
        }
    }
}
