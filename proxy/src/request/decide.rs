//! The way from a route to an endpoint: the guards, then the share of the route and its target. If a guard calls an
//! authorisation service, the request waits for the answer and continues after that guard.

mod shown;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tidegate_config::model::{
    Backend, Cors, Effective, ExternalAuth, Head, RequestIds, Route, ShareDecision, Target, decide_share,
};

use crate::clock;
use crate::connection::ConnectionFacts;
use crate::http::compression::Negotiation;
use crate::http::names::HeaderNames;
use crate::observe::external_auth_metrics::{CallFailure, Outcome};
use crate::reason::Reason;
use crate::request::cors;
use crate::request::exchange::{Arrived, End, Exchange, Matched, Replied};
use crate::request::external_auth::{self, AuthCheck, CallCharge, CheckResult};
use crate::request::forwarding::{Charges, Forwarding, SelectedTarget, Session, head_deadline};
use crate::request::guard::{Admitted, GuardResult, Guarded, Inbound, admit};
use crate::request::local_reply::LocalReply;
use crate::request::phase::{RequestFacts, Routed, Unrouted};
use crate::request::request_id::RequestId;
use crate::request::validate::{Protocol, ValidRequest};
use crate::shared::Shared;
use crate::upstream::attempt::has_usable;
use crate::upstream::balance::{self, Random};

/// The decision about a request.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "almost all requests are forwarded, without an allocation")]
pub(crate) enum Decided {
    /// It goes to an endpoint.
    Forwards(Forwarding),
    /// The edge answers it.
    Reply(Replied),
    /// It is not complete: a guard needs the answer of an authorisation service.
    Asks(Box<Pending>),
}

/// A request whose guard waits for an answer.
#[derive(Debug)]
pub(crate) struct Pending {
    undecided: Undecided,
    valid: ValidRequest<'static>,
    check: Box<PendingCheck>,
}

/// A call of an authorisation service.
#[derive(Debug)]
struct PendingCheck {
    at: CheckedBy,
    auth_check: AuthCheck,
}

/// The caller of the authorisation service.
#[derive(Debug)]
enum CheckedBy {
    /// The guard of the route at this index.
    Guard(usize),
    /// The share at this index, which was chosen after the guards of the route allowed the request.
    Share(Admitted, usize),
}

/// The outcome of the steps.
enum Step {
    Selected(SelectedTarget),
    Asks(Box<PendingCheck>),
}

/// A request with its route, and the settings that apply.
#[derive(Debug)]
struct Undecided {
    exchange: Exchange,
    request: RequestFacts,
    matched: Matched,
    effective: Effective,
    /// Its session, if the route has session persistence.
    session: Option<Box<Session>>,
    /// The number of bytes of its body that are held for an authorisation service.
    held_bytes: usize,
    draw: u64,
}

impl Decided {
    /// Records the request. Only the first call counts; one whose guard still waits is recorded when it is dropped.
    pub(crate) fn record<H: Head + ?Sized>(&mut self, head: &H, end: &End<'_>) {
        match self {
            Self::Forwards(forwarding) => forwarding.record(Some(head), end),
            Self::Reply(replied) => replied.record(head, end),
            Self::Asks(_) => {}
        }
    }
}

impl Arrived {
    /// Decides whether the request may pass, and its destination: its guards, then its target.
    pub(crate) fn decide<H: Head + HeaderNames>(
        self,
        routed: Result<Routed<'_>, Unrouted>,
        facts: &Arc<ConnectionFacts>,
        head: &H,
        random: u128,
    ) -> Decided {
        let request_id = RequestId::choose(head, self.shared.options.keep_request_id, random);
        let mut exchange = Exchange::new(self, Arc::clone(facts), request_id);
        match routed {
            Ok(Routed { request, valid, listener, route }) => {
                let mut undecided = Undecided::new(exchange, request, Matched { listener, route }, head, random);
                let step = undecided.guards(&valid, 0, head);
                undecided.settle(step, valid)
            }
            Err(Unrouted { request, reason }) => {
                exchange.request = request;
                Decided::Reply(Replied::new(exchange, reason.into()))
            }
        }
    }
}

impl Pending {
    /// The part that every request has.
    pub(crate) const fn exchange(&self) -> &Exchange {
        &self.undecided.exchange
    }

    /// The maximum size of the request's body that is sent to the service; a request with more is refused. 0 for no
    /// body.
    pub(crate) fn body_bytes_max(&self) -> usize {
        self.check.auth_check.service.body_bytes_max as usize
    }

    /// The earlier of `patience` and the deadline of the request, until which the body for the service must have
    /// arrived, and the reason for the answer after it.
    pub(crate) fn hold_end(&self, patience: Instant) -> (Instant, Reason) {
        let deadline = self.check.auth_check.until.filter(|deadline| *deadline < patience);
        deadline.map_or((patience, Reason::BodyStalled), |deadline| (deadline, Reason::UpstreamTimeout))
    }

    /// Calls the service and waits for its answer.
    pub(crate) async fn ask(&self, body: Bytes, shared: &Shared) -> CheckResult {
        external_auth::ask(&self.check.auth_check, body, shared).await
    }

    /// Continues with the answer, or with the reason why the request failed before it came. `held_bytes` is the number
    /// of bytes of the request's body that are held outside of the buffers that every request has; they are charged
    /// with it.
    pub(crate) fn resume<H: Head + HeaderNames>(
        self: Box<Self>,
        result: Result<CheckResult, Reason>,
        held_bytes: usize,
        head: &H,
    ) -> Decided {
        let Self { mut undecided, valid, check } = *self;
        let PendingCheck { at, auth_check } = *check;
        // The charge of the call is returned before the request itself is charged.
        drop(auth_check);
        undecided.held_bytes = held_bytes;
        let step = match result {
            Ok(CheckResult::Allowed(grants)) => {
                undecided.exchange.grants.push(Arc::new(grants));
                match at {
                    CheckedBy::Guard(place) => undecided.guards(&valid, place + 1, head),
                    CheckedBy::Share(admitted, place) => undecided.share(admitted, (place, true), &valid, head),
                }
            }
            Ok(CheckResult::Denied(response)) => Err(LocalReply::denied(response)),
            Ok(CheckResult::Failed(failure)) => Err(failure.into()),
            Err(reason) => Err(reason.into()),
        };
        undecided.settle(step, valid)
    }
}

impl Undecided {
    fn new<H: Head>(mut exchange: Exchange, request: RequestFacts, matched: Matched, head: &H, random: u128) -> Self {
        let route = &matched.route;
        let effective = exchange.arrived.snapshot.effective(route);
        if effective.request_ids == RequestIds::Correlated {
            exchange.request_id = RequestId::new(random);
            exchange.correlation = Some(exchange.request_id.correlated(head));
        }
        exchange.start = effective.request_start.then(clock::wall);
        exchange.cors = Cors::of(&route.filters).map(|cors| Box::new(cors::edits(cors, head)));
        Self { exchange, request, matched, effective, session: None, held_bytes: 0, draw: random as u64 }
    }

    /// The request with its route, for a local reply.
    fn into_exchange(self) -> Exchange {
        let Self { mut exchange, request, matched, .. } = self;
        (exchange.request, exchange.matched) = (Some(request), Some(matched));
        exchange
    }

    /// The state after the steps.
    fn settle(mut self, step: Result<Step, LocalReply>, valid: ValidRequest<'_>) -> Decided {
        match step {
            Ok(Step::Selected(selected)) => {
                let Self { mut exchange, request, matched, effective, session, draw, .. } = self;
                (exchange.request, exchange.matched) = (Some(request.clone()), Some(matched));
                Decided::Forwards(Forwarding::new(exchange, request, (effective, selected), session, draw))
            }
            Ok(Step::Asks(check)) => {
                // The client may disconnect during the wait, and the record then needs them.
                self.exchange.request = Some(self.request.clone());
                self.exchange.matched = Some(self.matched.clone());
                Decided::Asks(Box::new(Pending { undecided: self, valid: valid.to_owned(), check }))
            }
            Err(reply) => Decided::Reply(Replied::new(self.into_exchange(), reply)),
        }
    }

    /// Evaluates the guards of the route from an index on.
    fn guards<H: Head + HeaderNames>(
        &mut self,
        valid: &ValidRequest<'_>,
        from: usize,
        head: &H,
    ) -> Result<Step, LocalReply> {
        let preflight = self.preflight(head);
        let Self { exchange, request, matched: Matched { listener, route }, .. } = &*self;
        let has_endpoint = |route: &Route| route.action.targets().any(|target| self.usable(target).is_some());
        let inbound = Inbound { client: &request.client, listener, named_port: exchange.facts.named_port };
        let guarded = Guarded { route, effective: &self.effective, inbound, valid, head };
        match admit(&guarded, from, preflight, has_endpoint)? {
            GuardResult::Admitted(admitted) => self.choose_share(admitted, valid, head),
            GuardResult::Asks(place, service) => self.asks(&service, valid, CheckedBy::Guard(place), head),
        }
    }

    /// The answer to a CORS preflight, by the filter of the route or else by that of the share that the request goes
    /// to: browsers send it without the credentials that an authorisation service of the route would judge by.
    fn preflight<H: Head>(&mut self, head: &H) -> Option<LocalReply> {
        let mut place = None;
        let share = || {
            (_, place) = self.draw_share(head);
            self.matched.route.action.shares().get(place?)
        };
        let cors = Arc::clone(Cors::answering(&self.matched.route, share, head)?);
        self.exchange.cors = Some(Box::new(cors::edits(&cors, head)));
        self.exchange.share = place;
        cors::preflight(&cors, head)
    }

    /// The session of the request, if its route has session persistence, and the share that the request goes to: that
    /// of the session, or else one by their weights. Both are the same each time.
    fn draw_share<H: Head>(&self, head: &H) -> (Option<Box<Session>>, Option<usize>) {
        let (snapshot, route) = (&self.exchange.arrived.snapshot, &self.matched.route);
        let (session, returning) = Session::of(route, |target| snapshot.backend_of(target), head);
        let by_weight = || balance::share(route.action.shares(), |share| share.weight, &mut Random::new(self.draw));
        (session, returning.or_else(by_weight))
    }

    /// Chooses the share, and calls its authorisation service, if it has one.
    fn choose_share<H: Head + HeaderNames>(
        &mut self,
        admitted: Admitted,
        valid: &ValidRequest<'_>,
        head: &H,
    ) -> Result<Step, LocalReply> {
        let (session, place) = self.draw_share(head);
        (self.session, self.exchange.share) = (session, place);
        let Some((place, share)) = place.and_then(|place| Some((place, admitted.shares().get(place)?))) else {
            return Err(Reason::NoEndpoints.into());
        };
        if let Some(cors) = Cors::of(&share.filters) {
            self.exchange.cors = Some(Box::new(cors::edits(cors, head)));
        }
        self.share(admitted, (place, false), valid, head)
    }

    /// The decision of the share at an index; `is_allowed` is true once its authorisation service has allowed the
    /// request.
    fn share<H: Head + HeaderNames>(
        &self,
        admitted: Admitted,
        (place, is_allowed): (usize, bool),
        valid: &ValidRequest<'_>,
        head: &H,
    ) -> Result<Step, LocalReply> {
        let share = self.matched.route.action.shares().get(place).ok_or(Reason::NoEndpoints)?;
        match decide_share(share, is_allowed, |target| self.usable(target)) {
            ShareDecision::Asks(service) => self.asks(service, valid, CheckedBy::Share(admitted, place), head),
            ShareDecision::Forward(target, backend) => {
                self.select_target(admitted, place, (target, backend), head).map(Step::Selected)
            }
            ShareDecision::Responded(status) => Err(LocalReply::invalid_backend(status)),
            ShareDecision::Refused(refusal) => Err(Reason::from(refusal).into()),
        }
    }

    /// The target of the chosen share: a 503 decided before costs the client no connection. The request is charged.
    fn select_target<H: Head>(
        &self,
        admitted: Admitted,
        share: usize,
        (target, backend): (&Arc<Target>, &Arc<Backend>),
        head: &H,
    ) -> Result<SelectedTarget, LocalReply> {
        let (target, backend) = (Arc::clone(target), Arc::clone(backend));
        let compression = self.exchange.arrived.snapshot.compression(admitted.route());
        let is_http10 = self.request.protocol == Protocol::Http10;
        let negotiation = compression.map(|compression| Negotiation::of(compression, head, is_http10));
        let charges = Charges::new(&self.exchange, &backend, self.held_bytes)?;
        Ok(SelectedTarget { admitted, share, target, backend, negotiation, charges })
    }

    /// The backend of a target, if it has an endpoint.
    fn usable<'a>(&'a self, target: &'a Target) -> Option<&'a Arc<Backend>> {
        let backend = self.exchange.arrived.snapshot.backend_of(target);
        backend.filter(|backend| has_usable(backend, &[], self.exchange.own_addresses()))
    }

    /// Prepares the call of an authorisation service.
    fn asks<H: Head + HeaderNames>(
        &self,
        service: &Arc<ExternalAuth>,
        valid: &ValidRequest<'_>,
        at: CheckedBy,
        head: &H,
    ) -> Result<Step, LocalReply> {
        let max = u64::from(service.body_bytes_max);
        if max > 0 && valid.content_length.is_some_and(|bytes| bytes > max) {
            return Err(Reason::BodyTooLarge.into());
        }
        let (shared, facts) = (self.exchange.shared(), &self.exchange.facts);
        let failed = |failure| {
            shared.external_auth.count(Outcome::Failed(failure));
            LocalReply::from(failure)
        };
        let backend = self.usable(&service.target).ok_or_else(|| failed(CallFailure::NoEndpoint))?;
        let _charge = CallCharge::new(service.body_bytes_max, backend, facts, shared).map_err(failed)?;
        let until = head_deadline(self.exchange.arrived.began, &self.effective);
        let auth_check = AuthCheck {
            service: Arc::clone(service),
            backend: Arc::clone(backend),
            shown: self.shown(valid, head),
            until,
            facts: Arc::clone(facts),
            _charge,
        };
        Ok(Step::Asks(Box::new(PendingCheck { at, auth_check })))
    }
}
