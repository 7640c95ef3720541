//! The finalizer of a GatewayClass that Gateways use.

use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tidegate_config::object::ObjectRef;
use tidegate_config::project::gateway::CLASS_FINALIZER;

use super::conditions::{collection, get};
use super::send::{NotWritten, Prepared};
use super::{FIELD_MANAGER, Leadership, READINGS_MAX, Reporter};

impl Reporter {
    /// Adds the finalizer to a class in use, or removes it from an unused one; repeated after a conflict with another
    /// write.
    pub(super) async fn hold_class(
        &self,
        object: &ObjectRef,
        in_use: bool,
        lead: &Leadership,
    ) -> Result<(), NotWritten> {
        for _ in 0..READINGS_MAX {
            let read = self.send::<Value>(lead, get(object)).await?;
            let Some(patch) = patch(object, &read, in_use) else { return Ok(()) };
            match self.send::<IgnoredAny>(lead, patch).await {
                Ok(IgnoredAny) => return Ok(()),
                Err(NotWritten::Conflict) => {}
                Err(other) => return Err(other),
            }
        }
        Err(NotWritten::Conflict)
    }
}

/// Writes the finalizers of a class, if it has not changed since it was read; `None` if they are correct. A class that
/// is being deleted accepts no new finalizers.
fn patch(class: &ObjectRef, read: &Value, in_use: bool) -> Option<Prepared> {
    let metadata = read.get("metadata")?;
    let mut finalizers = metadata.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_there = finalizers.iter().any(|one| one == CLASS_FINALIZER);
    if is_there == in_use || in_use && metadata.get("deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return None;
    }
    finalizers.retain(|one| one != CLASS_FINALIZER);
    if in_use {
        finalizers.push(CLASS_FINALIZER.into());
    }
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let body = json!({"metadata": {"resourceVersion": metadata.get("resourceVersion"), "finalizers": finalizers}});
    Some(Request::new(collection(class)).patch(&class.name.name, &params, &Patch::Merge(body)))
}

#[cfg(test)]
mod tests {
    use tidegate_config::object::{Kind, ObjectName};

    use super::*;

    /// Compares the written finalizers; `want` is `None` if nothing is written.
    #[track_caller]
    fn check(before: &Value, deleted: bool, in_use: bool, want: Option<Value>) {
        let time = deleted.then_some("2026-01-01T00:00:00Z");
        let read = json!({"metadata": {"resourceVersion": "7", "finalizers": before, "deletionTimestamp": time}});
        let class = ObjectRef::new(Kind::GatewayClass, ObjectName::new("", "edge"));
        let written = patch(&class, &read, in_use).map(|request| {
            let request = request.unwrap();
            assert_eq!(request.uri().path(), "/apis/gateway.networking.k8s.io/v1/gatewayclasses/edge");
            let mut body: Value = serde_json::from_slice(request.body()).unwrap();
            assert_eq!(body["metadata"]["resourceVersion"], "7");
            body["metadata"]["finalizers"].take()
        });
        assert_eq!(written, want, "{before}");
    }

    #[test]
    fn a_class_in_use_has_our_finalizer_and_others_stay() {
        for deleted in [false, true] {
            check(&json!([CLASS_FINALIZER]), deleted, true, None);
            check(&json!(["a/b", CLASS_FINALIZER, "c/d"]), deleted, false, Some(json!(["a/b", "c/d"])));
            check(&json!(["a/b"]), deleted, false, None);
            check(&Value::Null, deleted, false, None);
        }
        check(&json!(["a/b"]), false, true, Some(json!(["a/b", CLASS_FINALIZER])));
        check(&Value::Null, false, true, Some(json!([CLASS_FINALIZER])));
        check(&json!(["a/b"]), true, true, None);
    }
}
