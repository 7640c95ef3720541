//! Compares an object with the table of fields: unknown fields, wrong types, and the form in which the real server
//! keeps the rest.

use serde_json::{Map, Value};

use super::format::{Format, Misread};
use super::schema::{Retain, Shape, Width, types};
use crate::json::{Paths, go_name};

/// The differences of an object from the table.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Misfits {
    /// Paths of fields that the type does not have, such as `spec.foo`.
    pub(crate) unknown: Vec<String>,
    /// The value of a wrong type that a Go decoder complains of, in its words.
    pub(crate) mistyped: Option<String>,
}

/// Compares an object with its type. A null fits everywhere: it means absent.
pub(crate) fn misfits(of: &'static str, object: &Value) -> Misfits {
    let (path, go_path, unknown) = (String::new(), String::new(), Paths::default());
    let mut search = Search { of, path, go_path, unknown, first: None, end: None };
    search.look(&Shape::Named(of, Retain::All), object);
    Misfits { unknown: search.unknown.0, mistyped: search.end.or(search.first) }
}

/// A place in an object, and the faults found on the way there.
struct Search {
    /// The type that has the field.
    of: &'static str,
    path: String,
    /// The path as a Go decoder knows it: without places in lists, and with the types that Go embeds.
    go_path: String,
    unknown: Paths,
    /// The first wrong type. The decoder goes on after it,
    first: Option<String>,
    /// but a type that reads itself ends it.
    end: Option<String>,
}

impl Search {
    fn look(&mut self, shape: &Shape, value: &Value) {
        match (shape, value) {
            (Shape::Any, _) | (_, Value::Null) => {}
            (Shape::Named(name, _), Value::Object(map)) => self.look_into(name, map),
            (Shape::Map(inner), Value::Object(map)) => {
                for (key, below) in map {
                    // A Go decoder names the field that is the map, and not the key within it.
                    let length = self.path.len();
                    push(&mut self.path, key);
                    self.look(inner, below);
                    self.path.truncate(length);
                }
            }
            (Shape::List(inner, _), Value::Array(list)) => {
                for (nth, below) in list.iter().enumerate() {
                    let length = self.path.len();
                    self.path.push_str(&format!("[{nth}]"));
                    self.look(inner, below);
                    self.path.truncate(length);
                }
            }
            (Shape::String | Shape::OneOf(_) | Shape::IntOrString, Value::String(_))
            | (Shape::Bool, Value::Bool(_)) => {}
            (Shape::Int(width), Value::Number(number)) if width.holds(number) => {}
            (Shape::IntOrString, Value::Number(number)) if Width::Int32.holds(number) => {}
            (Shape::Formatted(format), value) => match format.read(value) {
                Ok(_) => {}
                Err(Misread::Mistyped) => self.complain(*format != Format::Bytes, || mistyped(shape, value)),
                Err(Misread::Words(why)) => self.complain(*format != Format::Bytes, || (why, false)),
            },
            (shape, value) => self.complain(*shape == Shape::IntOrString, || mistyped(shape, value)),
        }
    }

    fn look_into(&mut self, of: &'static str, map: &Map<String, Value>) {
        let Some(fields) = types().get(of) else { return };
        let (outer, length, go_length) = (self.of, self.path.len(), self.go_path.len());
        for (key, below) in map {
            self.of = of;
            push(&mut self.path, key);
            if let Some(embedded) = embedded(of, key) {
                push(&mut self.go_path, embedded);
            }
            push(&mut self.go_path, key);
            match fields.get(key.as_str()) {
                Some(shape) => self.look(shape, below),
                None => self.unknown.push(&self.path),
            }
            self.path.truncate(length);
            self.go_path.truncate(go_length);
        }
        self.of = outer;
    }

    /// Keeps a complaint, if it is the one that the decoder would end with. Those about a type name the field.
    fn complain(&mut self, ends: bool, what: impl FnOnce() -> (String, bool)) {
        let kept = if ends { &mut self.end } else { &mut self.first };
        kept.get_or_insert_with(|| match what() {
            (why, false) => why,
            (why, true) => why.replacen("FIELD", &format!("{}.{}", self.of, self.go_path), 1),
        });
    }
}

/// A value of a wrong type in the words of a Go decoder, which fills in the field.
fn mistyped(shape: &Shape, value: &Value) -> (String, bool) {
    let given = match (shape, value) {
        (Shape::Int(_) | Shape::IntOrString, Value::Number(number)) => format!("number {number}"),
        (_, value) => go_name(value).to_owned(),
    };
    (format!("json: cannot unmarshal {given} into Go struct field FIELD of type {}", expected(shape)), true)
}

impl Width {
    fn holds(self, number: &serde_json::Number) -> bool {
        number.as_i64().is_some_and(|number| match self {
            Self::Int32 => i32::try_from(number).is_ok(),
            Self::Int64 => true,
        })
    }
}

/// The type that Go embeds in another one for some of its fields.
fn embedded(of: &str, field: &str) -> Option<&'static str> {
    match (of, field) {
        ("Probe", "exec" | "httpGet" | "tcpSocket" | "grpc") => Some("ProbeHandler"),
        ("Volume", field) if field != "name" => Some("VolumeSource"),
        ("EphemeralContainer", field) if field != "targetContainerName" => Some("EphemeralContainerCommon"),
        ("IngressRule", "http") => Some("IngressRuleValue"),
        (
            "ConfigMapEnvSource"
            | "SecretEnvSource"
            | "ConfigMapKeySelector"
            | "SecretKeySelector"
            | "ConfigMapProjection"
            | "SecretProjection"
            | "ConfigMapVolumeSource",
            "name",
        ) => Some("LocalObjectReference"),
        _ => None,
    }
}

/// Brings an object into the form in which the real server keeps it: without fields that the type does not have and
/// without nulls, and with each formatted text as it is written there.
pub(crate) fn settle(of: &'static str, object: &mut Value) {
    settle_as(&Shape::Named(of, Retain::All), object);
}

fn settle_as(shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Named(name, _), Value::Object(map)) => {
            let Some(fields) = types().get(name) else { return };
            map.retain(|key, below| fields.contains_key(key.as_str()) && !below.is_null());
            for (key, below) in map {
                if let Some(shape) = fields.get(key.as_str()) {
                    settle_as(shape, below);
                }
            }
        }
        (Shape::Map(inner), Value::Object(map)) => map.values_mut().for_each(|below| settle_element(inner, below)),
        (Shape::List(inner, _), Value::Array(list)) => list.iter_mut().for_each(|below| settle_element(inner, below)),
        (Shape::Formatted(format), value) => {
            if let Ok(settled) = format.read(value) {
                *value = settled;
            }
        }
        (Shape::Any, value) => drop_nulls(value),
        _ => {}
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A null in a list or a map is the zero of its type.
fn settle_element(shape: &Shape, value: &mut Value) {
    if value.is_null() {
        match shape {
            Shape::String | Shape::OneOf(_) | Shape::Formatted(Format::Bytes) => *value = "".into(),
            Shape::Formatted(Format::Quantity) => *value = "0".into(),
            Shape::Int(_) | Shape::IntOrString => *value = 0.into(),
            Shape::Bool => *value = false.into(),
            Shape::Named(..) => *value = Value::Object(Map::new()),
            Shape::Formatted(Format::Time | Format::MicroTime) | Shape::Any | Shape::List(..) | Shape::Map(_) => {}
        }
    }
    settle_as(shape, value);
}

fn push(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

fn expected(shape: &Shape) -> String {
    match shape {
        Shape::String | Shape::OneOf(_) => "string".into(),
        Shape::Int(Width::Int32) | Shape::IntOrString => "int32".into(),
        Shape::Int(Width::Int64) => "int64".into(),
        Shape::Formatted(Format::Bytes) => "[]uint8".into(),
        Shape::Formatted(Format::Time | Format::MicroTime | Format::Quantity) => "string".into(),
        Shape::Bool => "bool".into(),
        Shape::Any => "interface {}".into(),
        Shape::List(inner, _) => format!("[]{}", expected(inner)),
        Shape::Map(inner) if **inner == Shape::Formatted(Format::Quantity) => "v1.ResourceList".into(),
        Shape::Map(inner) => format!("map[string]{}", expected(inner)),
        Shape::Named(name, _) => format!("v1.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(of: &'static str, object: Value, unknown: &[&str], mistyped: Option<&str>) {
        let found = misfits(of, &object);
        assert_eq!(found.unknown, unknown);
        assert_eq!(found.mistyped.as_deref(), mistyped);
    }

    #[test]
    fn misfits_are_named_by_path() {
        check("Service", json!({"metadata": {"labels": {"a": "b"}}, "spec": {"ports": null}}), &[], None);
        check(
            "Service",
            json!({"spec": {"prots": [], "ports": [{"port": 1, "x": 1}]}}),
            &["spec.ports[0].x", "spec.prots"],
            None,
        );
        check("Ingress", json!({"sepc": {}}), &["sepc"], None);
        let affinity = json!({"spec": {"template": {"spec": {"affinity": {"what": 1}}}}});
        check("Deployment", affinity, &["spec.template.spec.affinity.what"], None);
    }

    /// The message of a decoder about a value in place of the `FIELD` of an object.
    #[track_caller]
    fn check_field(of: &'static str, field: &str, value: Value, why: Option<&str>) {
        let object = field.rsplit('.').fold(value, |below, key| match key.strip_suffix("[]") {
            Some(key) => json!({key: [below]}),
            None => json!({key: below}),
        });
        check(of, object, &[], why);
    }

    #[test]
    fn values_have_types_and_formats() {
        let wrong = |what: &str| Some(format!("json: cannot unmarshal {what}"));
        for (of, field, value, why) in [
            (
                "Deployment",
                "spec.replicas",
                json!("2"),
                wrong("string into Go struct field DeploymentSpec.spec.replicas of type int32"),
            ),
            (
                "Deployment",
                "spec.replicas",
                json!(1.5),
                wrong("number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32"),
            ),
            (
                "Deployment",
                "spec.replicas",
                json!(1_u64 << 32),
                wrong("number 4294967296 into Go struct field DeploymentSpec.spec.replicas of type int32"),
            ),
            ("Deployment", "metadata.generation", json!(1_u64 << 32), None),
            (
                "Service",
                "metadata.annotations.a",
                json!(1),
                wrong("number into Go struct field ObjectMeta.metadata.annotations of type string"),
            ),
            (
                "Service",
                "spec.ports[]",
                json!(5),
                wrong("number into Go struct field ServiceSpec.spec.ports of type v1.ServicePort"),
            ),
            (
                "Service",
                "spec.ports[].targetPort",
                json!(true),
                wrong("bool into Go struct field ServicePort.spec.ports.targetPort of type int32"),
            ),
            (
                "Pod",
                "spec.volumes[].configMap.name",
                json!(1),
                wrong(
                    "number into Go struct field ConfigMapVolumeSource.spec.volumes.VolumeSource.configMap.LocalObjectReference.name of type string",
                ),
            ),
            ("Secret", "data.a", json!("pass word"), Some("illegal base64 data at input byte 4".to_owned())),
            ("Secret", "data.a", json!(1), wrong("number into Go struct field Secret.data of type []uint8")),
            ("Pod", "spec.containers[].resources.limits.cpu", json!(1.5), None),
        ] {
            check_field(of, field, value, why.as_deref());
        }
    }

    #[test]
    fn a_type_with_its_own_reader_ends_the_descent() {
        let event = json!({"count": "x", "firstTimestamp": "today", "lastTimestamp": "tomorrow"});
        let why = "parsing time \"today\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"today\" as \"2006\"";
        check("Event", event, &[], Some(why));
    }

    #[test]
    fn values_are_kept_as_the_real_server_writes_them() {
        let mut pod = json!({"spec": {"overhead": {"cpu": "1000m", "memory": null}, "nodeSelector": {"a": null}, "priority": null, "x": 1}});
        settle("Pod", &mut pod);
        assert_eq!(pod, json!({"spec": {"overhead": {"cpu": "1", "memory": "0"}, "nodeSelector": {"a": ""}}}));
    }
}
