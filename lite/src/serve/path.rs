//! The path of a request, as every part of the server reads it: decoded once, and then checked.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The number of times that a path is decoded for the check: servers behind this one may decode it again.
const DECODINGS_MAX: usize = 3;

/// The decoded path, which two servers cannot read in two ways. `None` if it is not UTF-8, or has a segment `.` or
/// `..`, with parameters or without (RFC 3986 section 5.2.4 removes them), a backslash, which some servers take for
/// a slash, or a control character, no matter how often these are encoded.
pub(super) fn decoded(raw: &str) -> Option<Cow<'_, str>> {
    let decoded = percent_decode_str(raw).decode_utf8().ok()?;
    let mut read = Cow::Borrowed(&*decoded);
    for _ in 0..DECODINGS_MAX {
        if !is_plain(raw) || !is_plain(&read) {
            return None;
        }
        let again = percent_decode_str(&read).decode_utf8().ok()?.into_owned();
        if again == *read {
            return Some(decoded);
        }
        read = Cow::Owned(again);
    }
    // No name has so many layers.
    None
}

fn is_plain(path: &str) -> bool {
    // Some servers take what follows a semicolon in a segment for parameters, as `..;x`.
    let is_name = |segment: &str| !matches!(segment.split(';').next(), Some("." | ".."));
    !path.contains(|it: char| it == '\\' || it.is_control()) && path.split('/').all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(raw: &str, want: Option<&str>) {
        assert_eq!(decoded(raw).as_deref(), want, "{raw}");
    }

    #[test]
    fn a_path_is_decoded_once() {
        check("/api/v1/services", Some("/api/v1/services"));
        check("/api/v1/namespaces/a%20b", Some("/api/v1/namespaces/a b"));
        check("/api/v1/namespaces/system:node%3Aone", Some("/api/v1/namespaces/system:node:one"));
        check("/api/v1/x/..y/.z", Some("/api/v1/x/..y/.z"));
        check("/api/v1/x/100%25", Some("/api/v1/x/100%"));
        check("/api/v1/x/%", Some("/api/v1/x/%"));
    }

    #[test]
    fn no_spelling_of_a_dot_segment_is_read() {
        for dots in [
            "..",
            ".",
            "%2e%2e",
            "%2E%2e",
            ".%2e",
            "%2e.",
            "%2e",
            "%252e%252e",
            "%25252e.",
            "%2525252e%2e",
            "..;",
            "..;x=1",
            "%2e.%3b",
        ] {
            check(&format!("/api/v1/{dots}/x"), None);
            check(&format!("/api/v1/{dots}"), None);
            check(&format!("/api/v1/y%2f{dots}%2Fx"), None);
            check(&format!("/api/v1/y%5c{dots}%5Cx"), None);
            check(&format!("/api/v1/y%252f{dots}%252fx"), None);
        }
        for hostile in
            ["/api/v1\\x", "/api/v1/%00", "/api/v1/%0d%0a", "/api/v1/%ff", "/api/v1/%C0%AE%C0%AE/x", "/api/v1/%2500"]
        {
            check(hostile, None);
        }
    }
}
