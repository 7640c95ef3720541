//! Polls until the response is right, faster than the timers of a runtime allow, on a thread of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::sync::oneshot;

use crate::clock::{now, pause};

/// The pause between a response and the next request.
const PAUSE: Duration = Duration::from_micros(50);
/// The maximum time for a response.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The maximum size of a response in bytes.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// The time of a right response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Right {
    /// The time at which the first right response was complete.
    pub(crate) at: Instant,
    /// The longest time between two requests: the maximum error of `at`.
    pub(crate) gap_max: Duration,
}

/// Requests `/` of a host until the response is 200, for at most `patience`.
///
/// # Errors
/// When it does not become right.
pub(crate) async fn until_right(address: SocketAddr, host: &str, patience: Duration) -> anyhow::Result<Right> {
    until(address, host, patience, |status| status == 200).await
}

/// Requests `/` of a host until the status of the response is right, for at most `patience`.
///
/// # Errors
/// When it does not become right.
pub(crate) async fn until(
    address: SocketAddr,
    host: &str,
    patience: Duration,
    right: impl Fn(u16) -> bool + Send + 'static,
) -> anyhow::Result<Right> {
    let (host, (sender, receiver)) = (host.to_owned(), oneshot::channel());
    // This is not a thread of the runtime, whose shutdown would wait for it.
    std::thread::Builder::new().name("poll".to_owned()).spawn(move || {
        let at = ask(address, &host, patience, &right, &|| sender.is_closed());
        drop(sender.send(at));
    })?;
    receiver.await?
}

fn ask(
    address: SocketAddr,
    host: &str,
    patience: Duration,
    right: &dyn Fn(u16) -> bool,
    is_over: &dyn Fn() -> bool,
) -> anyhow::Result<Right> {
    let question = question(host);
    let start = now();
    let (mut connection, mut asked, mut gap_max) = (None, start, Duration::ZERO);
    loop {
        let before = std::mem::replace(&mut asked, now());
        gap_max = gap_max.max(asked - before);
        ensure!(asked - start < patience, "{host} is not right after {patience:?}");
        ensure!(!is_over(), "the caller no longer waits for {host}");
        // A server that starts refuses connections, and one that replaces its processes closes connections between two
        // requests; neither counts as a response.
        if let Ok(mut stream) = connection.take().map_or_else(|| connect(address), Ok)
            && let Ok(Answer { status, keep }) = exchange(&mut stream, question.as_bytes())
        {
            if right(status) {
                return Ok(Right { at: now(), gap_max });
            }
            connection = keep.then_some(stream);
        }
        pause(PAUSE);
    }
}

/// Requests `/` of each host once, and returns those whose response is not 200.
///
/// # Errors
/// When no thread can be started.
pub(crate) async fn wrong(address: SocketAddr, mut hosts: Vec<String>) -> anyhow::Result<Vec<String>> {
    let asking = tokio::task::spawn_blocking(move || {
        let mut kept = None;
        hosts.retain(|host| !is_right(&mut kept, address, question(host).as_bytes()));
        hosts
    });
    Ok(asking.await?)
}

/// Sends one request, over the kept connection if there is one. Returns `true` if the response is 200.
pub(crate) fn is_right(kept: &mut Option<TcpStream>, address: SocketAddr, question: &[u8]) -> bool {
    let stream = kept.take().map_or_else(|| connect(address), Ok);
    let Ok((answer, stream)) = stream.and_then(|mut stream| Ok((exchange(&mut stream, question)?, stream))) else {
        return false;
    };
    *kept = answer.keep.then_some(stream);
    answer.status == 200
}

/// Opens a connection.
///
/// # Errors
/// When it is refused.
fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| format!("{address} takes no connections"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    Ok(stream)
}

/// A response.
#[derive(Clone, Copy, Debug)]
struct Answer {
    /// Its status.
    status: u16,
    /// `true` if the connection can be reused.
    keep: bool,
}

/// The bytes of a request for `/` of a host.
pub(crate) fn question(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// Sends a request, and waits for the whole response.
///
/// # Errors
/// When the connection breaks, or the response is malformed.
fn exchange(stream: &mut TcpStream, question: &[u8]) -> anyhow::Result<Answer> {
    stream.write_all(question)?;
    let mut bytes = Vec::with_capacity(512);
    let mut chunk = [0; 2048];
    loop {
        let count = stream.read(&mut chunk)?;
        ensure!(count > 0, "closed");
        bytes.extend_from_slice(chunk.get(..count).unwrap_or_default());
        if let Some(answer) = parse(&bytes)? {
            return Ok(answer);
        }
        ensure!(bytes.len() <= ANSWER_BYTES_MAX, "an answer without end");
    }
}

/// Parses the response, once it is complete.
fn parse(bytes: &[u8]) -> anyhow::Result<Option<Answer>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head_bytes) = head.parse(bytes)? else { return Ok(None) };
    let value = |name: &str| {
        let header = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        header.and_then(|header| std::str::from_utf8(header.value).ok())
    };
    let length: usize = value("content-length").context("an answer without a length")?.parse()?;
    if bytes.len() - head_bytes < length {
        return Ok(None);
    }
    let keep = !value("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    Ok(Some(Answer { status: head.code.unwrap_or_default(), keep }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: Option<(u16, bool)>) {
        assert_eq!(parse(text.as_bytes()).unwrap().map(|answer| (answer.status, answer.keep)), want, "{text:?}");
    }

    #[test]
    fn only_a_complete_answer_counts() {
        check("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n", None);
        check("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", None);
        check("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", Some((200, true)));
        check("HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", Some((404, false)));
        assert!(parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
