//! CustomResourceDefinitions: names, versions and the features that this server lacks.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Value, json};

use super::metadata::check_subdomain;
use super::{check_immutable, child, default, list, text};
use crate::causes::Causes;
use crate::custom::{self, Path, Schema, Type};
use crate::names::is_label;

/// Groups of the Kubernetes project need a link to their approval.
const APPROVAL: &str = "api-approved.kubernetes.io";
const VERSIONS_MAX: usize = 32;
/// The maximum number of selectable fields of one version, as in the real server.
const SELECTABLE_MAX: usize = 8;

const DNS_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

pub(super) fn defaults(new: &mut Value, old: Option<&Value>, _serial: u64) {
    let spec = child(new, "spec");
    let names = child(spec, "names");
    let kind = text(names, "kind").to_owned();
    if !kind.is_empty() {
        default(names, "singular", kind.to_lowercase());
        default(names, "listKind", format!("{kind}List"));
    }
    default(child(spec, "conversion"), "strategy", "None");
    for version in super::elements(spec, "versions") {
        for column in super::elements(version, "additionalPrinterColumns") {
            default(column, "type", "");
        }
    }
    let storage = list(&new["spec"], "versions").iter().find(|version| version["storage"] == true);
    let Some(storage) = storage.map(|version| version["name"].clone()) else { return };
    let status = child(new, "status");
    if old.is_none() {
        *status = json!({"conditions": [], "acceptedNames": {"plural": "", "kind": ""}});
    }
    let stored = &mut status["storedVersions"];
    match stored.as_array_mut() {
        Some(stored) if stored.contains(&storage) => {}
        Some(stored) => stored.push(storage),
        None => *stored = json!([storage]),
    }
}

pub(super) fn validate(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    let spec = &new["spec"];
    let names = &spec["names"];
    let (group, plural) = (text(spec, "group"), text(names, "plural"));
    let wanted = format!("{plural}.{group}");
    if text(&new["metadata"], "name") != wanted {
        causes.invalid("metadata.name", &new["metadata"]["name"], "must be spec.names.plural+\".\"+spec.group");
    }
    check_approval(new, group, causes);
    if group.is_empty() {
        causes.required("spec.group", "");
    } else if !group.contains('.') {
        causes.invalid("spec.group", &group.into(), "should be a domain with at least one dot");
    } else {
        check_subdomain("spec.group", group, causes);
    }
    match text(spec, "scope") {
        "" => causes.required("spec.scope", ""),
        "Cluster" | "Namespaced" => {}
        _ => causes.unsupported("spec.scope", &spec["scope"], &["Cluster", "Namespaced"]),
    }
    check_versions(spec, causes);
    check_names(names, causes);
    check_conversion(spec, causes);
    if spec["preserveUnknownFields"] == true {
        let why =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        causes.invalid("spec.preserveUnknownFields", &true.into(), why);
    }
    if let Some(old) = old {
        let before = &old["spec"];
        if is_established(old) {
            check_immutable("spec.scope", &spec["scope"], &before["scope"], causes);
            check_immutable("spec.names.kind", &names["kind"], &before["names"]["kind"], causes);
        }
        check_immutable("spec.group", &spec["group"], &before["group"], causes);
        check_immutable("spec.names.plural", &names["plural"], &before["names"]["plural"], causes);
    }
    check_stored(new, causes);
}

/// Returns `true` if the objects of a definition have been served.
fn is_established(definition: &Value) -> bool {
    let conditions = list(&definition["status"], "conditions");
    conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True")
}

fn check_approval(new: &Value, group: &str, causes: &mut Causes) {
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    let given = text(&new["metadata"]["annotations"], APPROVAL);
    if !protected || given.starts_with("unapproved") {
        return;
    }
    let field = format!("metadata.annotations[{APPROVAL}]");
    if given.is_empty() {
        let why = format!(
            "protected groups must have approval annotation {APPROVAL:?}, see https://github.com/kubernetes/enhancements/pull/1111"
        );
        causes.required(field, &why);
    } else if !given.starts_with("https://") && !given.starts_with("http://") {
        let why = format!(
            "protected groups must have approval annotation {APPROVAL:?} with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
        );
        causes.invalid(field, &given.into(), &why);
    }
}

fn check_versions(spec: &Value, causes: &mut Causes) {
    let versions = list(spec, "versions");
    let mut names: Vec<&str> = Vec::new();
    for (nth, version) in versions.iter().enumerate() {
        let place = format!("spec.versions[{nth}]");
        // The real server treats a field that only one version has as one of the whole definition.
        let (field, schema_field) = if versions.len() == 1 {
            ("spec".to_owned(), "spec.validation.openAPIV3Schema".to_owned())
        } else {
            (place.clone(), format!("{place}.schema.openAPIV3Schema"))
        };
        let name = text(version, "name");
        if !is_label(name) || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
            causes.invalid(format!("{place}.name"), &name.into(), DNS_1035);
            if nth == 0 {
                causes.invalid("spec.version", &name.into(), DNS_1035);
            }
        }
        if !version["schema"]["openAPIV3Schema"].is_object() {
            causes.required(format!("{place}.schema.openAPIV3Schema"), "");
        } else {
            let schema = custom::read_schema(version, &schema_field, causes);
            check_selectable(&field, version, &schema, causes);
        }
        if version["served"].is_null() {
            causes.required(format!("{place}.served"), "");
        }
        if version["storage"].is_null() {
            causes.required(format!("{place}.storage"), "");
        }
        check_columns(&field, version, causes);
        check_scale(&format!("{field}.subresources.scale"), &version["subresources"]["scale"], causes);
        names.push(name);
    }
    let brief: Value = names.iter().map(|&name| json!({"name": name})).collect();
    if versions.len() > VERSIONS_MAX {
        causes.invalid("spec.versions", &versions.len().into(), "must have at most 32 versions");
    }
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    if unique.len() != names.len() {
        causes.invalid("spec.versions", &brief, "must contain unique version names");
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        causes.invalid("spec.versions", &brief, "must have exactly one version marked as storage version");
    }
}

fn check_columns(field: &str, version: &Value, causes: &mut Causes) {
    const TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
    for (nth, column) in list(version, "additionalPrinterColumns").iter().enumerate() {
        let field = format!("{field}.additionalPrinterColumns[{nth}]");
        if text(column, "name").is_empty() {
            causes.required(format!("{field}.name"), "");
        }
        let kind = text(column, "type");
        let why = format!("must be one of {}", TYPES.join(","));
        if kind.is_empty() {
            causes.required(format!("{field}.type"), &why);
        } else if !TYPES.contains(&kind) {
            causes.invalid(format!("{field}.type"), &kind.into(), &why);
        }
        if text(column, "jsonPath").is_empty() {
            causes.required(format!("{field}.JSONPath"), "");
        }
    }
}

fn check_selectable(field: &str, version: &Value, schema: &Schema, causes: &mut Causes) {
    let (mut seen, mut count) = (BTreeSet::new(), 0);
    for (nth, selectable) in list(version, "selectableFields").iter().enumerate() {
        let field = format!("{field}.selectableFields[{nth}].jsonPath");
        let (value, text) = (&selectable["jsonPath"], text(selectable, "jsonPath"));
        let path = Path::parse(text);
        let names = path.as_ref().and_then(Path::names).filter(|_| text.starts_with('.'));
        let Some(names) = names else {
            if text.is_empty() {
                causes.required(field, "");
            } else {
                causes.invalid(field, value, "is an invalid path: does not refer to a valid field");
            }
            continue;
        };
        let found = names.iter().try_fold(schema, |schema, name| schema.properties.get(*name));
        if found.is_none() {
            causes.invalid(field, value, "is an invalid path: does not refer to a valid field");
        } else if !matches!(found.and_then(|found| found.kind), Some(Type::String | Type::Boolean | Type::Integer)) {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            causes.invalid(field, value, why);
        } else if seen.contains(text) {
            causes.duplicate(field, value);
        }
        seen.insert(text);
        count += 1;
    }
    if count > SELECTABLE_MAX {
        let why = format!("must have at most {SELECTABLE_MAX} items");
        causes.invalid(format!("{field}.selectableFields"), &count.into(), &why);
    }
}

fn check_scale(field: &str, scale: &Value, causes: &mut Causes) {
    if scale.is_null() {
        return;
    }
    for (key, parents, why) in [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ] {
        let path = text(scale, key);
        if path.is_empty() {
            if key != "labelSelectorPath" {
                causes.required(format!("{field}.{key}"), "");
            }
        } else if !parents.iter().any(|parent| path.starts_with(parent)) {
            causes.invalid(format!("{field}.{key}"), &path.into(), why);
        } else if path.contains(['[', ']', '*']) || path.split('.').skip(1).any(str::is_empty) {
            causes.invalid(format!("{field}.{key}"), &path.into(), "must be a json path in the dot notation");
        }
    }
}

fn check_names(names: &Value, causes: &mut Causes) {
    for key in ["plural", "singular", "kind", "listKind"] {
        let (field, name) = (format!("spec.names.{key}"), text(names, key));
        if name.is_empty() {
            causes.required(field, "");
        } else if key.ends_with("ind") {
            check_1035(&field, name, "may have mixed case, but should otherwise match: ", causes);
        } else {
            check_1035(&field, name, "", causes);
        }
    }
    for key in ["shortNames", "categories"] {
        for (nth, name) in list(names, key).iter().enumerate() {
            check_1035(&format!("spec.names.{key}[{nth}]"), name.as_str().unwrap_or_default(), "", causes);
        }
    }
    if !text(names, "kind").is_empty() && names["kind"] == names["listKind"] {
        causes.invalid("spec.names.listKind", &names["listKind"], "kind and listKind may not be the same");
    }
}

fn check_1035(field: &str, name: &str, before: &str, causes: &mut Causes) {
    let plain = if before.is_empty() { name.to_owned() } else { name.to_lowercase() };
    if !is_label(&plain) || !plain.starts_with(|first: char| first.is_ascii_lowercase()) {
        causes.invalid(field, &name.into(), &format!("{before}{DNS_1035}"));
    }
}

fn check_conversion(spec: &Value, causes: &mut Causes) {
    let conversion = &spec["conversion"];
    match text(conversion, "strategy") {
        "None" => {}
        "Webhook" => {
            let why = "this server calls no webhooks: the only strategy it has is None";
            causes.forbidden("spec.conversion.strategy", why);
        }
        _ => causes.unsupported("spec.conversion.strategy", &conversion["strategy"], &["None", "Webhook"]),
    }
    if conversion["webhook"].is_object() {
        let why = "should not be set when strategy is not set to Webhook";
        causes.forbidden("spec.conversion.webhookClientConfig", why);
    }
}

/// A version in which objects may be stored must stay.
fn check_stored(new: &Value, causes: &mut Causes) {
    let versions = list(&new["spec"], "versions");
    let kept = &new["status"]["storedVersions"];
    if list(&new["status"], "storedVersions").is_empty() {
        return causes.invalid("status.storedVersions", kept, "must have at least one stored version");
    }
    let stored: HashSet<&Value> = list(&new["status"], "storedVersions").iter().collect();
    for version in versions.iter().filter(|version| version["storage"] == true) {
        if !stored.contains(&version["name"]) {
            let why = format!("must have the storage version {}", text(version, "name"));
            causes.invalid("status.storedVersions", kept, &why);
        }
    }
    let names: HashSet<&Value> = versions.iter().map(|version| &version["name"]).collect();
    for (nth, stored) in list(&new["status"], "storedVersions").iter().enumerate() {
        if !names.contains(stored) {
            let name = stored.as_str().unwrap_or_default();
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            causes.invalid(format!("status.storedVersions[{nth}]"), stored, &why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::{check_refused, outcome};

    fn foos() -> Value {
        json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        })
    }

    #[test]
    fn missing_fields_get_defaults() {
        let made = outcome("CustomResourceDefinition", foos(), None).unwrap();
        let names = json!({"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"});
        assert_eq!(made["spec"]["names"], names);
        assert_eq!(made["spec"]["conversion"], json!({"strategy": "None"}));
        assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    }

    #[test]
    fn webhooks_are_refused() {
        let mut webhook = foos();
        webhook["spec"]["conversion"] = json!({"strategy": "Webhook"});
        let why =
            "spec.conversion.strategy: Forbidden: this server calls no webhooks: the only strategy it has is None";
        check_refused("CustomResourceDefinition", webhook, None, why);
    }

    #[test]
    fn scope_and_stored_versions_are_immutable() {
        let mut old = outcome("CustomResourceDefinition", foos(), None).unwrap();
        old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
        let mut new = old.clone();
        new["spec"]["scope"] = "Cluster".into();
        let why = "spec.scope: Invalid value: \"Cluster\": field is immutable";
        check_refused("CustomResourceDefinition", new, Some(&old), why);
        let mut new = old.clone();
        new["spec"]["versions"][0]["name"] = "v2".into();
        let why = "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions";
        check_refused("CustomResourceDefinition", new, Some(&old), why);
    }
}
