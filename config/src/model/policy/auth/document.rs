//! What is known of the client of a request: `auth` in expressions.

use std::fmt;

use serde_json::{Map, Value};

/// The results of the rules of a request so far: `identity`, and by the names of their rules `authorization` and
/// `response`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct AuthDocument(pub(in crate::model) Map<String, Value>);

impl AuthDocument {
    /// The value that these names of fields lead to.
    pub(in crate::model) fn get(&self, path: &[Box<str>]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(self.0.get(&**first)?, |value, field| value.get(&**field))
    }
}

/// Without contents, which may be personal or secret.
impl fmt::Debug for AuthDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthDocument")
    }
}
