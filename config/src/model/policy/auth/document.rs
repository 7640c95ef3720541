//! The facts about the client of a request: `auth` in expressions.

use std::fmt;

use serde_json::{Map, Value};

/// The results of the rules of a request so far: `identity`, and by the names of their rules `metadata`,
/// `authorization` and `response`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct AuthDocument(Map<String, Value>);

/// The maximum length of the client's name in the log, in bytes.
const USER_BYTES_MAX: usize = 256;

impl AuthDocument {
    /// The value that these names of fields lead to.
    pub(in crate::model) fn get(&self, path: &[Box<str>]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(self.0.get(&**first)?, |value, field| value.get(&**field))
    }

    /// Sets the identity.
    pub(in crate::model) fn put_identity(&mut self, identity: Value) {
        self.0.insert("identity".to_owned(), identity);
    }

    /// Adds the result of a rule to a section.
    pub(super) fn put(&mut self, section: &str, rule: &str, value: Value) {
        let section = self.0.entry(section).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(section) = section {
            section.insert(rule.to_owned(), value);
        }
    }

    /// The client: the subject of a token, the user of a review, or the name of the Secret of an API key.
    pub(super) fn user(&self) -> Option<Box<str>> {
        let identity = self.0.get("identity")?;
        let within = |object: &str, field: &str| identity.get(object)?.get(field);
        let reviewed = || within("user", "username");
        let secret = || within("metadata", "name");
        let user = identity.get("sub").or_else(|| identity.get("username")).or_else(reviewed).or_else(secret)?;
        let user = user.as_str()?;
        Some(user.get(..user.floor_char_boundary(USER_BYTES_MAX))?.into())
    }
}

/// Without contents, which may be personal or secret.
impl fmt::Debug for AuthDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthDocument")
    }
}
