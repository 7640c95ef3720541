//! Conditions of rules.

use std::sync::Arc;

use serde::Serialize;

use super::super::super::expression::Expression;
use super::super::{Predicate, Selector};

/// A condition of a policy or a rule, or a pattern of an authorisation rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum AuthCondition {
    /// `predicate`.
    Predicate(Predicate),
    /// `selector`, `operator` and `value`.
    Pattern(Pattern),
    /// `all`, or a named list of patterns: all must hold. An empty one holds.
    All(Arc<[AuthCondition]>),
    /// `any`: one must hold. An empty one does not hold.
    Any(Arc<[AuthCondition]>),
}

/// A comparison of a selected value with a constant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Pattern {
    /// The value.
    pub selector: Selector,
    /// The comparison.
    pub operator: Operator,
}

/// A comparison with a constant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Operator {
    /// `eq`: the text of the value is this one.
    Equals(Box<str>),
    /// `neq`: the text of the value is another one.
    Differs(Box<str>),
    /// `incl`: the value is a list with an element whose text is this one.
    Includes(Box<str>),
    /// `excl`: the value is no list with such an element.
    Excludes(Box<str>),
    /// `matches`: a part of the text of the value matches this regular expression.
    Matches(Expression),
}
