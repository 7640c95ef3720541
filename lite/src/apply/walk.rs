//! Walks over objects by their schema: the fields of one, the differences between two, one without some of its fields.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::fields::{Fields, Path};
use super::node::{Form, Node};
use super::step::Step;

/// The fields of an object. List elements without an identity are skipped.
pub(crate) fn fields_of(node: Node<'_>, value: &Value) -> Fields {
    let mut found = Fields::default();
    add(node, value, &mut Vec::new(), &mut found);
    found
}

fn add(node: Node<'_>, value: &Value, path: &mut Path, found: &mut Fields) {
    match (node.form(value), value) {
        (Form::Object, Value::Object(map)) => {
            for (key, value) in map {
                let (below, named) = node.field(key);
                path.push(Step::field(key));
                add(below, value, path, found);
                // A field of a type is in the set by its contents; a key of a map is there by itself.
                if !named || value.as_object().is_some_and(Map::is_empty) {
                    found.insert(path);
                }
                path.pop();
            }
        }
        (Form::List, Value::Array(list)) => {
            for (step, values) in by_step(node, list) {
                path.push(step);
                found.insert(path);
                // A field below duplicate elements cannot be attributed to one of them.
                if let [value] = values.as_slice() {
                    add(node.element(), value, path, found);
                }
                path.pop();
            }
        }
        _ => found.insert(path),
    }
}

/// The elements of a list by their identity.
fn by_step<'v>(node: Node<'_>, list: &'v [Value]) -> BTreeMap<Step, Vec<&'v Value>> {
    let mut found = BTreeMap::<Step, Vec<&Value>>::new();
    for value in list {
        if let Ok(step) = node.step_of(value) {
            found.entry(step).or_default().push(value);
        }
    }
    found
}

/// The differences of two versions of an object.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) removed: Fields,
    /// Fields that are new or have another value.
    pub(crate) written: Fields,
}

impl Comparison {
    /// The differences outside of these fields.
    pub(crate) fn outside(&self, fields: &Fields) -> Self {
        Self { removed: self.removed.outside(fields), written: self.written.outside(fields) }
    }
}

/// Compares two versions.
pub(crate) fn compare(node: Node<'_>, old: &Value, new: &Value) -> Comparison {
    let mut found = Comparison::default();
    differ(node, Some(old), Some(new), &mut Vec::new(), &mut found);
    found
}

fn differ(node: Node<'_>, old: Option<&Value>, new: Option<&Value>, path: &mut Path, found: &mut Comparison) {
    let forms = (old.map(|value| node.form(value)), new.map(|value| node.form(value)));
    let form = match forms {
        (Some(old_form), Some(new_form)) if old_form != new_form => {
            differ(node, old, None, path, found);
            return differ(node, None, new, path, found);
        }
        (Some(form), _) | (None, Some(form)) => form,
        (None, None) => return,
    };
    let empty = is_empty(old) && is_empty(new);
    match form {
        Form::Object if !empty => differ_in_objects(node, object(old), object(new), path, found),
        Form::List if !empty => differ_in_lists(node, list(old), list(new), path, found),
        Form::Object | Form::List | Form::Whole => {
            if old.is_some() && new.is_some() && old != new {
                found.written.insert(path);
            }
        }
    }
    match (old, new) {
        (None, Some(_)) => found.written.insert(path),
        (Some(_), None) => found.removed.insert(path),
        (Some(_), Some(_)) | (None, None) => {}
    }
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => false,
        None => true,
    }
}

fn object(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The value of an absent object that always exists.
static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

fn differ_in_objects<'v>(
    node: Node<'_>,
    old: Option<&'v Map<String, Value>>,
    new: Option<&'v Map<String, Value>>,
    path: &mut Path,
    found: &mut Comparison,
) {
    let keys: BTreeSet<&String> = old.into_iter().chain(new).flat_map(Map::keys).collect();
    for key in keys {
        let below = node.field(key).0;
        let value = |map: Option<&'v Map<String, Value>>| {
            let map = map?;
            map.get(key).or_else(|| below.is_always_there().then_some(&EMPTY))
        };
        path.push(Step::field(key));
        differ(below, value(old), value(new), path, found);
        path.pop();
    }
}

fn differ_in_lists(node: Node<'_>, old: &[Value], new: &[Value], path: &mut Path, found: &mut Comparison) {
    let (old, new) = (by_step(node, old), by_step(node, new));
    let steps: BTreeSet<&Step> = old.keys().chain(new.keys()).collect();
    let none = Vec::new();
    for step in steps {
        let (before, after) = (old.get(step).unwrap_or(&none), new.get(step).unwrap_or(&none));
        path.push(step.clone());
        match (before.as_slice(), after.as_slice()) {
            ([_] | [], [_] | []) => {
                differ(node.element(), before.first().copied(), after.first().copied(), path, found);
            }
            ([_, _, ..], [_, _, ..]) if before != after => found.written.insert(path),
            ([_, _, ..], [_, _, ..]) => {}
            ([_, _, ..], rest) => {
                differ(node.element(), None, rest.first().copied(), path, found);
                found.removed.insert(path);
            }
            (rest, _) => {
                differ(node.element(), rest.first().copied(), None, path, found);
                found.written.insert(path);
            }
        }
        path.pop();
    }
}

/// An object without these fields. A value that is owned as a whole stays or goes as a whole.
pub(crate) fn remove(node: Node<'_>, value: &Value, fields: &Fields) -> Value {
    match (node.form(value), value) {
        (Form::Object, Value::Object(map)) => {
            let kept = map.iter().filter_map(|(key, value)| {
                let kept = match fields.below(&Step::field(key)) {
                    Some(fields) if fields.is_here() => return None,
                    Some(fields) => remove(node.field(key).0, value, fields),
                    None => value.clone(),
                };
                Some((key.clone(), kept))
            });
            Value::Object(kept.collect())
        }
        (Form::List, Value::Array(list)) => {
            let kept = list.iter().filter_map(|value| {
                match node.step_of(value).ok().and_then(|step| fields.below(&step).cloned()) {
                    Some(fields) if fields.is_here() => None,
                    Some(fields) => Some(remove(node.element(), value, &fields)),
                    None => Some(value.clone()),
                }
            });
            Value::Array(kept.collect())
        }
        _ => value.clone(),
    }
}
