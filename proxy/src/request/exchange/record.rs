//! The final record of a request: once, in metrics and in the access log, however it ends.

use std::time::{Instant, SystemTime};

use tidegate_config::model::Head;

use super::Exchange;
use crate::clock;
use crate::connection::ConnectionFacts;
use crate::observe::access_log::{Address, Entry};
use crate::reason::Reason;
use crate::request::client::Client;
use crate::request::local_reply::LocalReply;
use crate::request::outcome::{self, Outcome};
use crate::upstream::attempt::Attempts;

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

/// The facts at the end of a request that depend on its state.
#[derive(Clone, Copy, Debug)]
pub(in crate::request) struct Ended<'a> {
    /// The local reply, if there is one.
    pub(in crate::request) reply: Option<&'a LocalReply>,
    /// The attempts at endpoints of a request that is forwarded.
    pub(in crate::request) attempts: Option<&'a Attempts>,
}

impl End<'_> {
    /// The end of a request whose driver was dropped.
    pub(in crate::request) fn aborted() -> Self {
        let (now, wall) = (clock::now(), clock::wall());
        Self { status: None, is_cut: false, bytes_in: 0, bytes_out: 0, target: "", now, wall }
    }
}

impl Exchange {
    /// Returns `true` if it was recorded.
    pub(in crate::request) const fn is_recorded(&self) -> bool {
        self.recorded
    }

    /// Records the request. Only the first call counts.
    pub(in crate::request) fn record<H: Head + ?Sized>(&mut self, head: Option<&H>, ended: Ended<'_>, end: &End<'_>) {
        if std::mem::replace(&mut self.recorded, true) {
            return;
        }
        let Self { arrived, facts, .. } = &*self;
        let reason = ended.reply.map(|reply| reply.reason);
        let replied = ended.reply.map_or(Reason::ClientGone.status(), |reply| reply.status);
        let status = end.status.unwrap_or(replied);
        let duration = end.now.saturating_duration_since(arrived.began);
        if reason == Some(Reason::ClientGone) || end.is_cut {
            facts.streams.abandoned(duration);
        }
        let matched = self.matched.as_ref();
        let origin = matched.map(|matched| &*matched.route.origin);
        let outcome = Outcome { driver: arrived.driver, origin, status, duration, reason };
        let text = |name: &str| {
            let value = head.and_then(|head| head.header(name)).unwrap_or_default();
            std::str::from_utf8(value).unwrap_or("(not UTF-8)")
        };
        let request = self.request.as_ref();
        let refused_by = ended.reply.and_then(LocalReply::limit).map(|limit| limit.name.to_string());
        let auth_rule = self.outcome.refused_by.as_ref().map(ToString::to_string);
        let shadow_auth = self.outcome.auth.as_ref().and_then(|auth| auth.shadow.as_ref()).map(ToString::to_string);
        let shadow = self.outcome.limits.shadow.as_ref().map(ToString::to_string);
        let attempt = ended.attempts.and_then(Attempts::last);
        outcome::record(
            &arrived.shared,
            &outcome,
            &Entry {
                time: end.wall,
                request_id: self.request_id.as_str(),
                client: request.map(|request| address(&request.client, facts)),
                peer: &facts.text.socket,
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
                tries: ended.attempts.map_or(0, Attempts::count),
                object: origin.map(|origin| &origin.object),
                field: origin.map(|origin| &*origin.field),
                log_name: matched.and_then(|matched| matched.route.log_name.as_deref()),
                listener: matched.map(|matched| &*matched.listener.0),
                tls: facts.tls.as_ref().map(|tls| tls.version),
                user_agent: text("user-agent"),
                referer: text("referer"),
                header: &text,
                user: self.outcome.user(),
                auth_rule: auth_rule.as_deref(),
                shadow_auth_rule: shadow_auth.as_deref(),
                limit: refused_by.as_deref(),
                shadow_limit: shadow.as_deref(),
                reason: reason.map(Reason::as_str),
                generation: arrived.snapshot.generation().0,
            },
            arrived.snapshot.edge().log_format.as_deref(),
        );
    }
}

/// The address of a client, which is usually that of its connection.
fn address<'a>(client: &Client, facts: &'a ConnectionFacts) -> Address<'a> {
    if client.address == client.peer { Address::Text(&facts.text.peer) } else { Address::Ip(client.address) }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.recorded {
            let reply = LocalReply::from(Reason::Aborted);
            self.record::<dyn Head>(None, Ended { reply: Some(&reply), attempts: None }, &End::aborted());
        }
    }
}
