//! Writes that are accepted, or refused late: changes, and every kind of patch.

use serde_json::{Value, json};

use super::work::Call;

/// A request whose work is measured, and those that come before it, each for a number of elements.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) before: fn(usize) -> Vec<Call>,
    pub(crate) measured: fn(usize) -> Call,
    /// The code of its answer.
    pub(crate) code: u16,
}

const JSON: &str = "application/json-patch+json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/x";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const PODS: &str = "/api/v1/namespaces/default/pods";
const POD: &str = "/api/v1/namespaces/default/pods/x";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/x";

pub(crate) fn each(length: usize, one: impl Fn(usize) -> Value) -> Value {
    Value::Array((0..length).map(one).collect())
}

fn map(metadata: Value) -> Value {
    let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    map["metadata"]["name"] = "x".into();
    map
}

fn finalizers(length: usize) -> Value {
    each(length, |nth| format!("example.com/f{nth}").into())
}

fn owner(nth: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("o{nth}"), "uid": format!("u{nth}")})
}

fn with_finalizers(length: usize) -> Vec<Call> {
    vec![Call::new("POST", MAPS, &map(json!({"finalizers": finalizers(length)})))]
}

fn container(nth: usize) -> Value {
    json!({"name": format!("c{nth}"), "image": "x"})
}

fn deployment(containers: Value) -> Value {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": spec})
}

fn with_containers(length: usize) -> Vec<Call> {
    vec![Call::new("POST", DEPLOYMENTS, &deployment(each(length, container)))]
}

fn applied(length: usize) -> Vec<Call> {
    vec![Call::patch(APPLY, &format!("{DEPLOYMENT}?fieldManager=a"), &deployment(each(length, container)))]
}

fn pod(fields: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": fields});
    pod["spec"]["containers"] = json!([{"name": "c", "image": "x"}]);
    pod
}

fn pod_lists(length: usize) -> Value {
    let tolerations = each(length, |nth| json!({"key": format!("k{nth}"), "operator": "Exists"}));
    pod(json!({"tolerations": tolerations, "schedulingGates": each(length, |nth| json!({"name": format!("g{nth}")}))}))
}

pub(crate) fn properties(length: usize, one: impl Fn(usize) -> Value) -> Value {
    (0..length).map(|nth| (format!("f{nth}"), one(nth))).collect()
}

fn managers(length: usize) -> Value {
    each(length, |nth| {
        let fields = json!({"f:data": {format!("f:k{nth}"): {}}});
        json!({"manager": format!("m{nth}"), "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    })
}

fn appliers(length: usize) -> Value {
    let mut managers = managers(length);
    managers.as_array_mut().unwrap().iter_mut().for_each(|one| one["operation"] = "Apply".into());
    managers
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = objects();
    cases.extend(patches());
    cases.extend(strategic());
    cases.extend(managed());
    cases
}

fn objects() -> Vec<Case> {
    let nothing: fn(usize) -> Vec<Call> = |_| Vec::new();
    vec![
        Case {
            name: "owners",
            before: nothing,
            measured: |length| Call::new("POST", MAPS, &map(json!({"ownerReferences": each(length, owner)}))),
            code: 201,
        },
        Case {
            name: "controllers",
            before: nothing,
            measured: |length| {
                let owners = each(length, |nth| {
                    let mut owner = owner(nth);
                    owner["controller"] = true.into();
                    owner
                });
                Call::new("POST", MAPS, &map(json!({"ownerReferences": owners})))
            },
            code: 422,
        },
        Case {
            name: "new finalizers of an object that is being deleted",
            before: |length| {
                let mut calls = with_finalizers(length);
                calls.push(Call::new("DELETE", MAP, &json!({})));
                calls
            },
            measured: |length| Call::new("PUT", MAP, &map(json!({"finalizers": finalizers(length + 1)}))),
            code: 422,
        },
        Case {
            name: "ports of a Service",
            before: nothing,
            measured: |length| {
                let ports = each(length, |nth| json!({"name": format!("p{nth}"), "port": nth + 1}));
                let service =
                    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"ports": ports}});
                Call::new("POST", SERVICES, &service)
            },
            code: 201,
        },
        Case {
            name: "a changed Pod",
            before: |length| vec![Call::new("POST", PODS, &pod_lists(length))],
            measured: |length| {
                let mut pod = pod_lists(length);
                pod["spec"]["containers"][0]["image"] = "y".into();
                Call::new("PUT", POD, &pod)
            },
            code: 200,
        },
        Case {
            name: "containers, mounts and variables",
            before: nothing,
            measured: |length| {
                let mounts = each(length, |nth| json!({"name": "v", "mountPath": format!("/{nth}")}));
                let mut container = container(0);
                container["volumeMounts"] = mounts;
                container["env"] = each(length, |nth| json!({"name": format!("A{nth}"), "value": "x"}));
                let mut deployment = deployment(json!([container]));
                let spec = &mut deployment["spec"]["template"]["spec"];
                spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
                spec["initContainers"] = each(length, |nth| json!({"name": format!("i{nth}"), "image": "x"}));
                Call::new("POST", DEPLOYMENTS, &deployment)
            },
            code: 201,
        },
    ]
}

fn managed() -> Vec<Case> {
    vec![
        Case {
            name: "managers of fields",
            before: |_| vec![Call::new("POST", MAPS, &map(json!({})))],
            measured: |length| Call::new("PUT", MAP, &map(json!({"managedFields": managers(length)}))),
            code: 200,
        },
        Case {
            name: "an apply among the managers of fields",
            before: |length| {
                let manages = map(json!({"managedFields": appliers(length)}));
                let mut applied = map(json!({}));
                applied["data"] = json!({"a": "b"});
                let apply = Call::patch(APPLY, &format!("{MAP}?fieldManager=a"), &applied);
                vec![Call::new("POST", MAPS, &map(json!({}))), Call::new("PUT", MAP, &manages), apply]
            },
            measured: |_| Call::patch(APPLY, &format!("{MAP}?fieldManager=a"), &map(json!({}))),
            code: 200,
        },
    ]
}

fn patches() -> Vec<Case> {
    vec![
        Case {
            name: "a merge patch of a list",
            before: with_finalizers,
            measured: |length| Call::patch(MERGE, MAP, &json!({"metadata": {"finalizers": finalizers(length / 2)}})),
            code: 200,
        },
        Case {
            name: "operations at the end of a list",
            before: with_finalizers,
            measured: |length| {
                let add = |nth| json!({"op": "add", "path": "/metadata/finalizers/-", "value": format!("example.com/g{nth}")});
                Call::patch(JSON, MAP, &each(length, add))
            },
            code: 200,
        },
        Case {
            name: "operations with unknown fields",
            before: with_finalizers,
            measured: |length| {
                let add = |nth| json!({"op": "add", "path": format!("/x{nth}"), "value": 1, "y": 1});
                Call::patch(JSON, MAP, &each(length, add))
            },
            code: 200,
        },
        Case {
            name: "an apply of a list",
            before: applied,
            measured: |length| {
                let changed = each(length, |nth| json!({"name": format!("c{nth}"), "image": "y"}));
                Call::patch(APPLY, &format!("{DEPLOYMENT}?fieldManager=a"), &deployment(changed))
            },
            code: 200,
        },
        Case {
            name: "an apply that removes half a list",
            before: applied,
            measured: |length| {
                let left = deployment(each(length / 2, container));
                Call::patch(APPLY, &format!("{DEPLOYMENT}?fieldManager=a"), &left)
            },
            code: 200,
        },
        Case {
            name: "an apply with conflicts",
            before: applied,
            measured: |length| {
                let changed = each(length, |nth| json!({"name": format!("c{nth}"), "image": "y"}));
                Call::patch(APPLY, &format!("{DEPLOYMENT}?fieldManager=b"), &deployment(changed))
            },
            code: 409,
        },
    ]
}

fn strategic() -> Vec<Case> {
    vec![
        Case {
            name: "a strategic merge by keys",
            before: with_containers,
            measured: |length| {
                let order = each(length, |nth| json!({"name": format!("c{}", length - 1 - nth)}));
                let changed = each(length, |nth| json!({"name": format!("c{nth}"), "image": "y"}));
                let fields = json!({"containers": changed, "$setElementOrder/containers": order});
                Call::patch(STRATEGIC, DEPLOYMENT, &json!({"spec": {"template": {"spec": fields}}}))
            },
            code: 200,
        },
        Case {
            name: "a strategic merge that deletes",
            before: with_containers,
            measured: |length| {
                let gone = each(length - 1, |nth| json!({"name": format!("c{nth}"), "$patch": "delete"}));
                Call::patch(STRATEGIC, DEPLOYMENT, &json!({"spec": {"template": {"spec": {"containers": gone}}}}))
            },
            code: 200,
        },
        Case {
            name: "a strategic merge of equal keys",
            before: |_| {
                let ports = json!([{"port": 1, "protocol": "TCP"}]);
                let service =
                    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"ports": ports}});
                vec![Call::new("POST", SERVICES, &service)]
            },
            measured: |length| {
                let ports = each(length, |nth| json!({"port": 1, "protocol": format!("P{nth}")}));
                Call::patch(STRATEGIC, &format!("{SERVICES}/x"), &json!({"spec": {"ports": ports}}))
            },
            code: 422,
        },
        Case {
            name: "a strategic merge of a set",
            before: with_finalizers,
            measured: |length| {
                let metadata = json!({
                    "finalizers": each(length, |nth| format!("example.com/g{nth}").into()),
                    "$deleteFromPrimitiveList/finalizers": finalizers(length),
                    "$setElementOrder/finalizers": each(length, |nth| format!("example.com/g{nth}").into()),
                });
                Call::patch(STRATEGIC, MAP, &json!({"metadata": metadata}))
            },
            code: 200,
        },
        Case {
            name: "retained keys",
            before: |length| {
                let mut map = map(json!({}));
                map["data"] = properties(length, |_| "x".into());
                vec![Call::new("POST", MAPS, &map)]
            },
            measured: |length| {
                let data = json!({"$retainKeys": each(length, |nth| format!("f{nth}").into())});
                Call::patch(STRATEGIC, MAP, &json!({"data": data}))
            },
            code: 200,
        },
    ]
}
