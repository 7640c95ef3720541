//! The texts in a Secret (`v1`) that rules of policies may show to servers, such as the secret of an OAuth 2.0 client.
//! They are wiped from memory when they are no longer used, and get into no message.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::value::RawValue;

use super::raw_object::RawObject;
use super::secret::decode;
use crate::model::auth::SecretText;

/// The maximum number of texts of one Secret: the first ones by their names.
const TEXTS_MAX: usize = 16;
/// The maximum length of a text in bytes.
const TEXT_BYTES_MAX: usize = 4 << 10;
/// The entries with other purposes. Of an API key only a hash is kept.
const OTHERS: [&str; 3] = ["api_key", "tls.crt", "tls.key"];

/// Texts by the names of their entries, in ascending order.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SecretTexts(Box<[(Box<str>, SecretText)]>);

impl SecretTexts {
    /// Why a Secret may have no text of a name, as a predicate.
    pub const FAULT: &'static str =
        "is not one of its first 16 entries with a text of 1 to 4096 bytes, or it is not of the type Opaque";

    /// The texts in a Secret. Those of other types than `Opaque` are for others, and none is kept.
    pub(super) fn of(source: &RawObject<'_>) -> Self {
        let kind = source.object_type.map(|raw| serde_json::from_str::<String>(raw.get()));
        if !kind.is_none_or(|kind| kind.is_ok_and(|kind| kind.is_empty() || kind == "Opaque")) {
            return Self::default();
        }
        let data = source.data.and_then(|raw| serde_json::from_str::<BTreeMap<String, &RawValue>>(raw.get()).ok());
        let entries = data.into_iter().flatten().filter(|(name, _)| !OTHERS.contains(&name.as_str()));
        let texts = entries.filter_map(|(name, raw)| Some((name.into(), text(raw)?)));
        Self(texts.take(TEXTS_MAX).collect())
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text of an entry.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&SecretText> {
        self.0.iter().find(|(own, _)| **own == *name).map(|(_, text)| text)
    }
}

fn text(raw: &RawValue) -> Option<SecretText> {
    let bytes = decode(raw).filter(|bytes| (1..=TEXT_BYTES_MAX).contains(&bytes.len()))?;
    std::str::from_utf8(&bytes).ok().map(SecretText::new)
}

/// The number of the texts.
impl fmt::Debug for SecretTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} texts", self.0.len())
    }
}
