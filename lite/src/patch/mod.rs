//! The three patch formats, applied to a copy of an object.

mod json;
mod strategic;

use serde_json::Value;

use crate::failure::Failure;
use crate::fields::schema::{Retain, Shape};
use crate::json::Fault;

/// A patch from a request, not yet applied.
pub(crate) enum Patch {
    /// RFC 6902.
    Json(json_patch::Patch),
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' own strategic merge: lists are joined by keys.
    Strategic(Value),
}

impl Patch {
    /// Reads a patch by the media type of the request.
    pub(crate) fn parse(content_type: &str, body: &[u8]) -> Result<Self, Failure> {
        const ACCEPTED: &str = "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml";
        let unreadable = |why: String| Failure::bad_request(format!("error decoding patch: {why}"));
        match content_type {
            "application/json-patch+json" => json::read(body).map(Self::Json),
            "application/merge-patch+json" => object(body).map(Self::Merge).map_err(unreadable),
            "application/strategic-merge-patch+json" => object(body).map(Self::Strategic).map_err(Failure::bad_request),
            _ => {
                let why = format!(
                    "the body of the request was in an unknown format - accepted media types include: {ACCEPTED}"
                );
                Err(Failure::unsupported_media_type(why))
            }
        }
    }

    /// The fault of the text of a patch, apart from the faults of the patched object.
    pub(crate) fn faults(content_type: &str, body: &[u8]) -> Vec<Fault> {
        let mut faults = Fault::twice(body);
        if content_type == "application/json-patch+json" {
            // These fields are those of operations, and not of the object.
            for fault in &mut faults {
                *fault = Fault { path: String::new(), text: format!("json patch {}", fault.text) };
            }
            let unknown = json::unknown_fields(body).into_iter();
            faults.extend(unknown.map(|text| Fault { path: String::new(), text }));
        }
        faults
    }

    /// The text that the real server shows for a patch that makes an object unreadable: the object, or for a strategic
    /// merge the patch.
    pub(crate) fn shown(&self, patched: &Value) -> String {
        match self {
            Self::Json(_) | Self::Merge(_) => patched.to_string(),
            Self::Strategic(patch) => crate::json::go_print(patch),
        }
    }

    /// The object after the patch. `of` is the type of the object in the table of fields; without one there is no
    /// strategic merge.
    pub(crate) fn apply(&self, of: Option<&'static str>, object: &Value) -> Result<Value, Failure> {
        let mut patched = object.clone();
        match self {
            Self::Json(patch) => patched = json::apply(patch, patched)?,
            Self::Merge(patch) => json_patch::merge(&mut patched, patch),
            Self::Strategic(patch) => {
                let of = of.ok_or_else(no_strategic)?;
                let shape = Shape::Named(of, Retain::All);
                patched = strategic::merge(patched, patch, &shape).map_err(Failure::unprocessable)?;
            }
        }
        Ok(patched)
    }
}

/// The real server's error for a strategic merge of a custom object.
fn no_strategic() -> Failure {
    Failure::unsupported_media_type(
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
    )
}

fn object(body: &[u8]) -> Result<Value, String> {
    match serde_json::from_slice(body) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(value) => Err(crate::json::not_an_object(&value)),
        Err(why) => Err(crate::json::complaint(body, &why)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(content_type: &str, patch: &Value, expected: Result<Value, u16>) {
        let service = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"ports": [{"port": 80}]}});
        let patched = Patch::parse(content_type, patch.to_string().as_bytes());
        let patched = patched.and_then(|patch| patch.apply(Some("Service"), &service));
        assert_eq!(patched.map_err(|failure| failure.code.as_u16()), expected);
    }

    #[test]
    fn each_media_type_has_its_own_meaning() {
        let merged = json!({"spec": {"ports": [{"port": 81}]}});
        let replaced = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"ports": [{"port": 81}]}});
        let joined = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"ports": [{"port": 80}, {"port": 81}]}});
        check("application/merge-patch+json", &merged, Ok(replaced.clone()));
        check("application/strategic-merge-patch+json", &merged, Ok(joined));
        let operations = json!([{"op": "test", "path": "/metadata/labels/a", "value": "1"}, {"op": "replace", "path": "/spec/ports/0/port", "value": 81}]);
        check("application/json-patch+json", &operations, Ok(replaced));
    }

    #[test]
    fn unsuitable_patches_are_refused() {
        let failing = json!([{"op": "test", "path": "/metadata/labels/a", "value": "2"}]);
        check("application/json-patch+json", &failing, Err(422));
        check("application/json-patch+json", &json!([{"op": "remove", "path": "/nothing"}]), Err(422));
        check("application/json-patch+json", &json!({}), Err(400));
        check("application/merge-patch+json", &json!([]), Err(400));
        check("application/apply-patch+cbor", &json!({}), Err(415));
        check("text/plain", &json!({}), Err(415));
        check("application/strategic-merge-patch+json", &json!({"spec": {"ports": [{"name": "x"}]}}), Err(422));
    }
}
