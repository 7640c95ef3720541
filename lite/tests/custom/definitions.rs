//! Kinds are added and removed with their definitions.

use serde_json::{Value, json};

use crate::server::{DEFINITIONS, Server, anything, definition};

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn widgets() -> Value {
    definition("widgets", "Widget", &[("v1", anything()), ("v1beta1", anything())])
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}})
}

#[tokio::test]
async fn a_definition_adds_a_kind() {
    let server = Server::new();
    server.gives(&format!("GET {WIDGETS}"), None, 404).await;
    server.define(&widgets()).await;
    assert_eq!(server.condition("widgets.example.com", "NamesAccepted").await, "True NoConflicts");
    assert_eq!(server.condition("widgets.example.com", "Established").await, "True InitialNamesAccepted");
    let made = server.gives(&format!("POST {WIDGETS}"), Some(&widget("a")), 201).await;
    assert_eq!((&made["metadata"]["generation"], &made["spec"]["size"]), (&json!(1), &json!(1)));
    let list = server.gives(&format!("GET {WIDGETS}"), None, 200).await;
    assert_eq!((&list["kind"], &list["items"][0]["metadata"]["name"]), (&json!("WidgetList"), &json!("a")));
    let why = server.ask(&format!("GET {WIDGETS}/b"), None).await;
    assert_eq!((why.status, why.message()), (404, "widgets.example.com \"b\" not found"));
    server.gives("POST /apis/example.com/v1/namespaces/nowhere/widgets", Some(&widget("a")), 404).await;
}

#[tokio::test]
async fn versions_are_views_of_one_object() {
    let server = Server::new();
    server.define(&widgets()).await;
    let made = server.gives(&format!("POST {WIDGETS}"), Some(&widget("a")), 201).await;
    let older = WIDGETS.replace("/v1/", "/v1beta1/");
    let read = server.gives(&format!("GET {older}/a"), None, 200).await;
    assert_eq!(read["apiVersion"], "example.com/v1beta1");
    assert_eq!(read["metadata"], made["metadata"]);
    let patched = server.gives(&format!("PATCH {older}/a"), Some(&json!({"spec": {"size": 2}})), 200).await;
    assert_eq!(
        (&patched["apiVersion"], &patched["metadata"]["generation"]),
        (&json!("example.com/v1beta1"), &json!(2))
    );
    let read = server.gives(&format!("GET {WIDGETS}/a"), None, 200).await;
    assert_eq!((&read["apiVersion"], &read["spec"]["size"]), (&json!("example.com/v1"), &json!(2)));
    let watched = server.ask(&format!("GET {older}?watch=true&timeoutSeconds=1"), None).await;
    assert_eq!(watched.body["object"]["apiVersion"], "example.com/v1beta1");
    let list = server.gives(&format!("GET {older}"), None, 200).await;
    assert_eq!(list["items"][0]["apiVersion"], "example.com/v1beta1");
}

#[tokio::test]
async fn updates_need_a_resource_version_and_increment_the_generation() {
    let server = Server::new();
    server.define(&widgets()).await;
    let mut made = server.gives(&format!("POST {WIDGETS}"), Some(&widget("a")), 201).await;
    let why = server.ask(&format!("PUT {WIDGETS}/a"), Some(&widget("a"))).await;
    let wanted = "Widget.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    assert_eq!((why.status, why.message()), (422, wanted));
    made["status"] = json!({"ready": true});
    let put = server.gives(&format!("PUT {WIDGETS}/a"), Some(&made), 200).await;
    assert_eq!((&put["status"]["ready"], &put["metadata"]["generation"]), (&json!(true), &json!(2)));
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let labelled = server.gives(&format!("PATCH {WIDGETS}/a"), Some(&labelled), 200).await;
    assert_eq!(labelled["metadata"]["generation"], 2);
}

#[tokio::test]
async fn status_and_scale_are_subresources() {
    let server = Server::new();
    let mut definition = widgets();
    definition["spec"]["versions"][0]["subresources"] = json!({
        "status": {},
        "scale": {"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count", "labelSelectorPath": ".status.selector"},
    });
    server.define(&definition).await;
    let mut object = widget("a");
    object["status"] = json!({"count": 9});
    let made = server.gives(&format!("POST {WIDGETS}"), Some(&object), 201).await;
    assert!(made["status"].is_null());
    let status = json!({"status": {"count": 3, "selector": "app=a"}, "spec": {"size": 7}});
    let patched = server.gives(&format!("PATCH {WIDGETS}/a/status"), Some(&status), 200).await;
    assert_eq!((&patched["spec"]["size"], &patched["metadata"]["generation"]), (&json!(1), &json!(1)));
    let scale = server.gives(&format!("PATCH {WIDGETS}/a/scale"), Some(&json!({"spec": {"replicas": 5}})), 200).await;
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(5)));
    assert_eq!(scale["status"], json!({"replicas": 3, "selector": "app=a"}));
    let read = server.gives(&format!("GET {WIDGETS}/a"), None, 200).await;
    assert_eq!((&read["spec"]["count"], &read["metadata"]["generation"]), (&json!(5), &json!(2)));
    server.gives(&format!("GET {}/a/scale", WIDGETS.replace("/v1/", "/v1beta1/")), None, 404).await;
}

#[tokio::test]
async fn deleting_a_definition_deletes_its_objects() {
    let server = Server::new();
    server.define(&widgets()).await;
    let mut held = widget("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.gives(&format!("POST {WIDGETS}"), Some(&widget("a")), 201).await;
    server.gives(&format!("POST {WIDGETS}"), Some(&held), 201).await;
    let going = server.gives(&format!("DELETE {DEFINITIONS}/widgets.example.com"), None, 200).await;
    assert_eq!(going["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(server.condition("widgets.example.com", "Terminating").await, "True InstanceDeletionPending");
    let list = server.gives(&format!("GET {WIDGETS}"), None, 200).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let why = server.ask(&format!("POST {WIDGETS}"), Some(&widget("b"))).await;
    assert_eq!(
        (why.status, why.message()),
        (405, "create not allowed while custom resource definition is terminating")
    );
    server.gives(&format!("PATCH {WIDGETS}/held"), Some(&json!({"metadata": {"finalizers": null}})), 200).await;
    server.gives(&format!("GET {WIDGETS}"), None, 404).await;
    server.gives(&format!("GET {DEFINITIONS}/widgets.example.com"), None, 404).await;
    server.define(&widgets()).await;
    let list = server.gives(&format!("GET {WIDGETS}"), None, 200).await;
    assert_eq!(list["items"], json!([]), "nothing of its former life is left");
}

#[tokio::test]
async fn a_watch_ends_with_its_kind() {
    let server = Server::new();
    server.define(&widgets()).await;
    server.gives(&format!("POST {WIDGETS}"), Some(&widget("a")), 201).await;
    let line = format!("GET {WIDGETS}?watch=true");
    let watch = server.ask(&line, None);
    let delete = async {
        tokio::task::yield_now().await;
        server.gives(&format!("DELETE {DEFINITIONS}/widgets.example.com"), None, 200).await
    };
    let (watched, _) = tokio::join!(watch, delete);
    assert_eq!(watched.status, 200, "it ended by itself");
}

#[tokio::test]
async fn the_first_definition_of_a_name_wins() {
    let server = Server::new();
    let mut first = widgets();
    first["spec"]["names"]["shortNames"] = json!(["w"]);
    server.define(&first).await;
    let mut second = definition("gadgets", "Gadget", &[("v1", anything())]);
    second["spec"]["names"]["shortNames"] = json!(["w"]);
    server.define(&second).await;
    assert_eq!(server.condition("gadgets.example.com", "NamesAccepted").await, "False ShortNamesConflict");
    assert_eq!(server.condition("gadgets.example.com", "Established").await, "False NotAccepted");
    server.gives("GET /apis/example.com/v1/gadgets", None, 404).await;
    server.gives(&format!("DELETE {DEFINITIONS}/widgets.example.com"), None, 200).await;
    assert_eq!(server.condition("gadgets.example.com", "NamesAccepted").await, "True NoConflicts");
    server.gives("GET /apis/example.com/v1/gadgets", None, 200).await;
}

#[tokio::test]
async fn discovery_lists_custom_kinds() {
    let server = Server::new();
    let mut widgets = widgets();
    widgets["spec"]["names"]["shortNames"] = json!(["wd"]);
    widgets["spec"]["names"]["categories"] = json!(["all"]);
    widgets["spec"]["versions"][1]["deprecated"] = true.into();
    server.define(&widgets).await;
    let group = server.gives("GET /apis/example.com", None, 200).await;
    assert_eq!(group["preferredVersion"]["version"], "v1");
    assert_eq!(group["versions"].as_array().unwrap().len(), 2);
    let resources = server.gives("GET /apis/example.com/v1", None, 200).await;
    let resource = &resources["resources"][0];
    assert_eq!((&resource["singularName"], &resource["shortNames"]), (&json!("widget"), &json!(["wd"])));
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let all = server.send("GET /apis", None, accept).await.body;
    let group = all["items"].as_array().unwrap().iter().find(|one| one["metadata"]["name"] == "example.com").unwrap();
    assert_eq!(group["versions"][0]["resources"][0]["categories"], json!(["all"]));
    let old = server.ask(&format!("GET {}", WIDGETS.replace("/v1/", "/v1beta1/")), None).await;
    assert_eq!(old.warnings, ["299 - \"example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget\""]);
    let before = server.gives("GET /openapi/v3", None, 200).await;
    let patch = json!({"spec": {"names": {"categories": []}}});
    server.gives(&format!("PATCH {DEFINITIONS}/widgets.example.com"), Some(&patch), 200).await;
    let after = server.gives("GET /openapi/v3", None, 200).await;
    let url = |index: &Value| index["paths"]["apis/example.com/v1"]["serverRelativeURL"].clone();
    assert_ne!(url(&before), url(&after), "clients keep documents by their address");
    let document = server.gives("GET /openapi/v3/apis/example.com/v1", None, 200).await;
    assert!(document["components"]["schemas"]["com.example.v1.Widget"]["properties"]["metadata"].is_object());
}

#[tokio::test]
async fn deleting_a_namespace_deletes_custom_objects() {
    let server = Server::new();
    server.define(&widgets()).await;
    server.gives("POST /api/v1/namespaces", Some(&json!({"metadata": {"name": "team"}})), 201).await;
    let team = WIDGETS.replace("/default/", "/team/");
    server.gives(&format!("POST {team}"), Some(&widget("a")), 201).await;
    server.gives("DELETE /api/v1/namespaces/team", None, 200).await;
    server.gives("GET /api/v1/namespaces/team", None, 404).await;
    let list = server.gives("GET /apis/example.com/v1/widgets", None, 200).await;
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn a_custom_kind_named_like_a_built_in_one_is_distinct() {
    let server = Server::new();
    server.define(&definition("services", "Service", &[("v1", anything())])).await;
    let object = json!({"kind": "Service", "metadata": {"name": "a.b"}, "spec": {"ports": "none"}});
    let made = server.gives("POST /apis/example.com/v1/namespaces/default/services", Some(&object), 201).await;
    assert_eq!(made["spec"], json!({"ports": "none"}), "nothing is filled in");
}

/// Checks a definition whose `spec` has a rule with an object that follows the rule or violates it.
async fn check_rule(rule: &str, spec: Value, expected: u16) {
    let server = Server::new();
    let properties = json!({
        "namespace": {"type": "string"}, "inner": {"type": "object", "properties": {"a": {"type": "string"}}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}}, "name": {"type": "string"},
    });
    let rules = json!([{"rule": rule, "message": "broken"}]);
    let schema = json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules});
    let root = json!({"type": "object", "properties": {"spec": schema}});
    server.define(&definition("widgets", "Widget", &[("v1", root)])).await;
    let object = json!({"kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
    let said = server.ask(&format!("POST {WIDGETS}"), Some(&object)).await;
    assert_eq!(said.status, expected, "{rule}: {}", said.message());
    assert!(said.status == 201 || said.message().contains("broken"), "{rule}: {}", said.message());
}

#[tokio::test]
async fn rules_may_escape_field_names() {
    check_rule("has(self.inner)", json!({}), 422).await;
    check_rule("has(self.inner)", json!({"inner": {}}), 201).await;
    check_rule("has(self.map.a)", json!({"map": {"a": "b"}}), 201).await;
    check_rule("has(self.namespace) && self.__namespace__ == 'a'", json!({"namespace": "a"}), 201).await;
    check_rule("!has(self.__namespace__) || self.namespace == 'a'", json!({"namespace": "b"}), 422).await;
    let format = "!format.dns1123Subdomain().validate(self.name).hasValue()";
    check_rule(format, json!({"name": "a.b"}), 201).await;
    check_rule(format, json!({"name": "a_b"}), 422).await;
}

#[tokio::test]
async fn an_unserved_kind_keeps_its_objects() {
    let server = Server::new();
    let mut definition = definition("widgets", "Widget", &[("v1", anything())]);
    server.define(&definition).await;
    server.gives(&format!("POST {WIDGETS}"), Some(&widget("a")), 201).await;
    let at = format!("PATCH {DEFINITIONS}/widgets.example.com");
    for served in [false, true] {
        definition["spec"]["versions"][0]["served"] = served.into();
        let patch = json!({"spec": {"versions": definition["spec"]["versions"]}});
        server.gives(&at, Some(&patch), 200).await;
        let said = server.ask(&format!("GET {WIDGETS}/a"), None).await;
        assert_eq!(said.status, if served { 200 } else { 404 });
    }
}

#[tokio::test]
async fn values_valid_under_an_older_schema_may_stay() {
    let server = Server::new();
    let schema = |most: u64| {
        let rules = json!([{"rule": format!("!has(self.b) || self.b < {most}"), "message": "too much"}]);
        let spec = json!({"type": "object", "x-kubernetes-validations": rules, "properties": {
            "a": {"type": "integer", "maximum": most}, "b": {"type": "integer"}, "c": {"type": "integer"},
        }});
        json!({"type": "object", "properties": {"spec": spec}})
    };
    let mut definition = definition("widgets", "Widget", &[("v1", schema(9))]);
    server.define(&definition).await;
    let object = json!({"kind": "Widget", "metadata": {"name": "a"}, "spec": {"a": 5, "b": 5}});
    server.gives(&format!("POST {WIDGETS}"), Some(&object), 201).await;
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema(3);
    let patch = json!({"spec": {"versions": definition["spec"]["versions"]}});
    server.gives(&format!("PATCH {DEFINITIONS}/widgets.example.com"), Some(&patch), 200).await;
    let at = format!("PATCH {WIDGETS}/a");
    let labels = json!({"metadata": {"labels": {"x": "y"}}});
    server.gives(&at, Some(&labels), 200).await;
    let said = server.ask(&at, Some(&json!({"spec": {"a": 4}}))).await;
    assert!(said.status == 422 && said.message().contains("spec.a: Invalid value: 4"), "{}", said.message());
    // The rule applies to the whole object, and the object has changed.
    let said = server.ask(&at, Some(&json!({"spec": {"c": 1}}))).await;
    assert!(said.status == 422 && said.message().ends_with("spec: Invalid value: too much"), "{}", said.message());
    server.gives(&at, Some(&json!({"spec": {"b": 2, "c": 1}})), 200).await;
}
