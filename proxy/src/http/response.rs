//! The limits of response heads, and the framing of response bodies. Both drivers use one strict rule: an ambiguous
//! head is refused, because otherwise the next client behind a proxy with a connection pool could get the rest of it as
//! its response.

use super::body::{Framing, Malformed, length};

/// The maximum size of a response head, from the status line to the empty line.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The maximum number of header lines of a response.
pub(crate) const LINES_MAX: usize = 128;

/// The maximum number of different names in the `Connection` header lines of a response (RFC 9110 section 7.6.1).
pub(crate) const NOMINATIONS_MAX: usize = 32;

/// The parts of a response head that frame its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced<C, L> {
    /// The status code, from 100.
    pub(crate) status: u16,
    /// Whether the endpoint answers in HTTP/1.0, which has no transfer codings.
    pub(crate) is_http10: bool,
    /// Whether it answers a HEAD request.
    pub(crate) to_head: bool,
    /// The values of its `Transfer-Encoding` header lines.
    pub(crate) codings: C,
    /// The values of its `Content-Length` header lines.
    pub(crate) lengths: L,
}

/// The framing of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ResponseBody {
    /// The framing of the body from the endpoint.
    pub(crate) framing: Framing,
    /// The `Content-Length` for the client. A response to HEAD and a 304 have one without a body (RFC 9110 section
    /// 8.6).
    pub(crate) content_length: Option<u64>,
    /// Whether the endpoint announced a body where none is allowed. It may send one nevertheless, so its connection is
    /// not reused.
    pub(crate) is_stray: bool,
}

impl ResponseBody {
    /// A response without a body and without `Content-Length`.
    pub(crate) const fn without_length(self) -> Self {
        Self { content_length: None, ..self }
    }

    /// The same body, sent in chunks.
    pub(crate) const fn in_chunks(self) -> Self {
        Self { framing: Framing::Chunked, content_length: None, ..self }
    }
}

/// Determines the framing of a response body (RFC 9112 section 6.3).
///
/// | the head has | the response |
/// |---|---|
/// | `Transfer-Encoding` that is not the one word `chunked` in one line, or any in HTTP/1.0 | is refused |
/// | more than one `Content-Length`, in lines or in one line, or one that is not 1 to 18 digits | is refused |
/// | both | is chunked; the length is left out (RFC 9112 section 6.3, rule 3) |
/// | either, in a 1xx or 204 | has no body; both are left out (RFC 9112 section 6.1, RFC 9110 section 8.6) |
/// | either, in a 304 or in answer to HEAD | has no body; the length is sent on, the coding is left out |
/// | neither | ends with the connection |
///
/// # Errors
/// [`Malformed`] if it is refused.
pub(crate) fn frame<'v, C, L>(head: Announced<C, L>) -> Result<ResponseBody, Malformed>
where
    C: Iterator<Item = &'v [u8]>,
    L: Iterator<Item = &'v [u8]>,
{
    let Announced { status, is_http10, to_head, codings, lengths } = head;
    let mut is_chunked = false;
    for coding in codings {
        if is_chunked || is_http10 || !is_chunked_word(coding) {
            return Err(Malformed);
        }
        is_chunked = true;
    }
    let mut content_length = None;
    for value in lengths {
        // Beside a transfer coding the length is ignored, so it need not be valid.
        if !is_chunked && content_length.replace(length(value).ok_or(Malformed)?).is_some() {
            return Err(Malformed);
        }
    }
    let has_neither = matches!(status, 100..=199 | 204);
    if ends_with_head(status, to_head) {
        let is_stray = has_neither && (is_chunked || content_length.is_some_and(|length| length > 0));
        let content_length = content_length.filter(|_| !has_neither);
        return Ok(ResponseBody { framing: Framing::None, content_length, is_stray });
    }
    let framing = match (is_chunked, content_length) {
        (true, _) => Framing::Chunked,
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::UntilClose,
    };
    Ok(ResponseBody { framing, content_length, is_stray: false })
}

/// Returns `true` if a response has no content, and ends with its head, whatever its endpoint sends after it (RFC 9110
/// section 6.4.1).
pub(crate) const fn ends_with_head(status: u16, to_head: bool) -> bool {
    to_head || matches!(status, 100..=199 | 204 | 304)
}

/// Returns `true` if a value is only `chunked`. A folded value is not, because a parser may stop at the first line.
fn is_chunked_word(value: &[u8]) -> bool {
    let is_word = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let start = value.iter().position(is_word).unwrap_or_default();
    let end = value.iter().rposition(is_word).map_or(start, |last| last + 1);
    value.get(start..end).is_some_and(|word| word.eq_ignore_ascii_case(b"chunked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The framing of a response with these header lines, each `Transfer-Encoding` written `T: …` and each
    /// `Content-Length` `L: …`.
    #[track_caller]
    fn framed(status: u16, lines: &[&str], is_http10: bool, to_head: bool) -> Result<ResponseBody, Malformed> {
        let values =
            |name: &'static str| lines.iter().filter_map(move |line| line.strip_prefix(name)).map(str::as_bytes);
        frame(Announced { status, is_http10, to_head, codings: values("T: "), lengths: values("L: ") })
    }

    #[track_caller]
    fn check(status: u16, lines: &[&str], want: Framing, length: Option<u64>) {
        let got = framed(status, lines, false, false);
        assert_eq!(
            got,
            Ok(ResponseBody { framing: want, content_length: length, is_stray: false }),
            "{status} {lines:?}"
        );
    }

    #[track_caller]
    fn check_refused(lines: &[&str]) {
        for (status, to_head) in [(200, false), (200, true), (204, false), (304, false), (103, false)] {
            assert_eq!(framed(status, lines, false, to_head), Err(Malformed), "{status} {lines:?}");
        }
    }

    #[test]
    fn a_body_ends_by_its_coding_its_length_or_the_connection() {
        check(200, &["T: chunked"], Framing::Chunked, None);
        check(200, &["T:  Chunked\t"], Framing::Chunked, None);
        check(200, &["L: 5"], Framing::Length(5), Some(5));
        check(200, &["L: 007"], Framing::Length(7), Some(7));
        check(200, &["L: 0"], Framing::Length(0), Some(0));
        check(200, &["L: 999999999999999999"], Framing::Length(999_999_999_999_999_999), Some(999_999_999_999_999_999));
        check(200, &[], Framing::UntilClose, None);
        check(500, &[], Framing::UntilClose, None);
    }

    #[test]
    fn a_coding_overrides_a_length() {
        check(200, &["T: chunked", "L: 5"], Framing::Chunked, None);
        check(200, &["L: 5", "T: chunked", "L: x"], Framing::Chunked, None);
    }

    #[test]
    fn ambiguous_framing_is_refused_for_every_status() {
        for coding in ["chunked, identity", "chunked,x", "xchunked", "chunked,", "chunked;q=1", "identity", "gzip", ""]
        {
            check_refused(&[&format!("T: {coding}")]);
        }
        check_refused(&["T: gzip, chunked"]);
        check_refused(&["T: chunked\r\n x"]);
        check_refused(&["T: chunked\r\n "]);
        check_refused(&["T: chunked, chunked"]);
        check_refused(&["T: chunked", "T: chunked"]);
        check_refused(&["T: identity", "T: chunked"]);
        check_refused(&["T: chunked", "T: identity"]);
        for length in ["5, 5", "5,6", "+5", "-5", "x", "", "0x5", "5 5", "1000000000000000000", "99999999999999999999"]
        {
            check_refused(&[&format!("L: {length}")]);
        }
        check_refused(&["L: 5", "L: 5"]);
        check_refused(&["L: 5", "L: 6"]);
    }

    #[test]
    fn http_1_0_has_no_codings() {
        for status in [200, 204, 304] {
            assert_eq!(framed(status, &["T: chunked"], true, false), Err(Malformed));
        }
        let length = ResponseBody { framing: Framing::Length(5), content_length: Some(5), is_stray: false };
        assert_eq!(framed(200, &["L: 5"], true, false), Ok(length));
    }

    #[test]
    fn bodiless_responses_keep_a_length_only_where_it_means_something() {
        let bodiless = |content_length, is_stray| Ok(ResponseBody { framing: Framing::None, content_length, is_stray });
        for status in [100, 101, 103, 199, 204] {
            for to_head in [false, true] {
                assert_eq!(framed(status, &[], false, to_head), bodiless(None, false));
                assert_eq!(framed(status, &["L: 0"], false, to_head), bodiless(None, false));
                assert_eq!(framed(status, &["L: 5"], false, to_head), bodiless(None, true));
                assert_eq!(framed(status, &["T: chunked"], false, to_head), bodiless(None, true));
            }
        }
        assert_eq!(framed(304, &["L: 5"], false, false), bodiless(Some(5), false));
        assert_eq!(framed(200, &["L: 5"], false, true), bodiless(Some(5), false));
        assert_eq!(framed(200, &["T: chunked"], false, true), bodiless(None, false));
        assert_eq!(framed(304, &["T: chunked", "L: 5"], false, false), bodiless(None, false));
    }
}
