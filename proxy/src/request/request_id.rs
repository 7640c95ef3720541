//! The id under which a request is logged here and at its endpoint.

use std::fmt;

use arrayvec::ArrayString;
use tidegate_config::model::Head;

use crate::http::names::X_REQUEST_ID;

/// Characters of a client's request id that are kept.
const REQUEST_ID_CHARACTERS_MAX: usize = 128;

/// The id of a request, of visible characters.
#[derive(Clone, Copy)]
pub(crate) struct RequestId(ArrayString<REQUEST_ID_CHARACTERS_MAX>);

impl RequestId {
    /// Before there is one.
    pub(crate) fn none() -> Self {
        Self::of("-")
    }

    /// The client's where it is well-formed and may be kept, else 128 bits of chance in hexadecimal.
    pub(crate) fn choose<H: Head + ?Sized>(head: &H, keep: bool, chance: u128) -> Self {
        let sent = if keep { head.header(X_REQUEST_ID.as_str()) } else { None };
        let kept = sent.filter(|id| !id.is_empty() && id.iter().all(u8::is_ascii_graphic));
        let kept = kept.and_then(|id| ArrayString::from(std::str::from_utf8(id).ok()?).ok());
        kept.map_or_else(
            || {
                let nibble = |place: u32| b"0123456789abcdef"[(chance >> (4 * place)) as usize & 15];
                let made: [u8; 32] = std::array::from_fn(|i| nibble(31 - i as u32));
                Self::of(std::str::from_utf8(&made).unwrap_or_default())
            },
            Self,
        )
    }

    /// Of this text.
    pub(crate) fn of(text: &str) -> Self {
        Self(ArrayString::from(text).unwrap_or_default())
    }

    /// Its text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
