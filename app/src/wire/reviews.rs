//! The API server, for rules of policies that ask it.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use tidegate_control::ApiReviews;
use tidegate_proxy::{CreateReview, Reviews};
use tokio::runtime::Handle;

struct ByClient(ApiReviews);

impl CreateReview for ByClient {
    fn create(&self, review: Value) -> BoxFuture<'static, Result<Value, String>> {
        let reviews = self.0.clone();
        async move { reviews.create(review).await }.boxed()
    }
}

/// Creates reviews with this client, which belongs to the current runtime.
pub(super) fn by(client: kube::Client) -> Reviews {
    Reviews(Arc::new(ByClient(ApiReviews::new(client, Handle::current()))))
}
