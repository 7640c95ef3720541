//! The framing of request bodies (RFC 9112 section 6.3). One rule, for the scan of a head before it is parsed, for the
//! strict parser, and for the checks before routing: a request whose body two parsers could end at different bytes is
//! refused.

use tidegate_config::model::Head;

use super::body::{Framing, length};

/// A request whose body has no unambiguous end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FramingFault {
    /// Several lengths, an invalid one, or a length beside a transfer coding.
    Ambiguous,
    /// Another transfer coding than `chunked`, or several.
    UnknownTransferCoding,
}

/// The framing headers of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FramingHeaders {
    length: Occurrences<u64>,
    coding: Occurrences<()>,
}

/// The values of a header that may occur once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Occurrences<T> {
    #[default]
    Nothing,
    /// One valid value.
    Once(T),
    /// Several, or an invalid one.
    Invalid,
}

impl<T> Occurrences<T> {
    fn note(&mut self, value: Option<T>) {
        *self = match (&self, value) {
            (Self::Nothing, Some(value)) => Self::Once(value),
            (Self::Nothing | Self::Once(_) | Self::Invalid, _) => Self::Invalid,
        };
    }
}

impl FramingHeaders {
    /// Records the value of a `Content-Length`: at most 18 digits. Repeated equal lengths, more digits, and leading
    /// zeros would be legal (RFC 9110 section 8.6), but the next parser may read them differently: as a negative or an
    /// octal number.
    pub(crate) fn content_length(&mut self, value: &[u8]) {
        self.length.note(length(value).filter(|_| matches!(value, [_] | [b'1'..=b'9', ..])));
    }

    /// Records the value of a `Transfer-Encoding`: only `chunked`, in any case.
    pub(crate) fn transfer_encoding(&mut self, value: &[u8]) {
        self.coding.note(value.trim_ascii().eq_ignore_ascii_case(b"chunked").then_some(()));
    }

    /// Whether there is a transfer coding, known or not.
    pub(crate) fn is_coded(&self) -> bool {
        self.coding != Occurrences::Nothing
    }

    /// Whether there is both a length and a transfer coding.
    pub(crate) fn has_both(&self) -> bool {
        self.is_coded() && self.length != Occurrences::Nothing
    }

    /// The framing of the body.
    ///
    /// # Errors
    /// If two parsers could end the body at different bytes.
    pub(crate) const fn framing(&self) -> Result<Framing, FramingFault> {
        match (self.coding, self.length) {
            (Occurrences::Nothing, Occurrences::Nothing) => Ok(Framing::None),
            (Occurrences::Nothing, Occurrences::Once(length)) => Ok(Framing::Length(length)),
            (Occurrences::Once(()), Occurrences::Nothing) => Ok(Framing::Chunked),
            (Occurrences::Invalid, Occurrences::Nothing) => Err(FramingFault::UnknownTransferCoding),
            (Occurrences::Nothing, Occurrences::Invalid) | (_, Occurrences::Once(_) | Occurrences::Invalid) => {
                Err(FramingFault::Ambiguous)
            }
        }
    }
}

/// The framing of a request's body by its head.
///
/// # Errors
/// If two parsers could end the body at different bytes.
pub(crate) fn framing<H: Head + ?Sized>(head: &H) -> Result<Framing, FramingFault> {
    let mut headers = FramingHeaders::default();
    head.each_value("content-length", &mut |value| headers.content_length(value));
    head.each_value("transfer-encoding", &mut |value| headers.transfer_encoding(value));
    headers.framing()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lengths: &[&str], codings: &[&str], want: Result<Framing, FramingFault>) {
        let mut headers = FramingHeaders::default();
        lengths.iter().for_each(|value| headers.content_length(value.as_bytes()));
        codings.iter().for_each(|value| headers.transfer_encoding(value.as_bytes()));
        assert_eq!(headers.framing(), want, "{lengths:?} {codings:?}");
        assert_eq!(headers.has_both(), !lengths.is_empty() && !codings.is_empty());
    }

    #[test]
    fn a_body_has_one_length_or_is_chunked() {
        check(&[], &[], Ok(Framing::None));
        check(&["0"], &[], Ok(Framing::Length(0)));
        check(&["17"], &[], Ok(Framing::Length(17)));
        check(&["999999999999999999"], &[], Ok(Framing::Length(999_999_999_999_999_999)));
        check(&[], &["chunked"], Ok(Framing::Chunked));
        check(&[], &[" Chunked\t"], Ok(Framing::Chunked));
    }

    #[test]
    fn lengths_that_parsers_read_differently_are_refused() {
        for length in ["", "-1", "+1", "1 ", "0x1", "1,1", "1.0", "1000000000000000000", "00", "007"] {
            check(&[length], &[], Err(FramingFault::Ambiguous));
        }
        check(&["1", "1"], &[], Err(FramingFault::Ambiguous));
        check(&["x", "1"], &[], Err(FramingFault::Ambiguous));
    }

    #[test]
    fn transfer_codings_other_than_chunked_are_refused() {
        for coding in ["", "gzip", "gzip, chunked", "chunked, chunked", "identity", "chunked;a=b", "\"chunked\""] {
            check(&[], &[coding], Err(FramingFault::UnknownTransferCoding));
        }
        check(&[], &["chunked", "chunked"], Err(FramingFault::UnknownTransferCoding));
        check(&[], &["gzip", "chunked"], Err(FramingFault::UnknownTransferCoding));
    }

    #[test]
    fn a_length_beside_a_transfer_coding_is_refused() {
        for (length, coding) in [("1", "chunked"), ("x", "chunked"), ("1", "gzip"), ("x", "gzip")] {
            check(&[length], &[coding], Err(FramingFault::Ambiguous));
        }
    }
}
