//! An HTTP/2 stream as the client of a request. h2 handles the frames, their order and their compression; flow control
//! slows down the faster side.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use h2::SendStream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use pingora::http::ResponseHeader;

use super::downstream::Downstream;
use super::response::Response;
use super::write::{self, ResponseHeadOptions};
use crate::buffers::Buffer;
use crate::connection::{Alarm, ClientIo, ConnectionFacts};
use crate::driver::client_stream::ClientStream;
use crate::http::body::Body;
use crate::http::edits::{Edit, Edits};
use crate::reason::Reason;
use crate::request::respond::Rendered;

/// The size of a head up to which its values share one copy. The header compression keeps values as long as the
/// connection lives, and each keeps the whole copy alive.
const SHARED_BYTES_MAX: usize = 2 * 1024;

/// A stream, after its request's head was read.
pub(super) struct Stream {
    stream: ClientStream,
    facts: Arc<ConnectionFacts>,
    /// The received part of the request's body that was not taken.
    unread: Bytes,
    /// The writer of the body once the head was sent, unless there is no body.
    writer: Option<SendStream<Bytes>>,
    alarm: Alarm,
}

impl Stream {
    /// A stream of which only the head was read.
    pub(super) const fn new(stream: ClientStream, facts: Arc<ConnectionFacts>) -> Self {
        Self { stream, facts, unread: Bytes::new(), writer: None, alarm: Alarm::new() }
    }

    fn send_head(&mut self, status: u16, headers: HeaderMap, bodiless: bool) -> Result<(), Reason> {
        let mut parts = http::Response::new(()).into_parts().0;
        parts.status = StatusCode::from_u16(status).map_err(|_| Reason::UpstreamBroken)?;
        parts.headers = headers;
        let head = Box::new(ResponseHeader::from(parts));
        self.stream.send_head(head, bodiless).map_err(|_| Reason::ClientGone)?;
        if !bodiless {
            self.writer = self.stream.take_writer();
        }
        Ok(())
    }
}

impl Downstream for Stream {
    const CHUNKS: bool = false;

    fn is_ending(&self) -> bool {
        self.facts.is_ending()
    }

    fn connection(&mut self) -> Option<&mut ClientIo> {
        None
    }

    fn unread(&self) -> &[u8] {
        &self.unread
    }

    fn advance(&mut self, count: usize) {
        // An empty slice would keep the read buffer alive.
        self.unread = if count < self.unread.len() { self.unread.slice(count..) } else { Bytes::new() };
    }

    fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        while self.unread.is_empty() {
            match ready!(self.stream.poll_piece(cx)) {
                // Frames may be empty.
                Some(Ok(bytes)) => self.unread = bytes,
                Some(Err(error)) => return Poll::Ready(Err(failed(error))),
                None => return Poll::Ready(Ok(0)),
            }
        }
        Poll::Ready(Ok(self.unread.len()))
    }

    fn poll_read_into(&mut self, into: &mut Vec<u8>, most: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let count = ready!(self.poll_read_ahead(cx))?.min(most);
        into.extend_from_slice(&self.unread[..count]);
        self.advance(count);
        Poll::Ready(Ok(count))
    }

    fn poll_gone(&mut self, _: bool, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.writer {
            Some(writer) => writer.poll_reset(cx).map(|_| ()),
            None => self.stream.poll_gone(cx).map(|_| ()),
        }
    }

    /// Not sent, as in the Pingora driver.
    fn interim(&mut self, _: &Response, _: &[u8], _: &mut Buffer) {}

    fn head(
        &mut self,
        response: &Response,
        head: &[u8],
        edits: &Edits,
        options: &ResponseHeadOptions<'_>,
        _: &mut Buffer,
    ) -> Result<(), Reason> {
        let headers = headers(response, head, edits, options).ok_or(Reason::UpstreamBroken)?;
        self.send_head(response.status, headers, Body::new(options.body.framing).is_over())
    }

    fn reply(&mut self, reply: &Rendered, _: bool, _: &str, out: &mut Buffer) -> Result<(), Reason> {
        out.extend_from_slice(&reply.body);
        let mut headers = HeaderMap::with_capacity(reply.headers.len());
        for (name, value) in &reply.headers {
            headers.append(name, value.clone());
        }
        self.send_head(reply.status, headers, reply.body.is_empty())
    }

    fn poll_send(&mut self, first: &[u8], then: &[u8], last: bool, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // A frame is made of contiguous bytes.
        let bytes = if first.is_empty() { then } else { first };
        // Nothing is sent after the end.
        let Some(writer) = &mut self.writer else { return Poll::Ready(Ok(0)) };
        writer.reserve_capacity(bytes.len());
        // `poll_capacity` reports only increases, so the current capacity is checked first.
        let room = match writer.capacity() {
            0 => match ready!(writer.poll_capacity(cx)) {
                Some(room) => room.map_err(failed)?,
                None => return Poll::Ready(Ok(0)),
            },
            room => room,
        };
        let count = bytes.len().min(room);
        let last = last && count == first.len() + then.len();
        writer.send_data(Bytes::copy_from_slice(&bytes[..count]), last).map_err(failed)?;
        if last {
            self.writer = None;
        }
        Poll::Ready(Ok(count))
    }

    fn poll_sent(&mut self, over: bool, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Frames buffered in h2 wait for the connection, which has a deadline of its own.
        if over && let Some(mut writer) = self.writer.take() {
            writer.send_data(Bytes::new(), true).map_err(failed)?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_alarm(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.alarm.poll_at(at, cx)
    }
}

fn failed(error: h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}

/// The headers of a response in HTTP/2; `None` if one of them is not allowed there.
fn headers(response: &Response, head: &[u8], edits: &Edits, options: &ResponseHeadOptions<'_>) -> Option<HeaderMap> {
    let shared = (head.len() <= SHARED_BYTES_MAX).then(|| Bytes::copy_from_slice(head));
    let mut headers = HeaderMap::with_capacity(response.fields.len() + 1);
    for field in write::sent_on(response, head, edits) {
        let text = field.value.of_bytes(head);
        let value = match &shared {
            Some(shared) => HeaderValue::from_maybe_shared(shared.slice(field.value.range())),
            None => HeaderValue::from_bytes(text),
        };
        let value = value.or_else(|_| unfolded(text)).ok()?;
        headers.append(HeaderName::from_bytes(field.name.of_bytes(head)).ok()?, value);
    }
    if let Some(length) = options.body.content_length {
        headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    for edit in edits.iter() {
        match edit {
            Edit::Remove(name) => drop(headers.remove(name)),
            Edit::Set(name, value) => drop(headers.insert(name, HeaderValue::from_bytes(value).ok()?)),
            Edit::Add(name, value) => drop(headers.append(name, HeaderValue::from_bytes(value).ok()?)),
        }
    }
    Some(headers)
}

fn unfolded(text: &[u8]) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
    let mut value = Vec::with_capacity(text.len());
    write::unfolded(text, &mut value);
    HeaderValue::from_maybe_shared(Bytes::from(value))
}

#[cfg(test)]
mod tests {
    use super::super::response::Read;
    use super::*;

    #[track_caller]
    fn check(head: &str, edit: impl FnOnce(&mut Edits), want: &[(&str, &str)]) -> HeaderMap {
        let (mut response, mut edits) = (Response::default(), Edits::default());
        assert_eq!(response.read(head.as_bytes()), Read::Whole(head.len()));
        edit(&mut edits);
        let body = response.framing(head.as_bytes(), false).unwrap();
        let options = ResponseHeadOptions { body, closes: true, date: "now" };
        let headers = headers(&response, head.as_bytes(), &edits, &options).unwrap();
        let lines = headers.iter().map(|(name, value)| (name.as_str(), std::str::from_utf8(value.as_bytes()).unwrap()));
        assert_eq!(lines.collect::<Vec<_>>(), want);
        headers
    }

    #[test]
    fn heads_have_the_same_meaning_in_frames() {
        let plain = "HTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Length: 05\r\nx-a: 2\r\n\r\n";
        check(plain, |_| (), &[("x-a", "1"), ("x-a", "2"), ("content-length", "5")]);
        let coded = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\nX-Long: a\r\n  b\r\n\r\n";
        check(coded, |_| (), &[("x-long", "a b")]);
        let edit = |edits: &mut Edits| {
            edits.remove(http::header::SERVER);
            edits.set(http::header::VIA, |out| out.extend_from_slice(b"1"));
            edits.add(http::header::VIA, &HeaderValue::from_static("2"));
        };
        check("HTTP/1.1 200 OK\r\nServer: x\r\nVia: y\r\n\r\n", edit, &[("via", "1"), ("via", "2")]);
    }

    #[test]
    fn values_keep_no_more_than_a_small_head() {
        let small = "HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\n\r\n";
        let headers = check(small, |_| (), &[("a", "1"), ("b", "2")]);
        let [one, other] = ["a", "b"].map(|name| headers[name].as_bytes().as_ptr() as usize);
        assert_eq!(other - one, "1\r\nB: ".len());
        let long = "x".repeat(SHARED_BYTES_MAX);
        let large = format!("HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\nC: {long}\r\n\r\n");
        let headers = check(&large, |_| (), &[("a", "1"), ("b", "2"), ("c", &long)]);
        let [one, other] = ["a", "b"].map(|name| headers[name].as_bytes().as_ptr() as usize);
        assert_ne!(other.wrapping_sub(one), "1\r\nB: ".len());
    }
}
