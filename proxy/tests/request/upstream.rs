//! An HTTP/1.1 server that records requests and answers as a test determines.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use super::bed::PATIENCE;

/// The answer to a request.
pub enum Reply {
    /// Send these bytes and continue.
    Send(String),
    /// Send these bytes after a pause, and continue.
    Later(Duration, String),
    /// Send these bytes and close.
    SendAndClose(String),
    /// Close without an answer.
    Close,
    /// Send these bytes and reset the connection.
    Reset(String),
    /// Keep the connection open and send nothing.
    Silence,
}

impl Reply {
    /// 200 with a body.
    pub fn ok(body: &str) -> Self {
        Self::Send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
    }
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The request line.
    pub line: String,
    /// All header lines as received.
    pub head: String,
    pub body: String,
    /// Its number on its connection, from 1.
    pub number: usize,
}

impl Seen {
    /// All values of a header, joined by `|`; the name in any case.
    pub fn header(&self, name: &str) -> String {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let values = lines.filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        values.collect::<Vec<_>>().join("|")
    }
}

pub struct Upstream {
    pub address: SocketAddr,
    seen: UnboundedReceiver<Seen>,
}

impl Upstream {
    /// Answers 200 with the request line.
    pub async fn echo() -> Self {
        Self::start(|seen| Reply::ok(&seen.line)).await
    }

    pub async fn start(reply: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, seen) = unbounded_channel();
        let reply = Arc::new(reply);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (reply, sender) = (Arc::clone(&reply), sender.clone());
                tokio::spawn(async move { serve(stream, &*reply, &sender).await });
            }
        });
        Self { address, seen }
    }

    /// Accepts connections and resets them, as the kernel does for a pod that terminates before it has accepted them.
    pub async fn resetting() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                reset(stream);
            }
        });
        address
    }

    /// The next request that arrived.
    pub async fn seen(&mut self) -> Seen {
        timeout(PATIENCE, self.seen.recv()).await.expect("no request came").unwrap()
    }

    /// Whether no further request has arrived.
    pub fn is_quiet(&mut self) -> bool {
        self.seen.try_recv().is_err()
    }
}

async fn serve(mut stream: TcpStream, reply: &(impl Fn(&Seen) -> Reply + Send + Sync), sender: &UnboundedSender<Seen>) {
    let mut bytes = Vec::new();
    for number in 1.. {
        let Some(seen) = read_request(&mut stream, &mut bytes, number).await else { return };
        let reply = reply(&seen);
        if sender.send(seen).is_err() {
            return;
        }
        let sent = match &reply {
            Reply::Send(text) | Reply::SendAndClose(text) => stream.write_all(text.as_bytes()).await,
            Reply::Later(pause, text) => {
                sleep(*pause).await;
                stream.write_all(text.as_bytes()).await
            }
            Reply::Close => return,
            Reply::Reset(text) => {
                stream.write_all(text.as_bytes()).await.ok();
                // The sent bytes arrive before the reset, which would otherwise overtake them.
                sleep(Duration::from_millis(20)).await;
                return reset(stream);
            }
            Reply::Silence => std::future::pending().await,
        };
        if sent.is_err() || matches!(reply, Reply::SendAndClose(_)) {
            return;
        }
    }
}

fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

async fn read_request(stream: &mut TcpStream, bytes: &mut Vec<u8>, number: usize) -> Option<Seen> {
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        more(stream, bytes).await?;
    };
    let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let (line, head) = text.split_once("\r\n").unwrap();
    let mut seen = Seen { line: line.to_owned(), head: head.to_owned(), body: String::new(), number };
    let length: usize = seen.header("content-length").parse().unwrap_or(0);
    let chunked = seen.header("transfer-encoding") == "chunked";
    while bytes.len() < end + length || chunked && !bytes.ends_with(b"0\r\n\r\n") {
        more(stream, bytes).await?;
    }
    let whole = if chunked { bytes.len() } else { end + length };
    seen.body = String::from_utf8_lossy(&bytes[end..whole]).into_owned();
    bytes.drain(..whole);
    Some(seen)
}

async fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    stream.read_buf(bytes).await.ok().filter(|read| *read > 0).map(drop)
}
