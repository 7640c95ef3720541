//! Cases over HTTP/2: each request of a case that can be expressed in frames is a stream of one connection, and so is
//! the probe after them.

use bytes::Bytes;
use h2::client::{SendRequest, handshake};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use tokio::time::{sleep, timeout};

use super::case::Case;
use super::message::{Framing, Kind, Message};
use super::recorder::PAUSE;
use super::secure::Stream;
use super::side::{PATIENCE, PROBE};

/// Hop-by-hop headers, or headers that HTTP/2 expresses differently. `TE` allows a single value (RFC 9113 section
/// 8.2.2).
const LEFT_OUT: [HeaderName; 6] = [
    HOST,
    CONNECTION,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// A request for a stream.
pub struct Asked {
    head: Request<()>,
    body: Vec<u8>,
}

/// The requests of a case; empty if one of them cannot be expressed in frames.
pub fn requests(case: &Case) -> Vec<Asked> {
    let (bytes, mut at, mut all) = (case.bytes(), 0, Vec::new());
    while at < bytes.len() {
        let Some((message, length)) = Message::read(&bytes[at..], Kind::Request, false) else { return Vec::new() };
        let Some(asked) = asked(&message).filter(|_| message.whole) else { return Vec::new() };
        all.push(asked);
        at += length;
    }
    all
}

fn asked(message: &Message) -> Option<Asked> {
    let text = std::str::from_utf8(&message.start).ok()?;
    let [method, target, "HTTP/1.1"] = text.split(' ').collect::<Vec<_>>()[..] else { return None };
    let mut hosts = message.values("host");
    let host = std::str::from_utf8(hosts.next()?).ok().filter(|_| hosts.next().is_none())?;
    let uri: Uri = format!("http://{host}{target}").parse().ok().filter(|_| target.starts_with('/'))?;
    let mut headers = HeaderMap::new();
    for (name, value) in &message.lines {
        let name = HeaderName::from_bytes(name).ok()?;
        let value = value.strip_prefix(b":")?.trim_ascii();
        if !LEFT_OUT.contains(&name) && (name != TE || value == b"trailers") {
            headers.append(name, HeaderValue::from_bytes(value).ok()?);
        }
    }
    // Data that contradict a length make a request malformed (RFC 9113 section 8.1.1): it is reset, unless its response
    // came before the data. That is a race between a client and an endpoint, and independent of the driver.
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length != message.body.len()) {
        return None;
    }
    let mut head = Request::builder().method(Method::from_bytes(method.as_bytes()).ok()?).uri(uri).body(()).ok()?;
    *head.version_mut() = Version::HTTP_2;
    *head.headers_mut() = headers;
    (message.framing != Framing::Broken).then(|| Asked { head, body: message.body.clone() })
}

/// Sends one request after the other; returns the responses, and whether the edge ended the connection.
pub async fn converse(stream: Box<dyn Stream>, case: &Case) -> (Vec<Message>, bool) {
    let (send, connection) = handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let probe = asked(&Message::read(PROBE, Kind::Request, false).unwrap().0).unwrap();
    let mut all = Vec::new();
    for asked in requests(case).into_iter().chain([probe]) {
        let answered = timeout(PATIENCE, ask(send.clone(), asked)).await;
        all.push(answered.unwrap_or_else(|_| broken("no end")));
    }
    let closed = connection.is_finished();
    connection.abort();
    (all, closed)
}

async fn ask(send: SendRequest<Bytes>, asked: Asked) -> Message {
    let Ok(mut send) = send.ready().await else { return broken("no connection") };
    let Ok((response, mut body)) = send.send_request(asked.head, asked.body.is_empty()) else {
        return broken("unsaid");
    };
    let up = async {
        let half = asked.body.len() / 2;
        for (piece, last) in [(&asked.body[..half], false), (&asked.body[half..], true)] {
            // After an early response, the rest may be refused.
            if !asked.body.is_empty() && body.send_data(Bytes::copy_from_slice(piece), last).is_err() {
                return;
            }
            sleep(PAUSE / 3).await;
        }
    };
    let down = async {
        let response = match response.await {
            Ok(response) => response,
            Err(error) => return broken(&error.reason().map_or(String::new(), |reason| format!("{reason:?}"))),
        };
        let (parts, mut stream) = response.into_parts();
        let lines = parts.headers.iter();
        let lines = lines.map(|(name, value)| (name.as_str().into(), [b": ", value.as_bytes()].concat()));
        let start = format!("HTTP/1.1 {}", parts.status.as_u16()).into_bytes();
        let mut message = Message { lines: lines.collect(), start, ..broken("") };
        while let Some(piece) = stream.data().await {
            let Ok(piece) = piece else { return message };
            stream.flow_control().release_capacity(piece.len()).unwrap();
            message.body.extend_from_slice(&piece);
        }
        let Ok(trailers) = stream.trailers().await else { return message };
        message.trailers = format!("{:?}", trailers.unwrap_or_default()).into_bytes();
        message.whole = true;
        message
    };
    tokio::join!(up, down).1
}

/// A placeholder for a response that is missing or incomplete.
fn broken(why: &str) -> Message {
    let (lines, body, trailers) = (Vec::new(), Vec::new(), Vec::new());
    Message { start: why.as_bytes().to_vec(), lines, framing: Framing::None, body, trailers, whole: false }
}
