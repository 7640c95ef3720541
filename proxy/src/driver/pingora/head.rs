//! Pingora's request head as the steps read it, and the application of the steps' edits to Pingora's heads.

use bytes::{BufMut, BytesMut};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::http::authority::{RawTargetAuthority, raw_target_authority};
use tidegate_config::model::Head;

use crate::http::body::{Framing, Malformed};
use crate::http::edits::{Change, Edits};
use crate::http::names::HeaderNames;
use crate::http::response::{Announced, HEAD_BYTES_MAX, LINES_MAX, frame};
use crate::request::validate::{HeadFacts, LINE_MARKS, Protocol};

/// The names of the headers that every request gets.
const SET_ALWAYS: [&str; 7] = [
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-real-ip",
    "x-request-id",
    "cdn-loop",
];

/// A read-only view of a request that Pingora has parsed.
#[derive(Debug)]
pub(crate) struct Parsed<'a> {
    request: &'a RequestHeader,
    path: &'a str,
    query: Option<&'a str>,
    authority: Option<&'a [u8]>,
}

impl<'a> Parsed<'a> {
    /// Splits the target. A target that is not UTF-8 gets an empty path, which no rule matches.
    pub(crate) fn new(request: &'a RequestHeader) -> Self {
        let (authority, target) = match raw_target_authority(request.raw_path()) {
            RawTargetAuthority::Absolute { authority, path_and_query, .. } => (Some(authority), path_and_query),
            RawTargetAuthority::None | RawTargetAuthority::AmbiguousAuthority => (None, request.raw_path()),
        };
        let target = std::str::from_utf8(target).unwrap_or_default();
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let path = if path.is_empty() && authority.is_some() { "/" } else { path };
        Self { request, path, query, authority }
    }

    /// The head as parsed by Pingora.
    pub(crate) const fn request(&self) -> &'a RequestHeader {
        self.request
    }

    /// The facts about the head besides its headers.
    pub(crate) fn line(&self) -> HeadFacts<'a> {
        let headers = &self.request.headers;
        let lengths = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + LINE_MARKS);
        let (bytes, longest) = lengths.fold((0, 0), |(bytes, longest), length| (bytes + length, length.max(longest)));
        HeadFacts {
            protocol: match self.request.version {
                Version::HTTP_2 => Protocol::Http2,
                Version::HTTP_11 => Protocol::Http11,
                _ => Protocol::Http10,
            },
            target_authority: self.authority,
            header_lines: headers.len(),
            header_bytes: self.request.raw_path().len() + bytes,
            longest_header: longest,
        }
    }
}

impl Head for Parsed<'_> {
    fn method(&self) -> &str {
        self.request.method.as_str()
    }

    fn path(&self) -> &str {
        self.path
    }

    fn query(&self) -> Option<&str> {
        self.query
    }

    fn authority(&self) -> Option<&str> {
        let host = self.request.headers.get(http::header::HOST).map(|host| host.to_str().unwrap_or_default());
        host.or_else(|| self.request.uri.authority().map(http::uri::Authority::as_str))
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.request.headers.get(name).map(HeaderValue::as_bytes)
    }

    fn each_value(&self, name: &str, see: &mut dyn FnMut(&[u8])) {
        self.request.headers.get_all(name).iter().for_each(|value| see(value.as_bytes()));
    }
}

impl HeaderNames for Parsed<'_> {
    fn each_name(&self, see: &mut dyn FnMut(&[u8])) {
        self.request.headers.keys().for_each(|name| see(name.as_str().as_bytes()));
    }
}

/// Applies edits to the head for an endpoint.
///
/// # Errors
/// If there are more headers than Pingora's map can hold, or Pingora cannot send the target.
pub(crate) fn edit_request(edits: Edits, head: &mut RequestHeader) -> pingora::Result<()> {
    if let Some(target) = edits.target() {
        set_target(head, target)?;
    }
    for (name, change) in edits.into_changes() {
        match change {
            Change::Remove => drop(head.remove_header(&name)),
            Change::Set(value) => match own_name(&name) {
                Some(own) => head.insert_header(own, value)?,
                None => head.insert_header(name, value)?,
            },
            Change::Add(value) => drop(head.append_header(name, value)?),
        }
    }
    Ok(())
}

/// Sets the target in origin form. The authority of HTTP/2 stays, because it is separate from the target there.
fn set_target(head: &mut RequestHeader, target: &[u8]) -> pingora::Result<()> {
    if head.uri.authority().is_none() {
        return head.set_raw_path(target);
    }
    let invalid = || pingora::Error::explain(pingora::ErrorType::InvalidHTTPHeader, "the target cannot be rewritten");
    let mut parts = head.uri.clone().into_parts();
    parts.path_and_query = Some(target.try_into().map_err(|_| invalid())?);
    head.set_uri(http::Uri::from_parts(parts).map_err(|_| invalid())?);
    Ok(())
}

/// Applies edits to the head for the client.
///
/// # Errors
/// If there are more headers than Pingora's map can hold.
pub(crate) fn edit_response(edits: Edits, head: &mut ResponseHeader) -> pingora::Result<()> {
    for (name, change) in edits.into_changes() {
        match change {
            Change::Remove => drop(head.remove_header(&name)),
            Change::Set(value) => head.insert_header(name, value)?,
            Change::Add(value) => drop(head.append_header(name, value)?),
        }
    }
    Ok(())
}

/// Returns `true` if an endpoint's head, or its trailers, exceed the limit. They have been read already: Pingora by
/// itself reads up to 1 MiB in 256 lines, and h2 decodes 128 KiB; one of the lines may be Pingora's own.
pub(crate) fn is_too_large(fields: &HeaderMap) -> bool {
    let lengths = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let lines = fields.iter().filter(|(name, _)| *name != TRANSFER_ENCODING).count();
    lines > LINES_MAX || lengths.sum::<usize>() > HEAD_BYTES_MAX
}

/// The framing of a response for the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FramedResponse {
    /// Whether the body is sent in chunks, as to HTTP/1 clients. In HTTP/2, frames delimit it (RFC 9113 section 8.2.2).
    pub(crate) is_chunked: bool,
    /// Whether the endpoint announced a body where none is allowed, and may still send it; see
    /// [`crate::http::response::ResponseBody::is_stray`].
    pub(crate) is_stray: bool,
}

/// Replaces the endpoint's framing and version by the edge's own.
///
/// # Errors
/// [`Malformed`] if the endpoint's framing is ambiguous, or the head is too large.
pub(crate) fn frame_response(
    head: &mut ResponseHeader,
    to_head: bool,
    to_http2: bool,
) -> Result<FramedResponse, Malformed> {
    if is_too_large(&head.headers) {
        return Err(Malformed);
    }
    let values = |name| head.headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let body = frame(Announced {
        status: head.status.as_u16(),
        is_http10: head.version == Version::HTTP_10,
        to_head,
        codings: values(TRANSFER_ENCODING),
        lengths: values(CONTENT_LENGTH),
    })?;
    head.set_version(Version::HTTP_11);
    let is_chunked = !to_http2 && matches!(body.framing, Framing::Chunked | Framing::UntilClose);
    let coding = is_chunked.then(|| HeaderValue::from_static("chunked"));
    let length = body.content_length.map(HeaderValue::from);
    for (name, value) in [(TRANSFER_ENCODING, coding), (CONTENT_LENGTH, length)] {
        head.remove_header(&name);
        // A map that held the header has room for it.
        value.and_then(|value| head.insert_header(name, value).ok());
    }
    Ok(FramedResponse { is_chunked, is_stray: body.is_stray })
}

/// Copies the values of a head into a buffer of their own. Pingora's values are slices of the read buffer, which HTTP/2
/// header compression would keep alive as long as the connection lives.
///
/// # Errors
/// Never for a head that Pingora has made.
pub(crate) fn detach(head: &mut ResponseHeader) -> pingora::Result<()> {
    let mut parts: Parts = std::mem::replace(head, ResponseHeader::build_no_case(head.status, Some(0))?).into();
    let mut own = BytesMut::with_capacity(parts.headers.values().map(HeaderValue::len).sum());
    for value in parts.headers.values_mut() {
        own.put_slice(value.as_bytes());
        // An invalid value, which Pingora allows, stays as it is.
        if let Ok(detached) = HeaderValue::from_maybe_shared(own.split().freeze()) {
            *value = detached;
        }
    }
    *head = parts.into();
    Ok(())
}

/// The static name of a header that every request gets. Pingora's map copies all other names.
fn own_name(name: &HeaderName) -> Option<&'static str> {
    SET_ALWAYS.iter().copied().find(|own| *own == name.as_str())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn detached_values_share_no_memory_with_the_read_buffer() {
        let read = Bytes::from_static(b"one two three");
        let mut head = ResponseHeader::build(201, None).unwrap();
        for (name, range) in [("X-A", 0..3), ("X-B", 4..7), ("X-A", 8..13)] {
            head.append_header(name, HeaderValue::from_maybe_shared(read.slice(range)).unwrap()).unwrap();
        }
        detach(&mut head).unwrap();
        let texts: Vec<_> = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(texts, [("x-a", b"one".as_slice()), ("x-a", b"three"), ("x-b", b"two")]);
        assert_eq!(head.status, 201);
        assert!(head.headers.values().all(|value| !read.as_ptr_range().contains(&value.as_bytes().as_ptr())));
    }
}
