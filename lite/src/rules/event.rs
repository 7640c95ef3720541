//! Events: the real server's rules. Those that have an `eventTime`, as all have that come by `events.k8s.io/v1`, say
//! more.

use serde_json::Value;

use super::{child, default, text};
use crate::causes::Causes;
use crate::selector::valid_name;

/// The maximum size of machine-readable texts, in bytes.
const WORD_MAX_BYTES: usize = 128;
/// The maximum size of the message, in bytes.
const MESSAGE_MAX_BYTES: usize = 1024;

/// The namespaces of Events about objects without a namespace.
const NAMESPACES: &[&str] = &["default", "kube-system"];

/// Fields that the real server writes even if they are empty.
pub(super) fn defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    for field in ["involvedObject", "source"] {
        child(new, field);
    }
    for field in ["reportingComponent", "reportingInstance"] {
        default(new, field, "");
    }
    for field in ["eventTime", "firstTimestamp", "lastTimestamp"] {
        default(new, field, Value::Null);
    }
}

pub(super) fn validate(new: &Value, _old: Option<&Value>, causes: &mut Causes) {
    let (about, namespace) = (text(&new["involvedObject"], "namespace"), text(&new["metadata"], "namespace"));
    let is_old = text(new, "eventTime").is_empty();
    let fits = match (is_old, about.is_empty()) {
        (true, true) => matches!(namespace, "" | "default"),
        (true, false) => about == namespace,
        (false, true) => NAMESPACES.contains(&namespace),
        (false, false) => true,
    };
    if !fits {
        causes.invalid("involvedObject.namespace", &about.into(), "does not match event.namespace");
    }
    if is_old {
        return;
    }
    for field in ["reportingComponent", "reportingInstance", "action", "reason"] {
        if text(new, field).is_empty() {
            causes.required(field, "");
        }
    }
    if !text(new, "reportingComponent").is_empty() && !valid_name(text(new, "reportingComponent")) {
        causes.invalid("reportingComponent", &new["reportingComponent"], "is not a qualified name");
    }
    let words = ["reportingInstance", "action", "reason"].map(|field| (field, WORD_MAX_BYTES));
    for (field, max) in words.into_iter().chain([("message", MESSAGE_MAX_BYTES)]) {
        if text(new, field).len() > max {
            causes.invalid(field, &"".into(), &format!("can have at most {max} characters"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::tests::{check_refused, outcome};

    fn event() -> Value {
        json!({
            "metadata": {"namespace": "a"}, "eventTime": "2026-11-21T03:12:04.733123Z", "involvedObject": {"namespace": "a"},
            "reportingComponent": "tidegate.io/ingress", "reportingInstance": "edge-0", "action": "Route", "reason": "RuleLost",
            "message": "m".repeat(MESSAGE_MAX_BYTES),
        })
    }

    #[track_caller]
    fn check(field: &str, value: Value, why: &str) {
        let mut event = event();
        event[field] = value;
        check_refused("Event", event, None, why);
    }

    #[test]
    fn new_events_have_a_reporter_and_a_reason() {
        assert!(outcome("Event", event(), None).is_ok());
        assert!(outcome("Event", json!({}), None).is_ok(), "of old ones none of this is asked");
        check("reason", json!(""), "reason: Required value");
        check(
            "reportingComponent",
            json!("a b"),
            "reportingComponent: Invalid value: \"a b\": is not a qualified name",
        );
        check("action", json!("a".repeat(129)), "action: Invalid value: \"\": can have at most 128 characters");
        check("message", json!("a".repeat(1025)), "message: Invalid value: \"\": can have at most 1024 characters");
        let why = "involvedObject.namespace: Invalid value: \"\": does not match event.namespace";
        check("involvedObject", json!({}), why);
    }

    #[test]
    fn old_events_are_in_the_namespace_of_their_object() {
        for (namespace, about, taken) in
            [("a", "a", true), ("a", "b", false), ("a", "", false), ("default", "", true), ("kube-system", "", false)]
        {
            let event = json!({"metadata": {"namespace": namespace}, "involvedObject": {"namespace": about}});
            assert_eq!(outcome("Event", event, None).is_ok(), taken, "{namespace} {about}");
        }
    }

    #[test]
    fn events_of_cluster_objects_are_in_one_of_two_namespaces() {
        for (namespace, taken) in [("default", true), ("kube-system", true), ("a", false)] {
            let mut event = event();
            event["metadata"]["namespace"] = namespace.into();
            event["involvedObject"] = json!({});
            assert_eq!(outcome("Event", event, None).is_ok(), taken, "{namespace}");
        }
    }
}
