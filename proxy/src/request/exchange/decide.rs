//! The way from a route to an endpoint: the guards, then the target. If a guard calls an authorisation service, the
//! request waits here and continues after that guard.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_config::model::{AppProtocol, Cors, Destination, ExternalAuth, Head, RequestIds, Route};

use super::{Exchange, here};
use crate::clock;
use crate::connection::ConnectionFacts;
use crate::http::compression::Negotiation;
use crate::http::edited::edited;
use crate::http::edits::Edits;
use crate::http::names::HeaderNames;
use crate::observe::external_auth_metrics::{Failure, Outcome};
use crate::reason::Reason;
use crate::request::answer::Answer;
use crate::request::cors;
use crate::request::external_auth::{self, Charged, Grants, Question, Shown, Verdict};
use crate::request::guard::{Admitted, Inbound, Passed, admit};
use crate::request::hygiene::{Protocol, Sound};
use crate::request::phase::{Aimed, RequestFacts, Routed, Unrouted};
use crate::request::request_id::RequestId;
use crate::request::respond::Filters;
use crate::request::rewrite;
use crate::upstream::attempt::Attempts;
use crate::upstream::balance::{self, Draw};

/// The progress of a decision.
#[derive(Debug)]
pub(crate) enum Decided {
    /// Complete: the request goes to an endpoint.
    Aimed(Aimed),
    /// A guard needs the answer of an authorisation service.
    Asks(Box<Pending>),
}

/// A request whose guard waits for an answer.
#[derive(Debug)]
pub(crate) struct Pending {
    request: RequestFacts,
    sound: Sound<'static>,
    at: At,
    draw: u64,
    question: Question,
}

/// The caller of the authorisation service.
#[derive(Debug)]
enum At {
    /// The guard of the route at this index.
    Guard(usize),
    /// The share that was chosen after the guards of the route allowed the request.
    Share(Admitted),
}

impl Pending {
    /// The maximum size of the request's body that is sent to the service; a request with more is refused. 0 for no
    /// body.
    pub(crate) fn body_bytes_max(&self) -> usize {
        self.question.service.body_bytes_max as usize
    }

    /// Calls the service and waits for its answer.
    pub(crate) async fn ask(&self, body: Bytes, shared: &crate::shared::Shared) -> Verdict {
        external_auth::ask(&self.question, body, shared).await
    }
}

/// The input of the steps.
struct Look<'a, H> {
    facts: &'a Arc<ConnectionFacts>,
    head: &'a H,
    draw: u64,
}

impl<H> Clone for Look<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Look<'_, H> {}

impl Exchange {
    /// Decides whether the request may pass, and its destination: its guards, then its target.
    ///
    /// # Errors
    /// The answer to send instead.
    pub(crate) fn decide<H: Head + HeaderNames>(
        &mut self,
        routed: Result<Routed<'_>, Unrouted>,
        facts: &Arc<ConnectionFacts>,
        head: &H,
        chance: u128,
    ) -> Result<Decided, Answer> {
        self.facts = Some(Arc::clone(facts));
        self.request_id = RequestId::choose(head, self.shared.options.keep_request_id, chance);
        let decided = match routed {
            Ok(routed) => {
                let (request, sound) = self.take(routed, head, chance);
                self.guards(request, (sound, 0), Look { facts, head, draw: chance as u64 })
            }
            Err(unrouted) => {
                self.asks_upgrade = unrouted.request.as_ref().is_some_and(|request| request.upgrade.is_some());
                self.request = unrouted.request;
                Err(unrouted.reason.into())
            }
        };
        self.answer = decided.as_ref().err().cloned();
        decided
    }

    /// Continues with a request whose guard has its answer.
    ///
    /// # Errors
    /// The answer to send instead.
    pub(crate) fn resume<H: Head + HeaderNames>(
        &mut self,
        pending: Pending,
        verdict: Verdict,
        head: &H,
    ) -> Result<Decided, Answer> {
        let Pending { request, sound, at, draw, question } = pending;
        let facts = Arc::clone(&question.facts);
        // The charge of the call is returned before the request itself is charged.
        drop(question);
        let decided = match verdict {
            Verdict::Allowed(grants) => {
                self.grant(grants, head);
                let look = Look { facts: &facts, head, draw };
                match at {
                    At::Guard(place) => self.guards(request, (sound, place + 1), look),
                    At::Share(admitted) => self.target(request, admitted, &facts, draw).map(Decided::Aimed),
                }
            }
            Verdict::Denied(response) => Err(Answer::denied(response)),
            Verdict::Failed(failure) => Err(failure.into()),
        };
        self.answer = decided.as_ref().err().cloned();
        decided
    }

    /// Keeps the grants of a service, and removes client headers that endpoints may mistake for them.
    fn grant<H: HeaderNames>(&mut self, mut grants: Grants, head: &H) {
        let misleading = external_auth::misleading(&grants.request, |see| head.each_name(see));
        if !misleading.is_empty() {
            grants.request.remove = grants.request.remove.iter().cloned().chain(misleading).collect();
        }
        self.grants.push(Arc::new(grants));
    }

    /// Stores the facts about the request, and the settings of its route.
    fn take<'h, H: Head>(&mut self, routed: Routed<'h>, head: &H, chance: u128) -> (RequestFacts, Sound<'h>) {
        let Routed { request, sound, listener, route } = routed;
        self.effective = self.snapshot.effective(&route);
        let is_http10 = request.protocol == Protocol::Http10;
        self.negotiation = self.snapshot.compression(&route).map(|it| Negotiation::of(it, head, is_http10));
        self.asks_upgrade = request.upgrade.is_some();
        self.request = Some(request.clone());
        self.listener = Some(listener);
        if self.effective.request_ids == RequestIds::Correlated {
            self.request_id = RequestId::new(chance);
            self.correlation = Some(self.request_id.correlated(head));
        }
        self.start = self.effective.request_start.then(clock::wall);
        self.cors = Cors::of(&route.filters).map(|cors| Box::new(cors::edits(cors, head)));
        self.route = Some(route);
        (request, sound)
    }

    /// Evaluates the guards of the route from an index on.
    fn guards<H: Head + HeaderNames>(
        &mut self,
        request: RequestFacts,
        (sound, from): (Sound<'_>, usize),
        look: Look<'_, H>,
    ) -> Result<Decided, Answer> {
        let Look { facts, head, .. } = look;
        let (Some(route), Some(listener)) = (&self.route, &self.listener) else { return Err(Reason::Internal.into()) };
        let (snapshot, attempts, shared) = (&self.snapshot, &self.attempts, &self.shared);
        let has_endpoint = |route: &Route| {
            let mut backends = route.action.targets().filter_map(|target| snapshot.backend_of(target));
            backends.any(|backend| attempts.leaves(backend, here(shared, facts)))
        };
        let is_own_port = request.client.secure == facts.tls.is_some();
        let port = is_own_port.then_some(&*facts.text.port);
        let inbound = Inbound { client: &request.client, listener, port };
        match admit((route, from), &self.effective, &inbound, &sound, head, has_endpoint)? {
            Passed::Admitted(admitted) => self.aim(request, admitted, &sound, look),
            Passed::Asks(place, service) => self.asks(request, &service, &sound, At::Guard(place), look),
        }
    }

    /// Chooses the share, and calls its authorisation service, if it has one.
    fn aim<H: Head + HeaderNames>(
        &mut self,
        request: RequestFacts,
        admitted: Admitted,
        sound: &Sound<'_>,
        look: Look<'_, H>,
    ) -> Result<Decided, Answer> {
        let shares = admitted.shares();
        let returning = self.come_back(shares, look.head);
        self.share = returning.or_else(|| balance::share(shares, |share| share.weight, &mut Draw::new(look.draw)));
        let share = self.share.and_then(|place| shares.get(place));
        if let Some(cors) = share.and_then(|share| Cors::of(&share.filters)) {
            self.cors = Some(Box::new(cors::edits(cors, look.head)));
            if let Some(answer) = cors::preflight(cors, look.head) {
                return Err(answer);
            }
        }
        match share.and_then(|share| share.external_auth.as_ref()) {
            Some(service) => {
                let service = Arc::clone(service);
                self.asks(request, &service, sound, At::Share(admitted), look)
            }
            None => self.target(request, admitted, look.facts, look.draw).map(Decided::Aimed),
        }
    }

    /// The target of the chosen share, if it has an endpoint: a 503 decided here costs the client no connection.
    fn target(
        &mut self,
        request: RequestFacts,
        mut admitted: Admitted,
        facts: &Arc<ConnectionFacts>,
        draw: u64,
    ) -> Result<Aimed, Answer> {
        let target = match self.share.and_then(|place| admitted.shares().get(place)).map(|share| &share.to) {
            Some(Destination::Target(target)) => Arc::clone(target),
            Some(Destination::Status(status)) => return Err(Answer::status(*status)),
            None => return Err(Reason::NoEndpoints.into()),
        };
        let backend = self.snapshot.backend_of(&target).ok_or(Reason::NoEndpoints)?;
        if !self.attempts.leaves(backend, here(&self.shared, facts)) {
            return Err(Reason::NoEndpoints.into());
        }
        let (backend, facts) = (Arc::clone(backend), Arc::clone(facts));
        self.begin_copies(!draw);
        admitted.grants.clone_from(&self.grants);
        Ok(Aimed { request, admitted, target, backend, facts })
    }

    /// Prepares the call of an authorisation service.
    fn asks<H: Head + HeaderNames>(
        &self,
        request: RequestFacts,
        service: &Arc<ExternalAuth>,
        sound: &Sound<'_>,
        at: At,
        look: Look<'_, H>,
    ) -> Result<Decided, Answer> {
        let Look { facts, draw, .. } = look;
        let max = u64::from(service.body_bytes_max);
        if max > 0 && sound.content_length.is_some_and(|bytes| bytes > max) {
            return Err(Reason::BodyTooLarge.into());
        }
        let failed = |failure| {
            self.shared.external_auth.count(Outcome::Failed(failure));
            Answer::from(failure)
        };
        let reachable = |backend: &&Arc<_>| Attempts::default().leaves(backend, here(&self.shared, facts));
        let backend = self.snapshot.backend_of(&service.target).filter(reachable);
        let backend = Arc::clone(backend.ok_or_else(|| failed(Failure::NoEndpoint))?);
        let charge = Charged::new(service.body_bytes_max, &backend, facts, &self.shared).map_err(failed)?;
        let until = self.end();
        let shown = self.shown(&request, sound, look);
        let (service, facts) = (Arc::clone(service), Arc::clone(facts));
        let question = Question { service, backend, shown, until, facts, _charge: charge };
        let sound = sound.to_owned();
        Ok(Decided::Asks(Box::new(Pending { request, sound, at, draw, question })))
    }

    /// The request as an authorisation service sees it.
    fn shown<H: Head + HeaderNames>(&self, request: &RequestFacts, sound: &Sound<'_>, look: Look<'_, H>) -> Shown {
        let Look { facts, head, .. } = look;
        let mut edits = Edits::default();
        if let Some(route) = &self.route {
            let filters = Filters { route: &[], share: &[], secure: request.client.secure, cors: None };
            rewrite::request(
                head,
                &self.rewrite_input(request, (route, filters), AppProtocol::Http, facts),
                &mut edits,
            );
        }
        let target = match (edits.target(), head.query()) {
            (Some(target), _) => String::from_utf8_lossy(target).into(),
            (None, Some(query)) => format!("{}?{query}", head.path()).into(),
            (None, None) => head.path().into(),
        };
        let client = (request.client.address, if request.client.trusted { 0 } else { facts.peer.port() });
        Shown {
            method: head.method().into(),
            target,
            scheme: request.client.scheme(),
            protocol: request.protocol.as_str(),
            headers: edited(head, &edits),
            request_id: self.request_id.as_str().into(),
            client: client.into(),
            local: facts.local,
            server_name: facts.tls.as_ref().and_then(|tls| tls.server_name.clone()),
            time: clock::wall(),
            size: sound.content_length,
        }
    }
}
