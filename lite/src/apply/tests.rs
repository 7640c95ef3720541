//! Managers that apply and update, one after the other; and, at random, the invariants.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-31T08:05:09Z";

/// One write: its manager, and its content.
#[derive(Clone, Debug)]
enum Write {
    Apply(&'static str, Value),
    Force(&'static str, Value),
    Update(&'static str, Value),
}

fn write(kind: &'static str, live: Option<&Value>, write: &Write) -> Result<Value, String> {
    let shape = Node::shape_of(kind);
    let (node, reset) = (Node::root(&shape), Fields::default());
    let writer = |manager| Writer { manager, api_version: "v1", subresource: "", time: NOW, reset: &reset };
    let applied = |manager, config, force| {
        apply(node, live, config, force, &writer(manager)).map_err(|why| why.status()["message"].to_string())
    };
    match write {
        Write::Apply(manager, config) => applied(manager, config, false),
        Write::Force(manager, config) => applied(manager, config, true),
        Write::Update(manager, object) => {
            let mut new = object.clone();
            if let Some(entries) = track(node, (live, &new), None, &writer(manager)) {
                new["metadata"]["managedFields"] = entries;
            }
            Ok(new)
        }
    }
}

/// Checks the object after all writes except for its metadata, and the fields of each manager.
#[track_caller]
fn check(kind: &'static str, writes: &[Write], object: &Value, owners: &Value) {
    let mut live = None;
    for one in writes {
        live = Some(write(kind, live.as_ref(), one).unwrap());
    }
    let mut live = live.unwrap();
    let found = owned_by(&live);
    live.as_object_mut().unwrap().remove("metadata");
    assert_eq!((&live, &json!(found)), (object, owners));
}

fn owned_by(object: &Value) -> BTreeMap<String, Value> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.map(|entry| (entry["manager"].as_str().unwrap().to_owned(), entry["fieldsV1"].clone())).collect()
}

fn data(data: Value) -> Value {
    json!({"metadata": {}, "data": data})
}

#[test]
fn fields_that_a_manager_no_longer_applies_are_removed() {
    let writes = [
        Write::Apply("a", data(json!({"x": "1", "y": "1"}))),
        Write::Apply("b", data(json!({"y": "1"}))),
        Write::Apply("a", data(json!({"z": "1"}))),
    ];
    let owners = json!({"a": {"f:data": {"f:z": {}}}, "b": {"f:data": {"f:y": {}}}});
    check("ConfigMap", &writes, &json!({"data": {"y": "1", "z": "1"}}), &owners);
}

#[test]
fn list_elements_of_other_managers_stay() {
    let spec = |ports: Value| json!({"metadata": {}, "spec": {"ports": ports}});
    let writes = [
        Write::Apply("a", spec(json!([{"port": 1, "name": "a"}, {"port": 3, "name": "c"}]))),
        Write::Apply("b", spec(json!([{"port": 2, "name": "b"}, {"port": 3, "targetPort": 7}]))),
        Write::Apply("a", spec(json!([{"port": 1, "name": "a"}]))),
    ];
    let owners = json!({
        "a": {"f:spec": {"f:ports": {"k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}}}}},
        "b": {"f:spec": {"f:ports": {
            "k:{\"port\":2,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}},
            "k:{\"port\":3,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:targetPort": {}},
        }}},
    });
    let ports = json!([{"port": 1, "name": "a"}, {"port": 2, "name": "b"}, {"port": 3, "targetPort": 7}]);
    check("Service", &writes, &json!({"spec": {"ports": ports}}), &owners);
}

#[test]
fn an_applied_list_element_keeps_the_fields_of_others() {
    let spec = |ports: Value| json!({"metadata": {}, "spec": {"ports": ports}});
    let writes = [
        Write::Apply("a", spec(json!([{"port": 1, "targetPort": 7}]))),
        Write::Apply("b", spec(json!([{"port": 1, "name": "b"}]))),
    ];
    let owners = json!({
        "a": {"f:spec": {"f:ports": {"k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:targetPort": {}}}}},
        "b": {"f:spec": {"f:ports": {"k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}}}}},
    });
    check("Service", &writes, &json!({"spec": {"ports": [{"port": 1, "name": "b", "targetPort": 7}]}}), &owners);
}

/// Defaults of the server belong to nobody, and allocated values such as `clusterIP` would not come back the same.
#[test]
fn fields_without_an_owner_stay_when_fields_beside_them_are_given_up() {
    let mut live = json!({"metadata": {}, "spec": {"type": "ClusterIP", "sessionAffinity": "None"}});
    live = write("Service", None, &Write::Apply("a", live)).unwrap();
    live["spec"]["clusterIP"] = json!("10.0.0.1");
    let config = json!({"metadata": {}, "spec": {"type": "ClusterIP"}});
    let after = write("Service", Some(&live), &Write::Apply("a", config)).unwrap();
    assert_eq!(after["spec"], json!({"type": "ClusterIP", "clusterIP": "10.0.0.1"}));
}

#[test]
fn the_time_of_a_manager_is_that_of_its_last_change() {
    let shape = Node::shape_of("ConfigMap");
    let reset = Fields::default();
    let applied = |live: Option<&Value>, value: &str, time| {
        let writer = Writer { manager: "a", api_version: "v1", subresource: "", time, reset: &reset };
        apply(Node::root(&shape), live, &data(json!({"x": value})), false, &writer).unwrap()
    };
    let time = |object: &Value| object["metadata"]["managedFields"][0]["time"].clone();
    let (later, latest) = ("2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z");
    let first = applied(None, "1", NOW);
    assert_eq!(time(&first), NOW);
    let same = applied(Some(&first), "1", later);
    assert_eq!((time(&same), &same), (json!(NOW), &first), "nothing has changed");
    assert_eq!(time(&applied(Some(&same), "2", latest)), latest);
}

#[test]
fn the_annotation_of_client_side_apply_follows_kubectl_alone() {
    let annotated = |text: &str| json!({"metadata": {"annotations": {LAST_APPLIED: text}}, "data": {"x": "1"}});
    let config = data(json!({"y": "1"}));
    let annotation = |manager, live: &Value| {
        let applied = write("ConfigMap", Some(live), &Write::Apply(manager, config.clone())).unwrap();
        applied["metadata"]["annotations"][LAST_APPLIED].as_str().map(str::to_owned)
    };
    let followed = annotation("kubectl", &annotated("{}")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(followed.strip_suffix('\n').unwrap()).unwrap(), config);
    assert_eq!(annotation("kubectl", &annotated("")).as_deref(), Some(""), "an empty one turns it off");
    assert_eq!(annotation("kubectl", &data(json!({"x": "1"}))), None, "none is added");
    assert_eq!(annotation("a", &annotated("{}")).as_deref(), Some("{}"));
}

#[test]
fn an_applied_order_is_kept() {
    let order = |live: &[&str], applied: &[&str]| -> String {
        let shape = Node::shape_of("PodSpec");
        let pod =
            |names: &[&str]| json!({"containers": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()});
        let merged = merge::merge(Node::root(&shape), &pod(live), &pod(applied));
        merged["containers"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
    };
    assert_eq!(order(&["a", "b", "c"], &["c", "a"]), "bca");
    assert_eq!(order(&["a", "b"], &["x", "b", "y"]), "axby");
    assert_eq!(order(&[], &["b", "a"]), "ba");
    assert_eq!(order(&["a", "b"], &[]), "ab");
    assert_eq!(order(&["a", "a"], &["a"]), "a", "one of the two is left");
}

#[test]
fn conflicts_name_the_other_manager() {
    let live = write("ConfigMap", None, &Write::Apply("a", data(json!({"x": "1", "y": "1"})))).unwrap();
    let refused = write("ConfigMap", Some(&live), &Write::Apply("b", data(json!({"x": "2"})))).unwrap_err();
    assert_eq!(refused, r#""Apply failed with 1 conflict: conflict with \"a\": .data.x""#);
    let forced = write("ConfigMap", Some(&live), &Write::Force("b", data(json!({"x": "2"})))).unwrap();
    let owners = json!({"a": {"f:data": {"f:y": {}}}, "b": {"f:data": {"f:x": {}}}});
    assert_eq!(json!(owned_by(&forced)), owners);
}

#[test]
fn many_updaters_become_one() {
    let object = |count: usize| data((0..count).map(|nth| (format!("k{nth}"), json!("1"))).collect::<Value>());
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let mut live: Option<Value> = None;
    for (nth, name) in names.into_iter().enumerate() {
        let mut new = object(nth + 1);
        if let Some(live) = &live {
            new["metadata"] = live["metadata"].clone();
        }
        live = Some(write("ConfigMap", live.as_ref(), &Write::Update(name, new)).unwrap());
    }
    let owners = owned_by(&live.unwrap());
    assert_eq!(owners.len(), 10);
    assert_eq!(owners["ancient-changes"], json!({"f:data": {".": {}, "f:k0": {}, "f:k1": {}, "f:k2": {}}}));
}

/// Containers with their images, labels, and finalizers, by numbers.
type Parts = (Vec<(u8, Option<u8>)>, BTreeMap<u8, u8>, Vec<u8>);

fn deployment((containers, labels, finalizers): Parts) -> Value {
    let mut seen = Vec::new();
    let mut list = Vec::new();
    for (name, image) in containers {
        if !seen.contains(&name) {
            seen.push(name);
            let mut container = json!({"name": format!("c{name}")});
            if let Some(image) = image {
                container["image"] = format!("i{image}").into();
            }
            list.push(container);
        }
    }
    let mut finalizers: Vec<String> = finalizers.into_iter().map(|one| format!("f{one}")).collect();
    finalizers.sort();
    finalizers.dedup();
    let labels: BTreeMap<String, String> =
        labels.into_iter().map(|(key, value)| (format!("l{key}"), value.to_string())).collect();
    json!({
        "metadata": {"labels": labels, "finalizers": finalizers},
        "spec": {"template": {"spec": {"containers": list}}},
    })
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let few = || 0..4_u8;
    let containers = prop::collection::vec((few(), prop::option::of(few())), 0..4);
    let labels = prop::collection::btree_map(few(), few(), 0..3);
    let object = (containers, labels, prop::collection::vec(few(), 0..3)).prop_map(deployment);
    let manager = prop::sample::select(vec!["a", "b", "c"]);
    let one = (0..3_u8, manager, object).prop_map(|(sort, manager, object)| match sort {
        0 => Write::Apply(manager, object),
        1 => Write::Force(manager, object),
        _ => Write::Update(manager, object),
    });
    prop::collection::vec(one, 1..8)
}

/// Returns `true` if an object is empty in effect: a list that is joined has no field of its own, and may go with its
/// last element.
fn is_hollow(part: &Value) -> bool {
    match part {
        Value::Object(map) => map.values().all(is_hollow),
        Value::Array(list) => list.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns `true` if everything in `part` is in `whole`, elements of lists in any place.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, part)| is_hollow(part) || whole.get(key).is_some_and(|whole| contains(whole, part)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            part.iter().all(|part| whole.iter().any(|whole| contains(whole, part)))
        }
        _ => whole == part,
    }
}

/// An object without its owners, and without empty parts.
fn clean(object: &Value) -> Value {
    fn drop_hollow(value: &mut Value) {
        if let Value::Object(map) = value {
            map.retain(|_, value| !is_hollow(value));
            map.values_mut().for_each(drop_hollow);
        }
    }
    let mut object = without_managers(object);
    drop_hollow(&mut object);
    object
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn applied_fields_are_set_and_owned(writes in writes()) {
        let shape = Node::shape_of("Deployment");
        let node = Node::root(&shape);
        let mut live: Option<Value> = None;
        for one in &writes {
            let Ok(new) = write("Deployment", live.as_ref(), one) else {
                prop_assert!(matches!(one, Write::Apply(..)), "only an apply without force is refused");
                continue;
            };
            if let Write::Apply(manager, config) | Write::Force(manager, config) = one {
                prop_assert!(contains(&clean(&new), &clean(config)), "{config} is applied: {new}");
                let again = write("Deployment", Some(&new), &Write::Apply(manager, config.clone()));
                prop_assert_eq!(again.as_ref().map(clean), Ok(clean(&new)), "the same again changes nothing");
                // A manager that gives up all its fields leaves those of others, and none that are only its own.
                let gone = write("Deployment", Some(&new), &Write::Apply(manager, json!({"metadata": {}}))).unwrap();
                let entries = gone["metadata"]["managedFields"].as_array().into_iter().flatten();
                let left = entries.filter(|entry| entry["manager"] == **manager && entry["operation"] == "Apply");
                prop_assert_eq!(left.count(), 0);
            }
            let managers = managers::decode(&new["metadata"]["managedFields"]).unwrap();
            let owned = managers.values().fold(Fields::default(), |all, owned| all.union(&owned.fields));
            let there = fields_of(node, &without_managers(&new)).with_named(node, &Node::at_step);
            let nobody = there.without(&owned.with_named(node, &Node::at_step)).without(&Fields::named(STRIPPED));
            let nobody: Vec<_> = nobody.paths().into_iter().filter(|path| path.len() > 3).collect();
            // Until the first apply an object without owners stays without.
            prop_assert!(managers.is_empty() || nobody.is_empty(), "{nobody:?} is nobody's in {new}");
            live = Some(new);
        }
    }

    #[test]
    fn nothing_panics(entries in any::<Vec<(String, String)>>(), text in ".{0,60}") {
        let fields: serde_json::Map<String, Value> = entries.iter().map(|(key, value)| (key.clone(), json!({value.as_str(): {}}))).collect();
        let entry = json!([{"manager": text, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}]);
        let live = json!({"metadata": {"managedFields": entry}, "spec": text, "x": [fields]});
        for config in [json!({"metadata": {}, "spec": {"ports": [{"port": text}]}}), json!({"spec": [text]}), live.clone()] {
            for one in [Write::Apply("a", config.clone()), Write::Force("a", config.clone()), Write::Update("a", config)] {
                drop(write("Service", Some(&live), &one));
            }
        }
    }
}
