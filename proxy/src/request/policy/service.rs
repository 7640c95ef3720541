//! Requests of the edge's own to a service, for policies that wait for its answer.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::Incoming;
use tidegate_config::model::{Backend, Balance, Target};

use crate::budget::{Charge, Cost};
use crate::clock;
use crate::connection::ConnectionFacts;
use crate::observe::external_auth_metrics::CallFailure;
use crate::reason::Reason;
use crate::shared::Shared;
use crate::upstream::attempt::{AttemptOutcome, Attempts, UNPROCESSED_MAX};
use crate::upstream::balance::Random;
use crate::upstream::client::{self, Purpose};
use crate::upstream::service_state::RequestAtService;

/// The maximum number of endpoints tried, if none takes a connection.
const TRIES_MAX: usize = 3;

/// The maximum size of an answer's body; a longer one is invalid.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A service, and the connection whose request asks it.
#[derive(Clone, Copy)]
pub(super) struct Service<'a> {
    /// The service.
    pub(super) target: &'a Arc<Target>,
    /// Its endpoints.
    pub(super) backend: &'a Backend,
    /// The local address of the connection.
    pub(super) local: IpAddr,
}

impl Service<'_> {
    /// Sends a request, which `make` makes for each try, to one endpoint after the other until one takes it.
    ///
    /// # Errors
    /// Why there is no response. [`CallFailure::Broken`] if `make` makes none.
    pub(super) async fn send(
        self,
        make: impl Fn() -> Option<Request<Full<Bytes>>>,
        shared: &Shared,
        attempts: &mut Attempts,
    ) -> Result<Response<Incoming>, CallFailure> {
        let Self { target, backend, local } = self;
        let here = shared.own_addresses(local);
        let limits = &shared.options.upstream;
        let mut unprocessed = 0;
        loop {
            let (now, draw) = (clock::now(), fastrand::u64(..));
            let random = (now, &mut Random::new(draw));
            let endpoint = attempts.next(backend, Balance::PowerOfTwo, here, &shared.endpoints, random);
            let endpoint = endpoint.ok_or(CallFailure::NoEndpoint)?;
            let request = make().ok_or(CallFailure::Broken)?;
            let client = client::of(Purpose::ExternalAuth, (target, endpoint), request.uri(), limits);
            attempts.connected(true, now);
            // A request may have an effect, so one that broke a new connection has failed.
            let error = match client::send(&client, &request, true).await {
                Ok(response) => {
                    let now = clock::now();
                    attempts.first_byte(AttemptOutcome::Response, now, shared.endpoints.moment(now));
                    return Ok(response);
                }
                Err(error) => error,
            };
            tracing::debug!(service = %target.backend, address = %endpoint.address, %error, "a service that a policy asks did not answer");
            // Says nothing against the endpoint; another one is tried first.
            if unprocessed < UNPROCESSED_MAX && client::was_not_processed(&error) {
                unprocessed += 1;
                continue;
            }
            let now = clock::now();
            match client::refusal(&error) {
                Some(Reason::OutOfResources) => return Err(CallFailure::NoRoom),
                Some(_) => attempts.refused(now, Some(shared.endpoints.moment(now))),
                None => {
                    attempts.first_byte(AttemptOutcome::Broken, now, shared.endpoints.moment(now));
                    return Err(CallFailure::Broken);
                }
            }
            if attempts.count() >= TRIES_MAX + unprocessed || !attempts.leaves(backend, here) {
                return Err(CallFailure::ConnectFailed);
            }
        }
    }
}

/// The body of an answer, which may have trailers.
///
/// # Errors
/// [`CallFailure::Broken`] if it breaks off or is longer than 64 KiB.
pub(super) async fn whole(
    response: Response<Incoming>,
) -> Result<(http::response::Parts, Collected<Bytes>), CallFailure> {
    let (parts, body) = response.into_parts();
    let whole = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    whole.map(|body| (parts, body)).map_err(|error: Box<dyn std::error::Error + Send + Sync>| {
        tracing::debug!(%error, "the answer of a service that a policy asks broke off or is too long");
        CallFailure::Broken
    })
}

/// The charge of a call to its Service, the edge and its client, until this is dropped.
#[derive(Debug)]
pub(crate) struct CallCharge {
    /// The client that it is charged to; `None` for work that no request waits for.
    client: Option<Arc<ConnectionFacts>>,
    cost: Cost,
    _at_service: RequestAtService,
    _edge: Charge,
}

impl CallCharge {
    /// Charges a call that holds up to `body_bytes_max` bytes of a body.
    ///
    /// # Errors
    /// [`CallFailure::Overloaded`] if its Service has as many requests and calls as it may have, and
    /// [`CallFailure::NoRoom`] if the edge, or the client's share of it, has no room.
    pub(crate) fn new(
        body_bytes_max: u32,
        backend: &Backend,
        facts: &Arc<ConnectionFacts>,
        shared: &Shared,
    ) -> Result<Self, CallFailure> {
        let cost = Cost::EXTERNAL_AUTH.and(Cost::new(0, body_bytes_max.div_ceil(1024)));
        let at_service = shared.enter_service(backend, cost).ok_or(CallFailure::Overloaded)?;
        if facts.client.as_ref().is_some_and(|client| !client.charge(cost)) {
            return Err(CallFailure::NoRoom);
        }
        let Some(edge) = shared.room(cost) else {
            facts.client.as_ref().inspect(|client| client.release(cost));
            return Err(CallFailure::NoRoom);
        };
        Ok(Self { client: Some(Arc::clone(facts)), cost, _at_service: at_service, _edge: edge })
    }

    /// Charges a call that no request waits for, which may take what requests leave of the budget; `None` without room.
    pub(super) fn spare(backend: &Backend, shared: &Shared) -> Option<Self> {
        let cost = Cost::EXTERNAL_AUTH;
        let at_service = shared.enter_service(backend, cost)?;
        let edge = shared.budget.charge_spare(cost).then(|| shared.budget.keep(cost))?;
        Some(Self { client: None, cost, _at_service: at_service, _edge: edge })
    }
}

impl Drop for CallCharge {
    fn drop(&mut self) {
        let client = self.client.as_ref().and_then(|facts| facts.client.as_ref());
        client.inspect(|client| client.release(self.cost));
    }
}
