//! The way to the API server, for rules that ask it.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

/// Creates reviews at the API server.
pub trait CreateReview: Send + Sync {
    /// Creates a TokenReview or SubjectAccessReview, and returns it with its status.
    ///
    /// # Errors
    /// Why there is none, without the contents of the review.
    fn create(&self, review: Value) -> BoxFuture<'static, Result<Value, ReviewError>>;
}

/// Why a review was not created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReviewError {
    /// Whether too many are in flight.
    pub is_busy: bool,
    /// The reason in words.
    pub why: String,
}

impl fmt::Display for ReviewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// The way to the API server. Clones share it.
#[derive(Clone)]
pub struct Reviews(pub Arc<dyn CreateReview>);

impl fmt::Debug for Reviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reviews")
    }
}
