//! A differential check of two parsers: a request that the native driver takes, Pingora must take with the same method,
//! target and header lines, and with the same body unless the native driver refuses it. For tests and for `fuzz/`; it
//! is not part of the program.

use pingora::protocols::http::v1::server::HttpSession;
use tidegate_config::model::Head;
use tokio::io::AsyncWriteExt;
use tokio::runtime::{Builder, Runtime};

use super::request::{Request, RequestHead};
use crate::connection::head_scan::has_request_line;
use crate::connection::strict_head;
use crate::http::body::{Body, Piece};

/// The number of bytes that Pingora reads at once: it refuses a second read that has more than the body.
const BYTES_MAX: usize = 2048;

/// A request as a parser reads it; names in lower case.
#[derive(PartialEq, Eq, Debug)]
struct ParsedRequest {
    method: String,
    target: Vec<u8>,
    lines: Vec<(String, Vec<u8>)>,
    /// `None` if it violates the framing or is incomplete.
    body: Option<Vec<u8>>,
}

/// Reads bytes with both parsers. Returns `true` if the native driver takes them.
///
/// # Panics
/// If they disagree about a request that the native driver takes, or if its request line is malformed.
pub(crate) fn check(bytes: &[u8]) -> bool {
    let bytes = &bytes[..bytes.len().min(BYTES_MAX)];
    let Some(ours) = ours(bytes) else { return false };
    let mut theirs = theirs(bytes);
    if ours.body.is_none()
        && let Some(theirs) = &mut theirs
    {
        // The native driver may refuse a body that the other parser accepts, which allows chunk sizes without digits,
        // and any bytes after them.
        theirs.body = None;
    }
    assert_eq!(theirs, Some(ours), "the native driver, to the right, reads something else in {}", bytes.escape_ascii());
    true
}

/// The request as the native driver reads it, or `None` if it does not take it.
fn ours(bytes: &[u8]) -> Option<ParsedRequest> {
    let length = strict_head(bytes)?;
    let (head, rest) = bytes.split_at(length);
    let mut request = Request::default();
    if !request.read(head) {
        return None;
    }
    assert!(has_request_line(head), "the native driver takes the request line of {}", head.escape_ascii());
    let view = request.view(head);
    let lines = view.lines().map(|(name, value)| (String::from_utf8_lossy(name).to_lowercase(), value.to_vec()));
    let method = view.method().to_owned();
    let target = view.target().as_bytes().to_vec();
    let body = content(Body::new(request.framing), rest).and_then(|(content, whole)| whole.then_some(content));
    Some(ParsedRequest { method, target, lines: sorted(lines), body })
}

/// The content of a body in the bytes, and whether it is complete; `None` if they violate its framing.
pub(crate) fn content(mut body: Body, mut bytes: &[u8]) -> Option<(Vec<u8>, bool)> {
    let mut content = Vec::new();
    loop {
        let count = match body.next(bytes).ok()? {
            Piece::End => return Some((content, true)),
            Piece::Unknown => return Some((content, false)),
            Piece::Framing(count, then) => {
                body = then;
                count
            }
            Piece::Content(count) => {
                content.extend_from_slice(&bytes[..count]);
                body.took(count);
                count
            }
        };
        bytes = &bytes[count..];
    }
}

/// The request as Pingora reads it, or `None` if it does not.
fn theirs(bytes: &[u8]) -> Option<ParsedRequest> {
    thread_local! {
        static RUNTIME: Option<Runtime> = Builder::new_current_thread().enable_all().build().ok();
    }
    let read = async {
        let (mut client, server) = tokio::io::duplex(2 * BYTES_MAX);
        client.write_all(bytes).await.ok()?;
        drop(client);
        let mut session = HttpSession::new(Box::new(server));
        session.read_request().await.ok()??;
        let head = session.req_header();
        let lines = head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
        let (method, target, lines) = (head.method.to_string(), head.raw_path().to_vec(), sorted(lines));
        let mut body = Some(Vec::new());
        loop {
            match session.read_body_bytes().await {
                Ok(Some(piece)) => body.as_mut()?.extend_from_slice(&piece),
                Ok(None) => break,
                Err(_) => {
                    body = None;
                    break;
                }
            }
        }
        Some(ParsedRequest { method, target, lines, body })
    };
    RUNTIME.with(|runtime| runtime.as_ref()?.block_on(read))
}

/// Sorted by name; the order of the values of a name stays.
fn sorted(lines: impl Iterator<Item = (String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let mut lines: Vec<_> = lines.collect();
    lines.sort_by(|(one, _), (other, _)| one.cmp(other));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: [&str; 5] = [
        "GET /a/b?c=d HTTP/1.1\r\nHost: a.test\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a.test:80\r\nContent-Length: 5\r\nX-One: 1\r\nx-one: 2\r\n\r\nhello",
        "PUT /a;p HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
        "HEAD / HTTP/1.1\r\nhost:a\r\nConnection: keep-alive\r\nCookie: a=b; c=d\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "DELETE /%7e HTTP/1.1\r\nConnection: close\r\nHost: a.test\r\nX-Long: \t a  b \t\r\n\r\n",
    ];

    const PIECES: [&[u8]; 20] = [
        b"\r",
        b"\n",
        b"\r\n",
        b"\r\n\r\n",
        b"\r\n ",
        b"\0",
        b" ",
        b"\t",
        b":",
        b",",
        b";",
        b"\"",
        b"\x7f",
        b"\x80",
        b"0",
        b"a",
        b"/",
        b"?",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
    ];

    #[test]
    fn both_parsers_read_accepted_requests_alike() {
        let mut random = fastrand::Rng::with_seed(4);
        let mut taken = 0;
        for round in 0..10_000 {
            let mut bytes = REQUESTS[round % REQUESTS.len()].as_bytes().to_vec();
            for _ in 0..round / REQUESTS.len() % 4 {
                let at = random.usize(..bytes.len());
                let end = (at + random.usize(..4)).min(bytes.len());
                match random.u8(..4) {
                    0 => bytes[at] = random.u8(..),
                    1 => drop(bytes.drain(at..end)),
                    _ => drop(bytes.splice(at..end, PIECES[random.usize(..PIECES.len())].iter().copied())),
                }
            }
            taken += usize::from(check(&bytes));
        }
        assert!(taken > 3500, "only {taken} were taken");
    }

    #[test]
    fn the_native_driver_declines_some_valid_requests() {
        // Pingora removes fragments, which the check would detect as a disagreement.
        let fragment = b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(ours(fragment), None);
        assert_eq!(theirs(fragment).unwrap().lines.len(), 1);
    }
}
