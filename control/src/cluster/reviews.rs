//! Reviews by the API server for rules of policies: to whom a token belongs, and what somebody may do. They are made
//! with the edge's own credentials, and need its right to create them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The limit of concurrent reviews: those of clients must not take the API server from the control loop.
const REVIEWS_MAX: usize = 64;
/// The limit of the time for one, which is longer than anybody waits for it.
const WITHIN: Duration = Duration::from_secs(10);

/// Why a review was not created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReviewFault {
    /// As many as are allowed are in flight.
    Busy,
    /// It failed, for this reason.
    Failed(String),
}

/// Creates reviews. Clones share their limit.
#[derive(Clone)]
pub struct ApiReviews {
    client: kube::Client,
    /// The runtime of the client's connections.
    runtime: Handle,
    permits: Arc<Semaphore>,
}

impl ApiReviews {
    /// With a client that belongs to this runtime.
    #[must_use]
    pub fn new(client: kube::Client, runtime: Handle) -> Self {
        Self { client, runtime, permits: Arc::new(Semaphore::new(REVIEWS_MAX)) }
    }

    /// Creates a TokenReview or SubjectAccessReview, and returns it with its status. May be called from another runtime
    /// than that of the client.
    ///
    /// # Errors
    /// Why there is none, without the contents of the review.
    pub async fn create(&self, review: Value) -> Result<Value, ReviewFault> {
        let path = match review.get("kind").and_then(Value::as_str) {
            Some("TokenReview") => "/apis/authentication.k8s.io/v1/tokenreviews",
            Some("SubjectAccessReview") => "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            _ => return Err(ReviewFault::Failed("this is no review".to_owned())),
        };
        // Waiting for a turn would make the wait longer for everybody.
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|_full| ReviewFault::Busy)?;
        let request = Request::builder().method(Method::POST).uri(path).header("content-type", "application/json");
        let request = request.body(review.to_string().into_bytes());
        let request = request.map_err(|why| ReviewFault::Failed(why.to_string()))?;
        let client = self.client.clone();
        let asked = self.runtime.spawn(async move {
            let answer = timeout(WITHIN, client.request::<Value>(request)).await;
            drop(permit);
            answer
        });
        let why = match asked.await {
            Ok(Ok(Ok(answer))) => return Ok(answer),
            // The server may quote the review.
            Ok(Ok(Err(kube::Error::Api(status)))) => format!("it answers with the status {}", status.code),
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(_elapsed)) => format!("it does not answer within {WITHIN:?}"),
            Err(ended) => ended.to_string(),
        };
        Err(ReviewFault::Failed(why))
    }
}

impl fmt::Debug for ApiReviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiReviews").field("free", &self.permits.available_permits()).finish_non_exhaustive()
    }
}
