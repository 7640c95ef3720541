//! The form in which objects are kept: JSON with a fixed order of fields, without the fields that projections never
//! read. The forms of two versions of an object differ only in the resourceVersion if nothing relevant has changed,
//! whether they came from a list or a watch. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use tidegate_config::object::Kind;

/// The fields of a JSON object, with unparsed values.
type Fields<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// The start of every form; the resourceVersion follows.
const HEAD: &[u8] = br#"{"metadata":{"resourceVersion":""#;

/// The form in which an object is kept; `None` if it has no valid resourceVersion.
///
/// It omits `kind` and `apiVersion`, which items of lists lack too; `metadata.managedFields`; and `status` except for
/// what [`tidegate_config::project`] reads: the addresses of a load balancer, and all of it where it has conditions,
/// some of which may be ours. With `routed` as `None` the object is kept complete, because it is served again. A
/// projection that reads more fields needs a new [`FORMAT`](super::store::FORMAT).
pub(super) fn kept_form(routed: Option<Kind>, raw: &[u8]) -> Option<Vec<u8>> {
    let fields: Fields<'_> = serde_json::from_slice(raw).ok()?;
    let metadata: Fields<'_> = serde_json::from_str(fields.get("metadata")?.get()).ok()?;
    let version: String = serde_json::from_str(metadata.get("resourceVersion")?.get()).ok()?;
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    if version.is_empty() || !version.bytes().all(plain) {
        return None;
    }
    let mut form = Vec::with_capacity(raw.len());
    form.extend_from_slice(HEAD);
    form.extend_from_slice(version.as_bytes());
    form.push(b'"');
    for (name, value) in &metadata {
        if !matches!(name.as_ref(), "resourceVersion" | "managedFields" | "selfLink") {
            push(&mut form, name, value.get());
        }
    }
    form.push(b'}');
    for (name, value) in &fields {
        match (name.as_ref(), routed) {
            ("metadata" | "kind" | "apiVersion", _) => {}
            // Other entries of a ConfigMap may be large, or confidential.
            ("data", Some(Kind::ConfigMap)) => {
                let entries: Fields<'_> = serde_json::from_str(value.get()).unwrap_or_default();
                if let Some(authorities) = entries.get("ca.crt") {
                    push(&mut form, "data", &format!(r#"{{"ca.crt":{authorities}}}"#));
                }
            }
            ("binaryData", Some(Kind::ConfigMap)) => {}
            ("status", Some(kind)) if !kind.has_conditions() => {
                if let Some(load_balancer) = load_balancer(value) {
                    push(&mut form, "status", &format!(r#"{{"loadBalancer":{load_balancer}}}"#));
                }
            }
            _ => push(&mut form, name, value.get()),
        }
    }
    form.push(b'}');
    Some(form)
}

/// Whether two forms are equal except for the resourceVersion.
pub(super) fn same(form: &[u8], other: &[u8]) -> bool {
    beyond_version(form) == beyond_version(other)
}

fn beyond_version(form: &[u8]) -> &[u8] {
    let Some(rest) = form.strip_prefix(HEAD) else { return form };
    let end = rest.iter().position(|byte| *byte == b'"').unwrap_or_default();
    rest.get(end..).unwrap_or(form)
}

/// The addresses of a load balancer in a status.
fn load_balancer(status: &RawValue) -> Option<&str> {
    let fields: Fields<'_> = serde_json::from_str(status.get()).ok()?;
    fields.get("loadBalancer").map(|value| value.get()).filter(|text| *text != "{}")
}

fn push(form: &mut Vec<u8>, name: &str, value: &str) {
    form.push(b',');
    // Serialization of a string cannot fail.
    form.extend_from_slice(serde_json::to_string(name).unwrap_or_default().as_bytes());
    form.push(b':');
    form.extend_from_slice(value.as_bytes());
}

#[cfg(test)]
mod tests {
    use tidegate_config::project::project;

    use super::*;

    #[track_caller]
    fn check(kind: Kind, raw: &str, want: Option<&str>) {
        let form = kept_form(Some(kind), raw.as_bytes());
        assert_eq!(form.map(|form| String::from_utf8(form).unwrap()).as_deref(), want);
    }

    #[test]
    fn fields_that_no_projection_reads_are_dropped() {
        check(
            Kind::Ingress,
            r#"{"kind":"Ingress","apiVersion":"v1","metadata":{"name":"a","managedFields":[{"x":1}],"resourceVersion":"7"},
                "spec":{"b":1,"a":2},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]},"conditions":[1]}}"#,
            Some(
                r#"{"metadata":{"resourceVersion":"7","name":"a"},"spec":{"b":1,"a":2},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}"#,
            ),
        );
        check(
            Kind::Deployment,
            r#"{"metadata":{"name":"a","resourceVersion":"7"},"status":{"replicas":3}}"#,
            Some(r#"{"metadata":{"resourceVersion":"7","name":"a"}}"#),
        );
        check(
            Kind::Gateway,
            r#"{"metadata":{"name":"a","resourceVersion":"7"},"status":{"listeners":[],"addresses":[{"value":"192.0.2.1"}]}}"#,
            Some(
                r#"{"metadata":{"resourceVersion":"7","name":"a"},"status":{"listeners":[],"addresses":[{"value":"192.0.2.1"}]}}"#,
            ),
        );
        check(
            Kind::ConfigMap,
            r#"{"metadata":{"name":"a","resourceVersion":"7"},"data":{"ca.crt":"PEM","password":"x"},"binaryData":{"b":"eA=="}}"#,
            Some(r#"{"metadata":{"resourceVersion":"7","name":"a"},"data":{"ca.crt":"PEM"}}"#),
        );
        check(Kind::Service, r#"{"metadata":{"name":"a"}}"#, None);
        check(Kind::Service, r#"{"metadata":{"name":"a","resourceVersion":""}}"#, None);
        check(Kind::Service, r#"{"metadata":{"name":"a","resourceVersion":"\"7"}}"#, None);
        check(Kind::Service, r#"{"metadata":7}"#, None);
        check(Kind::Service, "{", None);
    }

    #[test]
    fn a_changed_version_or_status_is_the_same_object() {
        let of = |raw: &str| kept_form(Some(Kind::Deployment), raw.as_bytes()).unwrap();
        let before = of(r#"{"metadata":{"name":"a","resourceVersion":"7"},"spec":{"a":1},"status":{"replicas":3}}"#);
        let status = of(r#"{"spec":{"a":1},"status":{},"metadata":{"resourceVersion":"1234","name":"a"}}"#);
        let spec = of(r#"{"metadata":{"name":"a","resourceVersion":"7"},"spec":{"a":2}}"#);
        assert!(same(&before, &status));
        assert!(!same(&before, &spec));
        assert!(!same(b"[\"192.0.2.1\"]", b"[\"192.0.2.2\"]"), "what is no object is compared whole");
    }

    #[test]
    fn the_stored_form_has_the_same_projection() {
        let ingress = r#"{"kind":"Ingress","metadata":{"namespace":"shop","name":"web","resourceVersion":"7","generation":3,
            "uid":"6f1b4bb4-54b9-4d2e-9a38-1d3a9c6f0a11","managedFields":[{"manager":"x"}],
            "annotations":{"kubernetes.io/ingress.class":"tidegate"}},
            "spec":{"rules":[{"host":"web.example","http":{"paths":[{"path":"/","pathType":"Prefix",
            "backend":{"service":{"name":"web","port":{"number":80}}}}]}}]},
            "status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}"#;
        let route = r#"{"kind":"HTTPRoute","metadata":{"namespace":"shop","name":"web","resourceVersion":"7"},
            "spec":{"parentRefs":[{"name":"edge"}],"hostnames":["web.example"],"rules":[{}]},
            "status":{"parents":[{"parentRef":{"name":"edge"},"controllerName":"tidegate.io/gateway","conditions":[
            {"type":"Accepted","status":"True","reason":"Accepted","message":"","observedGeneration":1,
            "lastTransitionTime":"2026-01-01T00:00:00Z"}]}]}}"#;
        for (kind, raw) in [(Kind::Ingress, ingress), (Kind::HttpRoute, route)] {
            let whole = project(kind, raw.as_bytes()).unwrap();
            let kept = project(kind, &kept_form(Some(kind), raw.as_bytes()).unwrap()).unwrap();
            assert!(!whole.addresses.is_empty() || whole.status.transitions.is_some(), "{kind}");
            assert_eq!((kept.meta, kept.object, kept.addresses), (whole.meta, whole.object, whole.addresses), "{kind}");
            assert_eq!(kept.status, whole.status, "{kind}");
        }
    }

    #[test]
    fn objects_that_are_served_keep_their_status() {
        let raw = r#"{"kind":"Deployment","metadata":{"name":"a","resourceVersion":"7","managedFields":[1]},"status":{"replicas":3}}"#;
        let form = kept_form(None, raw.as_bytes()).unwrap();
        assert_eq!(form, br#"{"metadata":{"resourceVersion":"7","name":"a"},"status":{"replicas":3}}"#);
    }
}
