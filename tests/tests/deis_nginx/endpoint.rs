//! The endpoint of an application: it responds with the request as it saw it, byte for byte, or misbehaves as the path
//! requests.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The header that marks a response of an endpoint.
pub(crate) const NAME: &str = "x-endpoint";

/// The media type of such a response. The two sides send endpoints different headers, so its length may differ: the
/// type is not one that is compressed.
const SEEN_TYPE: &str = "application/x-seen";

/// A listening endpoint. It ends with its handle.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Endpoint {
    /// Starts one with this name on a free port.
    pub(crate) async fn start(name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let name = name.to_owned();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let name = name.clone();
                // Faults of a client's connection are not faults of the endpoint.
                tokio::spawn(async move { drop(serve(stream, &name).await) });
            }
        });
        Self { address, task }
    }

    /// The address that it listens on.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A request as received.
struct Seen {
    line: String,
    /// Names in lower case, in order.
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Seen {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(is, _)| is == name).map(|(_, value)| value.as_str())
    }

    /// The body of a response: a line for each part of the request. The framing of the body is left out, because either
    /// side may choose it.
    fn told(&self) -> String {
        let framing = ["content-length", "transfer-encoding"];
        let mut headers: Vec<&(String, String)> =
            self.headers.iter().filter(|(name, _)| !framing.contains(&name.as_str())).collect();
        headers.sort();
        let mut told = format!("{}\n", self.line);
        for (name, value) in headers {
            told += &format!("{name}: {value}\n");
        }
        if !self.body.is_empty() {
            let begin = String::from_utf8_lossy(self.body.get(..20).unwrap_or(&self.body)).into_owned();
            told += &format!("body of {}: {begin}\n", self.body.len());
        }
        told
    }
}

async fn serve(mut stream: TcpStream, name: &str) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(seen) = read(&mut stream, &mut buffer).await? {
        let target = seen.line.split(' ').nth(1).unwrap_or_default().to_owned();
        let step = |prefix: &str| target.strip_prefix(prefix).map(str::to_owned);
        let mut status = "200 OK".to_owned();
        let mut more = String::new();
        if let Some(wanted) = step("/status/") {
            status = format!("{wanted} As Asked");
        } else if let Some(time) = step("/slow/") {
            tokio::time::sleep(Duration::from_millis(time.parse().unwrap_or(0))).await;
        } else if target == "/end" {
            return Ok(());
        } else if target == "/garbage" {
            return stream.write_all(b"this is no response\r\n\r\n").await;
        } else if target == "/bad-header" {
            return stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-a: \0\r\n\r\n").await;
        } else if let Some(size) = step("/large-head/") {
            more = format!("x-large: {}\r\n", "x".repeat(size.parse().unwrap_or(0)));
        } else if let Some(header) = step("/with/") {
            more = format!("{}\r\n", header.replacen('=', ": ", 1));
        } else if seen.header("upgrade").is_some() {
            return tunnel(stream, name, &seen).await;
        }
        if let Some(page) = step("/page/") {
            stream.write_all(paged(&page, name, &seen.line).as_bytes()).await?;
            continue;
        }
        let head = format!("HTTP/1.1 {status}\r\n{NAME}: {name}\r\ncontent-type: {SEEN_TYPE}\r\n{more}");
        let told = seen.told();
        let answer = if target == "/chunked" {
            format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{told}\r\n0\r\n\r\n", told.len())
        } else if seen.line.starts_with("HEAD ") || status.starts_with("204") || status.starts_with("304") {
            format!("{head}\r\n")
        } else {
            format!("{head}content-length: {}\r\n\r\n{told}", told.len())
        };
        stream.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

/// A page as described by `STATUS/LENGTH?NAME=VALUE&…`: this many bytes, in one chunk if the length is `chunked`, with
/// these headers.
fn paged(page: &str, name: &str, line: &str) -> String {
    let (shape, fields) = page.split_once('?').unwrap_or((page, ""));
    let (status, length) = shape.split_once('/').unwrap_or((shape, "0"));
    let bytes = length.parse().unwrap_or(100);
    let body: String = "the same over and over, ".chars().cycle().take(bytes).collect();
    let mut head = format!("HTTP/1.1 {status} As Asked\r\n{NAME}: {name}\r\n");
    for field in fields.split('&').filter(|field| !field.is_empty()) {
        head += &format!("{}\r\n", field.replacen('=', ": ", 1).replace("%22", "\"").replace("%20", " "));
    }
    let has_body = !line.starts_with("HEAD ") && status != "304";
    let (framing, body) = if length == "chunked" {
        ("transfer-encoding: chunked".to_owned(), format!("{bytes:x}\r\n{body}\r\n0\r\n\r\n"))
    } else {
        (format!("content-length: {bytes}"), body)
    };
    format!("{head}{framing}\r\n\r\n{}", if has_body { body.as_str() } else { "" })
}

/// Accepts an upgrade, and sends every byte back.
async fn tunnel(mut stream: TcpStream, name: &str, seen: &Seen) -> std::io::Result<()> {
    let protocol = seen.header("upgrade").unwrap_or_default();
    let head =
        format!("HTTP/1.1 101 Switching Protocols\r\n{NAME}: {name}\r\nconnection: upgrade\r\nupgrade: {protocol}");
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await?;
    let mut bytes = [0; 1024];
    loop {
        let read = stream.read(&mut bytes).await?;
        if read == 0 {
            return Ok(());
        }
        stream.write_all(bytes.get(..read).unwrap_or_default()).await?;
    }
}

async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<Option<Seen>> {
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head: Vec<u8> = buffer.drain(..end).collect();
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.trim_end().split("\r\n");
    let line = lines.next().unwrap_or_default().to_owned();
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    let mut seen = Seen { line, headers, body: Vec::new() };
    if let Some(length) = seen.header("content-length").and_then(|text| text.parse::<usize>().ok()) {
        while buffer.len() < length {
            if stream.read_buf(buffer).await? == 0 {
                return Ok(None);
            }
        }
        seen.body = buffer.drain(..length).collect();
    } else if seen.header("transfer-encoding").is_some() {
        while let Some(chunk) = chunk(stream, buffer).await? {
            if chunk.is_empty() {
                return Ok(Some(seen));
            }
            seen.body.extend(chunk);
        }
        return Ok(None);
    }
    Ok(Some(seen))
}

/// The next chunk of a body; an empty one is the last, and `None` when the connection ends.
async fn chunk(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(end) = buffer.windows(2).position(|bytes| bytes == b"\r\n") {
            let line = String::from_utf8_lossy(buffer.get(..end).unwrap_or_default()).into_owned();
            let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16).unwrap_or(0);
            let whole = end + 2 + size + 2;
            if buffer.len() >= whole {
                return Ok(Some(buffer.drain(..whole).skip(end + 2).take(size).collect()));
            }
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}
