//! Values that rules are given: constants, selectors and expressions.

use std::sync::Arc;

use serde::Serialize;

use super::super::super::condition::Head;
use super::super::{Attributes, Selector, ValueExpression};

/// A value in one of its three spellings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum AuthValue {
    /// `value`.
    Constant(Arc<serde_json::Value>),
    /// `selector`.
    Selector(Selector),
    /// `expression`.
    Expression(ValueExpression),
}

impl AuthValue {
    /// The value for a request; `None` if it has none.
    pub fn json<H: Head + ?Sized>(&self, attributes: &Attributes<'_, H>) -> Option<serde_json::Value> {
        match self {
            Self::Constant(value) => Some(serde_json::Value::clone(value)),
            Self::Selector(selector) => selector.json(attributes),
            Self::Expression(expression) => expression.json(attributes).ok(),
        }
    }
}
