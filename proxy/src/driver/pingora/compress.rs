//! How the full driver sends a compressed body: what its head says of the framing, and the pieces that Pingora hands over.

use bytes::Bytes;
use http::HeaderValue;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use pingora::Result;
use pingora::http::ResponseHeader;
use pingora::proxy::Session;

use super::session::is_before_http11;
use crate::http::gzip::{Broken, Gzip};

/// Frames a response whose length nobody knows beforehand.
///
/// # Errors
/// When there are more headers than Pingora's map can hold.
pub(super) fn frame(session: &mut Session, response: &mut ResponseHeader) -> Result<()> {
    response.remove_header(&CONTENT_LENGTH);
    if session.is_http2() {
        return Ok(());
    }
    if is_before_http11(session) {
        session.set_keepalive(None);
        return Ok(());
    }
    response.insert_header(TRANSFER_ENCODING, HeaderValue::from_static("chunked"))
}

/// Compresses a piece, so that the client can read it when it gets it: Pingora does not tell whether more is there.
///
/// # Errors
/// [`Broken`] when the encoder fails.
pub(super) fn piece(gzip: &mut Gzip, piece: &mut Option<Bytes>, is_last: bool) -> std::result::Result<(), Broken> {
    let content = piece.take().unwrap_or_default();
    let compressed = gzip.piece(&content, is_last)?;
    // Nothing is no piece: written down, it would be the end.
    *piece = (!compressed.is_empty()).then(|| compressed.into());
    Ok(())
}
