//! HTTP/1.1 messages as received: heads as lines of bytes, bodies without their framing.

use std::fmt;

/// The framing of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    None,
    Length(usize),
    Chunked,
    UntilClose,
    /// Invalid framing.
    Broken,
}

/// The direction of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Request,
    /// Whether the request was HEAD.
    Response {
        to_head: bool,
    },
}

/// One message.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    pub start: Vec<u8>,
    /// The header lines: the name as sent, and everything after the colon.
    pub lines: Vec<(Vec<u8>, Vec<u8>)>,
    pub framing: Framing,
    pub body: Vec<u8>,
    /// Trailer lines with their line ends.
    pub trailers: Vec<u8>,
    /// Whether it is complete.
    pub whole: bool,
}

impl Message {
    /// The first message of these bytes and its length; `None` while its head is incomplete.
    pub fn read(bytes: &[u8], kind: Kind, closed: bool) -> Option<(Self, usize)> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let mut lines =
            bytes[..end - 4].split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let start = lines.next().unwrap_or_default().to_vec();
        let lines = lines.map(|line| {
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
            (line[..colon].to_vec(), line[colon..].to_vec())
        });
        let mut message = Self {
            start,
            lines: lines.collect(),
            framing: Framing::None,
            body: Vec::new(),
            trailers: Vec::new(),
            whole: true,
        };
        message.framing = message.framing(kind);
        let length = message.read_body(&bytes[end..], closed);
        Some((message, end + length))
    }

    /// The values of a header, without surrounding whitespace; the name is in lower case.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let named = self.lines.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes()));
        named.map(|(_, value)| value.strip_prefix(b":").unwrap_or(value).trim_ascii())
    }

    /// The status of a response; 0 if it has none.
    pub fn status(&self) -> u16 {
        let digits = self.start.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or_default()
    }

    fn framing(&self, kind: Kind) -> Framing {
        let bodiless = match kind {
            Kind::Request => false,
            Kind::Response { to_head } => to_head || matches!(self.status(), 100..=199 | 204 | 304),
        };
        if bodiless {
            return Framing::None;
        }
        let codings = self.values("transfer-encoding").flat_map(|value| value.split(|byte| *byte == b','));
        if let Some(coding) = codings.map(<[u8]>::trim_ascii).last() {
            return if coding.eq_ignore_ascii_case(b"chunked") { Framing::Chunked } else { Framing::Broken };
        }
        let mut lengths = self.values("content-length").flat_map(|value| value.split(|byte| *byte == b','));
        match lengths.next() {
            Some(length) => {
                let length = std::str::from_utf8(length.trim_ascii()).ok().and_then(|length| length.parse().ok());
                length.map_or(Framing::Broken, Framing::Length)
            }
            None if kind == Kind::Request => Framing::None,
            None => Framing::UntilClose,
        }
    }

    fn read_body(&mut self, bytes: &[u8], closed: bool) -> usize {
        match self.framing {
            Framing::None => 0,
            Framing::Length(length) => {
                let length = length.min(bytes.len());
                self.body = bytes[..length].to_vec();
                self.whole = self.framing == Framing::Length(length);
                length
            }
            Framing::Chunked => self.read_chunks(bytes),
            Framing::UntilClose | Framing::Broken => {
                self.body = bytes.to_vec();
                self.whole = closed && self.framing == Framing::UntilClose;
                bytes.len()
            }
        }
    }

    fn read_chunks(&mut self, bytes: &[u8]) -> usize {
        self.whole = false;
        let mut at = 0;
        let line = |at: usize| Some(at + bytes.get(at..)?.windows(2).position(|window| window == b"\r\n")?);
        while let Some(end) = line(at) {
            let digits = std::str::from_utf8(&bytes[at..end]).ok();
            let Some(size) = digits.and_then(|digits| usize::from_str_radix(digits, 16).ok()) else {
                self.framing = Framing::Broken;
                return bytes.len();
            };
            if size == 0 {
                let mut from = end + 2;
                while let Some(to) = line(from) {
                    if to == from {
                        self.trailers = bytes[end + 2..to].to_vec();
                        self.whole = true;
                        return to + 2;
                    }
                    from = to + 2;
                }
                return bytes.len();
            }
            let content = &bytes[end + 2..];
            self.body.extend_from_slice(&content[..size.min(content.len())]);
            if content.len() < size.saturating_add(2) {
                return bytes.len();
            }
            if &content[size..size + 2] != b"\r\n" {
                self.framing = Framing::Broken;
                return bytes.len();
            }
            at = end + 2 + size + 2;
        }
        bytes.len()
    }
}

/// Bytes as shortened text.
pub fn shown(bytes: &[u8]) -> String {
    let cut = bytes.len().min(600);
    let more = if cut < bytes.len() { format!("… ({} bytes)", bytes.len()) } else { String::new() };
    format!("\"{}\"{more}", bytes[..cut].escape_ascii())
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", shown(&self.start))?;
        for (name, value) in &self.lines {
            writeln!(f, "        {}", shown(&[name.as_slice(), value].concat()))?;
        }
        let cut = if self.whole { "" } else { ", cut" };
        write!(f, "        {:?}{cut}, {} {}", self.framing, shown(&self.body), shown(&self.trailers))
    }
}
