//! An admitted request: endpoints are tried until one has answered, and if none does, the edge answers.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use http::Method;
use http::header::EXPECT;
use tidegate_config::model::{Head, request_host};

use super::downstream::Downstream;
use super::progress::{Progress, Timeouts};
use super::relay::Relay;
use super::request::RequestHead;
use super::scratch::RelayBuffers;
use super::{tunnel, write};
use crate::clock;
use crate::http::date;
use crate::options::Options;
use crate::reason::Reason;
use crate::request::exchange::Exchange;
use crate::request::forwarding::{Forwarding, UpstreamAttempt};
use crate::request::respond::Rendered;
use crate::upstream::connection::{Connection, ConnectionKey};
use crate::upstream::pool;
use crate::upstream::retry::FailureStage;

/// A request to an endpoint.
pub(super) struct UpstreamRequest<'a, H> {
    pub(super) head: &'a H,
    /// Whether its body is sent in chunks.
    pub(super) chunked: bool,
    /// Whether the head lacks the header for that.
    pub(super) coded: bool,
    /// Whether the client closes the connection after it.
    pub(super) closes: bool,
}

impl<H: RequestHead> UpstreamRequest<'_, H> {
    /// Returns `true` for an idempotent method (RFC 9110 section 9.2.2).
    fn is_idempotent(&self) -> bool {
        Method::from_bytes(self.head.method().as_bytes()).is_ok_and(|method| method.is_idempotent())
    }

    /// The stage at which an attempt without a response head failed.
    fn stage(&self, reason: Reason, reused: bool, replayable: bool) -> FailureStage {
        if reason == Reason::UpstreamTimeout {
            FailureStage::Responded { status: reason.status(), replayable }
        } else if reason == Reason::UpstreamBroken {
            FailureStage::Unanswered { reused, idempotent: self.is_idempotent(), replayable }
        } else {
            FailureStage::Later
        }
    }
}

/// A request between its client and its endpoint.
pub(super) struct Transfer<'a, C> {
    pub(super) client: &'a mut C,
    pub(super) room: &'a mut RelayBuffers,
    pub(super) progress: &'a mut Progress,
    pub(super) options: &'a Options,
}

/// The settings of an attempt, from the choice of its endpoint.
struct AttemptSettings {
    key: ConnectionKey,
    connect: Duration,
    timeouts: Timeouts,
}

impl AttemptSettings {
    fn of<H: Head>(attempt: &UpstreamAttempt<'_>, head: &H, options: &Options) -> Self {
        let (effective, client) = (attempt.effective, &options.client);
        let host = || head.authority().and_then(request_host).unwrap_or_default().into_owned();
        let timeouts = Timeouts {
            read: effective.read_timeout,
            write: effective.write_timeout,
            body: client.body_read_stall,
            client: client.write_stall,
        };
        Self {
            key: ConnectionKey::new(attempt.target, attempt.endpoint, host),
            connect: attempt.connect_timeout(),
            timeouts,
        }
    }
}

/// Opens a connection to an endpoint, unless the client disconnects before that.
async fn open<C: Downstream>(client: &mut C, is_whole: bool, attempt: &AttemptSettings) -> Result<Connection, Reason> {
    let mut opening = pin!(Connection::open(&attempt.key, attempt.connect, false));
    poll_fn(|cx| match opening.as_mut().poll(cx) {
        Poll::Pending => client.poll_gone(is_whole, cx).map(|()| Err(Reason::ClientGone)),
        opened => opened,
    })
    .await
}

/// Waits until a time, unless the client disconnects before it.
async fn rest<C: Downstream>(client: &mut C, is_whole: bool, until: Instant) -> Result<(), Reason> {
    poll_fn(|cx| match client.poll_gone(is_whole, cx) {
        Poll::Ready(()) => Poll::Ready(Err(Reason::ClientGone)),
        Poll::Pending => client.poll_alarm(until, cx).map(Ok),
    })
    .await
}

/// Composes the bytes for the endpoint, once for all attempts, and counts the part of the body that was read before.
fn compose<H: RequestHead>(
    forwarding: &mut Forwarding,
    outgoing: &UpstreamRequest<'_, H>,
    room: &mut RelayBuffers,
    progress: &Progress,
) -> Result<(), Reason> {
    let is_whole = progress.body.is_over();
    if !room.to_endpoint.is_new() {
        return forwarding.count(progress.bytes_in, is_whole);
    }
    room.edits.clear();
    forwarding.request_edits(outgoing.head, &mut room.edits);
    // From here on only the upload buffer holds the body.
    let held = std::mem::take(&mut room.body_prefix);
    if is_whole || !held.is_empty() {
        // The client got the interim response when its body was held, which may be empty.
        room.edits.remove(EXPECT);
    }
    write::request(outgoing.head, &room.edits, outgoing.coded, room.to_endpoint.end());
    if !held.is_empty() {
        forwarding.body(&held, false)?;
        write::content(&held, outgoing.chunked, room.to_endpoint.end());
    }
    // The body was read to its end before anything was sent.
    if outgoing.chunked && is_whole {
        room.to_endpoint.end().extend_from_slice(write::LAST_CHUNK);
    }
    forwarding.count(progress.bytes_in - held.len(), is_whole)
}

impl<C: Downstream> Transfer<'_, C> {
    /// Carries a request to its end. Returns the time of the end if its connection can be reused. After a failure the
    /// client gets an answer, if that is still possible.
    pub(super) async fn forward<H: RequestHead>(
        &mut self,
        forwarding: &mut Forwarding,
        outgoing: &UpstreamRequest<'_, H>,
    ) -> Option<Instant> {
        let reason = match self.attempts(forwarding, outgoing).await {
            Ok(at) => return Some(at),
            Err(reason) => reason,
        };
        let reply = forwarding.failed(reason).clone();
        if reply.reason == Reason::ClientGone {
            return None;
        }
        if self.progress.status.is_some() {
            // A client without any bytes would assume that it may retry. The deadline of the response applies to this
            // write too.
            let overdue = reason == Reason::UpstreamTimeout;
            let timeouts = if overdue { Duration::ZERO } else { self.options.client.write_stall };
            self.send(false, timeouts, None).await;
            return None;
        }
        // A request that was read to its end leaves its connection usable, unless another protocol may follow it.
        let (ending, unread) = (self.client.is_ending(), !self.progress.body.is_over());
        let closes = reply.reason.closes() || outgoing.closes || ending || unread || forwarding.asks_upgrade();
        self.progress.closes |= closes;
        let rendered = forwarding.exchange().render(&reply, outgoing.head);
        let given = self.give(&rendered, None, closes).await;
        (given && !closes).then(clock::now)
    }

    /// Tries endpoints until one has answered.
    async fn attempts<H: RequestHead>(
        &mut self,
        forwarding: &mut Forwarding,
        outgoing: &UpstreamRequest<'_, H>,
    ) -> Result<Instant, Reason> {
        let Self { client, room, progress, options } = self;
        let mut now = forwarding.began();
        loop {
            if let Some(pause) = forwarding.pause(now, fastrand::u64(..)) {
                rest(*client, progress.body.is_over(), now + pause).await?;
                now = clock::now();
            }
            let attempt = AttemptSettings::of(&forwarding.attempt(now, fastrand::u64(..))?, outgoing.head, options);
            let pooled = pool::take(&attempt.key);
            let reused = pooled.is_some();
            let mut endpoint = match pooled {
                Some(endpoint) => endpoint,
                None => {
                    let opened = open(*client, progress.body.is_over(), &attempt).await;
                    now = clock::now();
                    match opened {
                        Ok(endpoint) => endpoint,
                        Err(Reason::ClientGone) => return Err(Reason::ClientGone),
                        Err(reason) if forwarding.connect_failed(reason, now) => continue,
                        Err(reason) => return Err(forwarding.in_time(reason, now)),
                    }
                }
            };
            forwarding.connected(reused, now);
            compose(forwarding, outgoing, room, progress)?;
            let relay = Relay {
                client: &mut **client,
                endpoint: &mut endpoint,
                forwarding,
                room,
                progress,
                timeouts: attempt.timeouts,
                asked_by_head: outgoing.head.method() == "HEAD",
                chunked_up: outgoing.chunked,
            };
            let carried = relay.run().await;
            if progress.body.is_over() {
                forwarding.request_is_whole();
            }
            now = clock::now();
            let Err(reason) = carried else {
                if progress.is_tunnel
                    && let Some(conn) = client.connection()
                {
                    // Boxed: the future of a request should not be as large as that of a tunnel.
                    Box::pin(tunnel::run(conn, &mut endpoint, room, progress, forwarding.tunnel_idle())).await?;
                    return Ok(clock::now());
                }
                if progress.reusable {
                    pool::put(attempt.key, endpoint, progress.bodiless, options.upstream.pool_size, now);
                }
                return Ok(now);
            };
            if !progress.passed_over {
                let replayable = room.to_endpoint.is_whole();
                let stage = if progress.response_seen {
                    FailureStage::Later
                } else {
                    outgoing.stage(reason, reused, replayable)
                };
                let reason = forwarding.in_time(reason, now);
                if !forwarding.broke(reason, stage, now) {
                    return Err(reason);
                }
            }
            room.again();
            progress.again(outgoing.closes);
        }
    }

    /// Sends a local reply; `payer` as in [`Self::send`]; `closes` ends the connection with it. Returns
    /// `true` if the client took it.
    pub(super) async fn give(&mut self, rendered: &Rendered, payer: Option<&Exchange>, closes: bool) -> bool {
        let out = &mut self.room.to_client;
        // Pending bytes can be heads of interim responses, of which the client may have a part.
        out.make_room();
        if date::with(clock::now(), |date| self.client.reply(rendered, closes, date, out)).is_err() {
            return false;
        }
        self.progress.status = Some(rendered.status);
        self.progress.bytes_out = rendered.body.len();
        let given = self.send(true, self.options.client.write_stall, payer).await;
        self.progress.is_cut = !given;
        given
    }

    /// Sends the pending bytes. Returns `true` if the client took them within `timeouts`. `over` marks the end of the
    /// response. If they have to wait for the client, the edge must have room for them: `payer` is the request to which
    /// they are charged; `None` if the request has a charge of its own.
    pub(super) async fn send(&mut self, over: bool, timeouts: Duration, payer: Option<&Exchange>) -> bool {
        let (client, waiting) = (&mut *self.client, &mut self.room.to_client);
        let (until, mut held) = (clock::now() + timeouts, None);
        poll_fn(|cx| {
            while !waiting.is_empty() {
                match client.poll_send(waiting, &[], over, cx) {
                    Poll::Ready(Ok(count @ 1..)) => waiting.advance(count),
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(false),
                    Poll::Pending => {
                        if held.is_none() {
                            held = payer.map(Exchange::room_for_reply).transpose().ok();
                        }
                        return if held.is_none() {
                            Poll::Ready(false)
                        } else {
                            client.poll_alarm(until, cx).map(|()| false)
                        };
                    }
                }
            }
            match client.poll_sent(over, cx) {
                Poll::Ready(sent) => Poll::Ready(sent.is_ok()),
                Poll::Pending => client.poll_alarm(until, cx).map(|()| false),
            }
        })
        .await
    }
}
