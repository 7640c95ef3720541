//! The native driver's heads as spans of their bytes. They borrow nothing, so they outlive the parse, and their storage
//! is reused without an allocation.

use std::ops::Range;

use super::names::same_name;

/// A part of a head's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Span {
    start: usize,
    end: usize,
}

impl Span {
    /// The span of a part that was sliced out of `bytes`.
    pub(crate) fn of(part: &[u8], bytes: &[u8]) -> Self {
        let start = (part.as_ptr() as usize).saturating_sub(bytes.as_ptr() as usize);
        Self { start, end: start + part.len() }
    }

    /// The bytes of the span.
    pub(crate) fn of_bytes(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// The text of the span; empty if it is not UTF-8.
    pub(crate) fn of_text(self, bytes: &[u8]) -> &str {
        std::str::from_utf8(self.of_bytes(bytes)).unwrap_or_default()
    }

    /// Its range.
    pub(crate) const fn range(self) -> Range<usize> {
        self.start..self.end
    }

    /// Its length in bytes.
    pub(crate) const fn len(self) -> usize {
        self.end - self.start
    }
}

/// One header line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// Its name, in the case it was sent.
    pub(crate) name: Span,
    /// Its value, without the space around it.
    pub(crate) value: Span,
}

impl Field {
    /// The line with its end, if it was sent in the usual form: `name: value`, and CRLF.
    pub(crate) fn usual(&self, bytes: &[u8]) -> Option<Range<usize>> {
        let end = self.value.end + 2;
        let usual = bytes.get(self.name.end..self.value.start) == Some(b": ")
            && bytes.get(self.value.end..end) == Some(b"\r\n");
        usual.then_some(self.name.start..end)
    }
}

/// Replaces the contents of a list by header lines that were parsed from `bytes`.
pub(crate) fn keep(parsed: &[httparse::Header<'_>], bytes: &[u8], fields: &mut Vec<Field>) {
    fields.clear();
    fields.extend(
        parsed.iter().map(|header| Field {
            name: Span::of(header.name.as_bytes(), bytes),
            value: Span::of(header.value, bytes),
        }),
    );
}

/// The values of a header, in order; the name is given in any case.
pub(crate) fn values<'a, 'n>(
    fields: &'a [Field],
    bytes: &'a [u8],
    name: &'n str,
) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
    let named = move |field: &&Field| same_name(field.name.of_bytes(bytes), name.as_bytes());
    fields.iter().filter(named).map(|field| field.value.of_bytes(bytes))
}
