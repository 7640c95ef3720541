//! Asks again and again until the answer is right, faster than the timers of a runtime allow, on a thread of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::sync::oneshot;

use crate::clock::{now, pause};

/// Between an answer and the next question.
const PAUSE: Duration = Duration::from_micros(50);
/// An answer later than this is none.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// When an answer was right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Right {
    /// When the first right answer had come in.
    pub(crate) at: Instant,
    /// The longest time between two questions: how far off `at` may be.
    pub(crate) gap_max: Duration,
}

/// Asks for `/` of a host until the answer is 200, for at most `patience`.
///
/// # Errors
/// When it does not become right.
pub(crate) async fn until_right(address: SocketAddr, host: &str, patience: Duration) -> anyhow::Result<Right> {
    until(address, host, patience, |status| status == 200).await
}

/// Asks for `/` of a host until the status of the answer is right, for at most `patience`.
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
    // Not one of the runtime's: its end would wait for this one's.
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
        ensure!(!is_over(), "nobody waits for {host} any more");
        // A server that starts takes no connections, and one that replaces its processes closes connections between two requests;
        // that is no answer.
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

/// Asks for `/` of each host once, and returns those whose answer is not 200.
///
/// # Errors
/// When no thread can be had.
pub(crate) async fn wrong(address: SocketAddr, mut hosts: Vec<String>) -> anyhow::Result<Vec<String>> {
    let asking = tokio::task::spawn_blocking(move || {
        let mut kept = None;
        hosts.retain(|host| !is_right(&mut kept, address, question(host).as_bytes()));
        hosts
    });
    Ok(asking.await?)
}

/// Asks once, over the connection that is kept from before where there is one: whether the answer is 200.
pub(crate) fn is_right(kept: &mut Option<TcpStream>, address: SocketAddr, question: &[u8]) -> bool {
    let stream = kept.take().map_or_else(|| connect(address), Ok);
    let Ok((answer, stream)) = stream.and_then(|mut stream| Ok((exchange(&mut stream, question)?, stream))) else {
        return false;
    };
    *kept = answer.keep.then_some(stream);
    answer.status == 200
}

/// A connection to ask over.
///
/// # Errors
/// When it is refused.
fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| format!("{address} takes no connections"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    Ok(stream)
}

/// What came back.
#[derive(Clone, Copy, Debug)]
struct Answer {
    /// Its status.
    status: u16,
    /// Whether the connection may be asked again.
    keep: bool,
}

/// The bytes that ask for `/` of a host.
pub(crate) fn question(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// Asks, and waits for the whole answer.
///
/// # Errors
/// When the connection breaks, or what comes is no answer.
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

/// The answer, once it is there whole.
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
    fn an_answer_counts_when_it_is_there_whole() {
        check("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n", None);
        check("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", None);
        check("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", Some((200, true)));
        check("HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", Some((404, false)));
        assert!(parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
