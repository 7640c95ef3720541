//! An HTTP client that is built again when its credentials have changed, and when the server no longer accepts them or
//! cannot be reached.
//!
//! The latter reads the files, and drops the dead connections of a pool, which would otherwise be tried one after the
//! other.
//!
//! A renewal reads files and runs programs, and either may hang. It runs in a task of its own, and requests wait for it
//! only while the present client cannot serve them.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use kube::Config;
use kube::client::Body;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::task::AbortOnDropHandle;
use tower::util::BoxService;
use tower::{BoxError, Service};

use crate::cluster::access::{Access, ConnectError, Freshness, Version};

/// The client's layers, from a request to the connection.
pub(crate) type Stack<B = Incoming> = BoxService<Request<Body>, Response<B>, BoxError>;

/// The time for which requests wait for a renewal although the present client may still serve them.
const BRIEFLY: Duration = Duration::from_secs(1);

/// The outcomes of the requests of a client, by how much they say.
const SOUND: u8 = 0;
/// A request failed, or was cancelled by the caller.
const FAILED: u8 = 1;
/// A request was answered 401.
const REFUSED: u8 = 2;

type Build<B> = dyn Fn(&Config) -> Result<Stack<B>, ConnectError> + Send + Sync;

/// The next client and its credentials; `None` if the present one stays.
type Next<B> = Result<Option<(Version, Stack<B>)>, String>;

/// The result of a renewal, and its end.
type Ended<B> = (Next<B>, Instant);

/// A renewal of the present client.
struct Renewal<B> {
    /// Ends when it is dropped.
    task: AbortOnDropHandle<Ended<B>>,
    /// The outcome for which it was begun.
    outcome: u8,
    /// The end of [`BRIEFLY`].
    briefly: Pin<Box<Sleep>>,
    /// A request waits for it.
    awaited: bool,
}

/// A client with a function that builds another one.
pub(crate) struct Renewed<B = Incoming> {
    access: Access,
    build: Arc<Build<B>>,
    /// The client and its credentials; `None` as long as there are none.
    built: Option<(Version, Stack<B>)>,
    /// The reason why there are none, or none that are newer.
    lacking: String,
    renewal: Option<Renewal<B>>,
    /// The worst outcome of the requests of this client, since the last renewal began.
    outcome: Arc<AtomicU8>,
}

impl<B: Send + 'static> Renewed<B> {
    pub(crate) fn new(
        access: Access,
        build: impl Fn(&Config) -> Result<Stack<B>, ConnectError> + Send + Sync + 'static,
    ) -> Result<Self, ConnectError> {
        let built = match access.at_once() {
            Some((version, config)) => Some((version, build(&config)?)),
            None => None,
        };
        let (build, outcome) = (Arc::new(build), Arc::default());
        Ok(Self { access, build, built, lacking: String::new(), renewal: None, outcome })
    }

    /// Begins to make the next client, if one is needed.
    fn begin(&self) -> Option<Renewal<B>> {
        let outcome = self.outcome.swap(SOUND, Ordering::Relaxed);
        let outcome = if self.access.is_fixed() { SOUND } else { outcome };
        let present = self.built.as_ref().map(|(version, _)| version.clone());
        let is_fresh = present.as_ref().is_some_and(|version| self.access.freshness(version) == Freshness::Fresh);
        if outcome == SOUND && is_fresh {
            return None;
        }
        let (access, build) = (self.access.clone(), Arc::clone(&self.build));
        let renewal = async move {
            let refused = present.as_ref().filter(|_| outcome == REFUSED);
            let (version, config) = access.renew(outcome != SOUND, refused).await?;
            if outcome == SOUND && present.as_ref() == Some(&version) {
                return Ok(None);
            }
            // An old kind of plugin is run by kube, and would block.
            let built = tokio::task::spawn_blocking(move || build(&config).map_err(|why| why.to_string()));
            Ok(Some((version, built.await.map_err(|why| why.to_string())??)))
        };
        let task = AbortOnDropHandle::new(tokio::spawn(async { (renewal.await, Instant::now()) }));
        Some(Renewal { task, outcome, briefly: Box::pin(sleep(BRIEFLY)), awaited: false })
    }

    /// Takes the result of a renewal that was begun for this outcome.
    fn take(&mut self, renewed: Next<B>, begun_for: u8) {
        match renewed {
            Ok(None) => {}
            Ok(Some(built)) => {
                let same = self.built.as_ref().is_some_and(|(version, _)| *version == built.0);
                let is_refused = same && begun_for != REFUSED && self.outcome.load(Ordering::Relaxed) == REFUSED;
                self.built = Some(built);
                // Later results of the previous client's requests say nothing about this one, unless it has the
                // credentials that were refused meanwhile.
                self.outcome = Arc::new(AtomicU8::new(if is_refused { REFUSED } else { SOUND }));
            }
            Err(why) => {
                if why != self.lacking {
                    tracing::warn!(error = why, "the credentials for the API server could not be renewed");
                }
                self.lacking = why;
            }
        }
    }

    /// `true` if requests wait for a renewal that runs.
    fn waits(&self, renewal: &mut Renewal<B>, cx: &mut Context<'_>) -> bool {
        let Some((version, _)) = &self.built else { return true };
        let freshness = self.access.freshness(version);
        let is_refused = renewal.outcome == REFUSED || self.outcome.load(Ordering::Relaxed) == REFUSED;
        if is_refused || freshness == Freshness::Ended {
            return true;
        }
        let briefly = renewal.outcome == FAILED || freshness == Freshness::Outdated;
        briefly && renewal.briefly.as_mut().poll(cx).is_pending()
    }

    /// Renews the client as far as the next request needs it. A request begins or awaits one renewal at most.
    fn poll_renewal(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut may_begin = true;
        loop {
            if self.renewal.is_none() && std::mem::take(&mut may_begin) {
                self.renewal = self.begin();
            }
            let Some(mut renewal) = self.renewal.take() else { return Poll::Ready(()) };
            match renewal.task.poll_unpin(cx) {
                Poll::Ready(ended) => {
                    let (renewed, at) = ended.unwrap_or_else(|why| (Err(why.to_string()), Instant::now()));
                    // One that has ended long ago was awaited by another request, which was cancelled.
                    may_begin &= !renewal.awaited || at.elapsed() > BRIEFLY;
                    self.take(renewed, renewal.outcome);
                }
                Poll::Pending => {
                    renewal.awaited = self.waits(&mut renewal, cx);
                    let poll = if renewal.awaited { Poll::Pending } else { Poll::Ready(()) };
                    self.renewal = Some(renewal);
                    return poll;
                }
            }
        }
    }
}

impl<B: Send + 'static> Service<Request<Body>> for Renewed<B> {
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        ready!(self.poll_renewal(cx));
        // An error here would end the client; without credentials, each request fails.
        self.built.as_mut().map_or(Poll::Ready(Ok(())), |(_, stack)| stack.poll_ready(cx))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Some((_, stack)) = &mut self.built else {
            let why = BoxError::from(format!("no credentials for the API server: {}", self.lacking));
            return futures::future::err(why).boxed();
        };
        let (answer, mut asked) = (stack.call(request), InFlight { outcome: Arc::clone(&self.outcome), own: FAILED });
        let unauthorized = if self.access.is_anonymous() { SOUND } else { REFUSED };
        let judged = async move {
            let answer = answer.await;
            asked.answered(answer.as_ref().ok().map(Response::status), unauthorized);
            answer
        };
        judged.boxed()
    }
}

/// A request in flight. On a connection that is dead without notice, the caller gives up before the client does, so a
/// cancelled request counts as a failure.
struct InFlight {
    outcome: Arc<AtomicU8>,
    own: u8,
}

impl InFlight {
    fn answered(&mut self, status: Option<StatusCode>, unauthorized: u8) {
        self.own = match status {
            Some(StatusCode::UNAUTHORIZED) => unauthorized,
            Some(_) => SOUND,
            None => FAILED,
        };
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.outcome.fetch_max(self.own, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
