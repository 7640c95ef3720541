//! Expressions that the interpreter evaluates.

use cel::common::ast::IdedExpr;
use cel::common::types::{CelBool, CelDouble, CelInt, CelOptional, CelString, CelTimestamp, CelUInt};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::{Context, ExecutionError, Value};
use chrono::{DateTime, Utc};

use super::super::super::condition::Head;
use super::super::Attributes;
use super::EvaluationError;
use super::attribute::{Attribute, Scalar, TEXT_BYTES_MAX};
use super::json;
use super::library::{Oversize, env, note_oversize, take_oversize};
use super::names::{Names, Use, Variable};
use crate::caught::caught;

/// An expression with what it refers to.
#[derive(Debug)]
pub(super) struct Program {
    expression: IdedExpr,
    names: Names,
}

impl Program {
    pub(super) const fn new(expression: IdedExpr, names: Names) -> Self {
        Self { expression, names }
    }

    /// Evaluates it, and reads the result.
    ///
    /// # Errors
    /// If it has none for this request.
    pub(super) fn evaluate<H: Head + ?Sized, T>(
        &self,
        attributes: &Attributes<'_, H>,
        read: impl FnOnce(&dyn Val) -> Result<T, EvaluationError>,
    ) -> Result<T, EvaluationError> {
        let values = Values::of(&self.names, attributes);
        take_oversize();
        let evaluate = || {
            let mut context = Context::with_env(env());
            context.set_variable_resolver(&values);
            let value = Value::resolve_val(&self.expression, &context);
            read(&*value.map_err(|error| self.failure(error))?)
        };
        // What makes it panic comes from the client.
        let result = caught(evaluate).unwrap_or_else(|_| Err(EvaluationError::too_large("the interpreter panicked")));
        result.map_err(|error| self.oversize().unwrap_or(error))
    }

    /// What was too large, whichever error the interpreter has returned.
    fn oversize(&self) -> Option<EvaluationError> {
        Some(match take_oversize()? {
            Oversize::Variable(place) => EvaluationError::too_long(&self.names.variables.get(place)?.attribute),
            Oversize::Matched => EvaluationError::too_large("a text is too long for matches"),
            Oversize::Parts => EvaluationError::too_large("a text has too many parts for split"),
        })
    }

    /// The reason of an error, without values of the request, which may be secrets.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the library may add errors; each is one of types")]
    fn failure(&self, error: ExecutionError) -> EvaluationError {
        match error {
            ExecutionError::UndeclaredReference(name) => {
                let place = name.strip_prefix('@').and_then(|place| place.parse::<usize>().ok());
                match place.and_then(|place| self.names.variables.get(place)) {
                    Some(Variable { attribute, .. }) => EvaluationError::absent(attribute),
                    None => EvaluationError::failed(format!("there is no {name}")),
                }
            }
            ExecutionError::NoSuchOverload(error) => EvaluationError::failed(error.to_string()),
            ExecutionError::UnexpectedType { got, want } => {
                EvaluationError::failed(format!("a value is of type {got}, and not {want}"))
            }
            ExecutionError::NoSuchKey(_) => EvaluationError::failed("a map has no such key"),
            ExecutionError::IndexOutOfBounds(_) => EvaluationError::failed("an index is out of bounds"),
            ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
                EvaluationError::failed("a division by zero")
            }
            ExecutionError::Overflow(..) => EvaluationError::too_large("an overflow"),
            ExecutionError::FunctionError { function, .. } => {
                EvaluationError::failed(format!("{function} has no result for these values"))
            }
            _ => EvaluationError::failed("a function or operator is not for values like these"),
        }
    }
}

/// The attributes that an expression refers to, of one request. They borrow it where they can.
#[derive(Debug)]
struct Values<'a> {
    names: &'a Names,
    values: Vec<Held<'a>>,
}

#[derive(Debug)]
enum Held<'a> {
    /// The request does not have it.
    Absent,
    /// A text that is longer than expressions are evaluated with. It is an error where it is used.
    TooLong,
    Text(CelString<'a>),
    Int(CelInt),
    Bool(CelBool),
    Time(CelTimestamp),
    Optional(CelOptional<'a>),
    Json(Box<dyn Val + 'a>),
}

impl<'a> Values<'a> {
    fn of<H: Head + ?Sized>(names: &'a Names, attributes: &Attributes<'a, H>) -> Self {
        Self { names, values: names.variables.iter().map(|variable| Held::of(variable, attributes)).collect() }
    }
}

impl<'a> Held<'a> {
    fn of<H: Head + ?Sized>(variable: &Variable, attributes: &Attributes<'a, H>) -> Self {
        let Variable { attribute, how } = variable;
        if *how == Use::Presence {
            return Self::Bool(attribute.is_present(attributes).into());
        }
        let value = match attribute.json(attributes) {
            Some(value) => json::to_cel(value).map_or(Self::TooLong, Self::Json),
            None => Self::of_request(attribute, attributes),
        };
        match (how, value) {
            (Use::Value | Use::Presence, value) | (Use::Optional, value @ Self::TooLong) => value,
            (Use::Optional, value) => Self::Optional(CelOptional::from(value.into_val())),
        }
    }

    fn of_request<H: Head + ?Sized>(attribute: &Attribute, attributes: &Attributes<'a, H>) -> Self {
        match attribute.text(attributes) {
            Some(text) if text.len() > TEXT_BYTES_MAX => Self::TooLong,
            Some(text) => Self::Text(CelString::from(text)),
            None => match attribute.scalar(attributes) {
                Some(Scalar::Int(number)) => Self::Int(number.into()),
                Some(Scalar::Bool(value)) => Self::Bool(value.into()),
                Some(Scalar::Time(time)) => Self::Time(DateTime::<Utc>::from(time).fixed_offset().into()),
                None => Self::Absent,
            },
        }
    }

    fn into_val(self) -> Option<Box<dyn Val + 'a>> {
        Some(match self {
            Self::Absent | Self::TooLong => return None,
            Self::Text(value) => Box::new(value),
            Self::Int(value) => Box::new(value),
            Self::Bool(value) => Box::new(value),
            Self::Time(value) => Box::new(value),
            Self::Optional(value) => Box::new(value),
            Self::Json(value) => value,
        })
    }

    fn as_val(&self) -> Option<&(dyn Val + 'a)> {
        Some(match self {
            Self::Absent | Self::TooLong => return None,
            Self::Text(value) => value,
            Self::Int(value) => value,
            Self::Bool(value) => value,
            Self::Time(value) => value,
            Self::Optional(value) => value,
            Self::Json(value) => &**value,
        })
    }
}

impl VariableResolver for Values<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let name = variable.strip_prefix('@')?;
        let value: &'b (dyn Val + 'b) = match name.strip_prefix('p') {
            Some(place) => self.names.patterns.get(place.parse::<usize>().ok()?)?,
            None => {
                let place = name.parse::<usize>().ok()?;
                let held = self.values.get(place)?;
                if matches!(held, Held::TooLong) {
                    note_oversize(Oversize::Variable(place));
                }
                held.as_val()?
            }
        };
        Some(CowVal::Borrowed(value))
    }
}

/// A result that must be true or false.
pub(super) fn truth(value: &dyn Val) -> Result<bool, EvaluationError> {
    let value = value.downcast_ref::<CelBool>().map(|value| *value.inner());
    value.ok_or_else(|| EvaluationError::failed("the result is neither true nor false"))
}

/// A result as text: of texts, numbers and truth values.
pub(super) fn text(value: &dyn Val) -> Result<String, EvaluationError> {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return Ok(text.inner().to_owned());
    }
    let text = (value.downcast_ref::<CelInt>().map(|value| value.inner().to_string()))
        .or_else(|| value.downcast_ref::<CelUInt>().map(|value| value.inner().to_string()))
        .or_else(|| value.downcast_ref::<CelDouble>().map(|value| value.inner().to_string()))
        .or_else(|| value.downcast_ref::<CelBool>().map(|value| value.inner().to_string()));
    text.ok_or_else(|| EvaluationError::failed("the result is neither a text nor a number, true or false"))
}
