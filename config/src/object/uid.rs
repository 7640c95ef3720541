//! The uid, which distinguishes an object from a later one of the same name.

use std::fmt;
use std::num::NonZeroU128;

/// The `metadata.uid` of an object. No other object has it, not even a later one of the same name. API servers assign
/// UUIDs (RFC 9562), which fit into sixteen bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(NonZeroU128);

impl Uid {
    /// Parses a UUID as API servers write it, in lower case with hyphens. Other spellings are refused: they would be
    /// written differently than they were read.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 36 {
            return None;
        }
        let mut bits = 0_u128;
        for (index, byte) in text.bytes().enumerate() {
            let between = matches!(index, 8 | 13 | 18 | 23);
            let digit = match byte {
                b'-' if between => continue,
                b'0'..=b'9' if !between => byte - b'0',
                b'a'..=b'f' if !between => byte - b'a' + 10,
                _ => return None,
            };
            bits = bits << 4 | u128::from(digit);
        }
        NonZeroU128::new(bits).map(Self)
    }

    /// Its bytes in the order of RFC 9562.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.get().to_be_bytes()
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0.get());
        write!(f, "{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, is_one: bool) {
        assert_eq!(Uid::parse(text).map(|uid| uid.to_string()), is_one.then(|| text.to_owned()));
    }

    #[test]
    fn a_uid_prints_as_read() {
        check("6f1de5f4-3f0c-4d5e-9a1c-2f6a0c1b7d3e", true);
        check("00000000-0000-0000-0000-000000000001", true);
        check("ffffffff-ffff-ffff-ffff-ffffffffffff", true);
        let others = "00000000-0000-0000-0000-000000000000 6F1DE5F4-3F0C-4D5E-9A1C-2F6A0C1B7D3E \
            6f1de5f43f0c4d5e9a1c2f6a0c1b7d3e 6f1de5f4-3f0c-4d5e-9a1c-2f6a0c1b7d3 6f1de5f4-3f0c-4d5e-9a1c-2f6a0c1b7d3g \
            6f1de5f4+3f0c+4d5e+9a1c+2f6a0c1b7d3e 6f1de5f4a3f0c-4d5e-9a1c-2f6a0c1b7d3- 6f1de5f4-3f0c-4d5e-9a1c-2f6a0c1b7d\u{fc}";
        others.split(' ').chain([""]).for_each(|text| check(text, false));
    }
}
