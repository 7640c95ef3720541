//! A response, and its form for comparison: lines in which inherently different parts are left out or have a name.

use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::ask::{Ask, NO_ANSWER};
use crate::endpoint::NAME;
use crate::world::World;

/// The maximum size of one response in bytes.
const BYTES_MAX: usize = 1 << 20;

/// Headers of responses that either side sets by itself: its name, the time, and the framing.
const OF_THE_SERVER: [&str; 6] = ["server", "date", "connection", "keep-alive", "content-length", "transfer-encoding"];

/// Headers of pages that a server generates itself.
const OF_OWN_PAGES: [&str; 4] = ["content-type", "cache-control", "etag", "last-modified"];

/// The maximum length of a line; of a longer one only the length is shown.
const LINE_MAX: usize = 200;

/// Headers that Tidegate sends to endpoints in addition to those of the router. A header that the client sends itself
/// is compared; and one row checks all of them.
const TOLD_ON_TOP: [&str; 4] = ["x-forwarded-host", "x-real-ip", "cdn-loop", "x-request-id"];

/// A response as received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// Its body, decoded.
    pub(crate) body: String,
    /// The bytes received through a tunnel.
    pub(crate) tunnel: Option<String>,
    /// The certificate presented in the handshake.
    pub(crate) certificate: Option<CertificateDer<'static>>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(is, _)| is == name).map(|(_, value)| value.as_str())
    }

    /// Decodes the body.
    pub(crate) fn says(&mut self, body: &[u8]) -> Result<(), String> {
        let is_compressed = self.header("content-encoding") == Some("gzip") && !body.is_empty();
        self.body = if is_compressed {
            let mut text = String::new();
            let read = MultiGzDecoder::new(body).read_to_string(&mut text);
            read.map_err(|error| format!("the body is not gzip: {error}"))?;
            text
        } else {
            String::from_utf8_lossy(body).into_owned()
        };
        Ok(())
    }

    /// Its lines.
    pub(crate) fn lines(&self, ask: &Ask, world: &World, on_top: bool) -> Vec<String> {
        let mut lines = vec![format!("status: {}", self.status)];
        if let Some(certificate) = &self.certificate {
            lines.push(format!("certificate: {}", world.name_of(certificate)));
        }
        let of_endpoint = self.header(NAME).is_some();
        let mut headers: Vec<&(String, String)> = self
            .headers
            .iter()
            .filter(|(name, _)| !OF_THE_SERVER.contains(&name.as_str()))
            .filter(|(name, _)| of_endpoint || !self.by_nature(name))
            .collect();
        headers.sort();
        lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
        if of_endpoint {
            let seen = self.body.lines().filter(|line| !by_nature(line, ask, on_top));
            lines.extend(seen.map(|line| format!("sees {line}")));
        } else if self.body.contains("<title>Site Maintenance</title>") {
            lines.push("page: maintenance".to_owned());
        } else {
            // Some errors of Tidegate have no page, because no client reads it.
            lines.push(format!("page: {}", if self.body.is_empty() && self.status < 400 { "none" } else { "its own" }));
        }
        lines.extend(self.tunnel.iter().map(|said| format!("tunnel: {said}")));
        named(lines)
    }

    /// Returns `true` if a header of a generated page differs inherently. Each page of Tidegate has an id, whatever the
    /// router's settings; if the router sets ids, they are compared.
    fn by_nature(&self, name: &str) -> bool {
        OF_OWN_PAGES.contains(&name) || (name == "x-request-id" && self.header("x-correlation-id").is_none())
    }
}

/// Returns `true` if a line of the endpoint's view differs inherently. The router closed every connection to an
/// endpoint and announced it.
fn by_nature(line: &str, ask: &Ask, on_top: bool) -> bool {
    let name = line.split(':').next().unwrap_or_default();
    let added = TOLD_ON_TOP.contains(&name) && !ask.sends(name) && !on_top;
    line == "connection: close" || line == "connection: keep-alive" || added
}

/// Replaces ids and times by names: an id is the same in two lines when it has the same name there.
fn named(mut lines: Vec<String>) -> Vec<String> {
    let mut known: Vec<String> = Vec::new();
    for line in &mut lines {
        let words: Vec<String> = line.split([' ', ',']).filter(|word| is_id(word)).map(str::to_owned).collect();
        for word in words {
            let place = known.iter().position(|id| *id == word).unwrap_or_else(|| {
                known.push(word.clone());
                known.len() - 1
            });
            *line = line.replace(&word, &format!("ID{}", place + 1));
        }
        if let Some((name, time)) = line.split_once(": t=")
            && time.len() == 14
            && time.bytes().enumerate().all(|(at, byte)| if at == 10 { byte == b'.' } else { byte.is_ascii_digit() })
        {
            *line = format!("{name}: t=TIME");
        }
        if line.len() > LINE_MAX {
            let begin: String = line.chars().take(30).collect();
            *line = format!("{begin}… of {}", line.len());
        }
    }
    lines
}

fn is_id(word: &str) -> bool {
    word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Reads one response completely; bytes for a tunnel are sent once it is open, and read back.
pub(crate) async fn read<S>(stream: &mut S, to_head: bool, through: &[u8]) -> Result<Answer, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut incoming = Incoming { stream, buffer: Vec::new() };
    let mut answer = incoming.head().await?;
    while (100..200).contains(&answer.status) && answer.status != 101 {
        answer = incoming.head().await?;
    }
    let body = if answer.status == 101 {
        incoming.stream.write_all(through).await.map_err(|error| error.to_string())?;
        let said = incoming.exactly(through.len()).await?;
        answer.tunnel = Some(String::from_utf8_lossy(&said).into_owned());
        Vec::new()
    } else if to_head || matches!(answer.status, 204 | 304) {
        Vec::new()
    } else if answer.header("transfer-encoding").is_some() {
        incoming.chunks().await?
    } else if let Some(length) = answer.header("content-length").and_then(|text| text.parse().ok()) {
        incoming.exactly(length).await?
    } else {
        while incoming.more().await? {}
        incoming.buffer
    };
    answer.says(&body)?;
    Ok(answer)
}

struct Incoming<'a, S> {
    stream: &'a mut S,
    buffer: Vec<u8>,
}

impl<S: AsyncRead + Unpin> Incoming<'_, S> {
    async fn more(&mut self) -> Result<bool, String> {
        if self.buffer.len() > BYTES_MAX {
            return Err("an endless answer".to_owned());
        }
        // The way in which a connection ends without a response is the same to a client.
        Ok(self.stream.read_buf(&mut self.buffer).await.is_ok_and(|read| read > 0))
    }

    async fn until(&mut self, mark: &[u8]) -> Result<String, String> {
        let end = loop {
            if let Some(end) = self.buffer.windows(mark.len()).position(|bytes| bytes == mark) {
                break end;
            }
            if !self.more().await? {
                return Err(NO_ANSWER.to_owned());
            }
        };
        let text: Vec<u8> = self.buffer.drain(..end + mark.len()).take(end).collect();
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    async fn head(&mut self) -> Result<Answer, String> {
        let head = self.until(b"\r\n\r\n").await?;
        let status = head.split(' ').nth(1).and_then(|text| text.get(..3)).and_then(|text| text.parse().ok());
        let headers = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
        Ok(Answer { status: status.ok_or("status: none")?, headers, ..Answer::default() })
    }

    async fn exactly(&mut self, length: usize) -> Result<Vec<u8>, String> {
        while self.buffer.len() < length {
            if !self.more().await? {
                return Err("the connection ends within an answer".to_owned());
            }
        }
        Ok(self.buffer.drain(..length).collect())
    }

    async fn chunks(&mut self) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        loop {
            let size = self.until(b"\r\n").await?;
            let size = usize::from_str_radix(size.trim(), 16).map_err(|_| format!("no chunk: {size}"))?;
            body.extend(self.exactly(size).await?);
            self.until(b"\r\n").await?;
            if size == 0 {
                return Ok(body);
            }
        }
    }
}
