//! The parts of an object that selectors read: its labels, and the fields that its kind has selectors for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::mem::size_of;

use serde_json::Value;
use serde_json::value::RawValue;

use super::field;

/// The approximate overhead of an allocation besides its bytes.
const ALLOCATION: usize = 16;

/// Something that a selector can be held against.
pub(crate) trait Selectable {
    /// The value of a label.
    fn label(&self, key: &str) -> Option<&str>;
    /// The text of a field, empty if absent.
    fn field(&self, path: &str) -> Cow<'_, str>;
}

impl Selectable for Value {
    fn label(&self, key: &str) -> Option<&str> {
        self["metadata"]["labels"].get(key)?.as_str()
    }

    fn field(&self, path: &str) -> Cow<'_, str> {
        field::read(|path| shown(path.split('.').try_fold(self, |value, key| value.get(key))?), path)
    }
}

/// The text of a value. Fields of custom kinds may be numbers or flags.
fn shown(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(_) | Value::Bool(_) => Some(Cow::Owned(value.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The labels and selectable fields of one object, in hardly more memory than their text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Keys and values by turns, each before a NUL. Neither can hold one.
    labels: Box<str>,
    /// Paths and values in the same way, but for those that are empty. A value with a NUL, which no selector asks for,
    /// is left out.
    fields: Box<str>,
}

impl Marks {
    /// Reads them from the JSON of an object, of the fields those that every kind has and these.
    pub(crate) fn read(json: &[u8], fields: &[String]) -> Self {
        let object: Members<'_> = serde_json::from_slice(json).unwrap_or_default();
        let mut object = Opened { object, inner: BTreeMap::new() };
        let (mut labels, mut marked) = (String::new(), String::new());
        let of_object: BTreeMap<Cow<'_, str>, Value> = object
            .inside("metadata")
            .get("labels")
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        for (key, value) in &of_object {
            if let Value::String(value) = value {
                note(&mut labels, key, value);
            }
        }
        for path in ["metadata.name", "metadata.namespace"].into_iter().chain(fields.iter().map(String::as_str)) {
            let value = field::read(|path| object.text(path), path);
            if !value.is_empty() {
                note(&mut marked, path, &value);
            }
        }
        Self { labels: labels.into(), fields: marked.into() }
    }

    /// Their size in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.labels.len() + self.fields.len() + 2 * ALLOCATION
    }
}

impl Selectable for Marks {
    fn label(&self, key: &str) -> Option<&str> {
        find(&self.labels, key)
    }

    fn field(&self, path: &str) -> Cow<'_, str> {
        Cow::Borrowed(find(&self.fields, path).unwrap_or_default())
    }
}

fn note(text: &mut String, key: &str, value: &str) {
    if !key.contains('\0') && !value.contains('\0') {
        text.extend([key, "\0", value, "\0"]);
    }
}

fn find<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut parts = text.split('\0');
    while let (Some(one), Some(value)) = (parts.next(), parts.next()) {
        if one == key {
            return Some(value);
        }
    }
    None
}

type Members<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// An object and those of its members that a path has led into.
struct Opened<'a> {
    object: Members<'a>,
    inner: BTreeMap<String, Members<'a>>,
}

impl<'a> Opened<'a> {
    fn inside(&mut self, name: &str) -> &Members<'a> {
        let object = &self.object;
        self.inner
            .entry(name.to_owned())
            .or_insert_with(|| object.get(name).map(|raw| members(raw)).unwrap_or_default())
    }

    fn text<'b>(&mut self, path: &str) -> Option<Cow<'b, str>> {
        let Some((first, rest)) = path.split_once('.') else { return text(self.object.get(path)?) };
        let mut keys = rest.split('.');
        let first = self.inside(first).get(keys.next()?).copied()?;
        text(keys.try_fold(first, |raw, key| members(raw).get(key).copied())?)
    }
}

fn members(raw: &RawValue) -> Members<'_> {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

fn text<'b>(raw: &RawValue) -> Option<Cow<'b, str>> {
    if raw.get().starts_with(['{', '[']) {
        return None;
    }
    let value: Value = serde_json::from_str(raw.get()).ok()?;
    shown(&value).map(|text| text.into_owned().into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn marks_answer_as_the_whole_object_does() {
        let fields =
            ["spec.nodeName", "spec.on", "spec.count", "spec.deep.er", "spec", "status.phase", "source", "gone.x"];
        let fields = fields.map(str::to_owned);
        for object in [
            json!({
                "metadata": {"name": "a", "namespace": "n", "labels": {"app": "w\"eb", "empty": "", "odd": 1, "nul\0": "x"}},
                "spec": {"nodeName": "é\n", "on": true, "count": 1.5, "deep": {"er": "yes"}},
                "status": {"phase": null}, "source": {"component": ""}, "reportingComponent": "it",
            }),
            json!({"metadata": {"labels": null}, "spec": [1], "source": {"component": "one"}}),
            json!({"metadata": 7}),
            json!([]),
        ] {
            let marks = Marks::read(object.to_string().as_bytes(), &fields);
            for path in fields.iter().map(String::as_str).chain(["metadata.name", "metadata.namespace"]) {
                assert_eq!(marks.field(path), object.field(path), "{path} of {object}");
            }
            for key in ["app", "empty", "odd", "absent", ""] {
                assert_eq!(marks.label(key), object.label(key), "{key} of {object}");
            }
        }
    }

    #[test]
    fn marks_use_little_more_memory_than_their_text() {
        let object = json!({"metadata": {"name": "a", "labels": {"app": "web"}}, "spec": {"pad": "x".repeat(10_000)}});
        let size = Marks::read(object.to_string().as_bytes(), &["spec.type".to_owned()]).size();
        assert!(size < 150, "{size}");
    }
}
