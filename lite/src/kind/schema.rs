//! Reads the table of fields once and answers about it: which fields a type has, how its lists merge, what is unknown.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

/// The shape of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    String,
    /// A text with few values.
    OneOf(Vec<&'static str>),
    Int,
    Bool,
    IntOrString,
    /// Not described further; everything fits.
    Any,
    List(Box<Shape>, Join),
    Map(Box<Shape>),
    /// Another type of the table, and whether a strategic patch may say `$retainKeys` there.
    Named(&'static str, Retain),
}

/// How a strategic merge treats a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// The patch's list takes the place of the old one.
    Replace,
    /// Elements are objects that are the same if this key is.
    ByKey(&'static str),
    /// Elements are primitive and each is there once.
    Set,
}

/// Whether the keys that a strategic patch does not name are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retain {
    All,
    Named,
}

type Fields = BTreeMap<&'static str, Shape>;

static TYPES: LazyLock<BTreeMap<&'static str, Fields>> = LazyLock::new(|| parse(super::schema_table::TABLE));

/// Every type with its fields, by name.
pub(crate) fn types() -> &'static BTreeMap<&'static str, Fields> {
    &TYPES
}

/// The shape of a field of a type; [`Shape::Any`] for what the table does not know.
pub(crate) fn field(of: &str, name: &str) -> &'static Shape {
    TYPES.get(of).and_then(|fields| fields.get(name)).unwrap_or(&Shape::Any)
}

/// The values that a field may have, in their order; none where they are not few.
pub(crate) fn values(of: &str, name: &str) -> &'static [&'static str] {
    if let Shape::OneOf(values) = field(of, name) { values } else { &[] }
}

impl Shape {
    /// The shape of what is below this one under a key: a field of a type, a value of a map.
    pub(crate) fn below(&self, key: &str) -> &Self {
        match self {
            Self::Named(name, _) => field(name, key),
            Self::Map(value) => value,
            Self::String | Self::OneOf(_) | Self::Int | Self::Bool | Self::IntOrString | Self::Any | Self::List(..) => {
                &Self::Any
            }
        }
    }

    /// The shape of the elements of a list.
    pub(crate) fn element(&self) -> &Self {
        if let Self::List(element, _) = self { element } else { &Self::Any }
    }

    pub(crate) fn join(&self) -> Join {
        if let Self::List(_, join) = self { *join } else { Join::Replace }
    }
}

fn parse(table: &'static str) -> BTreeMap<&'static str, Fields> {
    let mut types = BTreeMap::new();
    for line in table.lines() {
        let mut words = line.split_whitespace();
        if let Some(name) = words.next() {
            let fields = words.filter_map(|word| word.split_once(':')).map(|(field, text)| (field, shape(text)));
            types.insert(name, fields.collect());
        }
    }
    types
}

fn shape(text: &'static str) -> Shape {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let (element, join) = match (inner.split_once('@'), inner.strip_suffix('+')) {
            (Some((element, key)), _) => (element, Join::ByKey(key)),
            (None, Some(element)) => (element, Join::Set),
            (None, None) => (inner, Join::Replace),
        };
        return Shape::List(Box::new(shape(element)), join);
    }
    if let Some(inner) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        return Shape::Map(Box::new(shape(inner)));
    }
    if let Some(values) = text.strip_prefix("string(").and_then(|rest| rest.strip_suffix(')')) {
        return Shape::OneOf(values.split('|').collect());
    }
    match text {
        "string" => Shape::String,
        "int" => Shape::Int,
        "bool" => Shape::Bool,
        "intstr" => Shape::IntOrString,
        "any" => Shape::Any,
        name => match name.strip_suffix('^') {
            Some(name) => Shape::Named(name, Retain::Named),
            None => Shape::Named(name, Retain::All),
        },
    }
}

/// What does not fit the table in an object of the type `of`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Misfits {
    /// Paths of fields that the type does not have, such as `spec.foo`.
    pub(crate) unknown: Vec<String>,
    /// The first value of a wrong type, in the words of a Go decoder.
    pub(crate) mistyped: Option<String>,
}

/// Compares an object with its type. A null fits everywhere: it means absent.
pub(crate) fn misfits(of: &'static str, object: &Value) -> Misfits {
    let mut found = Misfits::default();
    look(&Shape::Named(of, Retain::All), object, of, &mut String::new(), &mut found);
    found
}

fn look(shape: &Shape, value: &Value, of: &str, path: &mut String, found: &mut Misfits) {
    let length = path.len();
    match (shape, value) {
        (Shape::Any, _) | (_, Value::Null) => {}
        (Shape::Named(name, _), Value::Object(map)) => {
            let Some(fields) = TYPES.get(name) else { return };
            for (key, below) in map {
                push(path, key);
                match fields.get(key.as_str()) {
                    Some(shape) => look(shape, below, name, path, found),
                    None => found.unknown.push(path.clone()),
                }
                path.truncate(length);
            }
        }
        (Shape::Map(inner), Value::Object(map)) => {
            // A Go decoder names the field that is the map, and not the key within it.
            let leaf =
                matches!(**inner, Shape::String | Shape::OneOf(_) | Shape::Int | Shape::Bool | Shape::IntOrString);
            for (key, below) in map {
                if !leaf {
                    push(path, key);
                }
                look(inner, below, of, path, found);
                path.truncate(length);
            }
        }
        (Shape::List(inner, _), Value::Array(list)) => {
            for (nth, below) in list.iter().enumerate() {
                path.push_str(&format!("[{nth}]"));
                look(inner, below, of, path, found);
                path.truncate(length);
            }
        }
        (Shape::String | Shape::OneOf(_) | Shape::IntOrString, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => {}
        (Shape::Int | Shape::IntOrString, Value::Number(number)) if number.is_i64() => {}
        (_, value) => {
            let text = || {
                format!(
                    "json: cannot unmarshal {} into Go struct field {of}.{} of type {}",
                    go(value),
                    without_places(path),
                    expected(shape)
                )
            };
            found.mistyped.get_or_insert_with(text);
        }
    }
}

/// Drops from an object of the type `of` every field that the type does not have.
pub(crate) fn prune(of: &'static str, object: &mut Value) {
    prune_as(&Shape::Named(of, Retain::All), object);
}

fn prune_as(shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Named(name, _), Value::Object(map)) => {
            let Some(fields) = TYPES.get(name) else { return };
            map.retain(|key, _| fields.contains_key(key.as_str()));
            for (key, below) in map {
                if let Some(shape) = fields.get(key.as_str()) {
                    prune_as(shape, below);
                }
            }
        }
        (Shape::Map(inner), Value::Object(map)) => map.values_mut().for_each(|below| prune_as(inner, below)),
        (Shape::List(inner, _), Value::Array(list)) => list.iter_mut().for_each(|below| prune_as(inner, below)),
        _ => {}
    }
}

/// A path without places in lists: a Go decoder has lost them when it complains.
fn without_places(path: &str) -> String {
    let mut plain = String::new();
    for part in path.split('[') {
        plain.push_str(part.split_once(']').map_or(part, |(_, rest)| rest));
    }
    plain
}

fn push(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

fn go(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn expected(shape: &Shape) -> String {
    match shape {
        Shape::String | Shape::OneOf(_) => "string".into(),
        Shape::Int => "int32".into(),
        Shape::Bool => "bool".into(),
        Shape::IntOrString => "intstr.IntOrString".into(),
        Shape::Any => "interface {}".into(),
        Shape::List(inner, _) => format!("[]{}", expected(inner)),
        Shape::Map(inner) => format!("map[string]{}", expected(inner)),
        Shape::Named(name, _) => (*name).into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kind::{KindId, Kinds};

    #[test]
    fn every_name_in_the_table_is_a_line_of_it() {
        fn check(shape: &Shape) {
            match shape {
                Shape::Named(name, _) => assert!(types().contains_key(name), "{name} is not in the table"),
                Shape::List(inner, _) | Shape::Map(inner) => check(inner),
                Shape::String | Shape::OneOf(_) | Shape::Int | Shape::Bool | Shape::IntOrString | Shape::Any => {}
            }
        }
        types().values().flat_map(|fields| fields.values()).for_each(check);
        for kind in Kinds::built_in().iter().map(KindId::row) {
            assert!(types().contains_key(&*kind.kind), "{} has no fields", kind.kind);
        }
    }

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
        check("Deployment", json!({"spec": {"template": {"spec": {"affinity": {"what": 1}}}}}), &[], None);
        let why = "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32";
        check("Deployment", json!({"spec": {"replicas": "2"}}), &[], Some(why));
        let why = "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.annotations of type string";
        check("Service", json!({"metadata": {"annotations": {"a": 1}}}), &[], Some(why));
    }
}
