//! Expressions of policies, in the Common Expression Language.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// A condition of a policy: an expression that is true or false for a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Predicate {
    source: Arc<str>,
}

/// An expression of a policy with a value for each request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueExpression {
    source: Arc<str>,
}

impl Predicate {
    /// Compiles an expression.
    ///
    /// # Errors
    /// Returns the reason why it cannot be used, for its author.
    pub fn new(source: &str) -> Result<Self, String> {
        Ok(Self { source: source.into() })
    }

    /// The text of the expression.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns `true` if it refers to the identity of the client (`auth`).
    #[must_use]
    pub fn reads_identity(&self) -> bool {
        self.source.contains("auth.")
    }
}

impl ValueExpression {
    /// Compiles an expression.
    ///
    /// # Errors
    /// Returns the reason why it cannot be used, for its author.
    pub fn new(source: &str) -> Result<Self, String> {
        Ok(Self { source: source.into() })
    }

    /// The text of the expression.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns `true` if it refers to the identity of the client (`auth`).
    #[must_use]
    pub fn reads_identity(&self) -> bool {
        self.source.contains("auth.")
    }
}

impl Serialize for Predicate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.source)
    }
}

impl Serialize for ValueExpression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.source)
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

impl fmt::Display for ValueExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}
