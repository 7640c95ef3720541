//! The parts of a cookie that an object may name.

/// Bytes of the name of a cookie, and of a header.
const NAME_BYTES_MAX: usize = 256;
/// Bytes of the path of a cookie.
const PATH_BYTES_MAX: usize = 1024;

/// Whether a text can be the name of a cookie (RFC 6265 section 4.1.1) or of a header: a token.
pub(super) fn is_name(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX && http::HeaderName::from_bytes(text.as_bytes()).is_ok()
}

/// Whether a text can be the path of a cookie. Nothing in it may end the attribute.
pub(super) fn is_path(text: &str) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b';' | b',' | b'"' | b'\\'));
    text.starts_with('/') && text.len() <= PATH_BYTES_MAX && plain
}
