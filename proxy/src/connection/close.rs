//! Closes a connection so that the client can still read the last bytes sent.

use std::time::Duration;

use tokio::io::AsyncWriteExt;

use super::ClientIo;
use crate::http::names::SERVER_NAME;

/// An answer to a client whose request did not get as far as a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The head did not arrive in time.
    HeadTooSlow,
    /// The head is longer than the limit, or has more lines.
    HeadTooLarge,
    /// The head has both a length and a transfer coding (RFC 9112 section 6.3).
    AmbiguousLength,
    /// A line of the head ends with LF alone. A parser in front of the edge may have read it as part of the next line,
    /// which may be a length (RFC 9112 section 2.2 allows a recipient to accept it, and does not require it).
    BareLineFeed,
    /// The request line is not three words with a single space between them (RFC 9112 section 3). Its section 3.2
    /// allows a recipient to refuse a target with a space or a control character, and advises against repairing it.
    MalformedRequestLine,
    /// Plain HTTP on a TLS port.
    PlainOnTls,
}

/// The metrics label of a head that Pingora's parser refuses: it answers itself, with 400 or 405.
pub(crate) const MALFORMED: &str = "malformed";

impl Refusal {
    /// All refusals of heads.
    pub(crate) const HEADS: [Self; 5] =
        [Self::HeadTooSlow, Self::HeadTooLarge, Self::AmbiguousLength, Self::BareLineFeed, Self::MalformedRequestLine];

    /// Its name in metrics.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::HeadTooSlow => "head-too-slow",
            Self::HeadTooLarge => "head-too-large",
            Self::AmbiguousLength => "ambiguous-length",
            Self::BareLineFeed => "bare-line-feed",
            Self::MalformedRequestLine => "malformed-request-line",
            Self::PlainOnTls => "plain-http-on-tls",
        }
    }

    const fn answer(self) -> &'static [u8] {
        match self {
            Self::HeadTooSlow => {
                b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 34\r\n\r\n\
                The request head came too slowly.\n"
            }
            Self::HeadTooLarge => {
                b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Type: text/plain\r\n\
                Content-Length: 31\r\n\r\nThe request head is too large.\n"
            }
            Self::AmbiguousLength => {
                b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 51\r\n\r\n\
                A length and a transfer coding exclude each other.\n"
            }
            Self::BareLineFeed => {
                b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 45\r\n\r\n\
                Every line of a request head ends with CRLF.\n"
            }
            Self::MalformedRequestLine => {
                b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 81\r\n\r\n\
                A request line is a method, a target and a version, with one space between them.\n"
            }
            Self::PlainOnTls => {
                b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 34\r\n\r\n\
                This port speaks HTTPS, not HTTP.\n"
            }
        }
    }
}

/// Answers and closes; each step has `within`. `server` adds a `Server` header.
pub(crate) async fn refuse(mut conn: Box<ClientIo>, refusal: Refusal, server: bool, within: Duration) {
    conn.pass_all();
    let answer = refusal.answer();
    let line = if server { format!("\r\nServer: {SERVER_NAME}") } else { String::new() };
    let status_end = answer.iter().position(|byte| *byte == b'\r').unwrap_or_default();
    let (status, rest) = answer.split_at(status_end);
    // If the client does not read, the answer is dropped.
    tokio::time::timeout(within, conn.write_all(&[status, line.as_bytes(), rest].concat())).await.ok();
    close(&mut conn, within).await;
}

/// Sends the end of the stream, so that the client can read the bytes before it.
pub(crate) async fn close(conn: &mut ClientIo, within: Duration) {
    tokio::time::timeout(within, conn.shutdown()).await.ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_length_that_they_announce() {
        for refusal in Refusal::HEADS.into_iter().chain([Refusal::PlainOnTls]) {
            let answer = std::str::from_utf8(refusal.answer()).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.ends_with(&format!("\r\nContent-Length: {}", body.len())), "{answer:?}");
        }
    }
}
