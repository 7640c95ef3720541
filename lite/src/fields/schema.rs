//! Reads the table of fields once and answers about it: the fields of a type, the way its lists merge, unknown fields.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::format::Format;

/// The shape of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    String,
    /// A text with few values.
    OneOf(Vec<&'static str>),
    Int(Width),
    /// A text, or for a quantity also a number, with a form of its own.
    Formatted(Format),
    Bool,
    IntOrString,
    /// Not described further; everything fits.
    Any,
    List(Box<Shape>, Join),
    Map(Box<Shape>),
    /// Another type of the table, and whether a strategic patch may say `$retainKeys` there.
    Named(&'static str, Retain),
}

/// The range of a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Int32,
    Int64,
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

static TYPES: LazyLock<BTreeMap<&'static str, Fields>> = LazyLock::new(|| {
    let mut types = parse(super::schema_table::TABLE);
    types.append(&mut parse(super::pod_table::TABLE));
    types.append(&mut parse(super::chart_table::TABLE));
    types
});

/// Every type with its fields, by name.
pub(crate) fn types() -> &'static BTreeMap<&'static str, Fields> {
    &TYPES
}

/// The shape of a field of a type; [`Shape::Any`] for a type unknown to the table.
pub(crate) fn field(of: &str, name: &str) -> &'static Shape {
    TYPES.get(of).and_then(|fields| fields.get(name)).unwrap_or(&Shape::Any)
}

/// The values that a field may have, in their order; none where they are not few.
pub(crate) fn values(of: &str, name: &str) -> &'static [&'static str] {
    if let Shape::OneOf(values) = field(of, name) { values } else { &[] }
}

impl Shape {
    /// The shape of the value below this one under a key: a field of a type, a value of a map.
    pub(crate) fn below(&self, key: &str) -> &Self {
        if let Self::Named(name, _) = self {
            field(name, key)
        } else if let Self::Map(value) = self {
            value
        } else {
            &Self::Any
        }
    }

    /// Whether this is one value, below which there is nothing.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::String | Self::OneOf(_) | Self::Int(_) | Self::Formatted(_) | Self::Bool | Self::IntOrString => true,
            Self::Any | Self::List(..) | Self::Map(_) | Self::Named(..) => false,
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
        "int32" => Shape::Int(Width::Int32),
        "int64" => Shape::Int(Width::Int64),
        "bytes" => Shape::Formatted(Format::Bytes),
        "time" => Shape::Formatted(Format::Time),
        "microtime" => Shape::Formatted(Format::MicroTime),
        "quantity" => Shape::Formatted(Format::Quantity),
        "bool" => Shape::Bool,
        "intstr" => Shape::IntOrString,
        "any" => Shape::Any,
        name => match name.strip_suffix('^') {
            Some(name) => Shape::Named(name, Retain::Named),
            None => Shape::Named(name, Retain::All),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{KindId, Kinds};

    #[test]
    fn every_name_in_the_table_has_a_row() {
        fn check(shape: &Shape) {
            if let Shape::Named(name, _) = shape {
                assert!(types().contains_key(name), "{name} is not in the table");
            } else if let Shape::List(inner, _) | Shape::Map(inner) = shape {
                check(inner);
            }
        }
        types().values().flat_map(|fields| fields.values()).for_each(check);
        for kind in Kinds::built_in().iter().map(KindId::description) {
            assert!(types().contains_key(&*kind.kind), "{} has no fields", kind.kind);
        }
    }
}
