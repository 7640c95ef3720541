//! Loop detection with `CDN-Loop` (RFC 8586). Objects can lead requests back to the edge by ways that no single process
//! can see (a Service in front of it, another replica), and an endless loop of one request would take all connections.
//!
//! `Via` is not used, because common servers do not compress responses to requests with it.

use std::fmt;
use std::str::FromStr;

use tidegate_config::model::Head;

use crate::http::names::CDN_LOOP;

/// The maximum length of a token.
const TOKEN_CHARACTERS_MAX: usize = 64;

/// The name under which edges count their passes: a token (RFC 9110 section 5.6.2) of at most 64 characters, compared
/// without case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopToken(Box<str>);

/// A text that is not a [`LoopToken`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoToken;

impl fmt::Display for NoToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "is not between 1 and {TOKEN_CHARACTERS_MAX} letters, digits and characters of !#$%&'*+-.^_`|~")
    }
}

impl std::error::Error for NoToken {}

impl FromStr for LoopToken {
    type Err = NoToken;

    fn from_str(text: &str) -> Result<Self, NoToken> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let is_token = (1..=TOKEN_CHARACTERS_MAX).contains(&text.len()) && text.bytes().all(allowed);
        if is_token { Ok(Self(text.into())) } else { Err(NoToken) }
    }
}

impl Default for LoopToken {
    fn default() -> Self {
        Self("tidegate".into())
    }
}

impl LoopToken {
    /// The number of times that a request has passed an edge of this token.
    pub(crate) fn passes<H: Head + ?Sized>(&self, head: &H) -> usize {
        let mut passes = 0;
        head.each_value(CDN_LOOP.as_str(), &mut |value| {
            each_id(value, &mut |id| passes += usize::from(id.eq_ignore_ascii_case(self.0.as_bytes())));
        });
        passes
    }

    /// Writes the header's value with this pass at its end. It replaces the old value, so that neither a client's
    /// `Connection` nor a route's edits can remove earlier passes.
    pub(crate) fn write_added<H: Head + ?Sized>(&self, head: &H, out: &mut Vec<u8>) {
        head.each_value(CDN_LOOP.as_str(), &mut |value| {
            out.extend_from_slice(value);
            out.extend_from_slice(b", ");
        });
        out.extend_from_slice(self.0.as_bytes());
    }
}

/// Calls `see` with each `cdn-id` of a header line, without parameters. Commas and semicolons in quoted strings do not
/// separate; an unclosed quote does not count, or it would hide the later values.
fn each_id(value: &[u8], see: &mut dyn FnMut(&[u8])) {
    let mut id = |element: &[u8]| see(element.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii());
    let (mut start, mut at, mut quotes_close) = (0, 0, true);
    while let Some(byte) = value.get(at) {
        match byte {
            b',' => {
                id(&value[start..at]);
                start = at + 1;
            }
            b'"' if quotes_close => match quoted(&value[at..]) {
                Some(length) => at += length - 1,
                None => quotes_close = false,
            },
            _ => {}
        }
        at += 1;
    }
    id(&value[start..]);
}

/// The length of the quoted string (RFC 9110 section 5.6.4) at the beginning of the bytes, including its quotes.
fn quoted(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    #[track_caller]
    fn check(lines: &[&str], want: usize) {
        let head = lines.iter().fold(Sample::get("a.test", "/"), |head, line| head.with("cdn-loop", line));
        let token = LoopToken::default();
        assert_eq!(token.passes(&head), want, "{lines:?}");
        let mut added = Vec::new();
        token.write_added(&head, &mut added);
        let next = Sample::get("a.test", "/").with("cdn-loop", std::str::from_utf8(&added).unwrap());
        assert_eq!(token.passes(&next), want + 1, "after one more pass of {lines:?}");
    }

    #[test]
    fn passes_are_counted_by_the_rules_of_lists() {
        check(&[], 0);
        check(&[""], 0);
        check(&["tidegate"], 1);
        check(&["Tidegate ,\ttidegate"], 2);
        check(&["tidegate", "other, tidegate"], 2);
        check(&["tidegate;pass=1, tidegate ; a=\"b\""], 2);
        check(&["tidegate2, my-tidegate, tidegate.example:80, [::1]:80"], 0);
        check(&["other; by=tidegate"], 0);
        check(&[r#"other; by="x, tidegate, y""#], 0);
        check(&[r#"other; by="\", tidegate, \"", tidegate"#], 1);
        check(&[r#"other; by="a;b", tidegate"#], 1);
        check(&[",, tidegate,,"], 1);
    }

    #[test]
    fn no_client_can_hide_the_following_passes() {
        check(&[r#"x; a=""#], 0);
        check(&[r#"x; a=", tidegate"#], 1);
        check(&[r#"x; a="\"#, "tidegate"], 1);
        check(&[r#"x; a=""#, r#"y; b=""#], 0);
        check(&[r#"x; a="\""\"\"\"\""#], 0);
    }

    #[test]
    fn only_tokens_can_be_ours() {
        for good in ["tidegate", "edge-1.example", "!#$%&'*+-.^_`|~", &"x".repeat(64)] {
            assert_eq!(*good.parse::<LoopToken>().unwrap().0, *good);
        }
        for bad in ["", "a b", "a,b", "a;b", "\"a\"", "a:80", "\u{fc}", &"x".repeat(65)] {
            assert_eq!(bad.parse::<LoopToken>(), Err(NoToken), "{bad}");
        }
        let said = NoToken.to_string();
        assert_eq!(said, "is not between 1 and 64 letters, digits and characters of !#$%&'*+-.^_`|~");
    }
}
