//! One request from its head to its end: the snapshot it is pinned to, and what each step has decided for the next.
//! A driver asks it what to do and tells it what happened; it calls the steps in their order and knows no session.

mod attempt;
mod load;
mod record;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::HeaderValue;
use tidegate_config::model::{
    Backend, Destination, Head, ListenerName, RequestIds, Route, Snapshot, Target, WeightedTarget,
};

use crate::budget::Budget;
use crate::clock;
use crate::connection::ConnectionFacts;
use crate::http::edits::Edits;
use crate::http::names::HeaderNames;
use crate::observe::metrics::{Connect, Driver};
use crate::options::RateLimits;
use crate::reason::Reason;
use crate::request::answer::Answer;
use crate::request::client::{Client, client};
use crate::request::guard::{Admission, Admitted, admit};
use crate::request::hygiene::{self, Line, Protocol};
use crate::request::request_id::RequestId;
use crate::request::respond::{self, Filters, Labels, Received, Rendered};
use crate::request::rewrite;
use crate::request::rewrite::RewriteInput;
use crate::request::route;
use crate::shared::Shared;
use crate::upstream::attempt::{Attempts, Here, Sign};
use crate::upstream::balance::{self, Draw};
use crate::upstream::retry;
use crate::upstream::retry::{Failed, Stage};

pub(crate) use attempt::UpstreamAttempt;
use load::Load;
pub(crate) use record::End;

/// What is known of one request.
#[derive(Debug)]
pub(crate) struct Exchange {
    driver: Driver,
    shared: Arc<Shared>,
    snapshot: Arc<Snapshot>,
    began: Instant,
    /// When the head of the response is due.
    due: Option<Instant>,
    facts: Option<Arc<ConnectionFacts>>,
    request_id: RequestId,
    /// The ids that it has had on its way, where its route passes them on.
    correlation: Option<HeaderValue>,
    /// When it came, where its route tells the endpoint.
    start: Option<SystemTime>,
    request: Option<RequestFacts>,
    route: Option<Arc<Route>>,
    admitted: Option<Admitted>,
    /// The place of the share of the route that it belongs to.
    share: Option<usize>,
    backend: Option<Arc<Backend>>,
    load: Option<Load>,
    attempts: Attempts,
    body_bytes: u64,
    answer: Option<Answer>,
    recorded: bool,
}

/// What a request that is well-formed asks for.
#[derive(Debug)]
struct RequestFacts {
    client: Client,
    protocol: Protocol,
    had_dot_segments: bool,
    absolute: bool,
    upgrade: Option<HeaderValue>,
    listener: Option<ListenerName>,
}

impl Exchange {
    /// Begins with a request's head; the snapshot is the one it will see to its end.
    pub(crate) fn begin(driver: Driver, snapshot: Arc<Snapshot>, shared: Arc<Shared>, now: Instant) -> Self {
        shared.metrics.in_flight.inc();
        Self {
            driver,
            shared,
            snapshot,
            began: now,
            due: None,
            facts: None,
            request_id: RequestId::none(),
            correlation: None,
            start: None,
            request: None,
            route: None,
            admitted: None,
            share: None,
            backend: None,
            load: None,
            attempts: Attempts::default(),
            body_bytes: 0,
            answer: None,
            recorded: false,
        }
    }

    /// Decides whether the request goes on: hygiene, route, guards.
    ///
    /// # Errors
    /// The answer to give instead.
    pub(crate) fn decide<H: Head>(
        &mut self,
        head: &H,
        line: &Line<'_>,
        facts: Option<Arc<ConnectionFacts>>,
        chance: u128,
    ) -> Result<(), Answer> {
        self.facts = facts;
        self.request_id = RequestId::choose(head, self.shared.options.keep_request_id, chance);
        let decided = self.admitted(head, line, chance).and_then(|()| self.aimed(&mut Draw::new(chance as u64)));
        self.answer = decided.as_ref().err().cloned();
        decided
    }

    fn admitted<H: Head>(&mut self, head: &H, line: &Line<'_>, chance: u128) -> Result<(), Answer> {
        let snapshot = Arc::clone(&self.snapshot);
        let facts = self.facts.clone().ok_or(Reason::Internal)?;
        let sound = hygiene::check(head, line, &self.shared.head_limits)?;
        let client = client(head, facts.peer, facts.tls.is_some(), facts.trusted(&snapshot));
        let request = self.request.insert(RequestFacts {
            client,
            protocol: line.protocol,
            had_dot_segments: sound.path.had_dot_segments,
            absolute: line.target_authority.is_some(),
            upgrade: rewrite::upgrade(head, line.protocol, &self.shared.options.upgrade_tokens),
            listener: None,
        });
        let routed = route::find(&snapshot, &facts.bind, &sound.host, &sound.path.path, head)?;
        request.listener = Some(routed.listener.clone());
        self.route = Some(Arc::clone(routed.route));
        let effective = snapshot.effective(routed.route);
        if effective.request_ids == RequestIds::Correlated {
            self.request_id = RequestId::new(chance);
            self.correlation = Some(self.request_id.correlated(head));
        }
        self.start = effective.request_start.then(clock::wall);
        match admit(routed.route, effective, &client, &sound, head) {
            Admission::Go(admitted) => self.admitted = Some(admitted),
            Admission::Answer(answer) => return Err(answer),
        }
        Ok(())
    }

    /// Chooses the target, and asks whether anything is there: said now, a 503 costs the client no connection.
    fn aimed(&mut self, draw: &mut Draw) -> Result<(), Answer> {
        let shares = self.admitted.as_ref().map_or(&[][..], Admitted::shares);
        let place = balance::share(shares, |share| share.weight, draw);
        self.share = place;
        let target = match place.and_then(|place| shares.get(place)).map(|share| &share.to) {
            Some(Destination::Target(target)) => target,
            Some(Destination::Status(status)) => return Err(Answer::status(*status)),
            None => return Err(Reason::NoEndpoints.into()),
        };
        let backend = self.snapshot.backend(&target.backend).ok_or(Reason::NoEndpoints)?;
        if !self.attempts.leaves(backend, here(&self.shared, self.facts.as_deref())) {
            return Err(Reason::NoEndpoints.into());
        }
        self.backend = Some(Arc::clone(backend));
        Ok(())
    }

    /// Whether every endpoint that its route may lead to is spoken to in plain HTTP/1.1: chance has no part in who drives.
    pub(crate) fn is_plain(&self) -> bool {
        self.route.as_ref().is_none_or(|route| route.action.targets().all(|target| target.protocol.is_plain_http1()))
    }

    /// Forgets the request, which begins anew with another driver.
    pub(crate) fn withdraw(mut self) {
        if !std::mem::replace(&mut self.recorded, true) {
            self.shared.metrics.in_flight.dec();
        }
    }

    /// Chooses the endpoint to try now. The first try is the request's first effect: from then on it is charged.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn aim(&mut self, now: Instant, draw: u64) -> Result<UpstreamAttempt<'_>, Reason> {
        self.charge()?;
        let (Some(admitted), Some(request), Some(target), Some(backend)) =
            (&self.admitted, &self.request, target(self.route.as_deref(), self.share), &self.backend)
        else {
            return Err(Reason::Internal);
        };
        let (effective, end) = (admitted.effective(), self.end());
        if end.is_some_and(|end| end <= now) {
            return Err(Reason::UpstreamTimeout);
        }
        self.due = end;
        let here = here(&self.shared, self.facts.as_deref());
        // Each try sends the body from its beginning.
        self.body_bytes = 0;
        let chance = (now, &mut Draw::new(draw));
        let endpoint = self.attempts.next(backend, effective.balance, here, &self.shared.endpoints, chance);
        let endpoint = endpoint.ok_or(Reason::NoEndpoints)?;
        let remaining = end.map(|end| end - now);
        Ok(UpstreamAttempt { admitted, target, endpoint, upgrade: request.upgrade.is_some(), remaining })
    }

    /// When it began.
    pub(crate) const fn began(&self) -> Instant {
        self.began
    }

    /// When the head of the response is due; `None` while nothing is.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Notes that a connection is there, and how it was had.
    pub(crate) fn connected(&mut self, reused: bool, now: Instant) {
        let duration = self.attempts.connected(reused, now);
        // An upgrade has the read timeout of a request until it is answered; the connection's own one is the tunnel's.
        if self.asks_upgrade() {
            self.awaited(now);
        }
        self.shared.metrics.connect(if reused { Connect::Reused } else { Connect::Opened });
        if let Some(duration) = duration {
            self.shared.metrics.connect_duration.observe(duration.as_secs_f64());
        }
    }

    /// Whether it asks for an upgrade and may have it.
    pub(crate) fn asks_upgrade(&self) -> bool {
        self.request.as_ref().is_some_and(|request| request.upgrade.is_some())
    }

    /// Notes that the endpoint is waited for from now on, where the clock of the driver is another one than the route's.
    pub(crate) fn awaited(&mut self, now: Instant) {
        let Some(effective) = self.admitted.as_ref().map(Admitted::effective) else { return };
        if self.is_unanswered() {
            let silence = now + effective.read_timeout;
            self.due = Some(self.end().map_or(silence, |end| end.min(silence)));
        }
    }

    /// Notes that the endpoint need not answer yet, for more of the request comes.
    pub(crate) fn not_awaited(&mut self) {
        if self.is_unanswered() {
            self.due = self.end();
        }
    }

    /// Whether no head of a response has come from the endpoint that was tried last.
    fn is_unanswered(&self) -> bool {
        self.attempts.last().is_none_or(|attempt| attempt.first_byte.is_none())
    }

    /// When the head of the response is due at the latest.
    fn end(&self) -> Option<Instant> {
        let limit = self.admitted.as_ref().and_then(|admitted| admitted.effective().request_timeout);
        limit.map(|limit| self.began + limit)
    }

    /// Why it failed: whatever broke past the time of its response, that is why.
    pub(crate) fn in_time(&self, seen: Reason, now: Instant) -> Reason {
        if self.due.is_some_and(|at| at <= now) { Reason::UpstreamTimeout } else { seen }
    }

    /// Notes that no connection could be made, and why; whether to try another endpoint.
    pub(crate) fn connect_failed(&mut self, reason: Reason, now: Instant) -> bool {
        self.shared.metrics.connect(if reason == Reason::ConnectTimeout { Connect::TimedOut } else { Connect::Failed });
        // What the edge itself is short of says nothing about an endpoint.
        let moment = (reason != Reason::OutOfResources).then(|| self.shared.endpoints.moment(now));
        self.attempts.refused(now, moment);
        let here = here(&self.shared, self.facts.as_deref());
        let others = self.backend.as_ref().is_some_and(|backend| self.attempts.leaves(backend, here));
        self.again(Stage::Connecting { others })
    }

    fn again(&mut self, stage: Stage) -> bool {
        let tries_max = self.admitted.as_ref().map_or(1, |admitted| usize::from(admitted.effective().tries_max));
        let again = self.attempts.count() < self.shared.options.upstream.tries_max
            && retry::again(&Failed { tries: self.attempts.waited_for(), tries_max, stage });
        self.shared.metrics.retries.inc_by(again.into());
        again
    }

    /// What changes of the request on its way to the endpoint.
    ///
    /// # Errors
    /// [`Reason::Internal`] when the request was never admitted.
    pub(crate) fn request_edits<H: Head + HeaderNames>(&self, head: &H, edits: &mut Edits) -> Result<(), Reason> {
        let (Some(admitted), Some(request), Some(target), Some(facts)) =
            (&self.admitted, &self.request, target(self.route.as_deref(), self.share), &self.facts)
        else {
            return Err(Reason::Internal);
        };
        let onward = RewriteInput {
            route: admitted.route(),
            filters: self.filters(),
            protocol: target.protocol,
            spoken: request.protocol,
            had_dot_segments: request.had_dot_segments,
            client: &request.client,
            text: &facts.text,
            request_id: &self.request_id,
            correlation: self.correlation.as_ref(),
            start: self.start,
            forwarded_for: admitted.effective().forwarded_for,
            upgrade: request.upgrade.as_ref(),
            token: &self.shared.options.loop_token,
            absolute: request.absolute,
        };
        rewrite::request(head, &onward, edits);
        Ok(())
    }

    /// Counts a piece of the request's body.
    ///
    /// # Errors
    /// [`Reason::BodyTooLarge`] when it is more than the route allows.
    pub(crate) fn body(&mut self, bytes: usize) -> Result<(), Reason> {
        self.body_bytes += bytes as u64;
        let max = self.admitted.as_ref().and_then(|admitted| admitted.effective().body_bytes_max);
        if max.is_some_and(|max| self.body_bytes > max) { Err(Reason::BodyTooLarge) } else { Ok(()) }
    }

    /// Notes the head of the endpoint's response.
    pub(crate) fn response_began(&mut self, status: u16, now: Instant) {
        self.due = None;
        if status == 101 {
            self.becomes_tunnel();
        }
        let sign = match status {
            502..=504 => Sign::Unable,
            _ if self.body_bytes > 0 => Sign::Slowed,
            _ => Sign::Answer,
        };
        self.attempts.first_byte(sign, now, self.shared.endpoints.moment(now));
    }

    /// Notes that a try failed after its connection was there; whether to try again.
    pub(crate) fn broke(&mut self, reason: Reason, stage: Stage, now: Instant) -> bool {
        let excused = matches!(stage, Stage::Unanswered { reused: true, .. } | Stage::Unprocessed { .. });
        if !excused && matches!(reason, Reason::UpstreamBroken | Reason::UpstreamTimeout) {
            self.attempts.first_byte(Sign::Broken, now, self.shared.endpoints.moment(now));
        }
        // What is overdue has no time for another try.
        reason != Reason::UpstreamTimeout && self.again(stage)
    }

    /// What changes of the response on its way to the client.
    ///
    /// # Errors
    /// [`Reason::UpstreamBroken`] when the endpoint nominates too many headers.
    pub(crate) fn response_edits<'v>(
        &self,
        received: Received<impl Iterator<Item = &'v [u8]>>,
        edits: &mut Edits,
    ) -> Result<(), Reason> {
        respond::response(&self.filters(), &self.labels(), received, edits)
    }

    /// An answer of the edge's own as the client gets it.
    pub(crate) fn render(&self, answer: &Answer, method: &str) -> Rendered {
        respond::render(answer, &self.labels(), method, &self.filters())
    }

    fn labels(&self) -> Labels<'_> {
        let correlation = self.correlation.as_ref();
        Labels { request_id: &self.request_id, correlation, server: self.shared.options.server_header }
    }

    /// The filters of its route, and of the share of it that was chosen.
    fn filters(&self) -> Filters<'_> {
        let route = self.route.as_ref().map_or(&[][..], |route| &route.filters);
        let share = chosen(self.route.as_deref(), self.share).map_or(&[][..], |share| &share.filters);
        Filters { route, share, secure: self.request.as_ref().is_some_and(|request| request.client.secure) }
    }

    /// The time without a byte after which the tunnel of an upgrade ends.
    pub(crate) fn tunnel_idle(&self) -> Option<Duration> {
        self.admitted.as_ref().map(|admitted| admitted.effective().tunnel_idle_timeout)
    }

    /// Notes that the request failed; what to answer while no response has begun. An answer that was decided before stands.
    pub(crate) fn failed(&mut self, reason: Reason) -> &Answer {
        self.due = None;
        self.answer.get_or_insert_with(|| reason.into())
    }

    /// The least rates of clients, and the budget that decides whether they are enforced.
    pub(crate) fn rates(&self) -> (&RateLimits, &Budget) {
        (&self.shared.options.client.rates, &self.shared.budget)
    }
}

/// The share of a route that a request belongs to.
fn chosen(route: Option<&Route>, share: Option<usize>) -> Option<&WeightedTarget> {
    route?.action.shares().get(share?)
}

fn target(route: Option<&Route>, share: Option<usize>) -> Option<&Arc<Target>> {
    chosen(route, share).and_then(WeightedTarget::target)
}

fn here<'a>(shared: &'a Shared, facts: Option<&ConnectionFacts>) -> Here<'a> {
    Here { listening: &shared.listening, local: facts.map(|facts| facts.local.ip()) }
}
