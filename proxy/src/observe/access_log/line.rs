//! JSON on one line, field by field. Most texts need no escape and are copied; the JSON library writes the others, and
//! also escapes the characters that a terminal would interpret.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize as _;
use serde_json::Serializer;
use serde_json::ser::Formatter;
use tidegate_config::finding::is_terminal_control;

/// A field's name with its punctuation, after another field.
macro_rules! field {
    ($name:literal) => {
        concat!(",\"", $name, "\":")
    };
}
pub(super) use field;

/// An unfinished object. Names come from [`field!`].
#[derive(Debug)]
pub(super) struct Line<'a>(&'a mut Vec<u8>);

impl<'a> Line<'a> {
    /// Begins with a field whose text needs no escape.
    pub(super) fn begin(out: &'a mut Vec<u8>, name: &str, plain: &[u8]) -> Self {
        for piece in [b"{\"", name.as_bytes(), b"\":\"", plain, b"\""] {
            out.extend_from_slice(piece);
        }
        Self(out)
    }

    /// A text.
    pub(super) fn text(&mut self, field: &str, value: &str) -> io::Result<()> {
        self.0.extend_from_slice(field.as_bytes());
        if may_need_escape(value.as_bytes()) {
            return self.escaped(value);
        }
        self.0.push(b'"');
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(b'"');
        Ok(())
    }

    /// A text or null.
    pub(super) fn text_or_null(&mut self, field: &str, value: Option<&str>) -> io::Result<()> {
        match value {
            Some(value) => self.text(field, value),
            None => self.null(field),
        }
    }

    /// An address and its port, or null. IPv4, the usual case, is written without a formatter.
    pub(super) fn socket(&mut self, field: &str, value: Option<SocketAddr>) -> io::Result<()> {
        let Some(SocketAddr::V4(socket)) = value else { return self.printed(field, value) };
        self.0.extend_from_slice(field.as_bytes());
        let mut before = b'"';
        for octet in socket.ip().octets() {
            self.0.push(before);
            self.0.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
            before = b'.';
        }
        self.0.push(b':');
        self.0.extend_from_slice(itoa::Buffer::new().format(socket.port()).as_bytes());
        self.0.push(b'"');
        Ok(())
    }

    /// A formatted value, or null.
    pub(super) fn printed(&mut self, field: &str, value: Option<impl Display>) -> io::Result<()> {
        let Some(value) = value else { return self.null(field) };
        self.0.extend_from_slice(field.as_bytes());
        let begin = self.0.len();
        write!(self.0, "\"{value}\"")?;
        let printed = self.0.get(begin + 1..self.0.len() - 1).unwrap_or_default();
        if may_need_escape(printed) {
            self.0.truncate(begin);
            self.escaped(&value.to_string())?;
        }
        Ok(())
    }

    /// A whole number.
    pub(super) fn number(&mut self, field: &str, value: impl itoa::Integer) -> io::Result<()> {
        self.0.extend_from_slice(field.as_bytes());
        self.0.write_all(itoa::Buffer::new().format(value).as_bytes())
    }

    /// Milliseconds with three decimal places, or null.
    pub(super) fn milliseconds(&mut self, field: &str, value: Option<Duration>) -> io::Result<()> {
        let Some(value) = value else { return self.null(field) };
        let micros = value.as_nanos().saturating_add(500) / 1000;
        self.number(field, micros / 1000)?;
        let digit = |unit: u128| b'0' + (micros / unit % 10) as u8;
        self.0.write_all(&[b'.', digit(100), digit(10), digit(1)])
    }

    fn escaped(&mut self, value: &str) -> io::Result<()> {
        Ok(value.serialize(&mut Serializer::with_formatter(&mut *self.0, TerminalSafe))?)
    }

    fn null(&mut self, field: &str) -> io::Result<()> {
        self.0.extend_from_slice(field.as_bytes());
        self.0.write_all(b"null")
    }

    /// Ends the object and the line.
    pub(super) fn end(self) {
        self.0.extend_from_slice(b"}\n");
    }
}

/// Escapes the characters that a terminal would interpret ([`is_terminal_control`]), so that the log can be shown
/// safely. JSON itself requires escapes only below U+0020 (RFC 8259 section 7).
struct TerminalSafe;

impl Formatter for TerminalSafe {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        for piece in fragment.split_inclusive(is_terminal_control) {
            let last = piece.chars().next_back().filter(|mark| is_terminal_control(*mark));
            out.write_all(&piece.as_bytes()[..piece.len() - last.map_or(0, char::len_utf8)])?;
            if let Some(mark) = last {
                // All of them are below U+10000, and so one unit of UTF-16.
                write!(out, "\\u{:04x}", u32::from(mark))?;
            }
        }
        Ok(())
    }
}

/// Returns `true` if a JSON string may need escapes: for the characters that JSON requires (RFC 8259 section 7), DEL,
/// and non-ASCII bytes, which may be other terminal controls. It reads all bytes without an early exit, so that the
/// loop can be vectorised.
fn may_need_escape(text: &[u8]) -> bool {
    text.iter().fold(false, |any, byte| any | (*byte < b' ') | (*byte == b'"') | (*byte == b'\\') | (*byte >= 0x7f))
}
