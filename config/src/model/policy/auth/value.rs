//! Values that rules are given: constants, selectors and expressions.

use std::sync::Arc;

use serde::Serialize;

use super::super::{Selector, ValueExpression};

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
