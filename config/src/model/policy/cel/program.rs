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
use super::attribute::{Scalar, TEXT_BYTES_MAX};
use super::library::env;
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
        let values = Values::of(&self.names, attributes)?;
        let evaluate = || {
            let mut context = Context::with_env(env());
            context.set_variable_resolver(&values);
            let value = Value::resolve_val(&self.expression, &context);
            read(&*value.map_err(|error| self.failure(error))?)
        };
        caught(evaluate).unwrap_or_else(|_| Err(EvaluationError::failed("the interpreter panicked")))
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
            ExecutionError::Overflow(..) => EvaluationError::failed("an overflow"),
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
    /// `None` for those that the request does not have.
    values: Vec<Option<Held<'a>>>,
}

#[derive(Debug)]
enum Held<'a> {
    Text(CelString<'a>),
    Int(CelInt),
    Bool(CelBool),
    Time(CelTimestamp),
    Optional(CelOptional<'a>),
}

impl<'a> Values<'a> {
    fn of<H: Head + ?Sized>(names: &'a Names, attributes: &Attributes<'a, H>) -> Result<Self, EvaluationError> {
        let values = names.variables.iter().map(|variable| Held::of(variable, attributes)).collect::<Result<_, _>>()?;
        Ok(Self { names, values })
    }
}

impl<'a> Held<'a> {
    fn of<H: Head + ?Sized>(
        variable: &Variable,
        attributes: &Attributes<'a, H>,
    ) -> Result<Option<Self>, EvaluationError> {
        let Variable { attribute, how } = variable;
        if *how == Use::Presence {
            return Ok(Some(Self::Bool(attribute.is_present(attributes).into())));
        }
        let text = attribute.text(attributes);
        if text.as_ref().is_some_and(|text| text.len() > TEXT_BYTES_MAX) {
            return Err(EvaluationError::too_long(attribute));
        }
        let value = match text {
            Some(text) => Some(Self::Text(CelString::from(text))),
            None => attribute.scalar(attributes).map(|scalar| match scalar {
                Scalar::Int(number) => Self::Int(number.into()),
                Scalar::Bool(value) => Self::Bool(value.into()),
                Scalar::Time(time) => Self::Time(DateTime::<Utc>::from(time).fixed_offset().into()),
            }),
        };
        Ok(match how {
            Use::Value | Use::Presence => value,
            Use::Optional => Some(Self::Optional(CelOptional::from(value.map(Self::into_val)))),
        })
    }

    fn into_val(self) -> Box<dyn Val + 'a> {
        match self {
            Self::Text(value) => Box::new(value),
            Self::Int(value) => Box::new(value),
            Self::Bool(value) => Box::new(value),
            Self::Time(value) => Box::new(value),
            Self::Optional(value) => Box::new(value),
        }
    }

    fn as_val(&self) -> &(dyn Val + 'a) {
        match self {
            Self::Text(value) => value,
            Self::Int(value) => value,
            Self::Bool(value) => value,
            Self::Time(value) => value,
            Self::Optional(value) => value,
        }
    }
}

impl VariableResolver for Values<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let name = variable.strip_prefix('@')?;
        let value: &'b (dyn Val + 'b) = match name.strip_prefix('p') {
            Some(place) => self.names.patterns.get(place.parse::<usize>().ok()?)?,
            None => self.values.get(name.parse::<usize>().ok()?)?.as_ref()?.as_val(),
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
