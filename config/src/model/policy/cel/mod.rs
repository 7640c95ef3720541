//! Expressions of policies, in the Common Expression Language.
//!
//! They are programs of tenants in the path of every request. The `cel` crate parses and evaluates them; it checks no
//! names and bounds no costs. So `names` refuses references to what does not exist, `bounds` refuses what could take
//! long, `library` has functions without traps, and `native` evaluates plain comparisons without the interpreter.
//! [docs/expressions.md](../../../../../docs/expressions.md) is about all of them.

mod attribute;
mod bounds;
mod json;
mod library;
mod names;
mod native;
mod program;
mod selector;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use attribute::Attribute;
pub(super) use bounds::pattern_steps;
use cel::common::ast::IdedExpr;
use cel::parser::PrattParser;
use names::Names;
use native::Condition;
use program::Program;
pub use selector::Selector;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::super::condition::Head;
use super::super::expression::Expression;
use super::Attributes;
use crate::caught::caught;

/// A condition of a policy: an expression that is true or false for a request.
#[derive(Clone, Debug)]
pub struct Predicate(Arc<Compiled<Condition>>);

/// An expression of a policy with a value for each request.
#[derive(Clone, Debug)]
pub struct ValueExpression(Arc<Compiled<Attribute>>);

/// An expression; `N` is its form without the interpreter.
#[derive(Debug)]
struct Compiled<N> {
    source: Box<str>,
    reads_identity: bool,
    steps: u32,
    patterns: Box<[Expression]>,
    headers: Box<[Arc<str>]>,
    metadata: Metadata,
    form: Form<N>,
}

/// The rules of metadata whose results an expression reads.
#[derive(Debug)]
enum Metadata {
    /// Those of these names.
    Named(Box<[Box<str>]>),
    /// Any, because it reads all of them at once.
    Any,
}

impl Metadata {
    fn of<'a>(attributes: impl Iterator<Item = &'a Attribute>) -> Self {
        let mut named = Vec::new();
        for attribute in attributes {
            match attribute.metadata() {
                None => {}
                Some(Some(rule)) => named.push(rule.into()),
                Some(None) => return Self::Any,
            }
        }
        Self::Named(named.into())
    }

    fn has(&self, rule: &str) -> bool {
        match self {
            Self::Named(named) => named.iter().any(|own| **own == *rule),
            Self::Any => true,
        }
    }
}

#[derive(Debug)]
enum Form<N> {
    Native(N),
    Interpreted(Program),
}

/// Why an expression has no result for a request. Its text does not quote the request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvaluationError(Reason);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Reason {
    Absent(Attribute),
    TooLong(Attribute),
    TooLarge(&'static str),
    Failed(Cow<'static, str>),
}

impl Predicate {
    /// Compiles an expression.
    ///
    /// # Errors
    /// Returns the reason why it cannot be used, for its author.
    pub fn new(source: &str) -> Result<Self, String> {
        Self::with_patterns(source, |_| Ok(()))
    }

    /// The same; `keep` may replace each of its patterns by an equal one, or refuse it.
    ///
    /// # Errors
    /// Returns the reason why it cannot be used, for its author.
    pub fn with_patterns(
        source: &str,
        keep: impl FnMut(&mut Expression) -> Result<(), String>,
    ) -> Result<Self, String> {
        let compiled = Compiled::new(source, keep, Condition::of, Condition::steps)?;
        Ok(Self(Arc::new(compiled)))
    }

    /// The patterns of its `matches`.
    #[must_use]
    pub fn patterns(&self) -> &[Expression] {
        &self.0.patterns
    }

    /// The names of the headers that it reads, in lower case.
    #[must_use]
    pub fn headers(&self) -> &[Arc<str>] {
        &self.0.headers
    }

    /// Returns `true` if it reads what this rule of metadata has fetched.
    #[must_use]
    pub fn reads_metadata(&self, rule: &str) -> bool {
        self.0.metadata.has(rule)
    }

    /// The text of the expression.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// An upper limit of the steps of an evaluation, each of about 0.1 µs.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.0.steps
    }

    /// Returns `true` if it refers to the identity of the client (`auth`).
    #[must_use]
    pub fn reads_identity(&self) -> bool {
        self.0.reads_identity
    }

    /// Evaluates it for a request.
    ///
    /// # Errors
    /// If it has no result, as when it depends on a header that the request does not have.
    pub fn holds<H: Head + ?Sized>(&self, attributes: &Attributes<'_, H>) -> Result<bool, EvaluationError> {
        match &self.0.form {
            Form::Native(condition) => condition.holds(attributes),
            Form::Interpreted(program) => program.evaluate(attributes, program::truth),
        }
    }
}

impl ValueExpression {
    /// Compiles an expression.
    ///
    /// # Errors
    /// Returns the reason why it cannot be used, for its author.
    pub fn new(source: &str) -> Result<Self, String> {
        Self::with_patterns(source, |_| Ok(()))
    }

    /// The same; `keep` may replace each of its patterns by an equal one, or refuse it.
    ///
    /// # Errors
    /// Returns the reason why it cannot be used, for its author.
    pub fn with_patterns(
        source: &str,
        keep: impl FnMut(&mut Expression) -> Result<(), String>,
    ) -> Result<Self, String> {
        let compiled = Compiled::new(source, keep, native::text_of, |attribute| {
            // The value is read to find its counter.
            bounds::read_steps(attribute) + bounds::scan_steps(attribute)
        })?;
        Ok(Self(Arc::new(compiled)))
    }

    /// The patterns of its `matches`.
    #[must_use]
    pub fn patterns(&self) -> &[Expression] {
        &self.0.patterns
    }

    /// The names of the headers that it reads, in lower case.
    #[must_use]
    pub fn headers(&self) -> &[Arc<str>] {
        &self.0.headers
    }

    /// Returns `true` if it reads what this rule of metadata has fetched.
    #[must_use]
    pub fn reads_metadata(&self, rule: &str) -> bool {
        self.0.metadata.has(rule)
    }

    /// The text of the expression.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// An upper limit of the steps of an evaluation, each of about 0.1 µs.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.0.steps
    }

    /// Returns `true` if it refers to the identity of the client (`auth`).
    #[must_use]
    pub fn reads_identity(&self) -> bool {
        self.0.reads_identity
    }

    /// Its value for a request: a text as it is, numbers and truth values in their usual text.
    ///
    /// # Errors
    /// If it has none, as when it depends on a header that the request does not have, or if it is null, a list, a map,
    /// bytes, a time or a duration.
    pub fn value<'a, H: Head + ?Sized>(&self, attributes: &Attributes<'a, H>) -> Result<Cow<'a, str>, EvaluationError> {
        match &self.0.form {
            Form::Native(attribute) => attribute.text(attributes).ok_or_else(|| EvaluationError::absent(attribute)),
            Form::Interpreted(program) => program.evaluate(attributes, program::text).map(Cow::Owned),
        }
    }

    /// The result of a function of its value, without an allocation if the expression is one attribute.
    ///
    /// # Errors
    /// As of [`Self::value`].
    pub fn with_value<H: Head + ?Sized, T>(
        &self,
        attributes: &Attributes<'_, H>,
        read: impl FnOnce(&str) -> T,
    ) -> Result<T, EvaluationError> {
        match &self.0.form {
            Form::Native(attribute) => {
                attribute.with_text(attributes, read).ok_or_else(|| EvaluationError::absent(attribute))
            }
            Form::Interpreted(program) => program.evaluate(attributes, program::text).map(|text| read(&text)),
        }
    }

    /// Its value for a request as JSON.
    ///
    /// # Errors
    /// If it has none, as when it depends on a header that the request does not have, or if it is of a type that JSON
    /// does not have.
    pub fn json<H: Head + ?Sized>(&self, attributes: &Attributes<'_, H>) -> Result<Value, EvaluationError> {
        match &self.0.form {
            Form::Native(_) => self.value(attributes).map(|text| text.into_owned().into()),
            Form::Interpreted(program) => program.evaluate(attributes, json::of_cel),
        }
    }
}

impl<N> Compiled<N> {
    fn new(
        source: &str,
        keep: impl FnMut(&mut Expression) -> Result<(), String>,
        native: impl FnOnce(&IdedExpr, &Names) -> Option<N>,
        native_steps: impl FnOnce(&N) -> u32,
    ) -> Result<Self, String> {
        let (expression, mut names, steps) = compile(source)?;
        names.patterns.iter_mut().map(|pattern| &mut pattern.0).try_for_each(keep)?;
        let patterns = names.patterns.iter().map(|pattern| pattern.0.clone()).collect();
        let headers = names.variables.iter().filter_map(|variable| variable.attribute.header().cloned()).collect();
        let metadata = Metadata::of(names.variables.iter().map(|variable| &variable.attribute));
        let reads_identity = names.reads_identity;
        let native = native(&expression, &names);
        let steps = native.as_ref().map_or(steps, native_steps);
        let form = native.map_or_else(|| Form::Interpreted(Program::new(expression, names)), Form::Native);
        Ok(Self { source: source.into(), reads_identity, steps, patterns, headers, metadata, form })
    }
}

/// Parses an expression, and checks that it can be evaluated. Returns the steps that this may take, too.
fn compile(source: &str) -> Result<(IdedExpr, Names, u32), String> {
    if source.len() > bounds::SOURCE_BYTES_MAX {
        return Err(format!("it is longer than {} bytes", bounds::SOURCE_BYTES_MAX));
    }
    // A fault of the library is an expression that cannot be used.
    let mut expression = caught(|| parse(source)).unwrap_or_else(|_| Err("it cannot be parsed".to_owned()))?;
    bounds::check_shape(&expression)?;
    let names = Names::of(&mut expression)?;
    let steps = bounds::cost(&expression, &names)?;
    Ok((expression, names, steps))
}

fn parse(source: &str) -> Result<IdedExpr, String> {
    // An operator within another one is two levels of the parser.
    let depth = u16::try_from(bounds::DEPTH_MAX).unwrap_or(u16::MAX);
    let parser = PrattParser::new().enable_optional_syntax(true).max_recursion_depth(depth);
    parser.parse(source).map_err(|errors| match errors.errors.first() {
        Some(error) if error.pos.0 > 0 => format!("line {}, column {}: {}", error.pos.0, error.pos.1, error.msg),
        Some(error) => error.msg.clone(),
        None => "it cannot be parsed".to_owned(),
    })
}

impl EvaluationError {
    fn absent(attribute: &Attribute) -> Self {
        Self(Reason::Absent(attribute.clone()))
    }

    fn too_long(attribute: &Attribute) -> Self {
        Self(Reason::TooLong(attribute.clone()))
    }

    fn too_large(why: &'static str) -> Self {
        Self(Reason::TooLarge(why))
    }

    /// Returns `true` if what the client sent is too large for the expression: a text is too long, it has too many
    /// parts, or a number is too large. Without that, the request has not what the expression refers to, or it is of
    /// another type. Any client can make a request larger without changing what it asks for, so a failure by size must
    /// not free it from anything.
    #[must_use]
    pub const fn is_for_size(&self) -> bool {
        match self.0 {
            Reason::TooLong(_) | Reason::TooLarge(_) => true,
            Reason::Absent(_) | Reason::Failed(_) => false,
        }
    }

    fn failed(why: impl Into<Cow<'static, str>>) -> Self {
        Self(Reason::Failed(why.into()))
    }
}

impl fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Reason::Absent(attribute) => write!(f, "the request has no {attribute}"),
            Reason::TooLong(attribute) => write!(f, "{attribute} is too long"),
            Reason::TooLarge(why) => f.write_str(why),
            Reason::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for EvaluationError {}

macro_rules! by_source {
    ($name:ident) => {
        /// Expressions with the same text are equal.
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.source() == other.source()
            }
        }

        impl Eq for $name {}

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.source())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.source())
            }
        }
    };
}

by_source!(Predicate);
by_source!(ValueExpression);
