//! The ClusterRole of `deploy/` against what the API server has written down about Tidegate.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::stage::Stage;

/// Verb, group and resource, with the subresource behind a slash.
type Right = (String, String, String);

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What the ClusterRole allows, as the API server holds it.
fn allowed(role: &Value) -> BTreeSet<Right> {
    let words =
        |rule: &Value, field: &str| -> Vec<String> { rule[field].as_array().into_iter().flatten().map(text).collect() };
    let mut allowed = BTreeSet::new();
    for rule in role["rules"].as_array().expect("rules") {
        for group in words(rule, "apiGroups") {
            for resource in words(rule, "resources") {
                let rights = words(rule, "verbs").into_iter().map(|verb| (verb, group.clone(), resource.clone()));
                allowed.extend(rights);
            }
        }
    }
    allowed
}

pub(crate) async fn the_role_is_what_is_used(stage: &mut Stage) {
    let role = stage.cluster.api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/tidegate").await;
    let mut used = BTreeSet::new();
    for request in stage.cluster.asked_by("tidegate", "tidegate") {
        // What was answered does not matter: a server that has just started refuses what it will allow.
        let object = &request["objectRef"];
        assert!(object.is_object(), "not about an object: {request}");
        let resource = match object["subresource"].as_str() {
            Some(subresource) => format!("{}/{subresource}", text(&object["resource"])),
            None => text(&object["resource"]),
        };
        used.insert((text(&request["verb"]), text(&object["apiGroup"]), resource));
    }
    assert_eq!(used, allowed(&role), "what Tidegate asked for (left) is what its Role allows (right)");
}
