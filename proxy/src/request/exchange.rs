//! The state of one request from its head to its end: its snapshot, its charges, its attempts, and its log entry. A
//! driver calls it for decisions and reports events to it; it does not know sessions of drivers.

mod attempt;
mod compression;
mod copies;
mod deadline;
mod decide;
mod edits;
mod load;
mod persistence;
mod record;
mod retries;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::HeaderValue;
use tidegate_config::model::{Effective, HeaderEdits, ListenerName, Route, Snapshot};

use crate::budget::Budget;
use crate::connection::ConnectionFacts;
use crate::http::compression::Negotiation;
use crate::observe::metrics::{Connect, Driver};
use crate::options::RateLimits;
use crate::reason::Reason;
use crate::request::answer::Answer;
use crate::request::external_auth::Grants;
use crate::request::mirror::Copies;
use crate::request::phase::{Aimed, RequestFacts};
use crate::request::request_id::RequestId;
use crate::shared::Shared;
use crate::upstream::attempt::{Attempts, Here, Sign};
use crate::upstream::balance::Draw;

pub(crate) use attempt::UpstreamAttempt;
pub(crate) use compression::Coding;
pub(crate) use decide::{Decided, Pending};
use load::Load;
use persistence::Session;
pub(crate) use record::End;

/// The state of one request.
#[derive(Debug)]
pub(crate) struct Exchange {
    driver: Driver,
    shared: Arc<Shared>,
    snapshot: Arc<Snapshot>,
    began: Instant,
    /// The deadline of the next part of the response.
    due: Option<Instant>,
    /// The deadline of the current attempt.
    attempt_end: Option<Instant>,
    /// The least time before the next attempt, if there is one.
    backoff: Option<Duration>,
    facts: Option<Arc<ConnectionFacts>>,
    request_id: RequestId,
    /// The correlation ids, if its route forwards them.
    correlation: Option<HeaderValue>,
    /// The arrival time, if its route sends it to the endpoint.
    start: Option<SystemTime>,
    request: Option<RequestFacts>,
    listener: Option<ListenerName>,
    route: Option<Arc<Route>>,
    /// The settings of its route, or the defaults before the route is known.
    effective: Effective,
    /// The facts for compression, if its route enables it and no response has begun.
    negotiation: Option<Negotiation>,
    /// Whether it requests an upgrade and may have it.
    asks_upgrade: bool,
    /// The CORS headers of responses, if the route has a policy.
    cors: Option<Box<HeaderEdits>>,
    /// The grants of authorisation services.
    grants: Vec<Arc<Grants>>,
    /// The mirrored requests, until they are sent.
    copies: Option<Box<Copies>>,
    /// The index of its share of the route.
    share: Option<usize>,
    /// Its session, if the route has session persistence.
    session: Option<Box<Session>>,
    load: Option<Load>,
    /// The number of held bytes of its body, until it has its endpoint.
    held_bytes: usize,
    attempts: Attempts,
    body_bytes: u64,
    answer: Option<Answer>,
    recorded: bool,
}

impl Exchange {
    /// Begins with a request's head; the request uses this snapshot to its end.
    pub(crate) fn begin(driver: Driver, snapshot: Arc<Snapshot>, shared: Arc<Shared>, now: Instant) -> Self {
        shared.metrics.in_flight.inc();
        Self {
            driver,
            shared,
            snapshot,
            began: now,
            due: None,
            attempt_end: None,
            backoff: None,
            facts: None,
            request_id: RequestId::none(),
            correlation: None,
            start: None,
            request: None,
            listener: None,
            route: None,
            effective: Effective::DEFAULT,
            negotiation: None,
            asks_upgrade: false,
            cors: None,
            grants: Vec::new(),
            copies: None,
            share: None,
            session: None,
            load: None,
            held_bytes: 0,
            attempts: Attempts::default(),
            body_bytes: 0,
            answer: None,
            recorded: false,
        }
    }

    /// Chooses the endpoint of the next attempt. With the first attempt the request is charged.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(crate) fn attempt<'a>(
        &'a mut self,
        aimed: &'a Aimed,
        now: Instant,
        draw: u64,
    ) -> Result<UpstreamAttempt<'a>, Reason> {
        self.charge(aimed)?;
        let end = self.end();
        if end.is_some_and(|end| end <= now) {
            return Err(Reason::UpstreamTimeout);
        }
        self.attempt_end = self.effective.attempt_timeout.map(|limit| now + limit);
        self.due = self.head_end();
        // Each attempt sends the body from its beginning.
        self.body_bytes = 0;
        let (here, chance) = (here(&self.shared, &aimed.facts), (now, &mut Draw::new(draw)));
        let balance = self.effective.balance;
        let endpoint = self.attempts.next(&aimed.backend, balance, here, &self.shared.endpoints, chance);
        let endpoint = endpoint.ok_or(Reason::NoEndpoints)?;
        let until = |end: Option<Instant>| end.map(|end| end.saturating_duration_since(now));
        let (remaining, response) = (until(self.due), until(self.response_end()));
        let (effective, target) = (&self.effective, &aimed.target);
        Ok(UpstreamAttempt { effective, target, endpoint, upgrade: self.asks_upgrade, remaining, response })
    }

    /// The snapshot of the request.
    pub(crate) const fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// When it began.
    pub(crate) const fn began(&self) -> Instant {
        self.began
    }

    /// A connection is open; `reused` for one from the pool.
    pub(crate) fn connected(&mut self, reused: bool, now: Instant) {
        let duration = self.attempts.connected(reused, now);
        // An upgrade has the read timeout of a request until it is answered; the connection's own timeout is that of
        // the tunnel.
        if self.asks_upgrade() {
            self.awaited(now);
        }
        self.shared.metrics.connect(if reused { Connect::Reused } else { Connect::Opened });
        if let Some(duration) = duration {
            self.shared.metrics.connect_duration.observe(duration.as_secs_f64());
        }
    }

    /// Returns `true` if it requests an upgrade and may have it.
    pub(crate) const fn asks_upgrade(&self) -> bool {
        self.asks_upgrade
    }

    /// Records a piece of the request's body, for its limit and for mirrors; with the last piece the request is
    /// complete.
    ///
    /// # Errors
    /// [`Reason::BodyTooLarge`] if the body exceeds the limit of the route.
    pub(crate) fn body(&mut self, piece: &[u8], is_last: bool) -> Result<(), Reason> {
        if let Some(copies) = &mut self.copies {
            copies.piece(self.body_bytes, piece);
        }
        self.count(piece.len(), is_last)
    }

    /// Counts bytes of the request's body.
    ///
    /// # Errors
    /// [`Reason::BodyTooLarge`] if the body exceeds the limit of the route.
    pub(crate) fn count(&mut self, bytes: usize, is_whole: bool) -> Result<(), Reason> {
        self.body_bytes += bytes as u64;
        let max = self.effective.body_bytes_max;
        if max.is_some_and(|max| self.body_bytes > max) {
            return Err(Reason::BodyTooLarge);
        }
        if is_whole {
            self.request_is_whole();
        }
        Ok(())
    }

    /// Records the head of the endpoint's response.
    pub(crate) fn response_began(&mut self, status: u16, now: Instant) {
        if status == 101 {
            self.due = None;
            self.becomes_tunnel();
        } else {
            self.due = self.response_end();
        }
        let sign = match status {
            502..=504 => Sign::Unable,
            _ if self.body_bytes > 0 => Sign::Slowed,
            _ => Sign::Answer,
        };
        self.attempts.first_byte(sign, now, self.shared.endpoints.moment(now));
        self.end_retry();
    }

    /// The idle timeout of the tunnel after an upgrade.
    pub(crate) const fn tunnel_idle(&self) -> Duration {
        self.effective.tunnel_idle_timeout
    }

    /// The request failed. Returns the answer for the case that no response has begun. An earlier answer stays.
    pub(crate) fn failed(&mut self, reason: Reason) -> &Answer {
        self.due = None;
        self.answer.get_or_insert_with(|| reason.into())
    }

    /// The minimum rates of clients, and the budget that decides whether they are enforced.
    pub(crate) fn rates(&self) -> (&RateLimits, &Budget) {
        (&self.shared.options.client.rates, &self.shared.budget)
    }
}

fn here<'a>(shared: &'a Shared, facts: &ConnectionFacts) -> Here<'a> {
    Here { listening: &shared.listening, local: Some(facts.local.ip()) }
}
