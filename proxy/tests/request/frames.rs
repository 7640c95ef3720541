//! Frames of HTTP/2 as bytes (RFC 9113 section 4.1), for what no library sends, and read strictly: after the end of a
//! stream nothing of a message may follow.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;

pub const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const ACK: u8 = 0x1;

/// The window of each stream, and of a connection, beyond the default: more than any message of the tests.
const WINDOW: u32 = 1 << 24;

pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }

    /// The content of a DATA frame, without its padding.
    pub fn content(&self) -> &[u8] {
        match (self.flags & PADDED != 0, self.payload.split_first()) {
            (true, Some((padding, rest))) => &rest[..rest.len() - usize::from(*padding)],
            _ => &self.payload,
        }
    }
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A DATA frame, with padding of this length if there is one.
pub fn data(stream: u32, content: &[u8], padding: Option<u8>, ends: bool) -> Vec<u8> {
    let end = if ends { END_STREAM } else { 0 };
    match padding {
        None => frame(DATA, end, stream, content),
        Some(count) => {
            let payload = [&[count], content, &vec![0; usize::from(count)]].concat();
            frame(DATA, end | PADDED, stream, &payload)
        }
    }
}

/// A HEADERS frame, each field as it is (RFC 7541 section 6.2.2), with padding of this length if there is one.
pub fn headers(stream: u32, fields: &[(&str, &str)], padding: Option<u8>, ends: bool) -> Vec<u8> {
    let mut payload: Vec<u8> = padding.into_iter().collect();
    for (name, value) in fields {
        payload.push(0);
        for text in [name, value] {
            payload.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).unwrap());
            payload.extend_from_slice(text.as_bytes());
        }
    }
    payload.extend(vec![0; padding.unwrap_or_default().into()]);
    let flags = END_HEADERS | if ends { END_STREAM } else { 0 } | if padding.is_some() { PADDED } else { 0 };
    frame(HEADERS, flags, stream, &payload)
}

/// The status of a block that begins with it, and with changes of the size of the table (RFC 7541 appendices A and B).
pub fn status(block: &[u8]) -> u16 {
    let mut rest = block;
    while rest.first().is_some_and(|byte| byte >> 5 == 1) {
        let count =
            if rest[0] & 0x1f == 0x1f { rest.iter().skip(1).position(|byte| byte >> 7 == 0).unwrap() + 2 } else { 1 };
        rest = &rest[count..];
    }
    match *rest {
        [indexed @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)],
        // Its name is in the table, at 8 to 14.
        [0x08..=0x0e | 0x48..=0x4e, length, ref value @ ..] => {
            let value = &value[..usize::from(length & 0x7f)];
            if length & 0x80 == 0 {
                std::str::from_utf8(value).unwrap().parse().unwrap()
            } else {
                huffman_digits(value)
            }
        }
        _ => panic!("no status in {block:x?}"),
    }
}

/// Decodes digits: 0 to 2 have five bits, the others six.
fn huffman_digits(bytes: &[u8]) -> u16 {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let number = |bits: &[u8]| bits.iter().fold(0, |sum, bit| sum << 1 | u16::from(*bit));
    let (mut rest, mut digits) = (&bits[..], 0);
    while rest.len() >= 5 {
        match number(&rest[..5]) {
            digit @ 0..=2 => {
                digits = digits * 10 + digit;
                rest = &rest[5..];
            }
            _ => match rest.get(..6).map(number) {
                Some(code @ 25..=31) => {
                    digits = digits * 10 + code - 22;
                    rest = &rest[6..];
                }
                _ => break,
            },
        }
    }
    digits
}

/// One end of a connection.
pub struct Framed {
    pub stream: TcpStream,
    bytes: Vec<u8>,
}

impl Framed {
    /// Sends the settings: no table for the compression of heads, and wide windows. A client sends the preface first.
    pub async fn open(mut stream: TcpStream, is_client: bool) -> Self {
        stream.set_nodelay(true).unwrap();
        let settings = [&[0, 1, 0, 0, 0, 0, 0, 4][..], &WINDOW.to_be_bytes()].concat();
        let opening = [frame(SETTINGS, 0, 0, &settings), frame(WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes())].concat();
        let preface = if is_client { PREFACE } else { b"" };
        // The other side may have closed again.
        stream.write_all(&[preface, &opening].concat()).await.ok();
        let mut bytes = Vec::new();
        if !is_client {
            while bytes.len() < PREFACE.len() && matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {}
            assert!(bytes.is_empty() || bytes.starts_with(PREFACE), "no preface");
            bytes.drain(..PREFACE.len().min(bytes.len()));
        }
        Self { stream, bytes }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        // What the other side did not take shows in what it sends.
        self.stream.write_all(bytes).await.ok();
    }

    /// The next frame about a stream, or GOAWAY; `None` at the end of the connection.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            let frame = self.any().await?;
            match frame.kind {
                SETTINGS | PING if frame.flags & ACK == 0 => {
                    let answer = if frame.kind == PING { &frame.payload[..] } else { &[] };
                    self.send(&self::frame(frame.kind, ACK, 0, answer)).await;
                }
                SETTINGS | PING | WINDOW_UPDATE => {}
                _ => return Some(frame),
            }
        }
    }

    async fn any(&mut self) -> Option<Frame> {
        loop {
            if let Some(head) = self.bytes.get(..9) {
                let end = 9 + (usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]));
                if let Some(payload) = self.bytes.get(9..end) {
                    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                    let frame = Frame { kind: head[3], flags: head[4], stream, payload: payload.to_vec() };
                    self.bytes.drain(..end);
                    return Some(frame);
                }
            }
            self.stream.read_buf(&mut self.bytes).await.ok().filter(|count| *count > 0)?;
        }
    }
}
