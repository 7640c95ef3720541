//! An upper bound of the cost of an evaluation, from the expression and the sizes of the values that it is about. The
//! library has no limit of its own; an evaluation that could cost too much is not begun.

use std::collections::BTreeMap;
use std::rc::Rc;

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, LiteralValue};
use serde_json::Value;

use super::names::entries;

/// Bytes of a value in between; a chain of calls can make long texts of short ones.
const BYTES_MAX: f64 = 8_388_608.0;

/// Bytes of a value that has no length, and of its place in a list.
const VALUE_BYTES: f64 = 32.0;

/// The maximum length of a format's message about a text, without the text.
const VALIDATE_BYTES: f64 = 2_048.0;

/// The numbers that `lists.range` makes at most, whatever it is asked for.
const RANGE_MAX: f64 = 1_000_000.0;

/// The known facts about a value before it exists.
#[derive(Clone)]
enum Known<'a> {
    /// It is one of these values of the object.
    OneOf(Rc<[&'a Value]>),
    /// It has at most so many bytes, and no list, map or text in it is longer.
    Within { bytes: f64, length: f64 },
}

/// The steps of the conversion of a value: one for each value in it, and more for long texts.
pub(super) fn conversion(value: &Value) -> f64 {
    sizes(value).0 / VALUE_BYTES
}

/// The steps that an expression takes at most, in the unit of one call; `None` if a value could become too large, or if
/// there are more steps than `most`: then it is not looked at to its end.
pub(super) fn bound(expression: &IdedExpr, object: &Value, old: Option<&Value>, most: f64) -> Option<f64> {
    let mut measure = Measure { scope: BTreeMap::new(), steps: 0.0, most, times: 1.0, fits: true };
    measure.scope.insert("self", Known::OneOf([object].into()));
    measure.scope.insert("oldSelf", Known::OneOf([old.unwrap_or(&Value::Null)].into()));
    measure.expression(expression);
    (measure.fits && measure.steps <= most).then_some(measure.steps)
}

struct Measure<'a> {
    scope: BTreeMap<&'a str, Known<'a>>,
    steps: f64,
    most: f64,
    /// How often what is looked at is evaluated.
    times: f64,
    fits: bool,
}

#[allow(clippy::cast_precision_loss, reason = "an estimate")]
fn float(count: usize) -> f64 {
    count as f64
}

/// Bytes of a value, and the longest of the lists, maps and texts in it.
fn sizes(value: &Value) -> (f64, f64) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => (16.0, 1.0),
        Value::String(text) => (16.0 + float(text.len()), float(text.len())),
        Value::Array(list) => all(list.len(), list.iter().map(sizes)),
        Value::Object(fields) => {
            let keys: f64 = fields.keys().map(|key| float(key.len())).sum();
            let (bytes, length) = all(fields.len(), fields.values().map(sizes));
            let longest_key = fields.keys().map(|key| float(key.len())).fold(0.0, f64::max);
            (bytes + keys, length.max(longest_key))
        }
    }
}

fn all(count: usize, sizes: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    sizes.fold((16.0, float(count)), |(bytes, length), (more, longest)| (bytes + more + 16.0, length.max(longest)))
}

fn length(value: &Value) -> f64 {
    match value {
        Value::Array(list) => float(list.len()),
        Value::Object(fields) => float(fields.len()),
        Value::String(text) => float(text.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1.0,
    }
}

impl<'a> Known<'a> {
    fn bytes(&self) -> f64 {
        self.sizes().0
    }

    fn length(&self) -> f64 {
        match self {
            Self::OneOf(values) => values.iter().map(|value| length(value)).fold(0.0, f64::max),
            Self::Within { length, .. } => *length,
        }
    }

    fn sizes(&self) -> (f64, f64) {
        match self {
            Self::OneOf(values) => values
                .iter()
                .map(|value| sizes(value))
                .fold((0.0, 0.0), |(bytes, length), one| (f64::max(bytes, one.0), f64::max(length, one.1))),
            Self::Within { bytes, length } => (*bytes, *length),
        }
    }

    /// An element of it.
    fn element(&self) -> Self {
        let within = |value: &'a Value| -> Vec<&'a Value> {
            match value {
                Value::Array(list) => list.iter().collect(),
                Value::Object(fields) => fields.values().collect(),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
            }
        };
        match self {
            Self::OneOf(values) => Self::OneOf(values.iter().flat_map(|value| within(value)).collect()),
            Self::Within { .. } => self.clone(),
        }
    }

    /// A key of it, or an index.
    fn key(&self) -> Self {
        let longest = |value: &&'a Value| match value {
            Value::Object(fields) => fields.keys().map(|key| float(key.len())).fold(1.0, f64::max),
            Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1.0,
        };
        match self {
            Self::OneOf(values) => {
                let length = values.iter().map(longest).fold(1.0, f64::max);
                Self::Within { bytes: 16.0 + length, length }
            }
            Self::Within { .. } => self.clone(),
        }
    }

    /// Whether it may be a map: a loop goes over its keys.
    fn may_be_map(&self) -> bool {
        matches!(self, Self::OneOf(values) if values.iter().any(|value| value.is_object()))
    }
}

/// Whether a function is of the group of this name, as `sets.contains` is.
fn is_of(call: &CallExpr, group: &str) -> bool {
    matches!(call.target.as_deref().map(|target| &target.expr), Some(Expr::Ident(name)) if name == group)
}

const SMALL: Known<'static> = Known::Within { bytes: 16.0, length: 1.0 };

impl<'a> Measure<'a> {
    fn step(&mut self, steps: f64) {
        self.steps += self.times * steps;
    }

    fn within(&mut self, bytes: f64, length: f64) -> Known<'a> {
        self.fits &= bytes <= BYTES_MAX;
        Known::Within { bytes, length }
    }

    fn expression(&mut self, one: &'a IdedExpr) -> Known<'a> {
        self.step(1.0);
        if self.steps > self.most {
            return SMALL;
        }
        match &one.expr {
            Expr::Ident(name) => self.scope.get(name.as_str()).cloned().unwrap_or(SMALL),
            Expr::Literal(LiteralValue::String(text)) => {
                let length = float(text.inner().len());
                self.within(16.0 + length, length)
            }
            Expr::Literal(_) | Expr::Unspecified => SMALL,
            Expr::Select(select) => {
                let of = self.expression(&select.operand);
                let Known::OneOf(values) = &of else { return of };
                let below: Rc<[&Value]> = values.iter().filter_map(|value| value.get(&select.field)).collect();
                if !below.is_empty() {
                    return Known::OneOf(below);
                }
                // A field that is not there by this name has another in the object, or none.
                let (bytes, length) = of.sizes();
                self.within(bytes, length)
            }
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(one) => self.comprehension(one),
            Expr::List(list) => self.gather(list.elements.iter()),
            Expr::Map(map) => self.gather(map.entries.iter().flat_map(|entry| entries(&entry.expr))),
            Expr::Struct(one) => self.gather(one.entries.iter().flat_map(|entry| entries(&entry.expr))),
        }
    }

    /// A value that is made of others.
    fn gather(&mut self, parts: impl Iterator<Item = &'a IdedExpr>) -> Known<'a> {
        let (mut bytes, mut length, mut count) = (16.0, 0.0_f64, 0.0);
        for part in parts {
            let (more, longest) = self.expression(part).sizes();
            bytes += more + 16.0;
            length = length.max(longest);
            count += 1.0;
        }
        self.within(bytes, length.max(count))
    }

    fn call(&mut self, call: &'a CallExpr) -> Known<'a> {
        let known: Vec<Known<'a>> =
            call.target.as_deref().into_iter().chain(&call.args).map(|one| self.expression(one)).collect();
        let bytes: f64 = known.iter().map(|one| one.bytes()).sum();
        let longest = known.iter().map(|one| one.sizes().1).fold(0.0, f64::max);
        // Looking at a value takes as long as it is; a text is looked at ten bytes at once.
        self.step(bytes / 10.0);
        let first = known.first().cloned().unwrap_or(SMALL);
        match call.func_name.as_str() {
            "contains" if is_of(call, "sets") => {
                self.step(longest * bytes / 10.0);
                SMALL
            }
            "_&&_" | "_||_" | "!_" | "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "size" | "startsWith"
            | "endsWith" | "contains" | "isIP" | "isCIDR" | "isURL" | "isSemver" | "isQuantity" | "hasValue"
            | "indexOf" | "lastIndexOf" | "isSorted" | "containsIP" | "containsCIDR" => SMALL,
            "sets.contains" | "sets.equivalent" | "sets.intersects" | "equivalent" | "intersects" | "distinct" => {
                // Each element is compared with all others.
                self.step(longest * bytes / 10.0);
                self.within(first.bytes(), first.length())
            }
            "sort" | "@sortByAssociatedKeys" => {
                self.step(longest.max(2.0).log2() * bytes / 10.0);
                self.within(first.bytes(), first.length())
            }
            "flatten" => self.within(bytes, bytes / 16.0),
            "lists.range" | "range" => {
                let count = self.count(call);
                self.step(count);
                self.within(32.0 * count, count)
            }
            "validate" => self.within(bytes + VALIDATE_BYTES, bytes + VALIDATE_BYTES),
            "matches" | "find" => {
                // A pattern is run in a time that is linear in the text.
                self.step(bytes);
                self.within(first.bytes(), first.length())
            }
            "_[_]" | "_[?_]" => first.element(),
            "_?._" => {
                let (bytes, length) = first.sizes();
                self.within(bytes, length)
            }
            "replace" => {
                let by = known.iter().skip(1).map(|one| one.length()).sum::<f64>();
                let length = (first.length() + 1.0) * (by + 1.0);
                self.step(length / 10.0);
                self.within(length + 16.0, length)
            }
            "join" => {
                let length = bytes + first.length() * known.get(1).map_or(0.0, |one| one.length());
                self.within(length, length)
            }
            "findAll" => {
                self.step(bytes);
                let count = first.length() + 1.0;
                self.within(first.bytes() + 64.0 * count, count)
            }
            "split" | "getQuery" => {
                let count = first.length() + 1.0;
                self.within(first.bytes() + 64.0 * count, count)
            }
            "format" | "quote" | "strings.quote" | "string" => self.within(bytes * 8.0, bytes * 8.0),
            "_+_" => self.within(bytes, known.iter().map(|one| one.length()).sum::<f64>().max(longest)),
            _ => self.within(bytes, longest),
        }
    }

    /// How many numbers `lists.range` makes at most.
    fn count(&mut self, call: &'a CallExpr) -> f64 {
        match call.args.first().map(|count| &count.expr) {
            #[allow(clippy::cast_precision_loss, reason = "an estimate")]
            Some(Expr::Literal(LiteralValue::Int(count))) => (*count.inner() as f64).clamp(0.0, RANGE_MAX),
            Some(Expr::Call(size)) if size.func_name == "size" => {
                let sized = size.target.as_deref().or(size.args.first());
                sized.map_or(0.0, |sized| self.expression(sized).length())
            }
            Some(_) | None => RANGE_MAX,
        }
    }

    fn comprehension(&mut self, one: &'a ComprehensionExpr) -> Known<'a> {
        let range = self.expression(&one.iter_range);
        let start = self.expression(&one.accu_init);
        let rounds = range.length();
        let (_, length) = range.sizes();
        let outer = self.scope.clone();
        // With two variables the first is the key or the index; with one it is the element of a list, and the key of a
        // map.
        match &one.iter_var2 {
            Some(second) => {
                self.scope.insert(&one.iter_var, range.key());
                self.scope.insert(second, range.element());
            }
            None => {
                let element = if range.may_be_map() { range.key() } else { range.element() };
                self.scope.insert(&one.iter_var, element);
            }
        }
        // The growth in a round is the result of a step on an empty value.
        self.scope.insert(&one.accu_var, Known::Within { bytes: 0.0, length: 0.0 });
        let before = self.times;
        self.times *= rounds;
        self.expression(&one.loop_cond);
        let added = self.expression(&one.loop_step).bytes();
        self.times = before;
        self.scope = outer;
        let made = self.within(start.bytes() + added * rounds, rounds.max(start.length()).max(length));
        self.scope.insert(&one.accu_var, made);
        let result = self.expression(&one.result);
        self.scope.remove(one.accu_var.as_str());
        result
    }
}
