//! Headers and values for an allowed request.

use std::sync::Arc;

use http::HeaderName;
use serde::{Serialize, Serializer};

use super::AuthValue;

/// A rule of `response.success`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Success {
    /// Where its value goes.
    pub target: SuccessTarget,
    /// Its value.
    pub form: SuccessForm,
}

/// Where the value of a success rule goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SuccessTarget {
    /// `headers`: this header of the request to the endpoint, in place of one from the client.
    Header(HeaderName),
    /// `filters`: the expressions of limits. The one named `identity` takes the place of the identity there.
    Filter(Arc<str>),
}

/// The value of a success rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum SuccessForm {
    /// `plain`.
    Plain(AuthValue),
    /// `json`: an object with these properties.
    Json(Box<[(Arc<str>, AuthValue)]>),
}

impl Serialize for SuccessTarget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Header(name) => serializer.collect_str(&format_args!("header {name}")),
            Self::Filter(name) => serializer.collect_str(&format_args!("filter {name}")),
        }
    }
}
