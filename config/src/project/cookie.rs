//! Validation of cookie names and paths in objects.

/// The maximum length in bytes of the name of a cookie or header.
const NAME_BYTES_MAX: usize = 256;
/// The maximum length in bytes of the path of a cookie.
const PATH_BYTES_MAX: usize = 1024;

/// Returns `true` if a text is a valid name of a cookie (RFC 6265 section 4.1.1) or of a header: a token.
pub(super) fn is_name(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX && http::HeaderName::from_bytes(text.as_bytes()).is_ok()
}

/// Returns `true` if a text is a valid path of a cookie. No character of it may end the attribute.
pub(super) fn is_path(text: &str) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b';' | b',' | b'"' | b'\\'));
    text.starts_with('/') && text.len() <= PATH_BYTES_MAX && plain
}
