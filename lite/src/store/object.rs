//! One stored object at one version, and one change of it. Both are immutable and shared.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use crate::kind::KindId;
use crate::selector::{Marks, Selectable, Selection};

/// The approximate size of an object beyond its JSON.
const OVERHEAD: usize = 256;

/// An object as it was at one resourceVersion, as a value or as JSON; the other form is made once, on first use.
pub(crate) struct Object {
    value: OnceLock<Value>,
    version: u64,
    json: OnceLock<Bytes>,
}

/// The sameness of two objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sameness {
    /// In everything that is known of both.
    Whole,
    /// The other one has managed fields, which are unknown for this one.
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

    /// The object that a dry run would have stored.
    pub(crate) fn unstored(value: Value) -> Self {
        Self { value: value.into(), version: 0, json: OnceLock::new() }
    }

    pub(crate) fn value(&self) -> &Value {
        self.value.get_or_init(|| self.read())
    }

    /// The same object with its value. One that is held as JSON stays so: its value takes many times the memory, and is
    /// dropped with the caller.
    pub(crate) fn opened(self: &Arc<Self>) -> Arc<Self> {
        if self.value.get().is_some() {
            return self.clone();
        }
        Arc::new(Self { value: self.read().into(), version: self.version, json: self.json.clone() })
    }

    /// The same object under another version, held in the same way.
    fn at_version(&self, version: u64) -> Self {
        match self.value.get() {
            Some(value) => Self::new(value.clone(), version),
            None => Self::raw(Self::new(self.read(), version).json(), version),
        }
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

    /// Its approximate size in bytes, if it is held as JSON.
    pub(crate) fn size(&self) -> usize {
        self.json().len() + OVERHEAD
    }

    /// Compares the content of two objects, whatever the order of their fields. Managed fields may be missing: the disk
    /// does not keep them.
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

impl KindId {
    /// A stored object as this version of the kind shows it.
    pub(crate) fn shown(&self, object: &Arc<Object>) -> Arc<Object> {
        let description = self.description();
        match description.custom() {
            Some(custom) if custom.storage != description.api_version() => {
                Arc::new(Object::new(self.read(object.value()), object.version()))
            }
            Some(_) | None => object.clone(),
        }
    }
}

/// The position of an object within its kind. The order is that of lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Empty for kinds without namespaces.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// A name alone answers for selectors that ask for nothing else.
impl Selectable for Key {
    fn label(&self, _: &str) -> Option<&str> {
        None
    }

    fn field(&self, path: &str) -> Cow<'_, str> {
        Cow::Borrowed(match path {
            "metadata.name" => &self.name,
            "metadata.namespace" => &self.namespace,
            _ => "",
        })
    }
}

/// The type of a change, as a watch reports it.
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

/// One change of one object. Several watches share it, and the frame that is written for it.
pub(crate) struct Event {
    pub(crate) key: Key,
    change: Change,
    /// After the change; for a deletion the last state under the deletion's version.
    object: Arc<Object>,
    previous: Option<Arc<Object>>,
    /// For those that do not see every object, where there were any when it happened.
    selectable: Option<Box<SelectableEvent>>,
    /// The line for watches of whole objects that see every object.
    frame: OnceLock<Bytes>,
}

/// The part of one change that several watches with selectors share.
struct SelectableEvent {
    /// Before and after, of objects that are held as JSON.
    marks: [Option<Marks>; 2],
    /// The line for a watch whose selector no longer matches the object.
    departed: OnceLock<Arc<Object>>,
}

impl Event {
    pub(crate) fn new(key: Key, change: Change, object: Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        Self { key, change, object, previous, selectable: None, frame: OnceLock::new() }
    }

    /// The same, ready for watches with selectors. They are of a kind with these fields.
    pub(crate) fn selectable(mut self, fields: &[String]) -> Self {
        let marks = |object: &Object| object.value.get().is_none().then(|| Marks::read(&object.json(), fields));
        let after = (self.change != Change::Deleted).then_some(&self.object);
        let marks = [self.previous.as_ref(), after].map(|object| object.and_then(|object| marks(object)));
        self.selectable = Some(Box::new(SelectableEvent { marks, departed: OnceLock::new() }));
        self
    }

    pub(crate) fn version(&self) -> u64 {
        self.object.version()
    }

    /// Its approximate size with the line for watches, where objects are held as JSON. It never grows later.
    pub(crate) fn bytes(&self) -> usize {
        let selectable = self.selectable.as_ref().map_or(0, |selectable| {
            let marks: usize = selectable.marks.iter().flatten().map(Marks::size).sum();
            let departed = self.previous.as_ref().filter(|_| self.change != Change::Deleted);
            size_of::<SelectableEvent>() + marks + departed.map_or(0, |previous| previous.size())
        });
        2 * self.object.json().len() + selectable
    }

    /// The object before the change; `None` if the change created it.
    pub(crate) fn before(&self) -> Option<&Arc<Object>> {
        self.previous.as_ref()
    }

    /// The form of this change for a client that sees only the selected objects, of a kind with these fields. `None`:
    /// no event.
    pub(crate) fn seen_by(&self, selection: &Selection, fields: &[String]) -> Option<Change> {
        let marks = self.selectable.as_ref().map(|selectable| &selectable.marks);
        let sees = |object: &Object, nth: usize| {
            if !selection.looks_inside {
                return selection.matches(&self.key);
            }
            match (object.value.get(), marks.and_then(|marks| marks[nth].as_ref())) {
                (Some(value), _) => selection.matches(value),
                (None, Some(marks)) => selection.matches(marks),
                // No watch with a selector existed at the time of the event. Keeping the marks that are read now would
                // take memory that was not counted.
                (None, None) => selection.matches(&Marks::read(&object.json(), fields)),
            }
        };
        let before = self.previous.as_ref().is_some_and(|previous| sees(previous, 0));
        let after = self.change != Change::Deleted && sees(&self.object, 1);
        match (before, after) {
            (false, true) => Some(Change::Added),
            (true, true) => Some(Change::Modified),
            (true, false) => Some(Change::Deleted),
            (false, false) => None,
        }
    }

    /// The change as seen by a watch of every object.
    pub(crate) fn change(&self) -> Change {
        self.change
    }

    /// The object to show with a change that [`Self::seen_by`] gave.
    pub(crate) fn shown(&self, change: Change) -> Arc<Object> {
        match (change, self.change, &self.previous) {
            (Change::Deleted, Change::Added | Change::Modified, Some(previous)) => {
                let departed = || Arc::new(previous.at_version(self.version()));
                self.selectable
                    .as_ref()
                    .map_or_else(departed, |selectable| Arc::clone(selectable.departed.get_or_init(departed)))
            }
            _ => Arc::clone(&self.object),
        }
    }

    /// The line for a watch of whole objects.
    pub(crate) fn frame(&self, change: Change) -> Bytes {
        let line = || frame(change.name(), &self.shown(change).json());
        // The others are for few, and every one that is kept takes as much as the object.
        if change == self.change { self.frame.get_or_init(line).clone() } else { line() }
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
    use crate::kind::KindId;

    #[track_caller]
    fn check(before: Option<&str>, after: Option<&str>, expected: Option<(Change, &str)>) {
        // As in a server of its own, and as in a watch cache, for watches that were there and for others.
        let value = |label: &str, version| Object::new(json!({"metadata": {"labels": {"is": label}}}), version);
        check_held(before, after, expected, |label, version| Arc::new(value(label, version)), false);
        for watched in [false, true] {
            let raw = |label: &str, version| Arc::new(Object::raw(value(label, version).json(), version));
            check_held(before, after, expected, raw, watched);
        }
    }

    #[track_caller]
    fn check_held(
        before: Option<&str>,
        after: Option<&str>,
        expected: Option<(Change, &str)>,
        object: impl Fn(&str, u64) -> Arc<Object>,
        watched: bool,
    ) {
        let key = Key { namespace: String::new(), name: "a".into() };
        let previous = before.map(|label| object(label, 5));
        let event = match after {
            Some(label) if before.is_none() => Event::new(key, Change::Added, object(label, 6), previous),
            Some(label) => Event::new(key, Change::Modified, object(label, 6), previous),
            None => Event::new(key, Change::Deleted, object(before.unwrap_or_default(), 6), previous),
        };
        let event = if watched { event.selectable(&[]) } else { event };
        let bytes = event.bytes();
        let selection = Selection::parse(KindId::built_in("Service").unwrap().description(), "is=in", "").unwrap();
        let seen = event.seen_by(&selection, &[]);
        assert_eq!(seen, expected.map(|(change, _)| change));
        if let Some((change, label)) = expected {
            assert_eq!(event.shown(change).value()["metadata"]["labels"]["is"], label);
            assert_eq!(event.shown(change).version(), 6);
            assert!(event.frame(change).ends_with(b"}\n"));
        }
        assert_eq!(event.bytes(), bytes);
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
