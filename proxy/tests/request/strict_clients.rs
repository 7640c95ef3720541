//! Clients that read responses strictly.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::bed::PATIENCE;
use super::frames::{DATA, Framed, GOAWAY, HEADERS, RST_STREAM, headers, status};
use super::strict::{Content, Framing, body, head, values};

/// A response as a client has read it.
#[derive(PartialEq, Eq, Debug)]
pub struct Received {
    pub status: u16,
    pub body: Vec<u8>,
}

/// A client in HTTP/1.1.
pub struct Http1Client {
    stream: TcpStream,
    bytes: Vec<u8>,
    pub is_closing: bool,
}

impl Http1Client {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, bytes: Vec::new(), is_closing: false }
    }

    /// Sends a request and reads its response.
    pub async fn ask(&mut self, head: &str, content: &Content, to_head: bool) -> Result<Received, String> {
        let mut first = head.as_bytes().to_vec();
        let mut parts = content.bytes();
        if !content.pause {
            first.extend(std::mem::take(&mut parts).concat());
        }
        // What the edge did not take shows in its answer.
        self.stream.write_all(&first).await.ok();
        for part in parts {
            sleep(Duration::from_millis(1)).await;
            self.stream.write_all(&part).await.ok();
        }
        timeout(PATIENCE, self.read(to_head)).await.unwrap_or_else(|_| Err(format!("no end: {}", self.shown())))
    }

    fn shown(&self) -> String {
        format!("{:?}", self.bytes.escape_ascii().to_string())
    }

    async fn read(&mut self, to_head: bool) -> Result<Received, String> {
        let mut is_closed = false;
        loop {
            if let Some(head) = head(&self.bytes) {
                let code = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse::<u16>().ok());
                let Some(status) = code else { return Err(format!("no response: {}", self.shown())) };
                if status < 200 {
                    self.bytes.drain(..head.len());
                    continue;
                }
                self.is_closing = values(&head, "connection").iter().any(|value| value.eq_ignore_ascii_case("close"));
                let rest = &self.bytes[head.len()..];
                let is_bodiless = to_head || matches!(status, 204 | 304);
                let read = if is_bodiless { Some((Vec::new(), 0)) } else { body(&head, rest, Framing::Close)? };
                let is_framed =
                    ["content-length", "transfer-encoding"].iter().any(|name| !values(&head, name).is_empty());
                let unframed = is_closed && !is_framed && read.is_none();
                let read = read.or_else(|| unframed.then(|| (rest.to_vec(), rest.len())));
                if let Some((body, length)) = read {
                    self.bytes.drain(..head.len() + length);
                    self.is_closing |= is_closed;
                    return Ok(Received { status, body });
                }
            }
            if is_closed || !matches!(self.stream.read_buf(&mut self.bytes).await, Ok(1..)) {
                if is_closed {
                    return Err(format!("closed after {}", self.shown()));
                }
                is_closed = true;
            }
        }
    }

    /// Ends the connection, on which nothing more may follow.
    pub async fn end(mut self) -> Result<(), String> {
        self.stream.shutdown().await.ok();
        timeout(PATIENCE, self.stream.read_to_end(&mut self.bytes)).await.map_err(|_| "not closed")?.ok();
        if self.bytes.is_empty() { Ok(()) } else { Err(format!("after a response: {}", self.shown())) }
    }
}

/// A client in HTTP/2.
pub struct Http2Client {
    framed: Framed,
    next: u32,
    /// The stream whose response was read last.
    ended: u32,
    pub is_closing: bool,
}

impl Http2Client {
    pub async fn connect(address: SocketAddr) -> Self {
        let framed = Framed::open(TcpStream::connect(address).await.unwrap(), true).await;
        Self { framed, next: 1, ended: 0, is_closing: false }
    }

    /// Sends a request and reads its response.
    pub async fn ask(&mut self, fields: &[(&str, &str)], content: &Content) -> Result<Received, String> {
        let stream = self.next;
        self.next += 2;
        let length = content.length();
        let length = length.iter().map(|length| ("content-length", length.as_str()));
        let fields: Vec<_> = fields.iter().copied().chain(length).collect();
        let mut first = headers(stream, &fields, content.padding, content.ends_with_head());
        let mut parts = content.frames(stream);
        if !content.pause {
            first.extend(std::mem::take(&mut parts).concat());
        }
        self.framed.send(&first).await;
        for part in parts {
            sleep(Duration::from_millis(1)).await;
            self.framed.send(&part).await;
        }
        let read = timeout(PATIENCE, self.read(stream)).await;
        read.unwrap_or_else(|_| Err("no end".to_owned()))
    }

    async fn read(&mut self, stream: u32) -> Result<Received, String> {
        let (mut code, mut body) = (None, Vec::new());
        while let Some(frame) = self.framed.next().await {
            match frame.kind {
                GOAWAY => self.is_closing = true,
                // The rest of a request need not be sent (RFC 9113 section 8.1).
                RST_STREAM if frame.stream == self.ended && frame.payload == [0; 4] => {}
                _ if frame.stream != stream => {
                    return Err(format!("a frame {} of the stream {}", frame.kind, frame.stream));
                }
                HEADERS if code.is_none() => code = Some(status(&frame.payload)),
                HEADERS if !frame.ends_stream() => return Err("two heads".to_owned()),
                DATA => body.extend_from_slice(frame.content()),
                RST_STREAM => return Err(format!("reset: {:?} after {code:?}", frame.payload)),
                _ => {}
            }
            if frame.ends_stream() {
                self.ended = stream;
                let Some(status) = code else { return Err("no head".to_owned()) };
                return Ok(Received { status, body });
            }
        }
        Err(format!("closed after {code:?}"))
    }

    /// Ends the connection, on which nothing of a message may follow.
    pub async fn end(mut self) -> Result<(), String> {
        self.framed.stream.shutdown().await.ok();
        let rest = async {
            while let Some(frame) = self.framed.next().await {
                if matches!(frame.kind, HEADERS | DATA) {
                    return Err(format!("a frame {} after the response", frame.kind));
                }
            }
            Ok(())
        };
        timeout(PATIENCE, rest).await.map_err(|_| "not closed")?
    }
}
