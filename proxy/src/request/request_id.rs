//! The id of a request in the logs here and at its endpoint.

use std::fmt;

use arrayvec::ArrayString;
use http::HeaderValue;
use tidegate_config::model::Head;

use crate::http::names::{X_CORRELATION_ID, X_REQUEST_ID};

/// The maximum length of a client's request id that is kept.
const REQUEST_ID_CHARACTERS_MAX: usize = 128;

/// The maximum length in bytes of a client's correlation ids; longer ones are dropped.
const CORRELATION_BYTES_MAX: usize = 1024;

/// The id of a request, of visible characters.
#[derive(Clone)]
pub(crate) enum RequestId {
    /// 128 random bits in hexadecimal.
    Own(ArrayString<32>),
    /// The client's own.
    Sent(Box<str>),
}

impl RequestId {
    /// The client's id if it is valid and may be kept, else a new one.
    pub(crate) fn choose<H: Head + ?Sized>(head: &H, keep: bool, random: u128) -> Self {
        let sent = if keep { head.header(X_REQUEST_ID.as_str()) } else { None };
        let kept = sent.filter(|id| !id.is_empty() && id.len() <= REQUEST_ID_CHARACTERS_MAX);
        let kept = kept.filter(|id| id.iter().all(u8::is_ascii_graphic)).and_then(|id| std::str::from_utf8(id).ok());
        kept.map_or_else(|| Self::new(random), |id| Self::Sent(id.into()))
    }

    /// One from random bits.
    pub(crate) fn new(random: u128) -> Self {
        let nibble = |place: u32| b"0123456789abcdef"[(random >> (4 * place)) as usize & 15];
        let made: [u8; 32] = std::array::from_fn(|i| nibble(31 - i as u32));
        Self::Own(ArrayString::from_byte_string(&made).unwrap_or_default())
    }

    /// The client's correlation ids, followed by this one. Too many of them are dropped.
    pub(crate) fn correlated<H: Head + ?Sized>(&self, head: &H) -> HeaderValue {
        let mut ids = Vec::new();
        head.each_value(X_CORRELATION_ID.as_str(), &mut |value| {
            ids.extend_from_slice(value.trim_ascii());
            ids.push(b',');
        });
        if ids.len() > CORRELATION_BYTES_MAX || ids == b"," {
            ids.clear();
        }
        ids.extend_from_slice(self.as_str().as_bytes());
        let own = || HeaderValue::from_str(self.as_str()).unwrap_or_else(|_| HeaderValue::from_static("-"));
        HeaderValue::from_maybe_shared(bytes::Bytes::from(ids)).unwrap_or_else(|_| own())
    }

    /// One that a client sent.
    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Self {
        Self::Sent(text.into())
    }

    /// Its text.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Own(id) => id,
            Self::Sent(id) => id,
        }
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    #[track_caller]
    fn check(sent: &[&str], want: &str) {
        let head = Sample::get("a.test", "/");
        let head = sent.iter().fold(head, |head, value| head.with("x-correlation-id", value));
        assert_eq!(RequestId::of("id").correlated(&head), want, "{sent:?}");
    }

    #[test]
    fn ids_of_the_client_precede_the_ids_of_the_edge() {
        check(&[], "id");
        check(&["a"], "a,id");
        check(&["a,b"], "a,b,id");
        check(&["a", " b "], "a,b,id");
        check(&[""], "id");
        check(&["a\u{0}b"], "id");
        check(&[&"x".repeat(1023)], &format!("{},id", "x".repeat(1023)));
        check(&[&"x".repeat(1024)], "id");
    }
}
