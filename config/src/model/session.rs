//! Session persistence: a client returns to the endpoint that served its first request, by a token that identifies the
//! endpoint. The token is the whole session: no state of it is kept here (docs/decisions/0038-session-tokens.md).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderName;
use ring::hmac;
use serde::Serialize;

use super::backend::EndpointId;
use crate::object::Uid;

/// The length of a token's content in bytes.
const CONTENT_BYTES: usize = 16;
/// The length of the authentication tag in bytes.
const TAG_BYTES: usize = 16;
/// The length of an encoded token in characters.
pub const TOKEN_CHARACTERS: usize = 43;

/// The session persistence of a route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SessionPersistence {
    /// The key of its tokens.
    #[serde(skip)]
    pub key: SessionKey,
    /// The carrier of the token.
    pub carrier: SessionCarrier,
    /// The time after its first response at which a session ends, however often the client returns; `None` for never.
    pub absolute_timeout: Option<Duration>,
    /// Whether a session moves to the endpoint that answers in the place of its own, which is there and fails.
    pub change_on_failure: bool,
}

/// The carrier of a session token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionCarrier {
    /// A cookie (RFC 6265).
    Cookie(SessionCookie),
    /// A header of this name, first in a response and then in the client's requests.
    Header(#[serde(serialize_with = "name_of_header")] HeaderName),
}

/// The attributes of a session cookie. It is always `HttpOnly`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SessionCookie {
    /// Its name.
    pub name: Arc<str>,
    /// `Path`: the paths of requests that carry it; `None` for the path of the route.
    pub path: Option<Arc<str>>,
    /// Whether it outlives the browser session: `Max-Age` is the lifetime of the session.
    pub permanent: bool,
    /// `SameSite`.
    pub same_site: SameSite,
    /// `Secure`: whether it is sent only over TLS; `None` sets it if the request came over TLS.
    pub secure: Option<bool>,
}

/// The cross-site requests that carry a cookie (RFC 6265bis section 5.4.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SameSite {
    /// None of them.
    Strict,
    /// Requests that follow a link.
    #[default]
    Lax,
    /// All. Browsers then require the cookie to be `Secure`.
    None,
}

impl SameSite {
    /// The value of the attribute.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "Strict",
            Self::Lax => "Lax",
            Self::None => "None",
        }
    }
}

fn name_of_header<S: serde::Serializer>(name: &HeaderName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name.as_str())
}

impl fmt::Display for SessionPersistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.carrier {
            SessionCarrier::Cookie(cookie) => {
                write!(f, "cookie {}", cookie.name)?;
                if let Some(path) = &cookie.path {
                    write!(f, " for {path}")?;
                }
            }
            SessionCarrier::Header(name) => write!(f, "header {name}")?,
        }
        if let Some(limit) = self.absolute_timeout {
            write!(f, ", at most {} s", limit.as_secs_f64())?;
        }
        f.write_str(if self.change_on_failure { "" } else { ", kept when its endpoint fails" })
    }
}

/// The key of the tokens of one rule. Every replica derives the same key from the uid of the rule's object, which
/// clients do not know.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey([u8; 32]);

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey")
    }
}

/// The content of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionToken {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The share of the route that the endpoint belonged to, by a digest of that share.
    pub share: u32,
    /// The start of the session in seconds since the Unix epoch; 0 if there is no absolute timeout.
    pub began_s: u32,
}

impl SessionToken {
    fn to_bytes(self) -> [u8; CONTENT_BYTES] {
        let Self { endpoint, share, began_s } = self;
        (u128::from(endpoint.to_bits()) << 64 | u128::from(share) << 32 | u128::from(began_s)).to_be_bytes()
    }

    fn of_bytes(bytes: [u8; CONTENT_BYTES]) -> Self {
        let bits = u128::from_be_bytes(bytes);
        Self { endpoint: EndpointId::from_bits((bits >> 64) as u64), share: (bits >> 32) as u32, began_s: bits as u32 }
    }
}

/// The purpose of a derived key: no two purposes have an input in common.
#[derive(Clone, Copy)]
enum Use {
    Tag = 1,
    Mask = 2,
    Label = 3,
}

impl SessionKey {
    /// The key of a rule of an object. Rules with different names do not accept each other's tokens.
    #[must_use]
    pub fn of_rule(object: Uid, rule: &str) -> Self {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &object.to_bytes()));
        context.update(b"tidegate session persistence 1\0");
        context.update(rule.as_bytes());
        Self(whole(&context.sign()))
    }

    /// Eight characters for names that differ between rules.
    #[must_use]
    pub fn label(&self) -> String {
        let [a, b, c, d, ..] = self.derived(Use::Label, &[]);
        format!("{:08x}", u32::from_be_bytes([a, b, c, d]))
    }

    /// Encrypts and authenticates a token, so that only holders of the key can read, write or change one (the
    /// construction of RFC 5297 with HMAC-SHA-256: the tag of the content is the input of its mask).
    #[must_use]
    pub fn seal(&self, token: &SessionToken) -> [u8; TOKEN_CHARACTERS] {
        let content = token.to_bytes();
        let tag = self.tag(&content);
        let mut bytes = [0; TAG_BYTES + CONTENT_BYTES];
        let (first, rest) = bytes.split_at_mut(TAG_BYTES);
        first.copy_from_slice(&tag);
        rest.copy_from_slice(&self.masked(tag, content));
        let mut text = [b'-'; TOKEN_CHARACTERS];
        // 32 bytes are 43 characters.
        let written = URL_SAFE_NO_PAD.encode_slice(bytes, &mut text);
        debug_assert_eq!(written, Ok(TOKEN_CHARACTERS));
        text
    }

    /// Decrypts a token; `None` if it was not written with this key.
    #[must_use]
    pub fn open(&self, text: &[u8]) -> Option<SessionToken> {
        let mut bytes = [0; TAG_BYTES + CONTENT_BYTES];
        let text: &[u8; TOKEN_CHARACTERS] = text.try_into().ok()?;
        let length = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        let (tag, content) = bytes.get(..length)?.split_first_chunk::<TAG_BYTES>()?;
        let content = self.masked(*tag, content.try_into().ok()?);
        let differs = self.tag(&content).iter().zip(tag).fold(0, |differs, (own, its)| differs | (own ^ its));
        (differs == 0).then(|| SessionToken::of_bytes(content))
    }

    fn tag(&self, content: &[u8; CONTENT_BYTES]) -> [u8; TAG_BYTES] {
        first(self.derived(Use::Tag, content))
    }

    fn masked(&self, tag: [u8; TAG_BYTES], content: [u8; CONTENT_BYTES]) -> [u8; CONTENT_BYTES] {
        let mask = u128::from_be_bytes(first(self.derived(Use::Mask, &tag)));
        (u128::from_be_bytes(content) ^ mask).to_be_bytes()
    }

    fn derived(&self, purpose: Use, input: &[u8]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        context.update(&[purpose as u8]);
        context.update(input);
        whole(&context.sign())
    }
}

/// The 32 bytes of an HMAC-SHA-256.
fn whole(signed: &hmac::Tag) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.iter_mut().zip(signed.as_ref()).for_each(|(to, from)| *to = *from);
    bytes
}

fn first(bytes: [u8; 32]) -> [u8; 16] {
    let mut half = [0; 16];
    half.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    half
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Endpoint;

    const UID: &str = "6f1de5f4-3f0c-4d5e-9a1c-2f6a0c1b7d3e";

    fn key(uid: &str, rule: &str) -> SessionKey {
        SessionKey::of_rule(Uid::parse(uid).unwrap(), rule)
    }

    fn token(last: u8) -> SessionToken {
        let endpoint = Endpoint::tcp(([10, 0, 0, last], 80).into(), Some("pod".into())).id;
        SessionToken { endpoint, share: 0xFEDC_BA98, began_s: 1_700_000_000 }
    }

    #[test]
    fn a_token_opens_only_with_its_own_key() {
        let own = key(UID, "0");
        let text = own.seal(&token(1));
        assert_eq!(own.open(&text), Some(token(1)));
        assert_eq!(key(UID, "0").open(&text), Some(token(1)), "another replica");
        assert_eq!(key(UID, "1").open(&text), None, "another rule");
        assert_eq!(key("6f1de5f4-3f0c-4d5e-9a1c-2f6a0c1b7d3f", "0").open(&text), None, "another object");
        assert_ne!(own.seal(&token(2)), text);
        assert_eq!(own.seal(&token(1)), text, "the same for every client");
    }

    #[test]
    fn a_modified_token_is_invalid() {
        let own = key(UID, "");
        let text = own.seal(&token(1));
        for index in 0..text.len() {
            for other in *b"ABab09-_=+/ \0\xFF" {
                let mut changed = text;
                changed[index] = other;
                assert_eq!(own.open(&changed).is_some(), changed == text, "{index} {other}");
            }
        }
        assert_eq!(own.open(&text[1..]), None);
        assert_eq!(own.open(&[&text[..], b"A"].concat()), None);
        for other in ["", "A", &"A".repeat(42), &"A".repeat(43), &"A".repeat(44), &"A".repeat(100_000)] {
            assert_eq!(own.open(other.as_bytes()), None);
        }
    }

    #[test]
    fn a_token_reveals_nothing_of_its_content() {
        let text = key(UID, "").seal(&token(1));
        let bytes = URL_SAFE_NO_PAD.decode(text).unwrap();
        let plain = token(1).to_bytes();
        assert!(!bytes.windows(4).any(|part| plain.windows(4).any(|said| said == part)));
        // Two contents that differ in one bit have tokens that differ everywhere.
        let other =
            URL_SAFE_NO_PAD.decode(key(UID, "").seal(&SessionToken { share: 0xFEDC_BA99, ..token(1) })).unwrap();
        let equal = bytes.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(equal < 4, "{equal}");
    }

    /// Replicas of two releases serve side by side during an update: the format of a token cannot change.
    #[test]
    fn the_token_format_is_stable() {
        let text = key(UID, "checkout").seal(&token(1));
        assert_eq!(std::str::from_utf8(&text), Ok("EX36AXgt9txv8Cj_VSEFz92Rzr-Khxq5FFZ5gstN8mQ"));
        assert_eq!(key(UID, "checkout").label(), "4b2a3e01");
    }

    #[test]
    fn debug_output_hides_keys() {
        let policy = SessionPersistence {
            key: key(UID, ""),
            carrier: SessionCarrier::Header(HeaderName::from_static("x-session")),
            absolute_timeout: Some(Duration::from_secs(60)),
            change_on_failure: false,
        };
        let shown = format!("{policy:?} {policy}");
        let want = "SessionPersistence { key: SessionKey, carrier: Header(\"x-session\"), absolute_timeout: Some(60s), \
                    change_on_failure: false } header x-session, at most 60 s, kept when its endpoint fails";
        assert_eq!(shown, want);
    }
}
