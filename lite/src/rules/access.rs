//! Roles and their bindings. They are stored, so that charts can be applied, and grant nothing: any holder of the token
//! may do everything.

use serde_json::{Value, json};

use super::{default, elements, list, text};
use crate::causes::Causes;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn binding_defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    if new["roleRef"].is_object() && text(&new["roleRef"], "apiGroup").is_empty() {
        new["roleRef"]["apiGroup"] = GROUP.into();
    }
    for subject in elements(new, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            default(subject, "apiGroup", GROUP);
        }
    }
}

pub(super) fn role(new: &Value, _old: Option<&Value>, causes: &mut Causes) {
    check_rules(new, true, causes);
}

pub(super) fn cluster_role(new: &Value, _old: Option<&Value>, causes: &mut Causes) {
    check_rules(new, false, causes);
}

fn check_rules(role: &Value, is_namespaced: bool, causes: &mut Causes) {
    for (nth, rule) in list(role, "rules").iter().enumerate() {
        let field = |name: &str| format!("rules[{nth}].{name}");
        let is_empty = |name: &str| list(rule, name).is_empty();
        if is_empty("verbs") {
            causes.required(field("verbs"), "verbs must contain at least one value");
        }
        if !is_empty("nonResourceURLs") {
            if is_namespaced {
                let why = "namespaced rules cannot apply to non-resource URLs";
                causes.invalid(field("nonResourceURLs"), &rule["nonResourceURLs"], why);
            }
            if !is_empty("apiGroups") || !is_empty("resources") || !is_empty("resourceNames") {
                let why = "rules cannot apply to both regular resources and non-resource URLs";
                causes.invalid(field("nonResourceURLs"), &rule["nonResourceURLs"], why);
            }
            continue;
        }
        if is_empty("apiGroups") {
            causes.required(field("apiGroups"), "resource rules must supply at least one api group");
        }
        if is_empty("resources") {
            causes.required(field("resources"), "resource rules must supply at least one resource");
        }
    }
}

pub(super) fn role_binding(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    check_binding(new, old, &["Role", "ClusterRole"], causes);
}

pub(super) fn cluster_role_binding(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    check_binding(new, old, &["ClusterRole"], causes);
}

fn check_binding(new: &Value, old: Option<&Value>, kinds: &[&str], causes: &mut Causes) {
    let role = &new["roleRef"];
    if text(role, "apiGroup") != GROUP {
        causes.unsupported("roleRef.apiGroup", &text(role, "apiGroup").into(), &[GROUP]);
    }
    if !kinds.contains(&text(role, "kind")) {
        causes.unsupported("roleRef.kind", &text(role, "kind").into(), kinds);
    }
    if text(role, "name").is_empty() {
        causes.required("roleRef.name", "");
    }
    for (nth, subject) in list(new, "subjects").iter().enumerate() {
        check_subject(&format!("subjects[{nth}]"), subject, kinds.len() == 1, causes);
    }
    if old.is_some_and(|old| old["roleRef"] != *role) {
        let shown = json!({"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]});
        causes.invalid("roleRef", &shown, "cannot change roleRef");
    }
}

fn check_subject(field: &str, subject: &Value, needs_namespace: bool, causes: &mut Causes) {
    let (kind, group) = (text(subject, "kind"), text(subject, "apiGroup"));
    if text(subject, "name").is_empty() {
        causes.required(format!("{field}.name"), "");
    }
    match kind {
        "ServiceAccount" => {
            let name = text(subject, "name");
            if !name.is_empty() {
                super::metadata::check_subdomain(&format!("{field}.name"), name, causes);
            }
            if !group.is_empty() {
                causes.unsupported(format!("{field}.apiGroup"), &group.into(), &[""]);
            }
            if needs_namespace && text(subject, "namespace").is_empty() {
                causes.required(format!("{field}.namespace"), "");
            }
        }
        "User" | "Group" if group != GROUP => {
            causes.unsupported(format!("{field}.apiGroup"), &group.into(), &[GROUP]);
        }
        "User" | "Group" => {}
        _ => causes.unsupported(format!("{field}.kind"), &kind.into(), &["ServiceAccount", "User", "Group"]),
    }
}

#[cfg(test)]
mod tests {
    use crate::rules::tests::{check_refused, outcome};

    use super::*;

    #[test]
    fn rules_name_verbs_and_resources() {
        let role = |rule: Value| json!({"rules": [rule]});
        let both = json!({"verbs": ["get"], "apiGroups": [""], "nonResourceURLs": ["/x"]});
        let message = "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot apply to both regular resources and non-resource URLs";
        check_refused("ClusterRole", role(both), None, message);
        let message =
            "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs";
        check_refused("Role", role(json!({"verbs": ["get"], "nonResourceURLs": ["/x"]})), None, message);
        let message = "[rules[0].verbs: Required value: verbs must contain at least one value, \
            rules[0].apiGroups: Required value: resource rules must supply at least one api group, \
            rules[0].resources: Required value: resource rules must supply at least one resource]";
        check_refused("Role", role(json!({})), None, message);
    }

    #[test]
    fn bindings_name_a_role_and_keep_it() {
        let subjects =
            json!([{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]);
        let binding = json!({"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": subjects});
        let bound = outcome("ClusterRoleBinding", binding, None).unwrap();
        assert_eq!(bound["roleRef"]["apiGroup"], GROUP);
        assert_eq!(bound["subjects"][0]["apiGroup"], GROUP);
        assert_eq!(bound["subjects"][1].get("apiGroup"), None);
        let other = json!({"roleRef": {"kind": "ClusterRole", "name": "other"}});
        let message = "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"ClusterRole\",\"Name\":\"other\"}: cannot change roleRef";
        check_refused("ClusterRoleBinding", other, Some(&bound), message);
        let nameless = json!({"roleRef": {"kind": "Role"}, "subjects": [{"kind": "Usr", "name": "u"}]});
        let message = "[roleRef.name: Required value, subjects[0].kind: Unsupported value: \"Usr\": supported values: \"ServiceAccount\", \"User\", \"Group\"]";
        check_refused("RoleBinding", nameless, None, message);
    }
}
