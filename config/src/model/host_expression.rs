//! Regular expressions for hosts.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::expression::{Comparison, Expression, Extent, Subject};
use super::path::RegexCase;

/// A regular expression of linear time that must match a whole name, in any case. If two match the same name, the older
/// has precedence. Two are equal if their ages and texts are.
#[derive(Clone)]
pub struct HostExpression(Arc<Parts>);

/// Boxed, so that the other patterns, which are far more frequent, stay small.
struct Parts {
    created_s: i64,
    regex: Expression,
}

impl HostExpression {
    /// The comparison of an expression for hosts.
    pub const COMPARISON: Comparison =
        Comparison { subject: Subject::HostName, case: RegexCase::Insensitive, extent: Extent::Whole };

    /// An expression for hosts, which was compiled for this [comparison](Self::COMPARISON). `created_s` is the creation
    /// time of its object, in seconds since the Unix epoch.
    #[must_use]
    pub fn new(created_s: i64, expression: Expression) -> Self {
        Self(Arc::new(Parts { created_s, regex: expression }))
    }

    /// The expression.
    #[must_use]
    pub fn expression(&self) -> &Expression {
        &self.0.regex
    }

    /// The expression, without its anchors.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.regex.pattern()
    }

    /// Returns `true` if it matches a name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.0.regex.test(name.as_bytes()) == Some(true)
    }
}

impl PartialEq for HostExpression {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for HostExpression {}

impl PartialOrd for HostExpression {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for HostExpression {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0.created_s, self.as_str()).cmp(&(other.0.created_s, other.as_str()))
    }
}

impl Hash for HostExpression {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.created_s, self.as_str()).hash(state);
    }
}

impl fmt::Debug for HostExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for HostExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "~ {}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expression(created_s: i64, pattern: &str) -> HostExpression {
        HostExpression::new(created_s, Expression::new(pattern, HostExpression::COMPARISON).unwrap())
    }

    #[test]
    fn older_expressions_come_first() {
        let [old, young] = [(1, "b"), (2, "a")].map(|(created_s, text)| expression(created_s, text));
        assert!(old < young && old != young);
    }

    #[test]
    fn an_expression_matches_whole_names() {
        let expression = expression(0, r"pr-[0-9]+\.apps\..+|x");
        for (name, want) in [("pr-1.apps.test", true), ("PR-1.Apps.test", true), ("pr-1.apps.", false), ("x", true)] {
            assert_eq!(expression.matches(name), want, "{name}");
        }
        assert!(!expression.matches("a.pr-1.apps.test") && !expression.matches("xy"));
    }
}
