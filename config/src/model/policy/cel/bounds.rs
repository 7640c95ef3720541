//! The bounds of expressions. They are programs of tenants in the path of every request, so one that could take long
//! is refused before it is used: by its size, and by an upper limit of the steps that it takes with the largest head.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue};

use super::super::super::expression::Expression;
use super::attribute::Attribute;
use super::json;
use super::library::{MATCHES, PARTS_MAX};
use super::names::{Names, Use, literal};

/// The maximum length of an expression in bytes.
pub(super) const SOURCE_BYTES_MAX: usize = 4 << 10;
/// The maximum number of nodes of an expression, with those that macros expand to.
const NODES_MAX: usize = 512;
/// The maximum number of levels of an expression: its evaluation recurses as deep.
pub(super) const DEPTH_MAX: usize = 32;
/// The maximum number of comprehensions within each other.
const COMPREHENSIONS_MAX: usize = 2;
/// The maximum number of steps of an evaluation. A step takes about 100 ns, so it is a few milliseconds at most.
const STEPS_MAX: f64 = 16_384.0;
/// The maximum size in bytes of a value.
const VALUE_BYTES_MAX: f64 = 1_048_576.0;

/// The bytes that a step reads where a text is searched or compared, and where it is read character by character.
const SEARCHED_BYTES: f64 = 256.0;
const READ_BYTES: f64 = 64.0;
/// The bytes that a step scans without the interpreter.
const SCANNED_BYTES: usize = 1024;
/// The steps of regular expressions that are one step here.
const PATTERN_STEPS: f64 = 50.0;
/// The size in bytes of a value that is neither a text nor made of others.
const SCALAR_BYTES: f64 = 32.0;

/// Checks the shape of an expression, without recursion. Further checks recurse.
///
/// # Errors
/// If it is too large.
pub(super) fn check_shape(expression: &IdedExpr) -> Result<(), String> {
    let mut open = vec![(expression, 1_usize, 0_usize)];
    let mut nodes = 0_usize;
    while let Some((one, depth, comprehensions)) = open.pop() {
        nodes += 1;
        if nodes > NODES_MAX {
            return Err(format!("it has more than {NODES_MAX} operations"));
        }
        if depth > DEPTH_MAX {
            return Err(format!("it is nested deeper than {DEPTH_MAX} levels"));
        }
        let mut below = |one, comprehensions| open.push((one, depth + 1, comprehensions));
        match &one.expr {
            Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
            Expr::Select(select) => below(&select.operand, comprehensions),
            Expr::Call(call) => {
                call.target.as_deref().into_iter().chain(&call.args).for_each(|one| below(one, comprehensions));
            }
            Expr::List(list) => list.elements.iter().for_each(|one| below(one, comprehensions)),
            Expr::Map(map) => parts(&map.entries).for_each(|one| below(one, comprehensions)),
            Expr::Struct(of) => parts(&of.entries).for_each(|one| below(one, comprehensions)),
            Expr::Comprehension(one) => {
                if comprehensions == COMPREHENSIONS_MAX {
                    return Err(format!("it has more than {COMPREHENSIONS_MAX} macros such as map within each other"));
                }
                below(&one.iter_range, comprehensions);
                below(&one.accu_init, comprehensions);
                below(&one.loop_cond, comprehensions + 1);
                below(&one.loop_step, comprehensions + 1);
                below(&one.result, comprehensions);
            }
        }
    }
    Ok(())
}

/// The expressions of entries.
fn parts(entries: &[IdedEntryExpr]) -> impl Iterator<Item = &IdedExpr> {
    entries
        .iter()
        .flat_map(|entry| match &entry.expr {
            EntryExpr::StructField(field) => [Some(&field.value), None],
            EntryExpr::MapEntry(entry) => [Some(&entry.key), Some(&entry.value)],
        })
        .flatten()
}

/// The number of steps of an expression that the interpreter evaluates.
///
/// # Errors
/// If there may be too many, or a value too large.
pub(super) fn cost(expression: &IdedExpr, names: &Names) -> Result<u32, String> {
    let mut measure = Measure { names, scope: Vec::new(), steps: 0.0, times: 1.0, largest: 0.0 };
    for variable in &names.variables {
        // A header is searched for among the lines of the head.
        let size = Size::of(&variable.attribute);
        measure.step(4.0 + size.bytes / SEARCHED_BYTES + size.elements);
    }
    measure.expression(expression);
    if measure.steps > STEPS_MAX {
        return Err(format!(
            "it may take {:.0} steps for the largest request; the limit is {STEPS_MAX}",
            measure.steps
        ));
    }
    if measure.largest > VALUE_BYTES_MAX {
        return Err(format!("it may make a value of {:.0} bytes; the limit is {VALUE_BYTES_MAX}", measure.largest));
    }
    Ok(whole(measure.steps))
}

#[allow(clippy::cast_precision_loss, reason = "an estimate")]
fn float(count: usize) -> f64 {
    count as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate, which is at most STEPS_MAX")]
fn whole(steps: f64) -> u32 {
    steps.ceil() as u32
}

/// The steps of an attribute that is read without the interpreter.
pub(super) fn read_steps(attribute: &Attribute) -> u32 {
    // These are searched for, decoded or put together.
    let is_made = matches!(attribute, Attribute::Header(_) | Attribute::Path);
    if is_made { 1 + scan_steps(attribute) } else { 1 }
}

/// The steps of a text that is scanned once without the interpreter.
pub(super) fn scan_steps(attribute: &Attribute) -> u32 {
    u32::try_from(attribute.text_bytes_max().unwrap_or_default() / SCANNED_BYTES).unwrap_or(u32::MAX)
}

/// The steps of a value below `auth` that is scanned once.
#[allow(clippy::cast_possible_truncation, reason = "a small constant")]
pub(super) const JSON_SCAN_STEPS: u32 = (json::BYTES_MAX / SCANNED_BYTES) as u32;

/// The steps of a pattern that is tried.
pub(in crate::model::policy) fn pattern_steps(pattern: &Expression) -> u32 {
    whole(price(pattern))
}

#[allow(clippy::cast_precision_loss, reason = "an estimate")]
fn price(pattern: &Expression) -> f64 {
    pattern.price() as f64 / PATTERN_STEPS
}

/// An upper limit of the size of a value.
#[derive(Clone, Copy)]
struct Size {
    /// Its bytes, with those of its parts.
    bytes: f64,
    /// Its elements, if it is a list or a map.
    elements: f64,
    /// The mean number of elements of the lists in it.
    within: f64,
}

const SCALAR: Size = Size { bytes: SCALAR_BYTES, elements: 0.0, within: 0.0 };

impl Size {
    /// An upper limit of the size of an attribute.
    fn of(attribute: &Attribute) -> Self {
        if matches!(attribute, Attribute::Auth(_)) {
            let (elements, texts) = (float(json::NODES_MAX), float(json::BYTES_MAX));
            // All values in it are counted together: if it has so many elements, these have none of their own.
            return Self { bytes: texts + elements * SCALAR_BYTES, elements, within: 1.0 };
        }
        attribute.text_bytes_max().map_or(SCALAR, |bytes| Self::text(float(bytes)))
    }

    const fn text(bytes: f64) -> Self {
        Self { bytes: SCALAR_BYTES + bytes, ..SCALAR }
    }

    /// One of several values.
    fn or(self, other: Self) -> Self {
        let Self { bytes, elements, within } = other;
        Self { bytes: self.bytes.max(bytes), elements: self.elements.max(elements), within: self.within.max(within) }
    }

    /// One element of it, which may be the largest part of it.
    const fn part(self) -> Self {
        let elements = if self.within > 0.0 { self.elements.max(self.within) } else { 0.0 };
        Self { elements, ..self }
    }

    /// An element of it of this size in bytes.
    const fn element(self, bytes: f64) -> Self {
        Self { bytes, elements: self.within, within: self.within }
    }
}

struct Measure<'a> {
    names: &'a Names,
    /// The variables of comprehensions.
    scope: Vec<(&'a str, Size)>,
    steps: f64,
    /// How often the current operation is evaluated.
    times: f64,
    largest: f64,
}

impl<'a> Measure<'a> {
    fn step(&mut self, steps: f64) {
        self.steps += self.times * steps;
    }

    fn made(&mut self, size: Size) -> Size {
        self.largest = self.largest.max(size.bytes);
        size
    }

    fn expression(&mut self, one: &'a IdedExpr) -> Size {
        self.step(1.0);
        match &one.expr {
            Expr::Ident(name) => self.ident(name, one),
            Expr::Literal(LiteralValue::String(text)) => Size::text(float(text.inner().len())),
            Expr::Literal(LiteralValue::Bytes(bytes)) => Size::text(float(bytes.inner().len())),
            Expr::Literal(_) | Expr::Unspecified => SCALAR,
            Expr::Select(select) => self.expression(&select.operand),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(one) => self.comprehension(one),
            Expr::List(list) => self.gather(list.elements.iter()),
            Expr::Map(map) => self.gather(parts(&map.entries)),
            Expr::Struct(of) => self.gather(parts(&of.entries)),
        }
    }

    fn ident(&self, name: &str, one: &IdedExpr) -> Size {
        if let Some((_, size)) = self.scope.iter().rev().find(|(known, _)| *known == name) {
            return *size;
        }
        match self.names.variable(one) {
            Some(variable) if variable.how == Use::Presence => SCALAR,
            Some(variable) => Size::of(&variable.attribute),
            None => SCALAR,
        }
    }

    /// A value that is made of others.
    fn gather(&mut self, parts: impl Iterator<Item = &'a IdedExpr>) -> Size {
        let mut size = SCALAR;
        for part in parts {
            let part = self.expression(part);
            size.bytes += part.bytes;
            size.elements += 1.0;
            size.within = size.within.max(part.elements).max(part.within);
        }
        // The parts are copied.
        self.step(size.bytes / SEARCHED_BYTES);
        self.made(size)
    }

    fn call(&mut self, call: &'a CallExpr) -> Size {
        let sizes: Vec<Size> =
            call.target.as_deref().into_iter().chain(&call.args).map(|one| self.expression(one)).collect();
        let bytes: f64 = sizes.iter().map(|size| size.bytes).sum();
        let elements: f64 = sizes.iter().map(|size| size.elements + size.within).sum();
        let any = sizes.iter().copied().fold(SCALAR, Size::or);
        let first = sizes.first().copied().unwrap_or(SCALAR);
        let second = sizes.get(1).copied().unwrap_or(SCALAR);
        match call.func_name.as_str() {
            "_&&_" | "_||_" | "!_" | "@not_strictly_false" | "hasValue" => SCALAR,
            "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "startsWith" | "endsWith" => {
                // The shorter text decides; lists are compared element by element.
                let compared = if elements > 0.0 { bytes } else { first.bytes.min(second.bytes) };
                self.step(compared / READ_BYTES + elements);
                SCALAR
            }
            "@in" => {
                self.step(second.bytes.min(first.bytes * (second.elements + 1.0)) / READ_BYTES + second.elements);
                SCALAR
            }
            "contains" => {
                self.step(bytes / SEARCHED_BYTES);
                SCALAR
            }
            MATCHES => {
                let price = call.args.get(1).and_then(|pattern| self.names.pattern(pattern)).map(|it| price(&it.0));
                self.step(price.unwrap_or_default() + bytes / SEARCHED_BYTES);
                SCALAR
            }
            "size" | "indexOf" | "lastIndexOf" => {
                self.step(bytes / READ_BYTES);
                SCALAR
            }
            "split" => {
                let parts = float(PARTS_MAX);
                self.step(bytes / SEARCHED_BYTES + parts);
                self.made(Size { bytes: first.bytes + parts * SCALAR_BYTES, elements: parts, within: 0.0 })
            }
            "join" => {
                self.step(bytes / SEARCHED_BYTES + first.elements);
                self.text(first.bytes + first.elements * second.bytes)
            }
            "replace" => {
                let to = sizes.get(2).copied().unwrap_or(SCALAR);
                let longer = replaced(call, first.bytes, to.bytes - SCALAR_BYTES);
                self.text(longer)
            }
            "string" | "bytes" => self.text(first.bytes * 2.0),
            "_?_:_" | "value" | "or" | "orValue" | "of" | "ofNonZeroValue" => any,
            "_[_]" | "_[?_]" | "_?._" => first.part(),
            _ => {
                self.step(bytes / READ_BYTES);
                self.made(Size { bytes, elements: first.elements + second.elements, within: any.within })
            }
        }
    }

    /// A text that is written.
    fn text(&mut self, bytes: f64) -> Size {
        self.step(bytes / READ_BYTES);
        self.made(Size { bytes, ..SCALAR })
    }

    fn comprehension(&mut self, one: &'a ComprehensionExpr) -> Size {
        let range = self.expression(&one.iter_range);
        let start = self.expression(&one.accu_init);
        // A range without elements is priced as if it had one.
        let rounds = range.elements.max(1.0);
        // Costs are proportional to sizes, so that the mean size gives their sum.
        let element = range.element(SCALAR_BYTES + range.bytes / rounds);
        let before = self.scope.len();
        self.scope.push((&one.iter_var, element));
        self.scope.extend(one.iter_var2.as_deref().map(|name| (name, element)));
        // The growth in a round is the result of a step on an empty value.
        self.scope.push((&one.accu_var, Size { bytes: 0.0, ..SCALAR }));
        let times = self.times;
        self.times *= rounds;
        // The element is copied.
        self.step(1.0 + element.bytes / SEARCHED_BYTES);
        self.expression(&one.loop_cond);
        let added = self.expression(&one.loop_step);
        self.times = times;
        self.scope.truncate(before);
        let made = self.made(Size {
            bytes: start.bytes + added.bytes * rounds,
            elements: start.elements + added.elements * rounds,
            within: start.within.max(added.within),
        });
        self.scope.push((&one.accu_var, made));
        let result = self.expression(&one.result);
        self.scope.truncate(before);
        result
    }
}

/// The length of a text after its parts are replaced.
fn replaced(call: &CallExpr, bytes: f64, to: f64) -> f64 {
    match call.args.first().and_then(literal).map(str::len) {
        Some(from) if from > 0 => bytes * (to / float(from)).max(1.0),
        Some(_) | None => bytes + (bytes + 1.0) * to,
    }
}
