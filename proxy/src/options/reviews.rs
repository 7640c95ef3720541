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
    fn create(&self, review: Value) -> BoxFuture<'static, Result<Value, String>>;
}

/// The way to the API server. Clones share it.
#[derive(Clone)]
pub struct Reviews(pub Arc<dyn CreateReview>);

impl fmt::Debug for Reviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reviews")
    }
}
