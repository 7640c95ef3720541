//! The keys of an issuer (RFC 7517 section 5).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::algorithm::Algorithm;
use super::key::Key;

/// The limit of the keys in a set, with those that are not used.
const KEYS_MAX: usize = 100;
/// The limit of the keys that a signature is checked with.
const TRIED_MAX: usize = 4;

/// Public keys.
#[derive(Default)]
pub struct KeySet {
    keys: Box<[Key]>,
    /// Where the issuer tells claims about users.
    user_info: Option<Arc<str>>,
    /// Whether a token was signed with another key, maybe a newer one. A hint for the task that fetches keys, and no
    /// part of the value.
    outdated: AtomicBool,
}

/// The reason why a text cannot be read as a key set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeySetFault {
    /// It is no JSON object with a list of keys.
    Form,
    /// It has too many keys.
    Number,
    /// None of its keys can be used.
    NoUsableKey,
}

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<Value>,
    userinfo_endpoint: Option<Value>,
}

impl KeySet {
    /// Reads a key set. Keys that are not for signatures, or of a type or size that is not supported, are left out, as
    /// RFC 7517 section 5 asks for: RSA keys have 2048 to 4096 bits, the curves are P-256 and Ed25519.
    ///
    /// # Errors
    /// If it has no usable key, or more than 100 keys.
    pub fn read(json: &[u8]) -> Result<Self, KeySetFault> {
        let JwkSet { keys, userinfo_endpoint } =
            serde_json::from_slice(json).map_err(|_malformed| KeySetFault::Form)?;
        if keys.len() > KEYS_MAX {
            return Err(KeySetFault::Number);
        }
        let keys: Box<[Key]> = keys.iter().filter_map(Key::read).collect();
        if keys.is_empty() {
            return Err(KeySetFault::NoUsableKey);
        }
        let user_info = userinfo_endpoint.as_ref().and_then(Value::as_str).map(Into::into);
        Ok(Self { keys, user_info, outdated: AtomicBool::default() })
    }

    /// The URL where the issuer tells claims about users: `userinfo_endpoint` of its discovery document, which is
    /// added to the key set when that is fetched. Other readers ignore members that they do not know (RFC 7517 section
    /// 5).
    #[must_use]
    pub const fn user_info(&self) -> Option<&Arc<str>> {
        self.user_info.as_ref()
    }

    /// The number of its keys.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it has no keys.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Notes that a token was signed with a key that is not in the set: there may be newer keys.
    pub fn note_unknown_key(&self) {
        // Most calls find it set: many tokens of that kind must not write to memory that all threads read.
        if !self.outdated.load(Ordering::Relaxed) {
            self.outdated.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a token was signed with another key since the last call.
    pub fn take_unknown_key(&self) -> bool {
        self.outdated.load(Ordering::Relaxed) && self.outdated.swap(false, Ordering::Relaxed)
    }

    /// The keys with which a signature may have been made: those with this id, or without an id all, of the type of the
    /// algorithm, and at most four.
    pub(super) fn candidates(&self, id: Option<&str>, algorithm: Algorithm) -> impl Iterator<Item = &Key> {
        let is_meant = move |key: &&Key| id.is_none_or(|id| key.id.as_deref() == Some(id)) && key.fits(algorithm);
        self.keys.iter().filter(is_meant).take(TRIED_MAX)
    }
}

impl PartialEq for KeySet {
    fn eq(&self, other: &Self) -> bool {
        self.keys == other.keys && self.user_info == other.user_info
    }
}

impl Eq for KeySet {}

/// The number of the keys.
impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.keys.len())
    }
}

/// The number of the keys.
impl Serialize for KeySet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self:?}"))
    }
}

/// A clause such as `it has more than 100 keys`.
impl fmt::Display for KeySetFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("it is no JSON object with a list of keys"),
            Self::Number => write!(f, "it has more than {KEYS_MAX} keys"),
            Self::NoUsableKey => f.write_str("none of its keys can be used to check signatures"),
        }
    }
}
