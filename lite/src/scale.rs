//! The scale subresource: a small object that stands for the replicas of a larger one.

use serde_json::{Value, json};

use crate::failure::{Causes, Failure};
use crate::kind::schema;
use crate::selector::Labels;

/// The Scale of an object that has replicas.
pub(crate) fn of(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let selector = Labels::from_object(&object["spec"]["selector"]).map(|labels| labels.to_string());
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": object["spec"]["replicas"].as_i64().unwrap_or_default()},
        "status": {
            "replicas": object["status"]["replicas"].as_i64().unwrap_or_default(),
            "selector": selector.unwrap_or_default(),
        },
    })
}

/// The object with the replicas of a Scale, under the Scale's resourceVersion.
pub(crate) fn applied(object: &Value, scale: &Value) -> Result<Value, Failure> {
    if !scale.is_object() {
        return Err(Failure::bad_request("the body is not a Scale"));
    }
    if let Some(why) = schema::misfits("Scale", scale).mistyped {
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
        return Err(Failure::invalid_scale(name, &causes.0));
    }
    let mut scaled = object.clone();
    scaled["spec"]["replicas"] = replicas.into();
    for field in ["resourceVersion", "uid"] {
        scaled["metadata"][field] = scale["metadata"][field].clone();
    }
    Ok(scaled)
}
