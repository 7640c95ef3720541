//! Reviews by the API server.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::super::super::super::condition::Head;
use super::super::super::Attributes;
use super::super::AuthValue;
use super::super::evaluate::text_of;
use super::{CallAnswer, CallFault};

/// A token that the API server is asked about (`kubernetesTokenReview`).
#[derive(Clone, PartialEq, Eq)]
pub struct TokenReview {
    /// The token.
    pub token: Box<str>,
    /// The audiences of which it must be for one.
    pub audiences: Box<[Arc<str>]>,
}

/// A rule of `kubernetesSubjectAccessReview`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct AccessReviewRule {
    /// `user`.
    pub user: Option<AuthValue>,
    /// `groups`, which are fixed.
    pub groups: Box<[Arc<str>]>,
    /// `authorizationGroups`: a list of texts.
    pub authorization_groups: Option<AuthValue>,
    /// `resourceAttributes`; without them, the review is about the method and the path of the request.
    pub resource: Option<AccessAttributes<Option<AuthValue>>>,
}

/// The attributes of a request to the API server that a review is about (`resourceAttributes`); `V` is a value.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct AccessAttributes<V> {
    /// `group`.
    pub group: V,
    /// `resource`.
    pub resource: V,
    /// `subresource`.
    pub subresource: V,
    /// `name`.
    pub name: V,
    /// `namespace`.
    pub namespace: V,
    /// `verb`.
    pub verb: V,
}

/// A question to the API server whether somebody may do something.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessReview {
    /// The user.
    pub user: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// What is done with resources; `None` if it is a request for a path.
    pub resource: Option<AccessAttributes<String>>,
    /// The path that is requested, and the method in lower case.
    pub path: String,
    /// The method in lower case.
    pub verb: String,
}

impl TokenReview {
    /// The object that is sent.
    #[must_use]
    pub fn object(&self) -> Value {
        json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": self.token, "audiences": self.audiences },
        })
    }

    /// Reads the answer: its status, which is the identity.
    ///
    /// # Errors
    /// [`CallFault::InvalidAnswer`] without a status.
    pub fn read(&self, answer: &Value) -> CallAnswer {
        let status = answer.get("status").filter(|status| status.is_object()).ok_or(CallFault::InvalidAnswer)?;
        if status.get("authenticated").and_then(Value::as_bool) != Some(true) {
            return Ok(None);
        }
        // A server that does not know audiences answers without them, and has not checked them.
        let own = status.get("audiences").and_then(Value::as_array);
        let is_own = |audience: &Value| self.audiences.iter().any(|own| audience.as_str() == Some(own));
        let is_for_one = own.is_some_and(|own| own.iter().any(is_own));
        Ok(is_for_one.then(|| Arc::new(status.clone())))
    }
}

impl AccessReviewRule {
    /// The review for a request.
    ///
    /// # Errors
    /// [`CallFault::Incomplete`] if one of its values cannot be determined, or it is about nobody.
    pub fn call<H: Head + ?Sized>(&self, attributes: &Attributes<'_, H>) -> Result<AccessReview, CallFault> {
        let text = |value: &Option<AuthValue>| match value {
            None => Ok(String::new()),
            Some(value) => value.json(attributes).map(|value| text_of(&value)).ok_or(CallFault::Incomplete),
        };
        let mut groups: Vec<String> = self.groups.iter().map(|group| group.to_string()).collect();
        if let Some(more) = &self.authorization_groups {
            let more = more.json(attributes).ok_or(CallFault::Incomplete)?;
            let more = more.as_array().ok_or(CallFault::Incomplete)?.iter();
            let more = more.map(|group| group.as_str().map(str::to_owned).ok_or(CallFault::Incomplete));
            groups.extend(more.collect::<Result<Vec<_>, _>>()?);
        }
        let user = text(&self.user)?;
        if user.is_empty() && groups.is_empty() {
            return Err(CallFault::Incomplete);
        }
        let resource = self.resource.as_ref().map(|of| {
            Ok(AccessAttributes {
                group: text(&of.group)?,
                resource: text(&of.resource)?,
                subresource: text(&of.subresource)?,
                name: text(&of.name)?,
                namespace: text(&of.namespace)?,
                verb: text(&of.verb)?,
            })
        });
        let verb = attributes.head.method().to_ascii_lowercase();
        Ok(AccessReview { user, groups, resource: resource.transpose()?, path: attributes.path.to_owned(), verb })
    }
}

impl AccessReview {
    /// The object that is sent.
    #[must_use]
    pub fn object(&self) -> Value {
        let mut spec = json!({ "user": self.user, "groups": self.groups });
        match &self.resource {
            Some(resource) => spec["resourceAttributes"] = json!(resource),
            None => spec["nonResourceAttributes"] = json!({ "path": self.path, "verb": self.verb }),
        }
        json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec })
    }

    /// Reads the answer.
    ///
    /// # Errors
    /// [`CallFault::InvalidAnswer`] without a status.
    pub fn read(&self, answer: &Value) -> CallAnswer {
        let status = answer.get("status").ok_or(CallFault::InvalidAnswer)?;
        let allowed = status.get("allowed").and_then(Value::as_bool).ok_or(CallFault::InvalidAnswer)?;
        let denied = status.get("denied").and_then(Value::as_bool).unwrap_or_default();
        Ok((allowed && !denied).then(|| Arc::new(Value::Bool(true))))
    }
}

/// Without the token.
impl fmt::Debug for TokenReview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenReview")
    }
}

/// Without the user.
impl fmt::Debug for AccessReview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessReview")
    }
}
