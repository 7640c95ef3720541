//! An HTTP client that is built again when its credentials have changed, and when the server no longer accepts them or
//! cannot be reached.
//!
//! The latter reads the files at once, and drops the dead connections of a pool, which would otherwise be tried one
//! after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use kube::Config;
use kube::client::Body;
use tower::util::BoxService;
use tower::{BoxError, Service};

use crate::cluster::access::{Access, ConnectError, Version};

/// The client's layers, from a request to the connection.
pub(crate) type Stack = BoxService<Request<Body>, Response<Incoming>, BoxError>;

/// The outcomes of the requests of a client, by how much they say.
const SOUND: u8 = 0;
/// A request failed, or was cancelled by the caller.
const FAILED: u8 = 1;
/// A request was answered 401.
const REFUSED: u8 = 2;

type Build = dyn Fn(&Config) -> Result<Stack, ConnectError> + Send + Sync;

/// The next client and its credentials; `None` if the present one stays.
type Renewal = BoxFuture<'static, Result<Option<(Version, Stack)>, String>>;

/// A client with a function that builds another one.
pub(crate) struct Renewed {
    access: Access,
    build: Arc<Build>,
    /// The client and its credentials; `None` as long as there are none.
    built: Option<(Version, Stack)>,
    /// The reason why there are none, or none that are newer.
    lacking: String,
    renewal: Option<Renewal>,
    /// The worst outcome of the requests of this client.
    outcome: Arc<AtomicU8>,
}

impl Renewed {
    pub(crate) fn new(
        access: Access,
        build: impl Fn(&Config) -> Result<Stack, ConnectError> + Send + Sync + 'static,
    ) -> Result<Self, ConnectError> {
        let built = match access.at_once() {
            Some((version, config)) => Some((version, build(&config)?)),
            None => None,
        };
        let (build, outcome) = (Arc::new(build), Arc::default());
        Ok(Self { access, build, built, lacking: String::new(), renewal: None, outcome })
    }

    /// The next client, if one is needed. `outcome` is that of the requests of the present one.
    fn renewal(&self, outcome: u8) -> Option<Renewal> {
        let present = self.built.as_ref().map(|(version, _)| version.clone());
        let outcome = if self.access.is_fixed() { SOUND } else { outcome };
        if outcome == SOUND && present.as_ref().is_some_and(|version| !self.access.outdates(version)) {
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
        Some(renewal.boxed())
    }
}

impl Service<Request<Body>> for Renewed {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.renewal.is_none() {
            self.renewal = self.renewal(self.outcome.swap(SOUND, Ordering::Relaxed));
        }
        if let Some(renewal) = &mut self.renewal {
            let renewed = ready!(renewal.poll_unpin(cx));
            self.renewal = None;
            match renewed {
                Ok(None) => {}
                Ok(Some(built)) => {
                    self.built = Some(built);
                    // Later results of the previous client's requests say nothing about this one.
                    self.outcome = Arc::default();
                }
                // Each source of credentials has logged it.
                Err(why) => self.lacking = why,
            }
        }
        // An error here would end the client; without credentials, each request fails.
        self.built.as_mut().map_or(Poll::Ready(Ok(())), |(_, stack)| stack.poll_ready(cx))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Some((_, stack)) = &mut self.built else {
            let why = BoxError::from(format!("no credentials for the API server: {}", self.lacking));
            return futures::future::err(why).boxed();
        };
        let (answer, mut asked) = (stack.call(request), InFlight { outcome: Arc::clone(&self.outcome), own: FAILED });
        let judged = async move {
            let answer = answer.await;
            asked.answered(answer.as_ref().ok().map(Response::status));
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
    fn answered(&mut self, status: Option<StatusCode>) {
        self.own = match status {
            Some(StatusCode::UNAUTHORIZED) => REFUSED,
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
