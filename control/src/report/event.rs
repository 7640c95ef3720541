//! The Event (`events.k8s.io/v1`) of a finding: its name and content. Pure.
//!
//! The name is derived from the finding and the object. If the finding was reported already, before a restart or by
//! another replica, an Event of that name exists, and nothing is written.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{Request, request};
use serde_json::{Value, json};
use tidegate_config::finding::{Finding, Severity};
use tidegate_config::object::{ObjectRef, Uid};

use super::FIELD_MANAGER;
use super::send::Prepared;

/// The reporting controller, which `kubectl describe` shows as the source of an Event: this program, as in
/// `kubernetes.io/kubelet`, whatever the source of the object.
const CONTROLLER: &str = "tidegate.io/tidegate";
/// The action that was taken on the object.
const ACTION: &str = "Route";
/// The maximum length of a note in bytes (Kubernetes, `NoteLengthLimit`).
const NOTE_BYTES_MAX: usize = 1024;
/// The maximum length of a `reportingInstance` in bytes (Kubernetes, `ReportingInstanceLengthLimit`).
const INSTANCE_BYTES_MAX: usize = 128;
/// The maximum length of a name in bytes (a DNS subdomain, RFC 1123).
const NAME_BYTES_MAX: usize = 253;
/// The namespace of Events about cluster-scoped objects, as kubectl expects.
const NAMESPACE: &str = "default";

/// The content of an Event about a finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct EventRecord {
    /// A hash, equal for the same finding about the same object in every process, and different for others.
    pub(super) id: u64,
    reason: &'static str,
    kind: &'static str,
    note: String,
}

impl EventRecord {
    /// The record of a finding about the object with this uid.
    pub(super) fn of(uid: Uid, finding: &Finding) -> Self {
        let reason = finding.problem.reason();
        let kind = match finding.problem.severity() {
            Severity::Error => "Warning",
            Severity::Warning => "Normal",
        };
        let mut note = finding.note();
        if note.len() > NOTE_BYTES_MAX {
            note.truncate(note.floor_char_boundary(NOTE_BYTES_MAX - '…'.len_utf8()));
            note.push('…');
        }
        Self { id: fingerprint([&uid.to_string(), reason, &note]), reason, kind, note }
    }
}

/// FNV-1a of 64 bits: the same in every release, because names depend on it. A collision only loses an Event.
fn fingerprint(parts: [&str; 3]) -> u64 {
    // Each part ends with a byte that never occurs in UTF-8.
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The namespace of Events about an object.
pub(super) fn namespace(object: &ObjectRef) -> &str {
    if object.name.namespace.is_empty() { NAMESPACE } else { &object.name.namespace }
}

fn name(object: &ObjectRef, record: &EventRecord) -> String {
    let end = format!(".{:016x}", record.id);
    let name = &object.name.name;
    let begin = &name[..name.floor_char_boundary(NAME_BYTES_MAX - end.len())];
    // A label of a DNS name ends with a letter or a digit.
    format!("{}{end}", begin.trim_end_matches(['-', '.']))
}

fn collection(object: &ObjectRef) -> Request {
    Request::new(format!("/apis/events.k8s.io/v1/namespaces/{}/events", namespace(object)))
}

/// Creates the Event of a record, reported by `by` at this time.
pub(super) fn create(object: &ObjectRef, uid: Uid, record: &EventRecord, by: &str, at: Timestamp) -> Prepared {
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let event = serde_json::to_vec(&event(object, uid, record, by, at)).map_err(request::Error::SerializeBody)?;
    collection(object).create(&params, event)
}

/// Reads the count of a record's Event with a patch that changes nothing: the permission to patch suffices.
pub(super) fn read_count(object: &ObjectRef, record: &EventRecord) -> Prepared {
    patch(object, record, json!({}))
}

/// The number of times that an Event was reported.
pub(super) fn count(event: &Event) -> i32 {
    event.series.as_ref().map_or(1, |series| series.count)
}

/// Renews the Event of a record with this count, which is at least 2.
pub(super) fn renew(object: &ObjectRef, record: &EventRecord, count: i32, at: Timestamp) -> Prepared {
    let series = EventSeries { count, last_observed_time: MicroTime(at) };
    patch(object, record, json!({"series": series}))
}

fn patch(object: &ObjectRef, record: &EventRecord, body: Value) -> Prepared {
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    collection(object).patch(&name(object, record), &params, &Patch::Merge(body))
}

fn event(object: &ObjectRef, uid: Uid, record: &EventRecord, by: &str, at: Timestamp) -> Event {
    let text = |text: &str| Some(text.to_owned());
    let api_version = match object.kind.group() {
        "" => object.kind.version().to_owned(),
        group => format!("{group}/{}", object.kind.version()),
    };
    let of = &object.name;
    Event {
        metadata: ObjectMeta {
            name: Some(name(object, record)),
            namespace: text(namespace(object)),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(at)),
        type_: text(record.kind),
        reason: text(record.reason),
        action: text(ACTION),
        note: Some(record.note.clone()),
        regarding: Some(ObjectReference {
            api_version: Some(api_version),
            kind: text(object.kind.as_str()),
            name: text(&of.name),
            namespace: Some(of.namespace.to_string()).filter(|namespace| !namespace.is_empty()),
            uid: Some(uid.to_string()),
            ..ObjectReference::default()
        }),
        reporting_controller: text(CONTROLLER),
        reporting_instance: text(&by[..by.floor_char_boundary(INSTANCE_BYTES_MAX)]),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::finding::Problem;
    use tidegate_config::object::{Kind, ObjectName};

    use super::*;

    const UID: &str = "6f1de5f4-3f0c-4d5e-9a1c-2f6a0c1b7d3e";

    fn uid() -> Uid {
        Uid::parse(UID).unwrap()
    }

    fn object(kind: Kind, namespace: &str, name: &str) -> ObjectRef {
        ObjectRef::new(kind, ObjectName::new(namespace, name))
    }

    fn missing(object: &ObjectRef, field: &str, service: &str) -> Finding {
        Finding::new(object.clone(), field, Problem::ServiceMissing { service: service.to_owned() })
    }

    fn body(request: Prepared) -> (String, String, Value) {
        let request = request.unwrap();
        let body = serde_json::from_slice(request.body()).unwrap();
        (request.method().to_string(), request.uri().to_string(), body)
    }

    #[test]
    fn an_event_has_the_fields_that_kubectl_reads() {
        let object = object(Kind::Ingress, "shop", "web");
        let record = EventRecord::of(uid(), &missing(&object, "spec.rules[0]", "shop/cart"));
        let at: Timestamp = "2026-11-21T03:12:04.733123Z".parse().unwrap();
        let (method, uri, event) = body(create(&object, uid(), &record, "edge-0_1", at));
        assert_eq!((&*method, &*uri), ("POST", "/apis/events.k8s.io/v1/namespaces/shop/events?&fieldManager=tidegate"));
        let want = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": "web.b238356f017b02fc", "namespace": "shop"},
            "eventTime": "2026-11-21T03:12:04.733123Z", "type": "Warning", "reason": "ServiceMissing", "action": "Route",
            "note": "spec.rules[0]: Service shop/cart does not exist, so the route answers 503",
            "regarding": {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "namespace": "shop", "name": "web", "uid": UID},
            "reportingController": "tidegate.io/tidegate", "reportingInstance": "edge-0_1",
        });
        assert_eq!(event, want);

        let (method, uri, patch) = body(renew(&object, &record, 2, at));
        let path = "/apis/events.k8s.io/v1/namespaces/shop/events/web.b238356f017b02fc?&fieldManager=tidegate";
        assert_eq!((&*method, &*uri), ("PATCH", path));
        assert_eq!(patch, json!({"series": {"count": 2, "lastObservedTime": "2026-11-21T03:12:04.733123Z"}}));
        assert_eq!(body(read_count(&object, &record)), (method, uri, json!({})));
    }

    /// Compares the namespace of the Event about an object, and its name without the last 16 digits.
    #[track_caller]
    fn check(object: &ObjectRef, want_namespace: &str, want_name: &str) {
        let event =
            event(object, uid(), &EventRecord::of(uid(), &missing(object, "", "a")), "a", Timestamp::UNIX_EPOCH);
        let (namespace, name) = (event.metadata.namespace.unwrap(), event.metadata.name.unwrap());
        let (begin, digits) = name.split_at(name.len() - 16);
        assert_eq!((&*namespace, begin), (want_namespace, &*format!("{want_name}.")));
        assert!(digits.bytes().all(|byte| byte.is_ascii_hexdigit()) && name.len() <= NAME_BYTES_MAX, "{name}");
        let regarding = event.regarding.unwrap();
        assert_eq!(regarding.namespace.unwrap_or_default(), *object.name.namespace);
        assert_eq!(regarding.name.unwrap(), *object.name.name);
    }

    #[test]
    fn events_have_the_namespace_and_name_of_their_object() {
        check(&object(Kind::Service, "shop", "cart"), "shop", "cart");
        check(&object(Kind::IngressClass, "", "tidegate"), "default", "tidegate");
        check(&object(Kind::Ingress, "shop", &"a".repeat(253)), "shop", &"a".repeat(236));
        check(
            &object(Kind::Ingress, "shop", &format!("{}-.{}", "a".repeat(234), "b".repeat(17))),
            "shop",
            &"a".repeat(234),
        );
    }

    #[test]
    fn each_finding_has_its_own_event_name() {
        let object = object(Kind::Ingress, "shop", "web");
        let other = Uid::parse("00000000-0000-0000-0000-000000000001").unwrap();
        let finding = |field, service| missing(&object, field, service);
        let of = |uid, finding: Finding| name(&object, &EventRecord::of(uid, &finding));
        let one = of(uid(), finding("spec", "a"));
        assert_eq!(one, of(uid(), finding("spec", "a")));
        for another in
            [of(other, finding("spec", "a")), of(uid(), finding("spe", "a")), of(uid(), finding("spec", "b"))]
        {
            assert_ne!(one, another);
        }
    }

    #[test]
    fn long_texts_are_truncated() {
        let object = object(Kind::Ingress, "shop", "web");
        // Each value is cut to its own limit in characters; the note has one in bytes.
        for fill in ["ü", "日", "𝄞"] {
            let record = EventRecord::of(uid(), &missing(&object, &fill.repeat(2000), &fill.repeat(2000)));
            assert!((1020..=1024).contains(&record.note.len()) && record.note.ends_with('…'), "{}", record.note.len());
        }
        let record = EventRecord::of(uid(), &missing(&object, "\u{1b}[2J", "a"));
        assert!(record.note.starts_with("\\u{1b}[2J: Service a"), "{}", record.note);
        let event = event(&object, uid(), &record, &"ü".repeat(100), Timestamp::UNIX_EPOCH);
        assert_eq!(event.reporting_instance.unwrap().len(), 128);
    }

    #[test]
    fn severity_determines_the_event_type() {
        let object = object(Kind::Ingress, "shop", "web");
        let kind = |problem| EventRecord::of(uid(), &Finding::new(object.clone(), "", problem)).kind;
        let (value, why) = (String::new(), String::new());
        assert_eq!(kind(Problem::FailedClosed { value: value.clone(), why: why.clone() }), "Warning");
        assert_eq!(kind(Problem::SettingIgnored { value, why }), "Normal");
    }
}
