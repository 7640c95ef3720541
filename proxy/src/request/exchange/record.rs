//! The final record of a request: once, in metrics and in the access log, however it ends.

use std::time::{Instant, SystemTime};

use tidegate_config::model::Head;

use super::Exchange;
use crate::clock;
use crate::connection::ConnectionFacts;
use crate::observe::access_log::{Address, Entry};
use crate::reason::Reason;
use crate::request::client::Client;
use crate::request::outcome::{self, Outcome};
use crate::upstream::attempt::Sign;

/// The facts at the end of a request that only the driver knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End<'a> {
    /// The status sent to the client; `None` if no head was sent.
    pub(crate) status: Option<u16>,
    /// Whether the client did not take the response to its end.
    pub(crate) is_cut: bool,
    /// Bytes of the request's body.
    pub(crate) bytes_in: usize,
    /// Bytes of the response's body.
    pub(crate) bytes_out: usize,
    /// The target as sent.
    pub(crate) target: &'a str,
    /// Now, for durations.
    pub(crate) now: Instant,
    /// Now, for the log.
    pub(crate) wall: SystemTime,
}

impl Exchange {
    /// Records the request. Only the first call counts; a request that is dropped before its end is recorded as
    /// abandoned.
    pub(crate) fn record<H: Head + ?Sized>(&mut self, head: Option<&H>, end: &End<'_>) {
        if std::mem::replace(&mut self.recorded, true) {
            return;
        }
        self.attempts.leave();
        self.release();
        if let Some(copies) = self.copies.take() {
            copies.abandon(&self.shared);
        }
        self.shared.metrics.in_flight.dec();
        let reason = self.answer.as_ref().map(|answer| answer.reason);
        let answered = self.answer.as_ref().map_or(Reason::ClientGone.status(), |answer| answer.status);
        let status = end.status.unwrap_or(answered);
        let duration = end.now.saturating_duration_since(self.began);
        if (reason == Some(Reason::ClientGone) || end.is_cut)
            && let Some(facts) = &self.facts
        {
            facts.streams.abandoned(duration);
        }
        let origin = self.route.as_ref().map(|route| &*route.origin);
        let outcome = Outcome { driver: self.driver, origin, status, duration, reason };
        let text = |name: &str| {
            let value = head.and_then(|head| head.header(name)).unwrap_or_default();
            std::str::from_utf8(value).unwrap_or("(not UTF-8)")
        };
        let request = self.request.as_ref();
        let attempt = self.attempts.last();
        outcome::record(
            &self.shared,
            &outcome,
            &Entry {
                time: end.wall,
                request_id: self.request_id.as_str(),
                client: request.map(|request| address(&request.client, self.facts.as_deref())),
                peer: self.facts.as_ref().map(|facts| facts.text.socket.as_str()),
                method: head.map_or("", |head| head.method()),
                scheme: request.map_or("", |request| request.client.scheme()),
                host: head.and_then(|head| head.authority()).unwrap_or_default(),
                path: end.target,
                protocol: request.map_or("", |request| request.protocol.as_str()),
                status,
                bytes_in: end.bytes_in,
                bytes_out: end.bytes_out,
                duration,
                upstream: attempt.map(|attempt| attempt.address),
                upstream_connect: attempt.and_then(|attempt| attempt.connect),
                upstream_first_byte: attempt.and_then(|attempt| attempt.first_byte),
                tries: self.attempts.count(),
                object: outcome.origin.map(|origin| &origin.object),
                field: outcome.origin.map(|origin| &*origin.field),
                log_name: self.route.as_ref().and_then(|route| route.log_name.as_deref()),
                listener: self.listener.as_ref().map(|listener| &*listener.0),
                tls: self.facts.as_ref().and_then(|facts| facts.tls.as_ref()).map(|tls| tls.version),
                user_agent: text("user-agent"),
                referer: text("referer"),
                header: &text,
                user: self.grants.iter().find_map(|granted| granted.identity.as_deref()),
                reason: reason.map(Reason::as_str),
                generation: self.snapshot.generation().0,
            },
            self.snapshot.edge().log_format.as_deref(),
        );
    }
}

/// The address of a client, which is usually that of its connection.
fn address<'a>(client: &Client, facts: Option<&'a ConnectionFacts>) -> Address<'a> {
    let own = facts.filter(|_| client.address == client.peer);
    own.map_or(Address::Ip(client.address), |facts| Address::Text(&facts.text.peer))
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.recorded {
            let (now, wall) = (clock::now(), clock::wall());
            let reason = self.in_time(Reason::Abandoned, now);
            self.answer = Some(reason.into());
            if reason == Reason::UpstreamTimeout {
                self.attempts.first_byte(Sign::Broken, now, self.shared.endpoints.moment(now));
            }
            let end = End { status: None, is_cut: false, bytes_in: 0, bytes_out: 0, target: "", now, wall };
            self.record::<dyn Head>(None, &end);
        }
    }
}
