//! An HTTP client that is built again, with the current content of its files, when the server no longer accepts its
//! credentials or cannot be reached.
//!
//! Otherwise a rotated token or certificate authority could go unnoticed for a minute, and the dead connections of a
//! pool would be tried one after the other.

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

/// The client's layers, from a request to the connection.
pub(crate) type Stack = BoxService<Request<Body>, Response<Incoming>, BoxError>;

/// A client with a function that builds another one.
pub(crate) struct Renewed<F> {
    stack: Stack,
    build: F,
    /// Whether a request of this client failed, was cancelled by the caller, or was answered 401.
    suspect: Arc<AtomicBool>,
}

impl<F> Renewed<F> {
    pub(crate) fn new(stack: Stack, build: F) -> Self {
        Self { stack, build, suspect: Arc::default() }
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
        if self.suspect.swap(false, Ordering::Relaxed) {
            match (self.build)() {
                Ok(stack) => {
                    self.stack = stack;
                    // Later results of the previous client's requests say nothing about this one.
                    self.suspect = Arc::default();
                }
                Err(why) => {
                    tracing::warn!(error = %why, "the credentials cannot be read again; the previous ones stay in use")
                }
            }
        }
        self.stack.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (answer, mut asked) =
            (self.stack.call(request), InFlight { suspect: Arc::clone(&self.suspect), sound: false });
        let judged = async move {
            let answer = answer.await;
            asked.answered(answer.as_ref().is_ok_and(|answer| answer.status() != StatusCode::UNAUTHORIZED));
            answer
        };
        judged.boxed()
    }
}

/// A request in flight. On a connection that is dead without notice, the caller gives up before the client does, so a
/// cancelled request counts as a failure.
struct InFlight {
    suspect: Arc<AtomicBool>,
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
            self.suspect.store(true, Ordering::Relaxed);
        }
    }
}
