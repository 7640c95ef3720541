//! The API server, for rules of policies that ask it.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use tidegate_control::{ApiReviews, ReviewFault};
use tidegate_proxy::{CreateReview, ReviewError, Reviews};
use tokio::runtime::Handle;

struct ByClient(ApiReviews);

impl CreateReview for ByClient {
    fn create(&self, review: Value) -> BoxFuture<'static, Result<Value, ReviewError>> {
        let reviews = self.0.clone();
        let error = |fault| match fault {
            ReviewFault::Busy => ReviewError { is_busy: true, why: "too many reviews are in flight".to_owned() },
            ReviewFault::Failed(why) => ReviewError { is_busy: false, why },
        };
        async move { reviews.create(review).await.map_err(error) }.boxed()
    }
}

/// Creates reviews with this client, which belongs to the current runtime.
pub(super) fn by(client: kube::Client) -> Reviews {
    Reviews(Arc::new(ByClient(ApiReviews::new(client, Handle::current()))))
}
