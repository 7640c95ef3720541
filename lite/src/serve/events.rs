//! Events by their newer API: `events.k8s.io/v1` serves those of the core group, with other names for some fields. A
//! request becomes one to the core group before anything else reads it, and its response is renamed when it is ready.

use bytes::Bytes;
use http::request::Parts;
use http::{Response, Uri};
use serde_json::Value;

use super::body::LiteBody;

/// The group of the newer API.
pub(super) const GROUP: &str = "events.k8s.io";

/// The name of a field in the core group, and in the newer one.
const FIELDS: [(&str, &str); 7] = [
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("involvedObject", "regarding"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
];

fn old(name: &str) -> &str {
    FIELDS.iter().find(|(_, new)| *new == name).map_or(name, |(old, _)| old)
}

fn new(name: &str) -> &str {
    FIELDS.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new)
}

/// Renames the fields of an object.
fn rename(object: &mut Value, name: fn(&str) -> &str) {
    if let Value::Object(fields) = object {
        *fields = std::mem::take(fields).into_iter().map(|(field, value)| (name(&field).to_owned(), value)).collect();
    }
}

/// The request to the core group for a request about Events by the newer API. `None` for every other one.
pub(super) fn asked(parts: &Parts, body: &Bytes) -> Option<(Parts, Bytes)> {
    let path = parts.uri.path().strip_prefix("/apis/")?.strip_prefix(GROUP)?.strip_prefix("/v1/")?;
    let segments: Vec<&str> = path.split('/').collect();
    if !matches!(segments.as_slice(), ["events", ..] | ["namespaces", _, "events", ..]) {
        return None;
    }
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut core = parts.clone();
    core.uri = format!("/api/v1/{path}{query}").parse::<Uri>().ok()?;
    Some((core, sent(body)))
}

/// A body that is an Event, a part of one, or a JSON patch. A malformed one is left to the next reader, which refuses
/// it.
fn sent(body: &Bytes) -> Bytes {
    let Ok(mut sent) = serde_json::from_slice::<Value>(body) else { return body.clone() };
    if let Value::Array(edits) = &mut sent {
        edits.iter_mut().for_each(redirect);
    } else {
        rename(&mut sent, old);
        if sent["apiVersion"] == format!("{GROUP}/v1") {
            sent["apiVersion"] = "v1".into();
        }
    }
    sent.to_string().into()
}

/// One edit of a JSON patch, which names fields by the paths to them.
fn redirect(edit: &mut Value) {
    for key in ["path", "from"] {
        let Some(path) = edit.get(key).and_then(Value::as_str).and_then(|path| path.strip_prefix('/')) else {
            continue;
        };
        let (field, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
        edit[key] = format!("/{}{rest}", old(field)).into();
    }
}

/// A response of the core group in the newer form.
pub(super) fn in_newer_form(answer: Response<LiteBody>) -> Response<LiteBody> {
    answer.map(|body| body.map(shown))
}

/// An object, a list, a table, or a line of a watch.
fn shown(bytes: Bytes) -> Bytes {
    let Ok(mut answer) = serde_json::from_slice::<Value>(&bytes) else { return bytes };
    if answer["object"].is_object() {
        show(&mut answer["object"]);
        return format!("{answer}\n").into();
    }
    show(&mut answer);
    answer.to_string().into()
}

fn show(object: &mut Value) {
    match object["kind"].as_str() {
        Some("Event") => {
            rename(object, new);
            // The newer form leaves these out if they are empty.
            for field in ["reportingController", "reportingInstance"] {
                if object[field] == "" {
                    object.as_object_mut().and_then(|object| object.remove(field));
                }
            }
        }
        Some("EventList") => object["items"].as_array_mut().into_iter().flatten().for_each(show),
        Some("Table") => {
            object["rows"].as_array_mut().into_iter().flatten().for_each(|row| show(&mut row["object"]));
            return;
        }
        _ => return,
    }
    object["apiVersion"] = format!("{GROUP}/v1").into();
}

#[cfg(test)]
mod tests {
    use http::Request;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(path: &str, body: &Value, want: Option<(&str, Value)>) {
        let (parts, ()) = Request::get(path).body(()).unwrap().into_parts();
        let asked = asked(&parts, &body.to_string().into());
        let got = asked.map(|(parts, body)| (parts.uri.to_string(), serde_json::from_slice::<Value>(&body).unwrap()));
        assert_eq!(got, want.map(|(path, body)| (path.to_owned(), body)));
    }

    #[test]
    fn a_request_is_one_to_the_core_group() {
        let event =
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "a", "regarding": {"name": "note"}});
        let core = json!({"apiVersion": "v1", "kind": "Event", "message": "a", "involvedObject": {"name": "note"}});
        let at = "/apis/events.k8s.io/v1";
        check(
            &format!("{at}/namespaces/a/events?dryRun=All"),
            &event,
            Some(("/api/v1/namespaces/a/events?dryRun=All", core)),
        );
        let edits = json!([{"op": "add", "path": "/note", "value": "/note"}, {"op": "move", "from": "/regarding/name", "path": "/a"}]);
        let core = json!([{"op": "add", "path": "/message", "value": "/note"}, {"op": "move", "from": "/involvedObject/name", "path": "/a"}]);
        check(&format!("{at}/namespaces/a/events/b"), &edits, Some(("/api/v1/namespaces/a/events/b", core)));
        check(&format!("{at}/events"), &json!(7), Some(("/api/v1/events", json!(7))));
        for other in [at.to_owned(), format!("{at}/namespaces/a/pods"), "/api/v1/events".to_owned()] {
            check(&other, &event, None);
        }
    }

    #[track_caller]
    fn check_shown(core: &Value, want: &Value) {
        let shown = shown(core.to_string().into());
        assert_eq!(serde_json::from_slice::<Value>(&shown).unwrap(), *want);
        assert_eq!(shown.ends_with(b"\n"), core["object"].is_object(), "a line of a watch is one");
    }

    #[test]
    fn an_answer_has_the_newer_names() {
        let old =
            json!({"apiVersion": "v1", "kind": "Event", "message": "a", "type": "Normal", "series": {"count": 2}});
        let new = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "a", "type": "Normal", "series": {"count": 2}});
        check_shown(&old, &new);
        check_shown(&json!({"type": "ADDED", "object": old}), &json!({"type": "ADDED", "object": new}));
        check_shown(
            &json!({"apiVersion": "v1", "kind": "EventList", "items": [old]}),
            &json!({"apiVersion": "events.k8s.io/v1", "kind": "EventList", "items": [new]}),
        );
        check_shown(
            &json!({"kind": "Table", "rows": [{"object": old}]}),
            &json!({"kind": "Table", "rows": [{"object": new}]}),
        );
        let status = json!({"apiVersion": "v1", "kind": "Status", "message": "no"});
        check_shown(&status, &status);
    }
}
