//! One HTTP/2 stream of a client. It takes the place of Pingora's session of a stream, which overwrites the `Date` of
//! every response and keeps h2's half of the stream to itself: the native driver uses it directly, and Pingora's proxy
//! as a session of its own kind.

mod session;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::protocols::http::HttpTask;
use pingora::protocols::http::authority::{RawTargetAuthority, raw_target_authority, validate_request_authority};
use pingora::protocols::http::body_buffer::FixedBuffer;
use pingora::protocols::http::date::get_cached_date;
use pingora::protocols::http::v2::write_body;
use pingora::{Error, ErrorType, Result};
use tokio::time::timeout;

/// A stream of which the head of the request was read.
pub(crate) struct ClientStream {
    request: RequestHeader,
    body: RecvStream,
    respond: SendResponse<Bytes>,
    /// The writer of the body, once the head of the response was sent.
    writer: Option<SendStream<Bytes>>,
    /// The head of the response that was sent.
    written: Option<Box<ResponseHeader>>,
    /// Whether the end of the response was sent.
    is_ended: bool,
    received: usize,
    sent: usize,
    /// The part of the body that can be sent again.
    held: Option<FixedBuffer>,
    digest: Arc<Digest>,
    write_stall: Option<Duration>,
    drain: Option<Duration>,
}

impl ClientStream {
    /// A stream that h2 has accepted; `None` if its request is malformed (RFC 9113 section 8.1.1): then the stream was
    /// reset, or answered with 400.
    pub(crate) fn new(
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        digest: Arc<Digest>,
    ) -> Option<Self> {
        let (head, body) = request.into_parts();
        let request = RequestHeader::from(head);
        if request.raw_path().iter().any(|byte| matches!(byte, 0 | b'\n' | b'\r' | b' ')) {
            respond.send_reset(Reason::PROTOCOL_ERROR);
            return None;
        }
        if !has_one_authority(&request) {
            let mut refusal = Response::new(());
            *refusal.status_mut() = StatusCode::BAD_REQUEST;
            refusal.headers_mut().insert(DATE, get_cached_date());
            // A client that has reset the stream needs no answer.
            respond.send_response(refusal, true).ok();
            return None;
        }
        Some(Self {
            request,
            body,
            respond,
            writer: None,
            written: None,
            is_ended: false,
            received: 0,
            sent: 0,
            held: None,
            digest,
            write_stall: None,
            drain: None,
        })
    }

    /// The head of the request.
    pub(crate) const fn request(&self) -> &RequestHeader {
        &self.request
    }

    /// The same, to be changed.
    pub(crate) const fn request_mut(&mut self) -> &mut RequestHeader {
        &mut self.request
    }

    /// The facts that Pingora has about the connection.
    pub(crate) fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns `true` if the request has no body.
    pub(crate) fn is_bodiless(&self) -> bool {
        let announces_none = || self.request.headers.get(CONTENT_LENGTH).is_some_and(|length| length == "0");
        self.received == 0 && (self.body.is_end_stream() || announces_none())
    }

    /// The next piece of the body; `None` at its end. The client may send as much again.
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let piece = match ready!(self.body.poll_data(cx)) {
            Some(Ok(piece)) => piece,
            ended => return Poll::Ready(ended),
        };
        self.received += piece.len();
        if let Some(held) = &mut self.held {
            held.write_to_buffer(&piece);
        }
        Poll::Ready(Some(self.body.flow_control().release_capacity(piece.len()).map(|()| piece)))
    }

    /// Ready once the client has reset the stream, or its connection has ended. For streams whose writer was not taken.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reason, h2::Error>> {
        match &mut self.writer {
            Some(writer) => writer.poll_reset(cx),
            None => self.respond.poll_reset(cx),
        }
    }

    /// Sends the head of the final response, once; `is_end` if no body follows. A `Date` is added if there is none
    /// (RFC 9110 section 6.6.1). Interim responses are not sent.
    ///
    /// # Errors
    /// If the stream or its connection has ended.
    pub(crate) fn send_head(&mut self, mut head: Box<ResponseHeader>, is_end: bool) -> Result<()> {
        if self.is_ended || self.written.is_some() || head.status.is_informational() {
            return Ok(());
        }
        if !head.headers.contains_key(DATE) {
            head.insert_header(DATE, get_cached_date())?;
        }
        // Headers of a connection of HTTP/1.1 are not allowed in HTTP/2 (RFC 9113 section 8.2.2).
        for name in [TRANSFER_ENCODING, CONNECTION, UPGRADE] {
            head.remove_header(&name);
        }
        for name in ["keep-alive", "proxy-connection"] {
            head.remove_header(name);
        }
        let response = Response::from_parts(head.as_owned_parts(), ());
        let writer = self.respond.send_response(response, is_end).map_err(|error| lost("a head", error))?;
        (self.written, self.writer, self.is_ended) = (Some(head), Some(writer), is_end);
        Ok(())
    }

    /// The writer of the body, once the head was sent.
    pub(crate) const fn take_writer(&mut self) -> Option<SendStream<Bytes>> {
        self.writer.take()
    }

    fn is_received(&self) -> bool {
        self.is_bodiless() || self.body.is_end_stream()
    }

    async fn piece(&mut self) -> Result<Option<Bytes>> {
        let piece = poll_fn(|cx| self.poll_piece(cx)).await.transpose();
        piece.map_err(|error| Error::because(ErrorType::ReadError, "while reading a body from a client", error))
    }

    async fn send_piece(&mut self, piece: Bytes, is_end: bool) -> Result<()> {
        if self.is_ended {
            return Ok(());
        }
        let Some(writer) = &mut self.writer else {
            return Error::e_explain(ErrorType::H2Error, "a body without a head");
        };
        let bytes = piece.len();
        let written = write_body(writer, piece, is_end, self.write_stall);
        // The limit of one write is that of the whole piece, too.
        let written = match self.write_stall {
            Some(limit) => timeout(limit, written)
                .await
                .unwrap_or_else(|_| Error::e_explain(ErrorType::WriteTimedout, "a client takes no more of a body")),
            None => written.await,
        };
        written.map_err(|error| error.into_down())?;
        self.sent += bytes;
        self.is_ended = is_end;
        Ok(())
    }

    fn send_trailers(&mut self, trailers: HeaderMap) -> Result<()> {
        if self.is_ended {
            return Ok(());
        }
        let Some(writer) = &mut self.writer else {
            return Error::e_explain(ErrorType::H2Error, "trailers without a head");
        };
        writer.send_trailers(trailers).map_err(|error| lost("trailers", error))?;
        self.is_ended = true;
        Ok(())
    }

    /// Ends a response whose head was sent.
    fn send_end(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.as_mut().filter(|_| !self.is_ended) {
            writer.send_data(Bytes::new(), true).map_err(|error| lost("the end", error))?;
            self.is_ended = true;
        }
        Ok(())
    }

    fn reset(&mut self, reason: Reason) {
        if !self.is_ended {
            self.respond.send_reset(reason);
        }
    }

    /// Sends a part of a response. Returns `true` if it is the last one.
    async fn send(&mut self, part: HttpTask) -> Result<bool> {
        match part {
            HttpTask::Header(head, is_end) => self.send_head(head, is_end).map_err(Error::into_down).map(|()| is_end),
            HttpTask::Body(piece, is_end) => {
                if let Some(piece) = piece.filter(|piece| !piece.is_empty()) {
                    self.send_piece(piece, is_end).await.map_err(Error::into_down)?;
                }
                Ok(is_end)
            }
            HttpTask::UpgradedBody(..) => Error::e_explain(ErrorType::InternalError, "another protocol in a stream"),
            HttpTask::Trailer(Some(trailers)) => self.send_trailers(*trailers).map(|()| true),
            HttpTask::Trailer(None) | HttpTask::Done => Ok(true),
            HttpTask::Failed(error) => Err(error),
        }
    }
}

/// Returns `true` if a request names one authority, without a user, beside its path (RFC 9113 section 8.3.1). CONNECT,
/// which has no path, is answered by the driver.
fn has_one_authority(request: &RequestHeader) -> bool {
    let is_named = request.uri.authority().is_some() || request.headers.contains_key(HOST);
    request.method == Method::CONNECT
        || is_named
            && validate_request_authority(request).is_ok()
            && matches!(raw_target_authority(request.raw_path()), RawTargetAuthority::None)
}

fn lost(what: &'static str, error: h2::Error) -> Box<Error> {
    Error::because(ErrorType::WriteError, format!("while sending {what} to a client"), error).into_down()
}
