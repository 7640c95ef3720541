//! One stored object at one version, and one change of it. Both are immutable and shared.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

/// What an object takes beyond its JSON, about.
const OVERHEAD: usize = 256;

/// An object as it was at one resourceVersion, as a value or as JSON; the other one is made once, when first asked for.
pub(crate) struct Object {
    value: OnceLock<Value>,
    version: u64,
    json: OnceLock<Bytes>,
}

/// How an object is the same as another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sameness {
    /// In everything that is known of both.
    Whole,
    /// The other one has managed fields, which are not known of this one.
    ButForManagedFields,
}

impl Object {
    /// Takes a value and writes the version into it.
    pub(crate) fn new(mut value: Value, version: u64) -> Self {
        value["metadata"]["resourceVersion"] = version.to_string().into();
        Self { value: value.into(), version, json: OnceLock::new() }
    }

    /// Takes the JSON of an object that another server holds at this version.
    pub(crate) fn raw(json: Bytes, version: u64) -> Self {
        Self { value: OnceLock::new(), version, json: json.into() }
    }

    /// What a dry run would have stored.
    pub(crate) fn unstored(value: Value) -> Self {
        Self { value: value.into(), version: 0, json: OnceLock::new() }
    }

    pub(crate) fn value(&self) -> &Value {
        self.value.get_or_init(|| self.read())
    }

    /// The same object with its value at hand. One that is held as JSON stays so: its value takes many times the memory, and is
    /// gone with whoever asked.
    pub(crate) fn opened(self: &Arc<Self>) -> Arc<Self> {
        if self.value.get().is_some() {
            return self.clone();
        }
        Arc::new(Self { value: self.read().into(), version: self.version, json: self.json.clone() })
    }

    fn read(&self) -> Value {
        self.json.get().and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default()
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn json(&self) -> Bytes {
        self.json.get_or_init(|| self.value().to_string().into()).clone()
    }

    /// About the bytes that it takes where it is held as JSON.
    pub(crate) fn size(&self) -> usize {
        self.json().len() + OVERHEAD
    }

    /// Whether another object has the same content, whatever the order of its fields. Managed fields may be missing: the disk does not
    /// keep them.
    pub(crate) fn same(&self, other: &Self) -> Option<Sameness> {
        if self.json() == other.json() {
            return Some(Sameness::Whole);
        }
        let [mut own, mut others] = [self.read(), other.read()];
        let managed = |value: &mut Value| value.get_mut("metadata")?.as_object_mut()?.remove("managedFields");
        let sameness = match (managed(&mut own), managed(&mut others)) {
            (None, Some(_)) => Sameness::ButForManagedFields,
            (Some(own), Some(others)) if own != others => return None,
            (None | Some(_), None) | (Some(_), Some(_)) => Sameness::Whole,
        };
        (own == others).then_some(sameness)
    }

    /// The text under `metadata`, empty if absent.
    pub(crate) fn metadata(&self, field: &str) -> &str {
        self.value()["metadata"][field].as_str().unwrap_or_default()
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
    /// Both with their values at hand, for selectors.
    opened: [OnceLock<Arc<Object>>; 2],
    /// What a watch gets whose selector the object has just left.
    departed: OnceLock<Arc<Object>>,
    frames: [OnceLock<Bytes>; 3],
}

impl Event {
    pub(crate) fn new(key: Key, change: Change, object: Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        Self {
            key,
            change,
            object,
            previous,
            opened: Default::default(),
            departed: OnceLock::new(),
            frames: Default::default(),
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.object.version()
    }

    /// About what it takes with the line that watches get, where objects are held as JSON.
    pub(crate) fn bytes(&self) -> usize {
        2 * self.object.json().len()
    }

    /// The object before the change; `None` if the change made it.
    pub(crate) fn before(&self) -> Option<&Arc<Object>> {
        self.previous.as_ref()
    }

    /// What this change is to somebody who sees only the objects for which `sees` holds. `None`: nothing.
    pub(crate) fn seen_by(&self, sees: impl Fn(&Value) -> bool) -> Option<Change> {
        let [opened, opened_before] = &self.opened;
        let sees =
            |object: &Arc<Object>, cell: &OnceLock<Arc<Object>>| sees(cell.get_or_init(|| object.opened()).value());
        let before = self.previous.as_ref().is_some_and(|previous| sees(previous, opened_before));
        let after = self.change != Change::Deleted && sees(&self.object, opened);
        match (before, after) {
            (false, true) => Some(Change::Added),
            (true, true) => Some(Change::Modified),
            (true, false) => Some(Change::Deleted),
            (false, false) => None,
        }
    }

    /// What this change is to somebody who sees every object.
    pub(crate) fn change(&self) -> Change {
        self.change
    }

    /// The object to show with a change that [`Self::seen_by`] gave.
    pub(crate) fn shown(&self, change: Change) -> &Arc<Object> {
        match (change, self.change, &self.previous) {
            (Change::Deleted, Change::Added | Change::Modified, Some(previous)) => {
                self.departed.get_or_init(|| Arc::new(Object::new(previous.opened().value().clone(), self.version())))
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
