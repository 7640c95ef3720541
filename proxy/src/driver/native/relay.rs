//! The relay of one request to an endpoint and of its response back: the request's body is sent while the response
//! arrives, neither waits for the other, and only bounded buffers are held.

mod up;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_util::io::poll_read_buf;

use super::compress;
use super::downstream::Downstream;
use super::progress::{Progress, ResponsePart, Timeouts};
use super::response::Read;
use super::scratch::RelayBuffers;
use super::write::{self, ResponseHeadOptions};
use crate::buffers::BUFFER_BYTES;
use crate::clock;
use crate::http::body::{Body, Framing, Piece};
use crate::http::compression::Response;
use crate::http::date;
use crate::http::response::HEAD_BYTES_MAX;
use crate::reason::Reason;
use crate::request::forwarding::{Coding, Forwarding};
use crate::request::respond::Received;
use crate::upstream::connection::Connection;

/// The length of the longest end of a head, from one end of a line to the next.
const HEAD_END_BYTES: usize = b"\n\r\n".len();

/// A piece of a body of at least this size is sent without a copy; a smaller one is appended to the send buffer.
const DIRECT_BYTES_MIN: usize = 4 * 1024;

/// A request in transit. Its head is already in the upload buffer.
pub(super) struct Relay<'a, C> {
    pub(super) client: &'a mut C,
    pub(super) endpoint: &'a mut Connection,
    pub(super) forwarding: &'a mut Forwarding,
    pub(super) room: &'a mut RelayBuffers,
    pub(super) progress: &'a mut Progress,
    pub(super) timeouts: Timeouts,
    /// Whether the method is HEAD, whose responses have no body.
    pub(super) asked_by_head: bool,
    /// Whether the request's body is sent in chunks.
    pub(super) chunked_up: bool,
}

/// Whether there was progress, or the reason for the failure.
pub(super) type Step = Result<bool, Reason>;

impl<C: Downstream> Relay<'_, C> {
    /// Relays the request to the end of its response.
    ///
    /// # Errors
    /// The reason why it failed.
    pub(super) async fn run(mut self) -> Result<(), Reason> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Reason>> {
        loop {
            let (up, down) = (self.up(cx)?, self.down(cx)?);
            let all_sent = self.room.to_client.is_empty() && !self.progress.unsent;
            if all_sent && matches!(self.progress.response, ResponsePart::Tail) {
                return Poll::Ready(Ok(()));
            }
            // Neither direction moves the other on once the whole request was sent.
            if !(down || up && self.is_uploading()) {
                match self.wait(cx) {
                    Poll::Ready(reason) => return Poll::Ready(Err(reason)),
                    Poll::Pending => return Poll::Pending,
                }
            }
        }
    }

    /// Returns `true` if a part of the request is not sent yet.
    fn is_uploading(&self) -> bool {
        !self.progress.body.is_over() || !self.room.to_endpoint.is_sent() || self.progress.upload_held
    }

    /// Relays as much of the response as possible.
    fn down(&mut self, cx: &mut Context<'_>) -> Step {
        let mut moved = false;
        loop {
            let ready = match self.progress.response {
                ResponsePart::Head => self.head()?,
                ResponsePart::Body { body, chunked } if self.room.gzip.is_some() => self.compress(body, chunked, cx)?,
                ResponsePart::Body { body, chunked } => self.body(body, chunked, cx)?,
                ResponsePart::Tail => Flow::NeedsDownstreamWrite,
            };
            if ready == Flow::Progress {
                moved = true;
                continue;
            }
            if !self.room.to_client.is_empty() {
                let last = matches!(self.progress.response, ResponsePart::Tail);
                match self.client.poll_send(&self.room.to_client, &[], last, cx) {
                    Poll::Pending => {
                        self.progress.refused = true;
                        return Ok(moved);
                    }
                    Poll::Ready(Ok(count @ 1..)) => {
                        self.room.to_client.advance(count);
                        self.room.to_client.shrink_if_empty();
                        self.progress.sent(count);
                    }
                    Poll::Ready(Ok(0) | Err(_)) => return Err(Reason::ClientGone),
                }
                moved = true;
            } else if ready == Flow::NeedsUpstreamRead && (self.read(cx)?.is_ready() || self.flush_compressed()?) {
                moved = true;
            } else {
                return Ok(self.flush(cx)? | moved);
            }
        }
    }

    /// Flushes the sent bytes: TLS takes more than the socket does, and without a flush the rest would stay until the
    /// next write.
    fn flush(&mut self, cx: &mut Context<'_>) -> Step {
        if !self.progress.unsent {
            return Ok(false);
        }
        match self.client.poll_sent(matches!(self.progress.response, ResponsePart::Tail), cx) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(())) => {
                self.progress.unsent = false;
                Ok(true)
            }
            Poll::Ready(Err(_)) => Err(Reason::ClientGone),
        }
    }

    /// Searches the head of the response.
    fn head(&mut self) -> Result<Flow, Reason> {
        let from = &self.room.from_endpoint;
        // The first scan detects whether it is HTTP; later ones are only made if the bytes can contain the end of a
        // head.
        let scanned = std::mem::replace(&mut self.progress.scan_offset, from.len());
        let unscanned = &from[scanned.saturating_sub(HEAD_END_BYTES - 1).min(from.len())..];
        #[cfg(test)]
        {
            self.room.response.scanned.1 += unscanned.len();
        }
        let worth =
            if scanned == 0 { !from.is_empty() } else { has_empty_line(unscanned) || from.len() >= HEAD_BYTES_MAX };
        if !worth {
            return Ok(Flow::NeedsUpstreamRead);
        }
        let read = self.room.response.read(from);
        if read == Read::Partial {
            return Ok(Flow::NeedsUpstreamRead);
        }
        self.progress.response_seen = true;
        let Read::Whole(length) = read else { return Err(Reason::UpstreamBroken) };
        self.begin(length)?;
        self.progress.scan_offset = 0;
        Ok(Flow::Progress)
    }

    /// Relays a head.
    fn begin(&mut self, length: usize) -> Result<(), Reason> {
        let RelayBuffers { response, edits, from_endpoint: head, to_client: out, gzip, to_endpoint, .. } =
            &mut *self.room;
        match response.status {
            // The client has not requested an upgrade, or the endpoint speaks HTTP/1.0, which has none.
            101 if !self.forwarding.asks_upgrade() || !response.is_http11() => return Err(Reason::UpstreamBroken),
            100 | 102..=199 => {
                response.framing(head, self.asked_by_head).map_err(|_| Reason::UpstreamBroken)?;
                self.progress.expects = false;
                self.client.interim(response, &head[..length], out);
            }
            status => {
                let body = response.framing(head, self.asked_by_head).map_err(|_| Reason::UpstreamBroken)?;
                let now = clock::now();
                // The client may have a part of an earlier head.
                if self.forwarding.passes_over(status, to_endpoint.is_whole() && out.is_empty(), now) {
                    self.progress.passed_over = true;
                    return Err(Reason::UpstreamBroken);
                }
                self.forwarding.response_began(status, now);
                if self.progress.body.is_over() {
                    self.forwarding.request_is_whole();
                }
                let is_tunnel = status == 101;
                // The rest of a request is not sent after the response. Bytes for a protocol that the endpoint has
                // refused look like requests, and may be on their way (RFC 9110 section 7.8).
                let is_last =
                    self.client.is_ending() || !self.progress.body.is_over() || self.forwarding.asks_upgrade();
                self.progress.closes |= is_last;
                let closes = self.progress.closes && !is_tunnel;
                edits.clear();
                let has_server = response.values(head, "server").next().is_some();
                let received = Received { status, connection: response.values(head, "connection"), has_server };
                self.forwarding.response_edits(received, edits)?;
                let fields = compress::Received(response, head);
                let (announced, fields, wall) = (body.content_length, &fields, clock::wall);
                let described = Response { status, length: announced, over_http2: false, fields, wall };
                let down;
                (*gzip, down) = match self.forwarding.compress(&described, edits) {
                    Coding::Unchanged => (None, body),
                    Coding::HeadOnly => (None, body.without_length()),
                    Coding::Gzip(encoder) => (Some(encoder), body.in_chunks()),
                };
                date::with(now, |date| {
                    let options = ResponseHeadOptions { body: down, closes, date };
                    self.client.head(response, &head[..length], edits, &options, out)
                })?;
                let framing = body.framing;
                let reusable = !is_tunnel && framing != Framing::UntilClose && !body.is_stray;
                self.progress.reusable = reusable && response.keeps_alive(head);
                self.progress.bodiless = framing == Framing::None;
                self.progress.is_tunnel = is_tunnel;
                self.progress.status = Some(status);
                let chunked = C::CHUNKS && matches!(down.framing, Framing::Chunked | Framing::UntilClose);
                self.progress.response = ResponsePart::Body { body: Body::new(framing), chunked };
            }
        }
        head.advance(length);
        Ok(())
    }

    /// Reads on when the response was larger than the buffer, so that the bytes leave together.
    fn fill(&mut self, body: Body, cx: &mut Context<'_>) {
        let from = &mut self.room.from_endpoint;
        let left = if let Body::Left(left) = body { Some(left) } else { None };
        let more = left.is_none_or(|left| left > from.len() as u64);
        if !from.is_full() || !more || !self.progress.takes_more::<C>() || !from.grow() || left.is_none() {
            return;
        }
        // The next read sees the end of the connection again; an end before the announced length is treated like an
        // error.
        if let Poll::Ready(Ok(1..)) = poll_read_buf(Pin::new(&mut *self.endpoint), cx, from.end()) {
            self.progress.endpoint_read.moved();
        }
    }

    /// Relays the received part of the response's body.
    fn body(&mut self, mut body: Body, chunked: bool, cx: &mut Context<'_>) -> Result<Flow, Reason> {
        self.fill(body, cx);
        let RelayBuffers { from_endpoint: from, to_client: out, .. } = &mut *self.room;
        let mut flow = Flow::NeedsUpstreamRead;
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
                            flow = Flow::NeedsDownstreamWrite;
                            break;
                        }
                        Poll::Ready(Ok(count @ 1..)) => {
                            self.progress.sent(count);
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
                    write::content(&from[..count], chunked, out.end());
                    count
                }
            };
            from.advance(count);
        }
        self.progress.response = ResponsePart::Body { body, chunked };
        Ok(flow)
    }

    /// The whole body of the response was relayed.
    pub(super) fn end(&mut self, chunked: bool) -> Flow {
        let uploading = self.is_uploading();
        let RelayBuffers { from_endpoint: from, to_client: out, .. } = &mut *self.room;
        if chunked {
            out.extend_from_slice(write::LAST_CHUNK);
        }
        self.progress.response = ResponsePart::Tail;
        self.progress.unsent = true;
        // A connection with excess bytes, or with an incomplete request, must not be reused.
        self.progress.reusable &= from.is_empty() && !uploading && !self.progress.upload_refused;
        Flow::Progress
    }

    /// Reads from the endpoint.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Reason> {
        let from = &mut self.room.from_endpoint;
        // Compression is slower than reading, so it needs no large buffer.
        let plain = self.room.gzip.is_none();
        let large = |body: Body| plain && matches!(body, Body::Left(left) if left >= BUFFER_BYTES as u64);
        if from.is_empty()
            && matches!(self.progress.response, ResponsePart::Body { body, .. } if large(body))
            && self.progress.takes_more::<C>()
        {
            from.grow();
        }
        from.make_room();
        match poll_read_buf(Pin::new(&mut *self.endpoint), cx, from.end()) {
            Poll::Pending => {
                // A small buffer is enough while waiting.
                from.shrink_if_empty();
                return Ok(Poll::Pending);
            }
            Poll::Ready(Ok(1..)) => self.progress.endpoint_read.moved(),
            Poll::Ready(read) => {
                self.progress.reusable = false;
                let ResponsePart::Body { body, .. } = &mut self.progress.response else {
                    return Err(Reason::UpstreamBroken);
                };
                // A reset is not an end of the body.
                read.and_then(|_| body.closed().map_err(|_| io::ErrorKind::UnexpectedEof.into()))
                    .map_err(|_| Reason::UpstreamBroken)?;
            }
        }
        Ok(Poll::Ready(()))
    }

    /// Returns buffers that are not needed while the request waits: a request is not retried after its response has
    /// begun.
    fn shrink(&mut self) {
        if !matches!(self.progress.response, ResponsePart::Head) && self.room.to_endpoint.is_sent() {
            self.room.to_endpoint.clear();
        }
    }

    /// Waits for the first of the deadlines. Ready with the reason why the relay has to end.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Reason> {
        if self.client.poll_gone(self.progress.body.is_over(), cx).is_ready() {
            return Poll::Ready(Reason::ClientGone);
        }
        self.shrink();
        let now = clock::now();
        let Timeouts { read, write, body, client } = self.timeouts;
        let held = |rest: Body| matches!(rest.next(&self.room.from_endpoint), Ok(Piece::Content(_)));
        let blocked = self.progress.unsent
            || !self.room.to_client.is_empty()
            || matches!(self.progress.response, ResponsePart::Body { body, .. } if held(body));
        let going_up = !self.room.to_endpoint.is_sent() || self.progress.upload_held;
        // A client that waits for "100 Continue" is not slow.
        let expects = self.progress.expects;
        let awaited = !self.progress.body.is_over() && !going_up && !self.progress.upload_refused && !expects;
        // While the client takes nothing, the endpoint is not read, and it need not answer before it has the whole
        // request: these waits do not count against the endpoint.
        let answers = !blocked && !(matches!(self.progress.response, ResponsePart::Head) && (going_up || awaited));
        let (sent, taken) = (self.progress.bytes_in as u64, self.progress.taken as u64);
        let Progress { endpoint_read, endpoint_write, client_read, client_write, upload, download, .. } =
            &mut *self.progress;
        let (limits, budget) = self.forwarding.exchange().shared().rates();
        let waits = [
            (upload.until(awaited, sent, limits, budget, now), Reason::BodyStalled),
            (download.until(blocked, taken, limits, budget, now), Reason::ClientGone),
            (client_write.until(blocked, client, now), Reason::ClientGone),
            (endpoint_read.until(answers, read, now), Reason::UpstreamTimeout),
            (endpoint_write.until(going_up, write, now), Reason::UpstreamTimeout),
            (client_read.until(awaited, body, now), Reason::BodyStalled),
            (self.forwarding.due(), Reason::UpstreamTimeout),
        ];
        let waits = waits.into_iter().filter_map(|(at, reason)| Some((at?, reason)));
        let Some((at, reason)) = waits.min_by_key(|(at, _)| *at) else { return Poll::Pending };
        if at <= now {
            return Poll::Ready(reason);
        }
        self.client.poll_alarm(at, cx).map(|()| reason)
    }
}

/// The outcome of a step of the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    /// There was progress; there may be more.
    Progress,
    /// It needs more bytes from the endpoint.
    NeedsUpstreamRead,
    /// The client must take bytes first, or nothing is left.
    NeedsDownstreamWrite,
}

/// Returns `true` if the bytes contain an empty line, with any line ending that endpoints may use.
fn has_empty_line(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, b"\n\r\n").is_some() || memchr::memmem::find(bytes, b"\n\n").is_some()
}

#[cfg(test)]
mod tests;
