//! Regular expressions for hosts.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::condition::WholeRegex;
use super::path::RegexCase;

/// A regular expression of linear time that must match a whole name, in any case. If two match the same name, the older
/// has precedence. Two are equal if their ages and texts are.
#[derive(Clone)]
pub struct HostExpression(Arc<Parts>);

/// Boxed, so that the other patterns, which are far more frequent, stay small.
struct Parts {
    created_s: i64,
    text: Box<str>,
    regex: WholeRegex,
}

impl HostExpression {
    /// Anchors an expression at both ends. `created_s` is the creation time of its object, in seconds since the Unix
    /// epoch.
    ///
    /// # Errors
    /// If it is not a valid expression of linear time, or compiles to more than `bytes_max` bytes.
    pub fn new(created_s: i64, pattern: &str, bytes_max: usize) -> Result<Self, String> {
        let regex = WholeRegex::within(pattern, RegexCase::Insensitive, bytes_max)?;
        Ok(Self(Arc::new(Parts { created_s, text: pattern.into(), regex })))
    }

    /// The expression, without its anchors.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Returns `true` if it matches a name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.0.regex.is_match(name.as_bytes())
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
        (self.0.created_s, &self.0.text).cmp(&(other.0.created_s, &other.0.text))
    }
}

impl Hash for HostExpression {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.created_s, &self.0.text).hash(state);
    }
}

impl fmt::Debug for HostExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for HostExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "~ {}", self.0.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_expressions_come_first() {
        let [old, young] =
            [(1, "b"), (2, "a")].map(|(created_s, text)| HostExpression::new(created_s, text, 1 << 16).unwrap());
        assert!(old < young && old != young);
    }

    #[test]
    fn an_expression_matches_whole_names() {
        let expression = HostExpression::new(0, r"pr-[0-9]+\.apps\..+|x", 1 << 16).unwrap();
        for (name, want) in [("pr-1.apps.test", true), ("PR-1.Apps.test", true), ("pr-1.apps.", false), ("x", true)] {
            assert_eq!(expression.matches(name), want, "{name}");
        }
        assert!(!expression.matches("a.pr-1.apps.test") && !expression.matches("xy"));
        assert!(HostExpression::new(0, "(", 1 << 16).is_err());
        assert!(HostExpression::new(0, ")|(", 1 << 16).is_err());
        assert!(HostExpression::new(0, "[0-9]{500}{50}", 1 << 16).is_err());
    }
}
