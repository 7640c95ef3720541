//! The state of a request that goes to an endpoint, until its end: its target, its charges, its deadlines and its
//! attempts. A driver calls it for decisions and reports events to it; it does not know sessions of drivers.

mod attempts;
mod copies;
mod deadline;
mod edits;
mod charges;
mod session;

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::CONTENT_TYPE;
use tidegate_config::model::{Backend, Effective, Head, Target};

use crate::http::compression::Negotiation;
use crate::http::names::is_grpc_type;
use crate::observe::metrics::Connect;
use crate::reason::Reason;
use crate::request::exchange::{End, Ended, Exchange};
use crate::request::local_reply::LocalReply;
use crate::request::mirror::Copies;
use crate::request::phase::RequestFacts;
use crate::request::policy::Admitted;
use crate::shared::Shared;
use crate::upstream::attempt::{AttemptOutcome, Attempts};
use crate::upstream::balance::Random;
use copies::begin_copies;

pub(crate) use attempts::UpstreamAttempt;
pub(super) use charges::Charges;
pub(super) use deadline::head_deadline;
pub(crate) use edits::Coding;
pub(super) use session::Session;

/// A request that goes to an endpoint.
#[derive(Debug)]
pub(crate) struct Forwarding {
    /// The same as in the exchange, where they may be missing.
    request: RequestFacts,
    admitted: Admitted,
    /// The settings of its route.
    effective: Effective,
    target: Arc<Target>,
    /// The endpoints of the target.
    backend: Arc<Backend>,
    charges: Charges,
    attempts: Attempts,
    /// The deadline of the next part of the response.
    due: Option<Instant>,
    /// The deadline of the current attempt.
    attempt_end: Option<Instant>,
    /// The least time before the next attempt, if there is one.
    backoff: Option<Duration>,
    /// The facts for compression, if its route enables it and no response has begun.
    negotiation: Option<Negotiation>,
    /// The mirrored requests, until they are sent.
    copies: Option<Box<Copies>>,
    /// Its session, if the route has session persistence.
    session: Option<Box<Session>>,
    body_bytes: u64,
    /// Whether the client has sent the whole request.
    is_whole: bool,
    /// The local reply, once it has failed.
    reply: Option<Box<LocalReply>>,
    /// The last field: with it, the request no longer counts as in flight.
    exchange: Exchange,
}

/// The target of a request that its policies let pass, and its charge.
#[derive(Debug)]
pub(super) struct SelectedTarget {
    pub(super) admitted: Admitted,
    pub(super) target: Arc<Target>,
    pub(super) backend: Arc<Backend>,
    /// The facts for compression, if the route enables it.
    pub(super) negotiation: Option<Negotiation>,
    pub(super) charges: Charges,
}

impl Forwarding {
    /// A request without an attempt yet.
    pub(super) fn new(
        exchange: Exchange,
        request: RequestFacts,
        (effective, selected): (Effective, SelectedTarget),
        session: Option<Box<Session>>,
        draw: u64,
    ) -> Self {
        let SelectedTarget { admitted, target, backend, negotiation, charges } = selected;
        let attempts = Attempts::of_session(session.as_ref().and_then(|session| session.endpoint));
        let copies = begin_copies(&exchange, &request, !draw);
        Self {
            request,
            admitted,
            effective,
            target,
            backend,
            charges,
            attempts,
            due: None,
            attempt_end: None,
            backoff: None,
            negotiation,
            copies,
            session,
            body_bytes: 0,
            is_whole: false,
            reply: None,
            exchange,
        }
    }

    /// Chooses the endpoint of the next attempt.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(crate) fn attempt(&mut self, now: Instant, draw: u64) -> Result<UpstreamAttempt<'_>, Reason> {
        let end = self.end();
        if end.is_some_and(|end| end <= now) {
            return Err(Reason::UpstreamTimeout);
        }
        self.attempt_end = self.effective.attempt_timeout.map(|limit| now + limit);
        self.due = self.head_end();
        // Each attempt sends the body from its beginning.
        self.body_bytes = 0;
        let (here, random) = (self.exchange.own_addresses(), (now, &mut Random::new(draw)));
        let (balance, states) = (self.effective.balance, &self.exchange.shared().endpoints);
        let endpoint = self.attempts.next(&self.backend, balance, here, states, random);
        let endpoint = endpoint.ok_or(Reason::NoEndpoints)?;
        let until = |end: Option<Instant>| end.map(|end| end.saturating_duration_since(now));
        let (remaining, response) = (until(self.due), until(self.response_end()));
        let (effective, target, upgrade) = (&self.effective, &*self.target, self.asks_upgrade());
        let alone = self.attempts.needs_own_connection();
        Ok(UpstreamAttempt { effective, target, endpoint, upgrade, alone, remaining, response })
    }

    /// The part that every request has.
    pub(crate) const fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// Its target.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// When it began.
    pub(crate) const fn began(&self) -> Instant {
        self.exchange.arrived.began
    }

    const fn shared(&self) -> &Arc<Shared> {
        self.exchange.shared()
    }

    /// A connection is open; `reused` for one from the pool.
    pub(crate) fn connected(&mut self, reused: bool, now: Instant) {
        let duration = self.attempts.connected(reused, now);
        // An upgrade has the read timeout of a request until it is answered; the connection's own timeout is that of
        // the tunnel.
        if self.asks_upgrade() {
            self.awaited(now);
        }
        let metrics = &self.shared().metrics;
        metrics.connect(if reused { Connect::Reused } else { Connect::Opened });
        if let Some(duration) = duration {
            metrics.connect_duration.observe(duration.as_secs_f64());
        }
    }

    /// Returns `true` if it requests an upgrade and may have it.
    pub(crate) const fn asks_upgrade(&self) -> bool {
        self.request.upgrade.is_some()
    }

    /// Returns `true` for a gRPC stream, whose bodies have no minimum rate: either side may be silent for long. gRPC
    /// needs HTTP/2, so the endpoint's protocol decides; the content type of a client alone exempts it from nothing.
    pub(crate) fn is_grpc_stream<H: Head + ?Sized>(&self, head: &H) -> bool {
        self.target.protocol.is_http2() && head.header(CONTENT_TYPE.as_str()).is_some_and(is_grpc_type)
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
            self.charges.becomes_tunnel(&self.exchange);
        } else {
            self.due = self.response_end();
        }
        self.judge(self.outcome_of(status), now);
        self.charges.end_retry();
    }

    /// The assessment of an endpoint that answers with a status.
    const fn outcome_of(&self, status: u16) -> AttemptOutcome {
        match status {
            502..=504 => AttemptOutcome::Unable,
            _ if self.body_bytes > 0 => AttemptOutcome::Slowed,
            _ => AttemptOutcome::Response,
        }
    }

    /// Assesses the endpoint of the last attempt.
    fn judge(&mut self, outcome: AttemptOutcome, now: Instant) {
        let moment = self.shared().endpoints.moment(now);
        self.attempts.first_byte(outcome, now, moment);
    }

    /// The idle timeout of the tunnel after an upgrade.
    pub(crate) const fn tunnel_idle(&self) -> Duration {
        self.effective.tunnel_idle_timeout
    }

    /// The request failed. Returns the local reply for the case that no response has begun. An earlier one stays.
    pub(crate) fn failed(&mut self, reason: Reason) -> &LocalReply {
        self.due = None;
        self.reply.get_or_insert_with(|| Box::new(reason.into()))
    }

    /// The local reply, once the request has failed.
    pub(crate) fn reply(&self) -> Option<&LocalReply> {
        self.reply.as_deref()
    }

    /// Returns the charges and records the request; without its head if that is lost. Only the first call counts.
    pub(crate) fn record<H: Head + ?Sized>(&mut self, head: Option<&H>, end: &End<'_>) {
        self.attempts.leave();
        self.charges.release(&self.exchange);
        if let Some(copies) = self.copies.take() {
            copies.abandon(self.shared());
        }
        let ended = Ended { reply: self.reply.as_deref(), attempts: Some(&self.attempts) };
        self.exchange.record(head, ended, end);
    }
}

impl Drop for Forwarding {
    /// A request that is dropped before its end is recorded as abandoned, or as timed out after its deadline.
    fn drop(&mut self) {
        if !self.exchange.is_recorded() {
            let end = End::aborted();
            let reason = self.in_time(Reason::Aborted, end.now);
            self.reply = Some(Box::new(reason.into()));
            if self.is_endpoint_timeout(reason, end.now) {
                self.judge(AttemptOutcome::Broken, end.now);
            }
            self.record::<dyn Head>(None, &end);
        }
    }
}

#[cfg(test)]
mod tests;
