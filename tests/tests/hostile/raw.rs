//! A client that writes raw bytes and reads responses by the rules of RFC 9112. It is strict: unexpected bytes are an
//! error.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// The timeout of any one response. A client that waits longer reports a hang.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(20);
/// The maximum size of one response in bytes.
const BYTES_MAX: usize = 4 << 20;

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// A response, without the interim ones before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    /// The status line and the header lines, as they were sent.
    pub(crate) head: String,
    /// The heads of the interim responses before it.
    pub(crate) interim: Vec<String>,
    /// The body without its chunk framing.
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// Its status, or 0.
    pub(crate) fn status(&self) -> u16 {
        status(&self.head)
    }

    /// The values of a header.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        values(&self.head, name)
    }

    /// Returns `true` if it is the last of its connection.
    pub(crate) fn closes(&self) -> bool {
        self.values("connection").iter().any(|value| value.eq_ignore_ascii_case("close"))
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The status in a head, or 0.
pub(crate) fn status(head: &str) -> u16 {
    head.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The values of a header in a head.
pub(crate) fn values<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    lines.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
}

impl Client {
    /// Connects.
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self, String> {
        Self::connected(TcpSocket::new_v4(), address).await
    }

    /// Connects from an address of loopback.
    pub(crate) async fn connect_from(source: IpAddr, address: SocketAddr) -> Result<Self, String> {
        let socket = TcpSocket::new_v4().and_then(|socket| socket.bind((source, 0).into()).map(|()| socket));
        Self::connected(socket, address).await
    }

    async fn connected(socket: std::io::Result<TcpSocket>, address: SocketAddr) -> Result<Self, String> {
        let connect = async { socket?.connect(address).await };
        let stream = timeout(ANSWER_MAX, connect).await.map_err(|_| "connecting hangs")?;
        let stream = stream.map_err(|error| format!("connecting: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Sends raw bytes.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), String> {
        let sent = timeout(ANSWER_MAX, self.stream.write_all(bytes.as_ref())).await.map_err(|_| "sending hangs")?;
        sent.map_err(|error| format!("sending: {error}"))
    }

    /// Sends a request without a body and reads its response.
    pub(crate) async fn ask(&mut self, request: impl AsRef<[u8]>) -> Result<Response, String> {
        let to_head = request.as_ref().starts_with(b"HEAD ");
        self.send(request).await?;
        self.response(to_head).await
    }

    /// Reads one response completely.
    pub(crate) async fn response(&mut self, to_head: bool) -> Result<Response, String> {
        timeout(ANSWER_MAX, self.read_response(to_head)).await.map_err(|_| "waiting for a response hangs")?
    }

    async fn read_response(&mut self, to_head: bool) -> Result<Response, String> {
        let mut response = Response { head: self.head().await?, ..Response::default() };
        while (100..200).contains(&response.status()) && response.status() != 101 {
            let interim = std::mem::replace(&mut response.head, self.head().await?);
            response.interim.push(interim);
        }
        let bodiless = to_head || matches!(response.status(), 204 | 304);
        let length = response.values("content-length").first().map(|text| text.parse::<usize>());
        response.body = if bodiless {
            Vec::new()
        } else if !response.values("transfer-encoding").is_empty() {
            self.chunks().await?
        } else if let Some(length) = length {
            self.exactly(length.map_err(|_| format!("no length: {}", response.head))?).await?
        } else {
            self.until_end().await?
        };
        Ok(response)
    }

    async fn head(&mut self) -> Result<String, String> {
        let end = loop {
            if let Some(end) = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
            self.more().await?;
        };
        let head: Vec<u8> = self.buffer.drain(..end).collect();
        Ok(String::from_utf8_lossy(&head).into_owned())
    }

    async fn chunks(&mut self) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16);
            let size = size.map_err(|_| format!("no chunk size: {line:?}"))?;
            if size == 0 {
                while !self.line().await?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.exactly(size).await?);
            self.exactly(2).await?;
        }
    }

    async fn line(&mut self) -> Result<String, String> {
        let end = loop {
            if let Some(end) = self.buffer.windows(2).position(|bytes| bytes == b"\r\n") {
                break end;
            }
            self.more().await?;
        };
        let line: Vec<u8> = self.buffer.drain(..end + 2).take(end).collect();
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    async fn exactly(&mut self, length: usize) -> Result<Vec<u8>, String> {
        while self.buffer.len() < length {
            self.more().await?;
        }
        Ok(self.buffer.drain(..length).collect())
    }

    async fn until_end(&mut self) -> Result<Vec<u8>, String> {
        while self.read().await? > 0 {}
        Ok(std::mem::take(&mut self.buffer))
    }

    async fn more(&mut self) -> Result<(), String> {
        if self.read().await? == 0 {
            return Err(format!("the connection ended after {} bytes: {}", self.buffer.len(), shown(&self.buffer)));
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<usize, String> {
        if self.buffer.len() > BYTES_MAX {
            return Err(format!("more than {BYTES_MAX} bytes"));
        }
        self.stream.read_buf(&mut self.buffer).await.map_err(|error| format!("reading: {error}"))
    }

    /// Everything received within a time, and `true` if the connection ended within it, by a reset or in order.
    pub(crate) async fn rest(&mut self, time: Duration) -> (Vec<u8>, bool) {
        let ended = timeout(time, async { while self.read().await.is_ok_and(|read| read > 0) {} }).await.is_ok();
        (std::mem::take(&mut self.buffer), ended)
    }
}

/// The beginning of some bytes, for a message.
pub(crate) fn shown(bytes: &[u8]) -> String {
    bytes.get(..bytes.len().min(300)).unwrap_or_default().escape_ascii().to_string()
}
