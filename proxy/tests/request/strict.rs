//! Messages of which each piece and frame is told, and endpoints that read them strictly: each has one end, and no byte
//! follows it.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::bed::PATIENCE;
use super::frames::{DATA, Framed, HEADERS, RST_STREAM, data, frame, headers};

/// How content is delimited in HTTP/1.1. In HTTP/2 frames do it, and a length is announced beside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// Not at all: there is none.
    None,
    Length,
    Chunked,
    /// By the end of the connection.
    Close,
}

/// What follows the last piece of content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Nothing: the last piece is the end, or the head, if there is none.
    Last,
    /// Trailers.
    Trailers,
    /// No end, in HTTP/2; in HTTP/1.1 like [`End::Last`].
    Never,
}

/// A message without its head's own part, in either protocol.
#[derive(Clone, Debug)]
pub struct Content {
    pub pieces: Vec<Vec<u8>>,
    pub framing: Framing,
    pub end: End,
    /// The padding of each frame, in HTTP/2.
    pub padding: Option<u8>,
    /// Between the pieces.
    pub pause: bool,
}

impl Content {
    pub const NONE: Self =
        Self { pieces: Vec::new(), framing: Framing::None, end: End::Last, padding: None, pause: false };

    pub fn whole(&self) -> Vec<u8> {
        self.pieces.concat()
    }

    /// The header lines that frame it in HTTP/1.1, each with its end.
    pub fn lines(&self) -> String {
        match self.framing {
            Framing::None | Framing::Close => String::new(),
            Framing::Length => format!("Content-Length: {}\r\n", self.whole().len()),
            Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
        }
    }

    /// The field that announces its length in HTTP/2.
    pub fn length(&self) -> Option<String> {
        (self.framing == Framing::Length).then(|| self.whole().len().to_string())
    }

    /// What follows a head in HTTP/1.1, one part a piece.
    pub fn bytes(&self) -> Vec<Vec<u8>> {
        if self.framing != Framing::Chunked {
            return self.pieces.clone();
        }
        let some = self.pieces.iter().filter(|piece| !piece.is_empty());
        let chunk = |piece: &Vec<u8>| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        let last = if self.end == End::Trailers { "0\r\nx-sum: 1\r\n\r\n" } else { "0\r\n\r\n" };
        some.map(chunk).chain([last.into()]).collect()
    }

    /// Whether the head is its end in HTTP/2.
    pub fn ends_with_head(&self) -> bool {
        self.pieces.is_empty() && self.end == End::Last
    }

    /// The frames that follow a head in HTTP/2, one part a piece.
    pub fn frames(&self, stream: u32) -> Vec<Vec<u8>> {
        let last = self.pieces.len().wrapping_sub(1);
        let is_end = |at: usize| at == last && self.end == End::Last;
        let frames = self.pieces.iter().enumerate().map(|(at, piece)| data(stream, piece, self.padding, is_end(at)));
        let trailers = (self.end == End::Trailers).then(|| headers(stream, &[("x-sum", "1")], self.padding, true));
        frames.chain(trailers).collect()
    }
}

/// What is wrong with an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It breaks off before its end.
    Cut,
    /// Another response follows it at once, which nobody has asked for.
    Excess,
}

/// The answer of an endpoint.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// The number of interim responses before it.
    pub interim: usize,
    pub content: Content,
    pub fault: Option<Fault>,
}

impl Answer {
    pub fn of(status: u16, content: Content) -> Self {
        Self { status, interim: 0, content, fault: None }
    }

    /// Its bytes in HTTP/1.1: the head, and the parts of its content.
    fn bytes(&self) -> (Vec<u8>, Vec<Vec<u8>>) {
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(self.interim);
        let (mut lines, mut parts) = (self.content.lines(), self.content.bytes());
        match self.fault {
            Some(Fault::Cut) if self.content.framing == Framing::Length => {
                lines = format!("Content-Length: {}\r\n", self.content.whole().len() + 7);
            }
            Some(Fault::Cut) => drop(parts.pop()),
            Some(Fault::Excess) => {
                let stolen = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nSTOLEN";
                // In one write with the end.
                let last = parts.pop().unwrap_or_default();
                parts.push([last, stolen.to_vec()].concat());
            }
            None => {}
        }
        (format!("{interim}HTTP/1.1 {} Status\r\n{lines}\r\n", self.status).into_bytes(), parts)
    }

    /// Its frames: those of the head, and of the parts of its content.
    fn frames(&self, stream: u32) -> (Vec<u8>, Vec<Vec<u8>>) {
        let is_cut = self.fault == Some(Fault::Cut);
        let content = Content { end: if is_cut { End::Never } else { self.content.end }, ..self.content.clone() };
        let interim = headers(stream, &[(":status", "103"), ("link", "</a>")], None, false).repeat(self.interim);
        let (code, length) = (self.status.to_string(), content.length().filter(|_| !is_cut));
        let mut fields = vec![(":status", code.as_str())];
        fields.extend(length.iter().map(|length| ("content-length", length.as_str())));
        let head = headers(stream, &fields, content.padding, content.ends_with_head());
        let reset = is_cut.then(|| frame(RST_STREAM, 0, stream, &2_u32.to_be_bytes()));
        ([interim, head].concat(), content.frames(stream).into_iter().chain(reset).collect())
    }
}

#[derive(Clone)]
struct Shared {
    /// The body of each request, or what was wrong with it.
    seen: UnboundedSender<Result<Vec<u8>, String>>,
    answer: watch::Receiver<Answer>,
    open: watch::Sender<usize>,
}

impl Shared {
    fn fault(&self, text: String) {
        self.seen.send(Err(text)).ok();
    }

    fn saw(&self, body: Vec<u8>) {
        self.seen.send(Ok(body)).ok();
    }
}

/// An endpoint that answers every request as it was told last.
pub struct Endpoint {
    pub address: SocketAddr,
    shared: Shared,
    answer: watch::Sender<Answer>,
    seen: UnboundedReceiver<Result<Vec<u8>, String>>,
}

impl Endpoint {
    pub async fn start(is_http2: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (answer, told) = watch::channel(Answer::of(200, Content::NONE));
        let (sender, seen) = unbounded_channel();
        let shared = Shared { seen: sender, answer: told, open: watch::Sender::new(0) };
        let each = shared.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = each.clone();
                shared.open.send_modify(|open| *open += 1);
                tokio::spawn(async move {
                    if is_http2 {
                        http2(stream, &shared).await
                    } else {
                        http1(stream, &shared).await
                    }
                    shared.open.send_modify(|open| *open -= 1);
                });
            }
        });
        Self { address, shared, answer, seen }
    }

    pub fn answers(&self, answer: Answer) {
        self.answer.send_replace(answer);
    }

    /// The bodies of the requests since the last call, or what was wrong with them.
    pub fn seen(&mut self) -> Result<Vec<Vec<u8>>, String> {
        let mut bodies = Vec::new();
        while let Ok(body) = self.seen.try_recv() {
            bodies.push(body.map_err(|fault| format!("the endpoint: {fault}"))?);
        }
        Ok(bodies)
    }

    /// Waits until all connections have ended.
    pub async fn ended(&self) {
        let mut open = self.shared.open.subscribe();
        timeout(PATIENCE, open.wait_for(|open| *open == 0)).await.expect("a connection stays open").unwrap();
    }
}

async fn http1(mut stream: TcpStream, shared: &Shared) {
    stream.set_nodelay(true).unwrap();
    let mut bytes = Vec::new();
    loop {
        let length = match request(&bytes) {
            Ok(Some((body, length))) => {
                shared.saw(body);
                length
            }
            Ok(None) => match stream.read_buf(&mut bytes).await {
                Ok(1..) => continue,
                _ if bytes.is_empty() => return,
                _ => return shared.fault(format!("ended within a request: {:?}", bytes.escape_ascii().to_string())),
            },
            Err(fault) => return shared.fault(fault),
        };
        if length < bytes.len() {
            return shared.fault(format!("after a request: {:?}", bytes[length..].escape_ascii().to_string()));
        }
        bytes.clear();
        let answer = shared.answer.borrow().clone();
        let (mut first, mut parts) = answer.bytes();
        if !answer.content.pause {
            first.extend(std::mem::take(&mut parts).concat());
        }
        stream.write_all(&first).await.ok();
        for part in parts {
            sleep(Duration::from_millis(1)).await;
            stream.write_all(&part).await.ok();
        }
        if answer.content.framing == Framing::Close || answer.fault == Some(Fault::Cut) {
            return;
        }
    }
}

/// The body of a request at the beginning of these bytes, and its length; `None` if it is incomplete.
fn request(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    let Some(head) = head(bytes) else {
        let is_start = bytes.first().is_none_or(u8::is_ascii_uppercase);
        return if is_start { Ok(None) } else { Err(format!("no request: {:?}", bytes.escape_ascii().to_string())) };
    };
    let line = head.lines().next().unwrap_or_default();
    if !line.ends_with(" HTTP/1.1")
        || line.split(' ').count() != 3
        || !line.starts_with(|c: char| c.is_ascii_uppercase())
    {
        return Err(format!("no request line: {line:?}"));
    }
    let body = body(&head, &bytes[head.len()..], Framing::None)?;
    Ok(body.map(|(body, length)| (body, head.len() + length)))
}

pub fn head(bytes: &[u8]) -> Option<String> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    Some(String::from_utf8(bytes[..end].to_vec()).unwrap())
}

pub fn values<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    lines.filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
}

/// The content after a head, and the length of its bytes; `None` if it is incomplete.
pub fn body(head: &str, bytes: &[u8], otherwise: Framing) -> Result<Option<(Vec<u8>, usize)>, String> {
    match (&values(head, "transfer-encoding")[..], &values(head, "content-length")[..]) {
        ([], []) if otherwise == Framing::Close => Ok(None),
        ([], []) => Ok(Some((Vec::new(), 0))),
        (["chunked"], []) => chunks(bytes),
        ([], [length]) => {
            let length: usize = length.parse().map_err(|_| format!("length {length:?}"))?;
            Ok(bytes.get(..length).map(|body| (body.to_vec(), length)))
        }
        framing => Err(format!("framed {framing:?}")),
    }
}

/// Chunks as the edge writes them: without extensions, and without trailers.
fn chunks(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    let (mut body, mut at) = (Vec::new(), 0);
    let fault = |at: usize| Err(format!("in chunks: {:?}", bytes[at..].escape_ascii().to_string()));
    loop {
        let Some(length) = bytes[at..].windows(2).position(|window| window == b"\r\n") else { return Ok(None) };
        let digits = std::str::from_utf8(&bytes[at..at + length]).unwrap_or("?");
        let Ok(size) = usize::from_str_radix(digits, 16) else { return fault(at) };
        let (from, to) = (at + length + 2, at + length + 2 + size);
        let Some(end) = bytes.get(to..to + 2) else { return Ok(None) };
        if end != b"\r\n" {
            return fault(at);
        }
        if size == 0 {
            return Ok(Some((body, to + 2)));
        }
        body.extend_from_slice(&bytes[from..to]);
        at = to + 2;
    }
}

async fn http2(stream: TcpStream, shared: &Shared) {
    let mut framed = Framed::open(stream, false).await;
    // The edge's requests come one by one.
    let (mut current, mut body, mut is_over) = (0, Vec::new(), true);
    while let Some(frame) = framed.next().await {
        match frame.kind {
            HEADERS if frame.stream > current && is_over => {
                (current, body, is_over) = (frame.stream, Vec::new(), false)
            }
            DATA | HEADERS if frame.stream != current || is_over => {
                return shared.fault(format!("a frame {} after the end of its stream", frame.kind));
            }
            DATA => body.extend_from_slice(frame.content()),
            HEADERS if !frame.ends_stream() => return shared.fault("two heads".to_owned()),
            HEADERS => {}
            RST_STREAM if frame.stream == current => is_over = true,
            _ => {}
        }
        if frame.ends_stream() {
            is_over = true;
            shared.saw(std::mem::take(&mut body));
            let answer = shared.answer.borrow().clone();
            let (mut first, mut parts) = answer.frames(current);
            if !answer.content.pause {
                first.extend(std::mem::take(&mut parts).concat());
            }
            framed.send(&first).await;
            for part in parts {
                sleep(Duration::from_millis(1)).await;
                framed.send(&part).await;
            }
        }
    }
    if !is_over {
        shared.fault("ended within a request".to_owned());
    }
}
