//! The `Date` of responses over HTTP/1 in the Pingora driver. Pingora writes its own into every response, after the
//! driver's last call; a date that must pass (RFC 9110 section 6.6.1) waits in the connection's facts, and takes the
//! place of Pingora's in the bytes of the head.

use http::HeaderValue;

use crate::http::names::same_name;

/// The dates of a response.
#[derive(Debug)]
pub(crate) struct KeptDates {
    /// The first.
    pub(crate) first: HeaderValue,
    /// Further ones; a response should have none (RFC 9110 section 5.3).
    pub(crate) more: Vec<HeaderValue>,
}

/// Returns `true` for the beginning of the head of a final response (RFC 9110 section 15).
pub(super) fn is_final_head(bytes: &[u8]) -> bool {
    bytes.starts_with(b"HTTP/1.") && bytes.get("HTTP/1.1 ".len()) != Some(&b'1')
}

impl KeptDates {
    /// Appends a head to `out`, with these dates in the place of its own.
    pub(super) fn restore(&self, head: &[u8], out: &mut Vec<u8>) {
        let end = memchr::memmem::find(head, b"\r\n\r\n").map_or(head.len(), |at| at + 2);
        let (lines, rest) = head.split_at(end);
        let is_date = |line: &[u8]| memchr::memchr(b':', line).is_some_and(|colon| same_name(&line[..colon], b"date"));
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if !is_date(line) {
                out.extend_from_slice(line);
            }
        }
        for date in std::iter::once(&self.first).chain(&self.more) {
            out.extend_from_slice(b"Date: ");
            out.extend_from_slice(date.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(dates: &[&'static str], head: &str, want: &str) {
        let mut all = dates.iter().map(|date| HeaderValue::from_static(date));
        let dates = KeptDates { first: all.next().unwrap(), more: all.collect() };
        let mut out = b"before ".to_vec();
        dates.restore(head.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("before {want}"));
    }

    #[test]
    fn kept_dates_take_the_place_of_the_other_one() {
        let one = "HTTP/1.1 200 OK\r\nA: 1\r\nDate: now\r\nConnection: close\r\n\r\n";
        check(&["D"], one, "HTTP/1.1 200 OK\r\nA: 1\r\nConnection: close\r\nDate: D\r\n\r\n");
        let two = "HTTP/1.1 304 \r\ndate: now\r\nX-Date: x\r\n\r\nDate: of the body";
        check(
            &["not a date", "E"],
            two,
            "HTTP/1.1 304 \r\nX-Date: x\r\nDate: not a date\r\nDate: E\r\n\r\nDate: of the body",
        );
        check(&["D"], "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nDate: D\r\n\r\n");
    }

    #[test]
    fn dates_wait_for_the_head_of_a_final_response() {
        for (bytes, want) in [
            ("HTTP/1.1 200 OK", true),
            ("HTTP/1.0 404 ", true),
            ("HTTP/1.1 100 Continue", false),
            ("HTTP/1.1 103 ", false),
            ("the body", false),
            ("", false),
        ] {
            assert_eq!(is_final_head(bytes.as_bytes()), want, "{bytes}");
        }
    }
}
