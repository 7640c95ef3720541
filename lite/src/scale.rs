//! The scale subresource: a small object that stands for the replicas of a larger one.

use serde_json::{Map, Value, json};

use crate::causes::Causes;
use crate::failure::Failure;
use crate::fields::fit;
use crate::kind::Kind;
use crate::selector::LabelSelector;

fn at<'a>(object: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(object, |value, key| &value[key.as_str()])
}

/// The Scale of an object that has replicas.
pub(crate) fn of(kind: &Kind, object: &Value) -> Value {
    let metadata = &object["metadata"];
    let paths = kind.custom().and_then(|custom| custom.scale.as_ref());
    let (spec, status, selector) = match paths {
        Some(paths) => {
            let selector = paths.selector.as_ref().map(|path| at(object, path).as_str().unwrap_or_default().to_owned());
            (at(object, &paths.spec), at(object, &paths.status), selector.unwrap_or_default())
        }
        None => {
            let selector = &object["spec"]["selector"];
            // That of a ReplicationController is a map of labels.
            let map = json!({"matchLabels": selector});
            let selector = if kind.built_in() == Some("ReplicationController") { &map } else { selector };
            let selector = LabelSelector::from_object(selector).map(|labels| labels.to_string());
            (&object["spec"]["replicas"], &object["status"]["replicas"], selector.unwrap_or_default())
        }
    };
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": spec.as_i64().unwrap_or_default()},
        "status": {"replicas": status.as_i64().unwrap_or_default()},
    });
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

/// The object with the replicas of a Scale, under the Scale's resourceVersion.
pub(crate) fn applied(kind: &Kind, object: &Value, scale: &Value) -> Result<Value, Failure> {
    if !scale.is_object() {
        return Err(Failure::bad_request("the body is not a Scale"));
    }
    if let Some(why) = fit::misfits("Scale", scale).mistyped {
        return Err(Failure::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {why}")));
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if scale["metadata"]["name"].as_str().is_some_and(|given| given != name) {
        return Err(Failure::bad_request("the name of the object does not match the name on the URL"));
    }
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or_default();
    if replicas < 0 {
        let mut causes = Causes::default();
        causes.invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
        return Err(Failure::invalid_part("Scale", "autoscaling", name, &causes.0));
    }
    let mut scaled = object.clone();
    match kind.custom().and_then(|custom| custom.scale.as_ref()) {
        Some(paths) => put(&mut scaled, &paths.spec, replicas.into()),
        None => scaled["spec"]["replicas"] = replicas.into(),
    }
    for field in ["resourceVersion", "uid"] {
        scaled["metadata"][field] = scale["metadata"][field].clone();
    }
    Ok(scaled)
}

/// Sets a field, and creates the objects on the way to it.
fn put(object: &mut Value, path: &[String], value: Value) {
    let mut place = object;
    for key in path {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[key.as_str()];
    }
    *place = value;
}
