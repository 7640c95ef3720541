//! Conditions of rules.

use std::sync::Arc;

use serde::Serialize;

use super::super::super::condition::Head;
use super::super::super::expression::Expression;
use super::super::{Attributes, Predicate, Selector};
use super::evaluate::text_of;

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
    /// `excl`: the value is not a list with such an element.
    Excludes(Box<str>),
    /// `matches`: a part of the text of the value matches this regular expression.
    Matches(Expression),
}

impl AuthCondition {
    /// Whether it holds for a request; `None` if it has no result.
    pub fn holds<H: Head + ?Sized>(&self, attributes: &Attributes<'_, H>) -> Option<bool> {
        match self {
            Self::Predicate(predicate) => predicate.holds(attributes).ok(),
            Self::Pattern(pattern) => pattern.holds(attributes),
            Self::All(conditions) => Self::all(conditions, attributes),
            Self::Any(conditions) => Self::fold(conditions, true, attributes),
        }
    }

    /// Returns `true` if it reads what this rule of metadata has fetched.
    pub(super) fn reads_metadata(&self, rule: &str) -> bool {
        match self {
            Self::Predicate(predicate) => predicate.reads_metadata(rule),
            Self::Pattern(pattern) => pattern.selector.reads_metadata(rule),
            Self::All(conditions) | Self::Any(conditions) => conditions.iter().any(|it| it.reads_metadata(rule)),
        }
    }

    /// Whether all conditions hold; `None` if one has no result and none is false.
    pub(super) fn all<H: Head + ?Sized>(conditions: &[Self], attributes: &Attributes<'_, H>) -> Option<bool> {
        Self::fold(conditions, false, attributes)
    }

    /// The result of conditions one of which decides by this result.
    fn fold<H: Head + ?Sized>(conditions: &[Self], decides: bool, attributes: &Attributes<'_, H>) -> Option<bool> {
        let mut result = Some(!decides);
        for condition in conditions {
            match condition.holds(attributes) {
                Some(holds) if holds == decides => return Some(decides),
                Some(_) => {}
                None => result = None,
            }
        }
        result
    }
}

impl Pattern {
    /// Whether it holds. A value that a request does not have is an empty text.
    fn holds<H: Head + ?Sized>(&self, attributes: &Attributes<'_, H>) -> Option<bool> {
        let text = || self.selector.text(attributes).unwrap_or_default();
        let includes = |constant: &str| {
            let elements = self.selector.elements(attributes).unwrap_or_default();
            elements.iter().any(|element| text_of(element) == constant)
        };
        Some(match &self.operator {
            Operator::Equals(constant) => *text() == **constant,
            Operator::Differs(constant) => *text() != **constant,
            Operator::Includes(constant) => includes(constant),
            Operator::Excludes(constant) => !includes(constant),
            Operator::Matches(expression) => return expression.test(text().as_bytes()),
        })
    }
}
