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
use tidegate_config::object::ObjectRef;

/// A field's name with its punctuation, after another field.
macro_rules! field {
    ($name:literal) => {
        concat!(",\"", $name, "\":")
    };
}
pub(super) use field;

/// An unfinished object. Names come from [`field!`].
#[derive(Debug)]
pub(super) struct LogLine<'a>(&'a mut Vec<u8>);

impl<'a> LogLine<'a> {
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
        self.quoted(value);
        Ok(())
    }

    /// A text that needs no escape.
    pub(super) fn plain(&mut self, field: &str, value: &str) {
        self.0.extend_from_slice(field.as_bytes());
        self.quoted(value);
    }

    /// A text that needs no escape, or null.
    pub(super) fn plain_or_null(&mut self, field: &str, value: Option<&str>) {
        match value {
            Some(value) => self.plain(field, value),
            None => self.null(field),
        }
    }

    /// A text or null.
    pub(super) fn text_or_null(&mut self, field: &str, value: Option<&str>) -> io::Result<()> {
        match value {
            Some(value) => self.text(field, value)?,
            None => self.null(field),
        }
        Ok(())
    }

    /// An object as it is displayed, or null. The usual one is written without a formatter.
    pub(super) fn object(&mut self, field: &str, object: Option<&ObjectRef>) -> io::Result<()> {
        let Some(object) = object else {
            self.null(field);
            return Ok(());
        };
        let (namespace, name) = (&*object.name.namespace, &*object.name.name);
        if may_need_escape(namespace.as_bytes()) || may_need_escape(name.as_bytes()) {
            return self.text(field, &object.to_string());
        }
        for piece in [field, "\"", object.kind.as_str(), " "] {
            self.0.extend_from_slice(piece.as_bytes());
        }
        if !namespace.is_empty() {
            self.0.extend_from_slice(namespace.as_bytes());
            self.0.push(b'/');
        }
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'"');
        Ok(())
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

    /// A formatted value that needs no escape, or null.
    pub(super) fn printed(&mut self, field: &str, value: Option<impl Display>) -> io::Result<()> {
        match value {
            Some(value) => write!(self.0, "{field}\"{value}\"")?,
            None => self.null(field),
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
        let Some(value) = value else {
            self.null(field);
            return Ok(());
        };
        // Enough for 584,000 years.
        let micros =
            value.as_secs().saturating_mul(1_000_000).saturating_add(u64::from((value.subsec_nanos() + 500) / 1000));
        self.number(field, micros / 1000)?;
        let digit = |unit: u64| b'0' + (micros / unit % 10) as u8;
        self.0.write_all(&[b'.', digit(100), digit(10), digit(1)])
    }

    fn escaped(&mut self, value: &str) -> io::Result<()> {
        Ok(value.serialize(&mut Serializer::with_formatter(&mut *self.0, TerminalSafe))?)
    }

    fn quoted(&mut self, value: &str) {
        self.0.push(b'"');
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(b'"');
    }

    fn null(&mut self, field: &str) {
        self.0.extend_from_slice(field.as_bytes());
        self.0.extend_from_slice(b"null");
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
