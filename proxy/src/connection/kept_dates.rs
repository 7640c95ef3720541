//! The `Date` of responses over HTTP/1 in the Pingora driver. Pingora replaces it by its own in every response, after
//! the driver's last call; a date that must pass (RFC 9110 section 6.6.1) travels under another name, and here, in the
//! bytes of the head, it takes the place of Pingora's.

use crate::http::names::same_name;

/// The name under which a date travels.
pub(crate) const KEPT_DATE: &str = "tidegate-kept-date";

/// Returns `true` if the head is that of an interim response (RFC 9110 section 15.2).
pub(super) fn is_interim(head: &[u8]) -> bool {
    head.get("HTTP/1.1 ".len()) == Some(&b'1')
}

/// Appends a head to `out`, with the kept dates in the place of the other one. A head without any is appended as it is.
pub(super) fn restore(head: &[u8], out: &mut Vec<u8>) {
    let end = memchr::memmem::find(head, b"\r\n\r\n").map_or(head.len(), |at| at + 2);
    let (lines, rest) = head.split_at(end);
    let named = |line: &[u8], name: &str| {
        memchr::memchr(b':', line).is_some_and(|colon| same_name(&line[..colon], name.as_bytes()))
    };
    let lines = || lines.split_inclusive(|byte| *byte == b'\n');
    if !lines().any(|line| named(line, KEPT_DATE)) {
        return out.extend_from_slice(head);
    }
    for line in lines() {
        if named(line, KEPT_DATE) {
            out.extend_from_slice(b"Date");
            out.extend_from_slice(&line[KEPT_DATE.len()..]);
        } else if !named(line, "date") {
            out.extend_from_slice(line);
        }
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(head: &str, want: &str) {
        let mut out = b"before ".to_vec();
        restore(head.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("before {want}"));
    }

    #[test]
    fn kept_dates_take_the_place_of_the_other_one() {
        let one = "HTTP/1.1 200 OK\r\nA: 1\r\ntidegate-kept-date: D\r\nDate: now\r\nConnection: close\r\n\r\n";
        check(one, "HTTP/1.1 200 OK\r\nA: 1\r\nDate: D\r\nConnection: close\r\n\r\n");
        let two = "HTTP/1.1 304 \r\ndate: now\r\nTidegate-Kept-Date: not a date\r\ntidegate-kept-date: E\r\n\r\n";
        check(two, "HTTP/1.1 304 \r\nDate: not a date\r\nDate: E\r\n\r\n");
    }

    #[test]
    fn other_heads_and_bodies_stay() {
        for head in [
            "HTTP/1.1 200 OK\r\nDate: now\r\nX: tidegate-kept-date: D\r\n\r\n",
            "HTTP/1.1 200 OK\r\nDate: now\r\n\r\ntidegate-kept-date: D\r\n\r\n",
            "",
            "no head",
        ] {
            check(head, head);
        }
    }
}
