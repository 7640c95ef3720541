//! One stored object at one version, and one change of it. Both are immutable and shared.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

/// An object as it was at one resourceVersion. Its JSON is written once, when first asked for.
pub(crate) struct Object {
    value: Value,
    version: u64,
    json: OnceLock<Bytes>,
}

impl Object {
    /// Takes a value and writes the version into it.
    pub(crate) fn new(mut value: Value, version: u64) -> Self {
        value["metadata"]["resourceVersion"] = version.to_string().into();
        Self { value, version, json: OnceLock::new() }
    }

    /// What a dry run would have stored.
    pub(crate) fn unstored(value: Value) -> Self {
        Self { value, version: 0, json: OnceLock::new() }
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn json(&self) -> Bytes {
        self.json.get_or_init(|| self.value.to_string().into()).clone()
    }

    /// The text under `metadata`, empty if absent.
    pub(crate) fn metadata(&self, field: &str) -> &str {
        self.value["metadata"][field].as_str().unwrap_or_default()
    }
}

/// Where an object is within its kind. The order is that of lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Empty for kinds without namespaces.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// What happened to an object, as a watch tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change of one object. Several watches share it, and the frames that are written for it.
pub(crate) struct Event {
    pub(crate) key: Key,
    change: Change,
    /// After the change; for a deletion the last state under the deletion's version.
    object: Arc<Object>,
    previous: Option<Arc<Object>>,
    /// What a watch gets whose selector the object has just left.
    departed: OnceLock<Arc<Object>>,
    frames: [OnceLock<Bytes>; 3],
}

impl Event {
    pub(crate) fn new(key: Key, change: Change, object: Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        Self { key, change, object, previous, departed: OnceLock::new(), frames: Default::default() }
    }

    pub(crate) fn version(&self) -> u64 {
        self.object.version()
    }

    /// The object before the change; `None` if the change made it.
    pub(crate) fn before(&self) -> Option<&Arc<Object>> {
        self.previous.as_ref()
    }

    /// What this change is to somebody who sees only the objects for which `sees` holds. `None`: nothing.
    pub(crate) fn seen_by(&self, sees: impl Fn(&Value) -> bool) -> Option<Change> {
        let before = self.previous.as_ref().is_some_and(|previous| sees(previous.value()));
        let after = self.change != Change::Deleted && sees(self.object.value());
        match (before, after) {
            (false, true) => Some(Change::Added),
            (true, true) => Some(Change::Modified),
            (true, false) => Some(Change::Deleted),
            (false, false) => None,
        }
    }

    /// The object to show with a change that [`Self::seen_by`] gave.
    pub(crate) fn shown(&self, change: Change) -> &Arc<Object> {
        match (change, self.change, &self.previous) {
            (Change::Deleted, Change::Added | Change::Modified, Some(previous)) => {
                self.departed.get_or_init(|| Arc::new(Object::new(previous.value().clone(), self.version())))
            }
            _ => &self.object,
        }
    }

    /// The line that a watch of whole objects gets.
    pub(crate) fn frame(&self, change: Change) -> Bytes {
        self.frames[change as usize].get_or_init(|| frame(change.name(), &self.shown(change).json())).clone()
    }
}

/// One line of a watch.
pub(crate) fn frame(kind: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + kind.len() + 24);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(before: Option<&str>, after: Option<&str>, expected: Option<(Change, &str)>) {
        let object = |label: &str, version| Arc::new(Object::new(json!({"metadata": {"label": label}}), version));
        let key = Key { namespace: String::new(), name: "a".into() };
        let previous = before.map(|label| object(label, 5));
        let event = match after {
            Some(label) if before.is_none() => Event::new(key, Change::Added, object(label, 6), previous),
            Some(label) => Event::new(key, Change::Modified, object(label, 6), previous),
            None => Event::new(key, Change::Deleted, object(before.unwrap_or_default(), 6), previous),
        };
        let seen = event.seen_by(|value| value["metadata"]["label"] == "in");
        assert_eq!(seen, expected.map(|(change, _)| change));
        if let Some((change, label)) = expected {
            assert_eq!(event.shown(change).value()["metadata"]["label"], label);
            assert_eq!(event.shown(change).version(), 6);
            assert!(event.frame(change).ends_with(b"}\n"));
        }
    }

    #[test]
    fn a_selector_sees_objects_come_and_go() {
        check(None, Some("in"), Some((Change::Added, "in")));
        check(None, Some("out"), None);
        check(Some("in"), Some("in"), Some((Change::Modified, "in")));
        check(Some("out"), Some("in"), Some((Change::Added, "in")));
        check(Some("in"), Some("out"), Some((Change::Deleted, "in")));
        check(Some("out"), Some("out"), None);
        check(Some("in"), None, Some((Change::Deleted, "in")));
        check(Some("out"), None, None);
    }
}
