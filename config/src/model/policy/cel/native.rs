//! Conditions that are evaluated without the interpreter: comparisons of texts of a request with constants.
//!
//! They give the results of the interpreter. It has three of them, too: an error beside `false` in a conjunction, or
//! beside `true` in a disjunction, is not seen.

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue};

use super::super::super::condition::Head;
use super::super::Attributes;
use super::EvaluationError;
use super::attribute::Attribute;
use super::bounds::{pattern_steps, read_steps, scan_steps};
use super::library::{MATCHES, Pattern};
use super::names::{Names, Use, Variable, literal};

/// A condition on a request.
#[derive(Debug)]
pub(super) enum Condition {
    Constant(bool),
    Present(Attribute),
    Compared(Attribute, Test),
    Not(Box<Self>),
    All(Box<[Self]>),
    Any(Box<[Self]>),
}

/// A test of a text.
#[derive(Debug)]
pub(super) enum Test {
    Equals(Box<str>),
    Differs(Box<str>),
    StartsWith(Box<str>),
    EndsWith(Box<str>),
    Contains(Box<str>),
    OneOf(Box<[Box<str>]>),
    Matches(Pattern),
}

impl Condition {
    /// The condition of an expression; `None` if it needs the interpreter.
    pub(super) fn of(expression: &IdedExpr, names: &Names) -> Option<Self> {
        match &expression.expr {
            Expr::Literal(LiteralValue::Boolean(value)) => Some(Self::Constant(*value.inner())),
            Expr::Ident(_) => match names.variable(expression)? {
                Variable { attribute, how: Use::Presence } => Some(Self::Present(attribute.clone())),
                Variable { how: Use::Value | Use::Optional, .. } => None,
            },
            Expr::Call(call) => Self::of_call(call, names),
            Expr::Literal(_)
            | Expr::Select(_)
            | Expr::Comprehension(_)
            | Expr::List(_)
            | Expr::Map(_)
            | Expr::Struct(_)
            | Expr::Unspecified => None,
        }
    }

    fn of_call(call: &CallExpr, names: &Names) -> Option<Self> {
        let operands = || call.args.iter().map(|one| Self::of(one, names)).collect::<Option<Vec<_>>>();
        match call.func_name.as_str() {
            "_&&_" => return Some(Self::All(operands()?.into())),
            "_||_" => return Some(Self::Any(operands()?.into())),
            "!_" => return Some(Self::Not(Box::new(operands()?.pop()?))),
            _ => {}
        }
        let operands: Vec<&IdedExpr> = call.target.as_deref().into_iter().chain(&call.args).collect();
        let [left, right] = operands.as_slice() else { return None };
        let constant = || literal(right).map(Box::<str>::from);
        let (of, test) = match (call.func_name.as_str(), call.target.is_some()) {
            (operator @ ("_==_" | "_!=_"), _) => {
                let (of, constant) = literal(right).map_or((right, literal(left)), |text| (left, Some(text)));
                let constant = constant?.into();
                (of, if operator == "_==_" { Test::Equals(constant) } else { Test::Differs(constant) })
            }
            ("startsWith", true) => (left, Test::StartsWith(constant()?)),
            ("endsWith", true) => (left, Test::EndsWith(constant()?)),
            ("contains", true) => (left, Test::Contains(constant()?)),
            (MATCHES, _) => (left, Test::Matches(names.pattern(right)?.clone())),
            ("@in", _) => {
                let Expr::List(list) = &right.expr else { return None };
                let texts = list.elements.iter().map(|one| literal(one).map(Box::from));
                let texts: Box<[Box<str>]> = texts.collect::<Option<_>>()?;
                // An optional element is none if it is no text.
                (left, list.optional_indices.is_empty().then_some(Test::OneOf(texts))?)
            }
            _ => return None,
        };
        Some(Self::Compared(text_of(of, names)?, test))
    }

    /// An upper limit of the steps of its evaluation.
    pub(super) fn steps(&self) -> u32 {
        match self {
            Self::Constant(_) => 0,
            Self::Present(_) => 1,
            Self::Compared(attribute, test) => {
                let of_test = match test {
                    Test::Contains(_) => scan_steps(attribute),
                    Test::Matches(pattern) => pattern_steps(&pattern.0),
                    Test::Equals(_) | Test::Differs(_) | Test::StartsWith(_) | Test::EndsWith(_) | Test::OneOf(_) => 0,
                };
                read_steps(attribute).saturating_add(of_test)
            }
            Self::Not(condition) => condition.steps(),
            Self::All(conditions) | Self::Any(conditions) => {
                conditions.iter().fold(0, |steps, condition| steps.saturating_add(condition.steps()))
            }
        }
    }

    /// Evaluates it for a request.
    ///
    /// # Errors
    /// If the request has not what it refers to, and the result depends on it.
    pub(super) fn holds<H: Head + ?Sized>(&self, attributes: &Attributes<'_, H>) -> Result<bool, EvaluationError> {
        match self {
            Self::Constant(value) => Ok(*value),
            Self::Present(attribute) => Ok(attribute.is_present(attributes)),
            Self::Compared(attribute, test) => {
                let passed = attribute.with_text(attributes, |text| test.passes(text));
                let passed = passed.ok_or_else(|| EvaluationError::absent(attribute))?;
                passed.ok_or_else(|| EvaluationError::too_long(attribute))
            }
            Self::Not(condition) => condition.holds(attributes).map(|holds| !holds),
            Self::All(conditions) => folded(conditions, false, attributes),
            Self::Any(conditions) => folded(conditions, true, attributes),
        }
    }
}

/// The result of a list of conditions, one of which decides by this result. Of several errors one by size is returned,
/// so that no other one hides it.
fn folded<H: Head + ?Sized>(
    conditions: &[Condition],
    decides: bool,
    attributes: &Attributes<'_, H>,
) -> Result<bool, EvaluationError> {
    let mut failed: Option<EvaluationError> = None;
    for condition in conditions {
        match condition.holds(attributes) {
            Ok(holds) if holds == decides => return Ok(decides),
            Ok(_) => {}
            Err(error) => failed = Some(failed.filter(EvaluationError::is_for_size).unwrap_or(error)),
        }
    }
    failed.map_or(Ok(!decides), Err)
}

/// The attribute of an expression, if it is a text.
pub(super) fn text_of(expression: &IdedExpr, names: &Names) -> Option<Attribute> {
    let Variable { attribute, how: Use::Value } = names.variable(expression)? else { return None };
    attribute.text_bytes_max().is_some().then(|| attribute.clone())
}

impl Test {
    /// `None` if the text is too long.
    fn passes(&self, text: &str) -> Option<bool> {
        Some(match self {
            Self::Equals(constant) => **constant == *text,
            Self::Differs(constant) => **constant != *text,
            Self::StartsWith(constant) => text.starts_with(&**constant),
            Self::EndsWith(constant) => text.ends_with(&**constant),
            Self::Contains(constant) => text.contains(&**constant),
            Self::OneOf(constants) => constants.iter().any(|constant| **constant == *text),
            Self::Matches(pattern) => return pattern.0.test(text.as_bytes()),
        })
    }
}
