//! Checks of a request before routing: hosts, paths, lengths and sizes on which two parsers could disagree. They apply
//! to every driver, so they also cover faults that Pingora's parser refuses already.

use std::borrow::Cow;

use tidegate_config::model::{Head, Normalized, RequestHeadLimits, normalize, request_host};

use crate::http::body::Framing;
use crate::http::names::FORWARDED_AS;
use crate::http::request_framing::{FramingFault, framing};
use crate::options::{ClientLimits, Options};
use crate::reason::Reason;

/// The HTTP version of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    /// HTTP/1.0 and older.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2.
    Http2,
}

impl Protocol {
    /// The name in log lines.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
        }
    }

    /// The name in expressions of policies, which is Envoy's.
    pub(crate) const fn attribute(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        }
    }
}

/// The overhead of a line besides its parts: a colon or a space between them, a space, and the end of the line.
pub(crate) const LINE_MARKS: usize = 4;

/// The facts about a head besides its headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadFacts<'a> {
    /// The version.
    pub(crate) protocol: Protocol,
    /// The authority of a target in absolute form (RFC 9112 section 3.2.2).
    pub(crate) target_authority: Option<&'a [u8]>,
    /// The number of header lines.
    pub(crate) header_lines: usize,
    /// The length of the target and of all header lines in bytes.
    pub(crate) header_bytes: usize,
    /// The length of the longest header line in bytes.
    pub(crate) longest_header: usize,
}

/// The facts about a valid request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ValidRequest<'a> {
    /// The routing host; empty for HTTP/1.0 without one.
    pub(crate) host: Cow<'a, str>,
    /// The routing path.
    pub(crate) path: Normalized<'a>,
    /// The announced length of the body.
    pub(crate) content_length: Option<u64>,
    /// Whether it has passed an edge of the same name before; see [`crate::http::cdn_loop`].
    pub(crate) has_passed: bool,
}

impl ValidRequest<'_> {
    /// A copy that does not borrow the head.
    pub(crate) fn to_owned(&self) -> ValidRequest<'static> {
        let Self { host, path, content_length, has_passed } = self;
        let (content_length, has_passed) = (*content_length, *has_passed);
        let path = Normalized { path: path.path.clone().into_owned().into(), had_dot_segments: path.had_dot_segments };
        ValidRequest { host: host.clone().into_owned().into(), path, content_length, has_passed }
    }
}

/// Checks a head.
///
/// # Errors
/// The first fault.
pub(crate) fn check<'a, H: Head + ?Sized>(
    head: &'a H,
    line: &HeadFacts<'_>,
    options: &Options,
    asked: RequestHeadLimits,
) -> Result<ValidRequest<'a>, Reason> {
    let ClientLimits { head_lines_max, head_bytes_max, .. } = options.client;
    if line.header_lines > head_lines_max || line.header_bytes > asked.bytes_max.unwrap_or(head_bytes_max) {
        return Err(Reason::HeadTooLarge);
    }
    // No line of a head is longer than the head.
    if let Some(max) = asked.line_bytes_max.filter(|max| line.header_bytes > *max) {
        check_lines(head, line, max)?;
    }
    if matches!(head.method(), "CONNECT" | "TRACE") {
        return Err(Reason::MethodNotAllowed);
    }
    let host = host(head, line)?;
    let content_length = content_length(head)?;
    nominations(head)?;
    let passes = options.loop_token.passes(head);
    if passes >= options.passes_max {
        return Err(Reason::LoopDetected);
    }
    let path = normalize(head.path()).ok_or(Reason::MalformedPath)?;
    Ok(ValidRequest { host, path, content_length, has_passed: passes > 0 })
}

/// Checks that the request line, in its HTTP/1 form, and each header line are within their limit.
fn check_lines<H: Head + ?Sized>(head: &H, line: &HeadFacts<'_>, max: usize) -> Result<(), Reason> {
    let target = head.path().len() + head.query().map_or(0, |query| query.len() + 1);
    if head.method().len() + target + line.protocol.as_str().len() + LINE_MARKS > max {
        return Err(Reason::UriTooLong);
    }
    if line.longest_header > max { Err(Reason::HeadTooLarge) } else { Ok(()) }
}

fn host<'a, H: Head + ?Sized>(head: &'a H, line: &HeadFacts<'_>) -> Result<Cow<'a, str>, Reason> {
    let mut hosts = 0;
    head.each_value("host", &mut |_| hosts += 1);
    if hosts > 1 {
        return Err(Reason::MalformedHost);
    }
    let Some(authority) = head.authority() else {
        return if line.protocol == Protocol::Http10 { Ok(Cow::Borrowed("")) } else { Err(Reason::MissingHost) };
    };
    if line.target_authority.is_some_and(|target| !target.eq_ignore_ascii_case(authority.as_bytes())) {
        return Err(Reason::MalformedHost);
    }
    request_host(authority).ok_or(Reason::MalformedHost)
}

fn content_length<H: Head + ?Sized>(head: &H) -> Result<Option<u64>, Reason> {
    match framing(head) {
        Ok(Framing::Length(length)) => Ok(Some(length)),
        Ok(Framing::None | Framing::Chunked | Framing::UntilClose) => Ok(None),
        Err(FramingFault::Ambiguous) => Err(Reason::AmbiguousLength),
        Err(FramingFault::UnknownTransferCoding) => Err(Reason::UnknownTransferCoding),
    }
}

/// Header names that no client may have removed by listing them in `Connection` (RFC 9110 section 7.6.1), because
/// endpoints trust the edge with them or because they frame the message.
fn nominations<H: Head + ?Sized>(head: &H) -> Result<(), Reason> {
    let mut bad = false;
    head.each_value("connection", &mut |value| {
        bad |= value.split(|byte| *byte == b',').any(|token| {
            let token = token.trim_ascii();
            let forwarded =
                token.get(..FORWARDED_AS.len()).is_some_and(|start| start.eq_ignore_ascii_case(FORWARDED_AS));
            let names: [&[u8]; 7] = [
                b"host",
                b"forwarded",
                b"x-real-ip",
                b"x-request-id",
                b"content-length",
                b"transfer-encoding",
                b"early-data",
            ];
            forwarded || names.iter().any(|name| token.eq_ignore_ascii_case(name))
        });
    });
    if bad { Err(Reason::ForbiddenConnectionOption) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    /// No further limits.
    const NO_MORE: RequestHeadLimits = RequestHeadLimits { line_bytes_max: None, bytes_max: None };

    fn limits() -> Options {
        let client = ClientLimits { head_lines_max: 64, head_bytes_max: 16_384, ..Options::default().client };
        Options { client, passes_max: 3, ..Options::default() }
    }

    fn line(protocol: Protocol) -> HeadFacts<'static> {
        HeadFacts { protocol, target_authority: None, header_lines: 3, header_bytes: 100, longest_header: 40 }
    }

    #[track_caller]
    fn check_row(sample: &Sample, want: Result<(&str, &str), Reason>) {
        let got = check(sample, &line(Protocol::Http11), &limits(), NO_MORE);
        let got = got.as_ref().map(|valid| (&*valid.host, &*valid.path.path)).map_err(|reason| *reason);
        assert_eq!(got, want, "{sample:?}");
    }

    #[test]
    fn hosts_and_paths() {
        check_row(&Sample::get("Shop.Example:80", "/a//b"), Ok(("shop.example", "/a/b")));
        check_row(&Sample::get("a/b", "/"), Err(Reason::MalformedHost));
        check_row(&Sample::get("a b", "/"), Err(Reason::MalformedHost));
        check_row(&Sample::get("", "/"), Err(Reason::MalformedHost));
        check_row(&Sample::get("a", "/").with("host", "a").with("host", "a"), Err(Reason::MalformedHost));
        check_row(&Sample::default().path("/"), Err(Reason::MissingHost));
        check_row(&Sample::get("a", "*"), Err(Reason::MalformedPath));
        check_row(&Sample::get("a", "/../x"), Err(Reason::MalformedPath));
        check_row(&Sample::get("a", "/%zz"), Err(Reason::MalformedPath));
        check_row(&Sample::get("a", "/").method("CONNECT"), Err(Reason::MethodNotAllowed));
        check_row(&Sample::get("a", "/").method("TRACE"), Err(Reason::MethodNotAllowed));
    }

    #[test]
    fn lengths_are_one_number_or_chunked() {
        let post = || Sample::get("a", "/").method("POST");
        for value in ["0", "3", "10", "999999999999999999"] {
            check_row(&post().with("content-length", value), Ok(("a", "/")));
        }
        check_row(&post().with("transfer-encoding", "Chunked"), Ok(("a", "/")));
        for value in [
            "3, 3",
            "+3",
            "-1",
            "0x3",
            "",
            " 3",
            "010",
            "00",
            "1000000000000000000",
            "9223372036854775808",
            "18446744073709551615",
            "99999999999999999999",
            "000000000000000000003",
        ] {
            check_row(&post().with("content-length", value), Err(Reason::AmbiguousLength));
        }
        let twice = post().with("content-length", "3").with("content-length", "3");
        check_row(&twice, Err(Reason::AmbiguousLength));
        let both = post().with("content-length", "3").with("transfer-encoding", "chunked");
        check_row(&both, Err(Reason::AmbiguousLength));
        for value in ["gzip, chunked", "gzip", "identity", "chunked, chunked"] {
            check_row(&post().with("transfer-encoding", value), Err(Reason::UnknownTransferCoding));
        }
    }

    #[test]
    fn headers_of_the_edge_cannot_be_removed_through_connection() {
        let nominate = |value| Sample::get("a", "/").with("connection", value);
        for value in [
            "X-Forwarded-For",
            "Early-Data",
            "keep-alive, x-real-ip",
            "close,X-Request-ID",
            "Content-Length",
            "forwarded",
        ] {
            check_row(&nominate(value), Err(Reason::ForbiddenConnectionOption));
        }
        for value in ["keep-alive", "Upgrade", "close, x-own"] {
            check_row(&nominate(value), Ok(("a", "/")));
        }
    }

    #[test]
    fn a_looping_request_ends() {
        check_row(&Sample::get("a", "/").with("cdn-loop", "tidegate, tidegate, other"), Ok(("a", "/")));
        check_row(&Sample::get("a", "/").with("cdn-loop", "tidegate, tidegate, tidegate"), Err(Reason::LoopDetected));
    }

    #[test]
    fn lines_have_a_limit_of_their_own_where_it_is_configured() {
        let asked = RequestHeadLimits { line_bytes_max: Some(100), bytes_max: Some(40_000) };
        let row = |target: usize, longest_header: usize, want: Option<Reason>| {
            let sample = Sample::get("a", &format!("/{}", "x".repeat(target - 1)));
            let line =
                HeadFacts { header_bytes: target + 3 * longest_header, longest_header, ..line(Protocol::Http11) };
            let got = check(&sample, &line, &limits(), asked).map(drop).err();
            assert_eq!(got, want, "{target} {longest_header}");
        };
        let most = 100 - "GET HTTP/1.1".len() - LINE_MARKS + 1;
        row(most, 100, None);
        row(most + 1, 40, Some(Reason::UriTooLong));
        row(10, 101, Some(Reason::HeadTooLarge));
        row(10, 13_333, Some(Reason::HeadTooLarge));
        // The limit of the whole head may be larger than the default.
        let wide = RequestHeadLimits { line_bytes_max: None, bytes_max: Some(40_000) };
        let line = HeadFacts { header_bytes: 40_000, ..line(Protocol::Http11) };
        assert!(check(&Sample::get("a", "/"), &line, &limits(), wide).is_ok());
        let more = HeadFacts { header_bytes: 40_001, ..line };
        assert_eq!(check(&Sample::get("a", "/"), &more, &limits(), wide), Err(Reason::HeadTooLarge));
    }

    #[test]
    fn limits_versions_and_absolute_form() {
        let sample = Sample::get("a", "/");
        let many = HeadFacts { header_lines: 65, ..line(Protocol::Http11) };
        assert_eq!(check(&sample, &many, &limits(), NO_MORE), Err(Reason::HeadTooLarge));
        let long = HeadFacts { header_bytes: 16_385, ..line(Protocol::Http11) };
        assert_eq!(check(&sample, &long, &limits(), NO_MORE), Err(Reason::HeadTooLarge));
        let other = HeadFacts { target_authority: Some(b"b"), ..line(Protocol::Http11) };
        assert_eq!(check(&sample, &other, &limits(), NO_MORE), Err(Reason::MalformedHost));
        let same = HeadFacts { target_authority: Some(b"A"), ..line(Protocol::Http11) };
        assert!(check(&sample, &same, &limits(), NO_MORE).is_ok());
        let bare = Sample::default().path("/");
        assert_eq!(check(&bare, &line(Protocol::Http10), &limits(), NO_MORE).unwrap().host, "");
        assert_eq!(check(&bare, &line(Protocol::Http2), &limits(), NO_MORE), Err(Reason::MissingHost));
    }
}
