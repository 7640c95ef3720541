//! Compressed bodies in the Pingora driver: the framing headers, and the pieces from Pingora.

use bytes::Bytes;
use http::HeaderValue;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use pingora::Result;
use pingora::http::ResponseHeader;
use pingora::proxy::Session;

use super::session::{is_before_http11, is_http2};
use crate::clock;
use crate::http::body::length;
use crate::http::compression::Response;
use crate::http::edits::Edits;
use crate::http::gzip::{Broken, Gzip};
use crate::request::forwarding::{Coding, Forwarding};

/// Decides whether a response is compressed, and sets its framing headers. Returns the encoder, if it is.
///
/// # Errors
/// If there are more headers than Pingora's map can hold.
pub(super) fn begin(
    session: &mut Session,
    response: &mut ResponseHeader,
    forwarding: &mut Forwarding,
    over_http2: bool,
    edits: &mut Edits,
) -> Result<Option<Gzip>> {
    let length = response.headers.get(CONTENT_LENGTH).and_then(|value| length(value.as_bytes()));
    let (status, fields) = (response.status.as_u16(), &response.headers);
    match forwarding.compress(&Response { status, length, over_http2, fields, wall: clock::wall }, edits) {
        Coding::Unchanged => Ok(None),
        Coding::HeadOnly => {
            response.remove_header(&CONTENT_LENGTH);
            Ok(None)
        }
        Coding::Gzip(gzip) => {
            frame(session, response)?;
            Ok(Some(gzip))
        }
    }
}

/// Frames a response of unknown length.
///
/// # Errors
/// If there are more headers than Pingora's map can hold.
fn frame(session: &mut Session, response: &mut ResponseHeader) -> Result<()> {
    response.remove_header(&CONTENT_LENGTH);
    if is_http2(session) {
        return Ok(());
    }
    if is_before_http11(session) {
        session.set_keepalive(None);
        return Ok(());
    }
    response.insert_header(TRANSFER_ENCODING, HeaderValue::from_static("chunked"))
}

/// Compresses a piece and flushes it, because Pingora does not say whether more is available.
///
/// # Errors
/// [`Broken`] if the encoder fails.
pub(super) fn piece(gzip: &mut Gzip, piece: &mut Option<Bytes>, is_last: bool) -> std::result::Result<(), Broken> {
    let content = piece.take().unwrap_or_default();
    let compressed = gzip.piece(&content, is_last)?;
    // An empty piece would be written as the end.
    *piece = (!compressed.is_empty()).then(|| compressed.into());
    Ok(())
}
