//! A client's stack that is built anew, with what its files hold by then, when the server no longer takes its credentials
//! or cannot be reached.
//!
//! Otherwise a token or an authority that rotated could be missed for a minute, and connections of a pool that are dead
//! and do not know it would be tried one after the other.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use kube::client::Body;
use tower::util::BoxService;
use tower::{BoxError, Service};

/// Everything between a request and the wire.
pub(crate) type Stack = BoxService<Request<Body>, Response<Incoming>, BoxError>;

/// A stack, and what builds another one.
pub(crate) struct Renewed<F> {
    stack: Stack,
    build: F,
    /// Whether a request of this stack failed, was given up by who asked, or was refused for its credentials.
    doubted: Arc<AtomicBool>,
}

impl<F> Renewed<F> {
    pub(crate) fn new(stack: Stack, build: F) -> Self {
        Self { stack, build, doubted: Arc::default() }
    }
}

impl<F, E> Service<Request<Body>> for Renewed<F>
where
    F: FnMut() -> Result<Stack, E>,
    E: fmt::Display,
{
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.doubted.swap(false, Ordering::Relaxed) {
            match (self.build)() {
                Ok(stack) => {
                    self.stack = stack;
                    // What becomes of the last one's requests says nothing of this one.
                    self.doubted = Arc::default();
                }
                Err(why) => tracing::warn!(%why, "credentials cannot be read again; those from before are used"),
            }
        }
        self.stack.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (answer, mut asked) =
            (self.stack.call(request), InFlight { doubted: Arc::clone(&self.doubted), sound: false });
        let judged = async move {
            let answer = answer.await;
            asked.answered(answer.as_ref().is_ok_and(|answer| answer.status() != StatusCode::UNAUTHORIZED));
            answer
        };
        judged.boxed()
    }
}

/// A request that waits for its answer. Who waits on a connection that is dead and does not know it gives up before the stack
/// does, so that having been given up says as much as a failure.
struct InFlight {
    doubted: Arc<AtomicBool>,
    sound: bool,
}

impl InFlight {
    fn answered(&mut self, soundly: bool) {
        self.sound = soundly;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.sound {
            self.doubted.store(true, Ordering::Relaxed);
        }
    }
}
