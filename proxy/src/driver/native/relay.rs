//! One request to an endpoint and its response back, as bytes: the request's body goes up while the response comes down,
//! nothing waits for the other, and nothing is held but what fits into a buffer.

mod up;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut};
use tokio_util::io::poll_read_buf;

use super::compress;
use super::downstream::Downstream;
use super::progress::{Patience, Progress, Stage};
use super::response::Read;
use super::scratch::Room;
use super::write::{self, Says};
use crate::buffers::BUFFER_BYTES;
use crate::clock;
use crate::http::body::{Body, Framing, Piece};
use crate::http::compression::Response;
use crate::http::date;
use crate::http::response::HEAD_BYTES_MAX;
use crate::reason::Reason;
use crate::request::exchange::{Coding, Exchange};
use crate::request::respond::Received;
use crate::upstream::connection::Connection;

/// Bytes of the longest end of a head, from one end of a line to the next.
const HEAD_END_BYTES: usize = b"\n\r\n".len();

/// A piece of a body of at least this size is sent from where it lies; a smaller one is copied behind what waits already.
const DIRECT_BYTES_MIN: usize = 4 * 1024;

/// A request on its way. The head that goes up waits in the room already.
pub(super) struct Relay<'a, C> {
    pub(super) client: &'a mut C,
    pub(super) endpoint: &'a mut Connection,
    pub(super) exchange: &'a mut Exchange,
    pub(super) room: &'a mut Room,
    pub(super) progress: &'a mut Progress,
    pub(super) patience: Patience,
    /// Whether the method is HEAD, whose responses have no body.
    pub(super) asked_by_head: bool,
    /// Whether the request's body goes up in chunks.
    pub(super) chunked_up: bool,
}

/// Whether anything moved, or why it cannot.
pub(super) type Step = Result<bool, Reason>;

impl<C: Downstream> Relay<'_, C> {
    /// Carries the request to the end of its response.
    ///
    /// # Errors
    /// Why it did not come there.
    pub(super) async fn run(mut self) -> Result<(), Reason> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Reason>> {
        loop {
            let moved = self.up(cx)? | self.down(cx)?;
            let told = self.room.to_client.is_empty() && !self.progress.unsent;
            if told && matches!(self.progress.response, Stage::Tail) {
                return Poll::Ready(Ok(()));
            }
            if !moved {
                match self.wait(cx) {
                    Poll::Ready(reason) => return Poll::Ready(Err(reason)),
                    Poll::Pending => return Poll::Pending,
                }
            }
        }
    }

    /// Sends on what it can of the response.
    fn down(&mut self, cx: &mut Context<'_>) -> Step {
        let mut moved = false;
        loop {
            let ready = match self.progress.response {
                Stage::Head => self.head()?,
                Stage::Body { body, chunked } if self.room.gzip.is_some() => self.compress(body, chunked, cx)?,
                Stage::Body { body, chunked } => self.body(body, chunked, cx)?,
                Stage::Tail => Flow::Blocked,
            };
            if ready == Flow::Moved {
                moved = true;
                continue;
            }
            if !self.room.to_client.is_empty() {
                let last = matches!(self.progress.response, Stage::Tail);
                match self.client.poll_send(&self.room.to_client, &[], last, cx) {
                    Poll::Pending => {
                        self.progress.refused = true;
                        return Ok(moved);
                    }
                    Poll::Ready(Ok(count @ 1..)) => {
                        self.room.to_client.advance(count);
                        self.room.to_client.shrink_if_empty();
                        self.progress.told(count);
                    }
                    Poll::Ready(Ok(0) | Err(_)) => return Err(Reason::ClientGone),
                }
                moved = true;
            } else if ready == Flow::Hungry && (self.read(cx)?.is_ready() || self.flush_compressed()?) {
                moved = true;
            } else {
                return Ok(self.flush(cx)? | moved);
            }
        }
    }

    /// Sees to it that what was taken leaves: what encrypts takes more than the socket does, and whoever waits for an event
    /// cannot wait for the next one to push it out.
    fn flush(&mut self, cx: &mut Context<'_>) -> Step {
        if !self.progress.unsent {
            return Ok(false);
        }
        match self.client.poll_sent(matches!(self.progress.response, Stage::Tail), cx) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(())) => {
                self.progress.unsent = false;
                Ok(true)
            }
            Poll::Ready(Err(_)) => Err(Reason::ClientGone),
        }
    }

    /// Looks for the head of the response.
    fn head(&mut self) -> Result<Flow, Reason> {
        let from = &self.room.from_endpoint;
        // The first look tells whether it is HTTP; the next ones are for when there is an end of a head to be found.
        let looked = std::mem::replace(&mut self.progress.scan_offset, from.len());
        let news = &from[looked.saturating_sub(HEAD_END_BYTES - 1).min(from.len())..];
        let worth = if looked == 0 { !from.is_empty() } else { has_empty_line(news) || from.len() >= HEAD_BYTES_MAX };
        if !worth {
            return Ok(Flow::Hungry);
        }
        let read = self.room.response.read(from);
        if read == Read::Partial {
            return Ok(Flow::Hungry);
        }
        self.progress.response_seen = true;
        let Read::Whole(length) = read else { return Err(Reason::UpstreamBroken) };
        self.begin(length)?;
        self.progress.scan_offset = 0;
        Ok(Flow::Moved)
    }

    /// Sends on a head.
    fn begin(&mut self, length: usize) -> Result<(), Reason> {
        let Room { response, edits, from_endpoint: head, to_client: out, gzip, to_endpoint, .. } = &mut *self.room;
        match response.status {
            // Nobody has asked for another protocol, or HTTP/1.0 knows none.
            101 if !self.exchange.asks_upgrade() || !response.is_http11() => return Err(Reason::UpstreamBroken),
            100 | 102..=199 => {
                response.framing(head, self.asked_by_head).map_err(|_| Reason::UpstreamBroken)?;
                self.progress.expects = false;
                self.client.interim(response, &head[..length], out);
            }
            status => {
                let body = response.framing(head, self.asked_by_head).map_err(|_| Reason::UpstreamBroken)?;
                let now = clock::now();
                // Of a head before this one the client may have got a part.
                if self.exchange.passes_over(status, to_endpoint.is_whole() && out.is_empty(), now) {
                    self.progress.passed_over = true;
                    return Err(Reason::UpstreamBroken);
                }
                self.exchange.response_began(status, now);
                if self.progress.body.is_over() {
                    self.exchange.request_is_whole();
                }
                let is_tunnel = status == 101;
                // Nobody need send on the rest of a request that is answered already. What a client says in a protocol to which the
                // endpoint has not agreed cannot be told from requests, and may be on its way (RFC 9110 section 7.8).
                let is_last = self.client.is_ending() || !self.progress.body.is_over();
                self.progress.closes |= is_last || self.exchange.asks_upgrade();
                let closes = self.progress.closes && !is_tunnel;
                edits.clear();
                let has_server = response.values(head, "server").next().is_some();
                let received = Received { status, connection: response.values(head, "connection"), has_server };
                self.exchange.response_edits(received, edits)?;
                let fields = compress::Received(response, head);
                let (announced, fields, wall) = (body.content_length, &fields, clock::wall);
                let says = Response { status, length: announced, over_http2: false, fields, wall };
                let down;
                (*gzip, down) = match self.exchange.compress(&says, edits) {
                    Coding::Unchanged => (None, body),
                    Coding::HeadOnly => (None, body.without_length()),
                    Coding::Gzip(encoder) => (Some(encoder), body.in_chunks()),
                };
                let sent = date::with(now, |date| {
                    let says = Says { body: down, closes, date };
                    self.client.head(response, &head[..length], edits, &says, out)
                });
                sent?;
                let framing = body.framing;
                let reusable = !is_tunnel && framing != Framing::UntilClose && !body.is_stray;
                self.progress.reusable = reusable && response.keeps_alive(head);
                self.progress.bodiless = framing == Framing::None;
                self.progress.is_tunnel = is_tunnel;
                self.progress.status = Some(status);
                let chunked = C::CHUNKS && matches!(down.framing, Framing::Chunked | Framing::UntilClose);
                self.progress.response = Stage::Body { body: Body::new(framing), chunked };
            }
        }
        head.advance(length);
        Ok(())
    }

    /// Takes the rest of what is there, when it was more than a buffer takes, so that it leaves together.
    fn fill(&mut self, body: Body, cx: &mut Context<'_>) {
        let from = &mut self.room.from_endpoint;
        let left = if let Body::Left(left) = body { Some(left) } else { None };
        let more = left.is_none_or(|left| left > from.len() as u64);
        if !from.is_full() || !more || !self.progress.takes_more::<C>() || !from.grow() || left.is_none() {
            return;
        }
        // The end of the connection is seen again by the next read; too early for a body whose length is known, it need not
        // be told from an error.
        if let Poll::Ready(Ok(1..)) = poll_read_buf(Pin::new(&mut *self.endpoint), cx, &mut **from) {
            self.progress.endpoint_read.moved();
        }
    }

    /// Moves what has arrived of the response's body.
    fn body(&mut self, mut body: Body, chunked: bool, cx: &mut Context<'_>) -> Result<Flow, Reason> {
        self.fill(body, cx);
        let Room { from_endpoint: from, to_client: out, .. } = &mut *self.room;
        let mut flow = Flow::Hungry;
        while out.space() > 0 {
            let count = match body.next(from).map_err(|_| Reason::UpstreamBroken)? {
                Piece::Unknown => break,
                Piece::End => return Ok(self.end(chunked)),
                Piece::Framing(count, then) => {
                    body = then;
                    count
                }
                Piece::Content(count) if !chunked && count >= DIRECT_BYTES_MIN => {
                    let mut rest = body;
                    rest.took(count);
                    match self.client.poll_send(out, &from[..count], rest.is_over(), cx) {
                        Poll::Pending => {
                            self.progress.refused = true;
                            flow = Flow::Blocked;
                            break;
                        }
                        Poll::Ready(Ok(count @ 1..)) => {
                            self.progress.told(count);
                            let waited = count.min(out.len());
                            out.advance(waited);
                            let count = count - waited;
                            self.progress.bytes_out += count;
                            body.took(count);
                            count
                        }
                        Poll::Ready(Ok(0) | Err(_)) => return Err(Reason::ClientGone),
                    }
                }
                Piece::Content(count) => {
                    if from.is_large() && count > out.space() {
                        out.grow();
                    }
                    let count = count.min(out.space());
                    self.progress.bytes_out += count;
                    body.took(count);
                    out.make_room();
                    write::content(&from[..count], chunked, out);
                    count
                }
            };
            from.advance(count);
        }
        self.progress.response = Stage::Body { body, chunked };
        Ok(flow)
    }

    /// Notes that all of the response's body was moved.
    pub(super) fn end(&mut self, chunked: bool) -> Flow {
        let Room { from_endpoint: from, to_client: out, to_endpoint, .. } = &mut *self.room;
        if chunked {
            out.put_slice(write::LAST_CHUNK);
        }
        self.progress.response = Stage::Tail;
        self.progress.unsent = true;
        // More than was announced is nothing to build on, and neither is a request that never arrived.
        let whole = self.progress.body.is_over() && to_endpoint.is_sent() && !self.progress.upload_held;
        self.progress.reusable &= from.is_empty() && whole && !self.progress.upload_refused;
        Flow::Moved
    }

    /// Reads from the endpoint.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Reason> {
        let from = &mut self.room.from_endpoint;
        // What is compressed takes longer than to read it.
        let plain = self.room.gzip.is_none();
        let large = |body: Body| plain && matches!(body, Body::Left(left) if left >= BUFFER_BYTES as u64);
        if from.is_empty()
            && matches!(self.progress.response, Stage::Body { body, .. } if large(body))
            && self.progress.takes_more::<C>()
        {
            from.grow();
        }
        from.make_room();
        match poll_read_buf(Pin::new(&mut *self.endpoint), cx, &mut **from) {
            Poll::Pending => {
                // Whoever is waited for takes up little room meanwhile.
                from.shrink_if_empty();
                return Ok(Poll::Pending);
            }
            Poll::Ready(Ok(1..)) => self.progress.endpoint_read.moved(),
            Poll::Ready(read) => {
                self.progress.reusable = false;
                let Stage::Body { body, .. } = &mut self.progress.response else { return Err(Reason::UpstreamBroken) };
                // A connection that was reset has not said that this was all.
                read.and_then(|_| body.closed().map_err(|_| io::ErrorKind::UnexpectedEof.into()))
                    .map_err(|_| Reason::UpstreamBroken)?;
            }
        }
        Ok(Poll::Ready(()))
    }

    /// Gives back what is not needed while the request waits: no request is sent again whose response has begun.
    fn shrink(&mut self) {
        let Room { to_endpoint, .. } = &mut *self.room;
        if !matches!(self.progress.response, Stage::Head) && to_endpoint.is_sent() {
            to_endpoint.clear();
        }
    }

    /// Waits for the first of the deadlines; why there is no more to wait for.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Reason> {
        if self.client.poll_gone(self.progress.body.is_over(), cx).is_ready() {
            return Poll::Ready(Reason::ClientGone);
        }
        self.shrink();
        let now = clock::now();
        let Patience { read, write, body, client } = self.patience;
        let held = |rest: Body| matches!(rest.next(&self.room.from_endpoint), Ok(Piece::Content(_)));
        let blocked = self.progress.unsent
            || !self.room.to_client.is_empty()
            || matches!(self.progress.response, Stage::Body { body, .. } if held(body));
        let going_up = !self.room.to_endpoint.is_sent() || self.progress.upload_held;
        // A client that waits for a word of the endpoint's is not waited for.
        let expects = self.progress.expects;
        let awaited = !self.progress.body.is_over() && !going_up && !self.progress.upload_refused && !expects;
        // While the client takes nothing the endpoint is not asked for more, and before it has the whole request it need not
        // answer: neither the client's silence nor our own is the endpoint's.
        let answers = !blocked && !(matches!(self.progress.response, Stage::Head) && (going_up || awaited));
        let (sent, taken) = (self.progress.bytes_in as u64, self.progress.taken as u64);
        let Progress { endpoint_read, endpoint_write, client_read, client_write, upload, download, .. } =
            &mut *self.progress;
        let (limits, budget) = self.exchange.rates();
        let waits = [
            (upload.until(awaited, sent, limits, budget, now), Reason::BodyStalled),
            (download.until(blocked, taken, limits, budget, now), Reason::ClientGone),
            (client_write.until(blocked, client, now), Reason::ClientGone),
            (endpoint_read.until(answers, read, now), Reason::UpstreamTimeout),
            (endpoint_write.until(going_up, write, now), Reason::UpstreamTimeout),
            (client_read.until(awaited, body, now), Reason::BodyStalled),
            (self.exchange.due(), Reason::UpstreamTimeout),
        ];
        let waits = waits.into_iter().filter_map(|(at, reason)| Some((at?, reason)));
        let Some((at, reason)) = waits.min_by_key(|(at, _)| *at) else { return Poll::Pending };
        if at <= now {
            return Poll::Ready(reason);
        }
        self.client.poll_alarm(at, cx).map(|()| reason)
    }
}

/// What a look at the response came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    /// Something moved; there may be more.
    Moved,
    /// It takes more from the endpoint.
    Hungry,
    /// The client has to take something first, or there is nothing left.
    Blocked,
}

/// Whether there is an empty line somewhere, by the ends of lines that endpoints may use.
fn has_empty_line(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, b"\n\r\n").is_some() || memchr::memmem::find(bytes, b"\n\n").is_some()
}

#[cfg(test)]
mod tests;
