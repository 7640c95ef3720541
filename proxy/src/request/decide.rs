//! The way from a route to an endpoint: the share of the route, the policies, then the target. If a policy calls a
//! server or waits for the store of limits, the request waits for the answer and continues after that.

mod shown;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tidegate_config::model::{Backend, Cors, Effective, ExternalAuth, Head, PolicyProgress, RequestIds, Target};

use crate::clock;
use crate::connection::ConnectionFacts;
use crate::http::compression::Negotiation;
use crate::http::names::HeaderNames;
use crate::observe::external_auth_metrics::{CallFailure, Outcome};
use crate::options::LimitHeaders;
use crate::reason::Reason;
use crate::request::exchange::{Arrived, End, Exchange, Matched, Replied};
use crate::request::forwarding::{Charges, Forwarding, SelectedTarget, Session, head_deadline};
use crate::request::local_reply::LocalReply;
use crate::request::phase::{RequestFacts, Routed, Unrouted};
use crate::request::policy::cors;
use crate::request::policy::external_auth::{self, AuthCheck, CheckResult};
use crate::request::policy::{
    Admitted, Answers, CallCharge, Inbound, LimitOutcome, PendingCalls, PolicyRequest, PolicyResult, RequestState,
    Waited, WaitingLimits, admit, connection_attributes, tell,
};
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
    /// It is not complete: a policy waits for an answer.
    Asks(Box<Pending>),
}

/// A request with a policy that waits for an answer.
#[derive(Debug)]
pub(crate) struct Pending {
    undecided: Undecided,
    valid: ValidRequest<'static>,
    question: PendingQuestion,
}

/// What a request waits for.
#[derive(Debug)]
enum PendingQuestion {
    /// The answer of an authorisation service.
    Check(Box<AuthCheck>),
    /// The store of limits, until it has answered or for a few milliseconds.
    Limits(WaitingLimits),
    /// The answers to the calls of rules.
    Calls(PendingCalls),
}

/// The answer to the question of a policy.
#[derive(Debug)]
pub(crate) enum PolicyAnswer {
    /// That of an authorisation service.
    Checked(CheckResult),
    /// The wait for the store of limits is over.
    Waited,
    /// The answers to calls.
    Called(Answers),
}

/// The outcome of the policies.
enum Step {
    Selected(SelectedTarget),
    Asks(PendingQuestion),
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
    /// The policies that it has passed.
    progress: PolicyProgress,
    /// What it has waited for since they ran.
    waited: Option<Box<Waited>>,
    /// The number of bytes of its body that are held for an authorisation service.
    held_bytes: usize,
    draw: u64,
}

impl Decided {
    /// Records the request. Only the first call counts; one with a policy that still waits is recorded when it is
    /// dropped.
    pub(crate) fn record<H: Head + ?Sized>(&mut self, head: &H, end: &End<'_>) {
        match self {
            Self::Forwards(forwarding) => forwarding.record(Some(head), end),
            Self::Reply(replied) => replied.record(head, end),
            Self::Asks(_) => {}
        }
    }
}

impl Arrived {
    /// Decides whether the request may pass, and its destination.
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
            Ok(Routed { request, valid, listener, route, policies }) => {
                let matched = Matched { listener, route, policies };
                let mut undecided = Undecided::new(exchange, request, matched, head, random);
                let step = undecided.run_policies(&valid, head);
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
        self.check().map_or(0, |check| check.service.body_bytes_max as usize)
    }

    fn check(&self) -> Option<&AuthCheck> {
        match &self.question {
            PendingQuestion::Check(check) => Some(check),
            PendingQuestion::Limits(_) | PendingQuestion::Calls(_) => None,
        }
    }

    /// The earlier of `patience` and the deadline of the request, until which the body for the service must have
    /// arrived, and the reason for the answer after it.
    pub(crate) fn hold_end(&self, patience: Instant) -> (Instant, Reason) {
        let deadline = self.check().and_then(|check| check.until).filter(|deadline| *deadline < patience);
        deadline.map_or((patience, Reason::BodyStalled), |deadline| (deadline, Reason::UpstreamTimeout))
    }

    /// Asks and waits for the answer.
    pub(crate) async fn ask(&self, body: Bytes, shared: &Shared) -> PolicyAnswer {
        match &self.question {
            PendingQuestion::Check(check) => PolicyAnswer::Checked(external_auth::ask(check, body, shared).await),
            PendingQuestion::Limits(limits) => {
                limits.wait.refilled().await;
                PolicyAnswer::Waited
            }
            PendingQuestion::Calls(calls) => PolicyAnswer::Called(calls.ask(shared).await),
        }
    }

    /// Continues with the answer, or with the reason why the request failed before it came. `held_bytes` is the number
    /// of bytes of the request's body that are held outside of the buffers that every request has; they are charged
    /// with it.
    pub(crate) fn resume<H: Head + HeaderNames>(
        self: Box<Self>,
        answer: Result<PolicyAnswer, Reason>,
        held_bytes: usize,
        head: &H,
    ) -> Decided {
        let Self { mut undecided, valid, question } = *self;
        match question {
            // The charge of the call is returned before the request itself is charged.
            PendingQuestion::Check(check) => drop(check),
            PendingQuestion::Limits(limits) => undecided.waited = Some(Box::new(Waited::Limits(limits))),
            PendingQuestion::Calls(calls) => drop(calls),
        }
        undecided.held_bytes = held_bytes;
        let step = match answer {
            Ok(PolicyAnswer::Checked(CheckResult::Allowed(grants))) => {
                undecided.exchange.outcome.grants.push(Arc::new(grants));
                undecided.run_policies(&valid, head)
            }
            Ok(PolicyAnswer::Checked(CheckResult::Denied(response))) => Err(LocalReply::denied(response)),
            Ok(PolicyAnswer::Checked(CheckResult::Failed(failure))) => Err(failure.into()),
            Ok(PolicyAnswer::Waited) => undecided.run_policies(&valid, head),
            Ok(PolicyAnswer::Called(answers)) => {
                undecided.waited = Some(Box::new(Waited::Calls(answers)));
                undecided.run_policies(&valid, head)
            }
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
        let (session, place) = Session::of(route, |target| exchange.arrived.snapshot.backend_of(target), head);
        let by_weight = || balance::share(route.action.shares(), |share| share.weight, &mut Random::new(random as u64));
        exchange.share = place.or_else(by_weight);
        let share = exchange.share.and_then(|place| route.action.shares().get(place));
        exchange.outcome.cors = Cors::applied(route, share).map(|cors| Box::new(cors::edits(cors, head)));
        let progress = PolicyProgress::default();
        Self {
            exchange,
            request,
            matched,
            effective,
            session,
            progress,
            waited: None,
            held_bytes: 0,
            draw: random as u64,
        }
    }

    /// The request with its route, for a local reply.
    fn into_exchange(self) -> Exchange {
        let Self { mut exchange, request, matched, .. } = self;
        (exchange.request, exchange.matched) = (Some(request), Some(matched));
        exchange
    }

    /// The state after the policies.
    fn settle(mut self, step: Result<Step, LocalReply>, valid: ValidRequest<'_>) -> Decided {
        match step {
            Ok(Step::Selected(selected)) => {
                let Self { mut exchange, request, matched, effective, session, draw, .. } = self;
                (exchange.request, exchange.matched) = (Some(request.clone()), Some(matched));
                Decided::Forwards(Forwarding::new(exchange, request, (effective, selected), session, draw))
            }
            Ok(Step::Asks(question)) => {
                // The client may disconnect during the wait, and the record then needs them.
                self.exchange.request = Some(self.request.clone());
                self.exchange.matched = Some(self.matched.clone());
                Decided::Asks(Box::new(Pending { undecided: self, valid: valid.to_owned(), question }))
            }
            Err(reply) => Decided::Reply(Replied::new(self.into_exchange(), reply)),
        }
    }

    /// Runs the policies from where the request has come to.
    fn run_policies<H: Head + HeaderNames>(&mut self, valid: &ValidRequest<'_>, head: &H) -> Result<Step, LocalReply> {
        let waited = self.waited.take().map(|waited| *waited);
        let Self { exchange, request, matched: Matched { listener, route, policies }, effective, progress, .. } = self;
        let exchange = &*exchange;
        let share = exchange.share.and_then(|place| route.action.shares().get(place));
        let (client, facts) = (&request.client, &exchange.facts);
        let (connection, named_port) = (connection_attributes(facts, client), facts.named_port);
        let (request_id, protocol) = (exchange.request_id.as_str(), request.protocol.attribute());
        let inbound = Inbound { client, listener, named_port, connection, request_id, protocol };
        let policies = policies.as_deref();
        let policed = PolicyRequest { route, share, policies, effective, inbound, valid, head };
        let mut state = RequestState::new(exchange.shared(), waited);
        let result = admit(&policed, progress, &mut state, |target| exchange.usable(target));
        let (auth, refused_by) = (progress.grant().cloned(), state.refused_by.take());
        tell(&state.callbacks, exchange.facts.local.ip(), exchange.shared());
        let answers = std::mem::take(&mut state.answers);
        let are_told = exchange.shared().options.limit_headers == LimitHeaders::Draft;
        if let Some(limits) = state.decision.map(|decision| LimitOutcome::of(&decision, are_told)) {
            let before = std::mem::replace(&mut self.exchange.outcome.limits, LimitOutcome::NOTHING);
            self.exchange.outcome.limits = before.and(limits);
        }
        if auth.is_some() {
            self.exchange.outcome.auth = auth;
        }
        self.exchange.outcome.refused_by = refused_by.map(Box::new);
        match result? {
            PolicyResult::Admitted(admitted, target, backend) => {
                self.select_target(admitted, target, backend, head).map(Step::Selected)
            }
            PolicyResult::Asks(service) => {
                let check = self.asks(service, valid, head)?;
                Ok(Step::Asks(PendingQuestion::Check(Box::new(check))))
            }
            PolicyResult::Waits(limits) => Ok(Step::Asks(PendingQuestion::Limits(limits))),
            PolicyResult::Calls(calls) => {
                let began = self.exchange.arrived.began;
                let until = head_deadline(began, &self.effective);
                let calls = PendingCalls::new(answers, calls, Arc::clone(&self.exchange.facts), began, until);
                Ok(Step::Asks(PendingQuestion::Calls(calls)))
            }
        }
    }

    /// The target of the chosen share: a 503 decided before costs the client no connection. The request is charged.
    fn select_target<H: Head>(
        &self,
        admitted: Admitted,
        target: Arc<Target>,
        backend: Arc<Backend>,
        head: &H,
    ) -> Result<SelectedTarget, LocalReply> {
        let compression = self.exchange.arrived.snapshot.compression(admitted.route());
        let is_http10 = self.request.protocol == Protocol::Http10;
        let negotiation = compression.map(|compression| Negotiation::of(compression, head, is_http10));
        let charges = Charges::new(&self.exchange, &backend, self.held_bytes)?;
        Ok(SelectedTarget { admitted, target, backend, negotiation, charges })
    }

    /// Prepares the call of an authorisation service.
    fn asks<H: Head + HeaderNames>(
        &self,
        service: Arc<ExternalAuth>,
        valid: &ValidRequest<'_>,
        head: &H,
    ) -> Result<AuthCheck, LocalReply> {
        let max = u64::from(service.body_bytes_max);
        if max > 0 && valid.content_length.is_some_and(|bytes| bytes > max) {
            return Err(Reason::BodyTooLarge.into());
        }
        let (shared, facts) = (self.exchange.shared(), &self.exchange.facts);
        let failed = |failure| {
            shared.external_auth.count(Outcome::Failed(failure));
            LocalReply::from(failure)
        };
        let backend = self.exchange.usable(&service.target).ok_or_else(|| failed(CallFailure::NoEndpoint))?;
        let backend = Arc::clone(backend);
        let _charge = CallCharge::new(service.body_bytes_max, &backend, facts, shared).map_err(failed)?;
        let until = head_deadline(self.exchange.arrived.began, &self.effective);
        let (shown, facts) = (self.shown(valid, head), Arc::clone(facts));
        Ok(AuthCheck { service, backend, shown, until, facts, _charge })
    }
}

impl Exchange {
    /// The backend of a target, if it has an endpoint.
    fn usable<'a>(&'a self, target: &'a Target) -> Option<&'a Arc<Backend>> {
        let backend = self.arrived.snapshot.backend_of(target);
        backend.filter(|backend| has_usable(backend, &[], self.own_addresses()))
    }
}
