//! The answers to calls of rules that are kept, so that the next request needs no call; and the tokens of the edge
//! itself for servers that it calls.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::Expiry;
use moka::sync::Cache;
use serde_json::Value;
use tidegate_config::model::auth::{CacheKey, ClientCredentials};

/// The limit of the memory for answers, in bytes.
const BYTES_MAX: u64 = 16 << 20;
/// The limit of the number of tokens.
const TOKENS_MAX: u64 = 1000;
/// The memory of an object with any field, in bytes.
const OBJECT_BYTES: usize = 640;
/// The part of an entry that does not depend on its value, in bytes.
const ENTRY_BYTES: usize = 256;

/// Answers and tokens. Neither is in any output.
pub(crate) struct KeptAnswers {
    answers: Cache<AnswerDigest, Kept<Value>, RandomState>,
    /// The secrets of the process that digests are made with.
    digests: [RandomState; 2],
    tokens: Cache<usize, Kept<str>>,
}

/// 128 bits of a keyed hash of a [`CacheKey`]. Two of them are equal by a chance that nobody can influence without the
/// secrets of the process.
type AnswerDigest = [u64; 2];

struct Kept<V: ?Sized> {
    value: Arc<V>,
    ttl: Duration,
    bytes: usize,
    /// The client of a token, whose address is the key, and belongs to it while it is here.
    client: Option<Arc<ClientCredentials>>,
}

/// Each entry has a lifetime of its own.
struct OwnLifetime;

impl<K, V: ?Sized> Expiry<K, Kept<V>> for OwnLifetime {
    fn expire_after_create(&self, _: &K, kept: &Kept<V>, _: Instant) -> Option<Duration> {
        Some(kept.ttl)
    }

    fn expire_after_update(&self, _: &K, kept: &Kept<V>, _: Instant, _: Option<Duration>) -> Option<Duration> {
        Some(kept.ttl)
    }
}

impl Default for KeptAnswers {
    fn default() -> Self {
        let weigh = |_: &AnswerDigest, kept: &Kept<Value>| u32::try_from(kept.bytes).unwrap_or(u32::MAX);
        let answers = Cache::builder().max_capacity(BYTES_MAX).weigher(weigh).expire_after(OwnLifetime);
        Self {
            answers: answers.build_with_hasher(RandomState::new()),
            digests: [RandomState::new(), RandomState::new()],
            tokens: Cache::builder().max_capacity(TOKENS_MAX).expire_after(OwnLifetime).build(),
        }
    }
}

impl KeptAnswers {
    /// The answer that is kept under a key.
    pub(crate) fn get(&self, key: &CacheKey) -> Option<Arc<Value>> {
        self.answers.get(&self.digest(key)).map(|kept| kept.value)
    }

    /// Keeps an answer for a time. 0 keeps none.
    pub(crate) fn keep(&self, key: &CacheKey, value: &Arc<Value>, ttl: Duration) {
        if !ttl.is_zero() {
            let bytes = ENTRY_BYTES + bytes_of(value);
            self.answers.insert(self.digest(key), Kept { value: Arc::clone(value), ttl, bytes, client: None });
        }
    }

    /// The token of a client.
    pub(crate) fn token(&self, client: &Arc<ClientCredentials>) -> Option<Arc<str>> {
        self.tokens.get(&Arc::as_ptr(client).addr()).map(|kept| kept.value)
    }

    /// Keeps a token for a time. 0 keeps none.
    pub(crate) fn keep_token(&self, client: &Arc<ClientCredentials>, token: &Arc<str>, ttl: Duration) {
        if !ttl.is_zero() {
            let kept = Kept { value: Arc::clone(token), ttl, bytes: 0, client: Some(Arc::clone(client)) };
            self.tokens.insert(Arc::as_ptr(client).addr(), kept);
        }
    }

    fn digest(&self, key: &CacheKey) -> AnswerDigest {
        self.digests.each_ref().map(|secret| secret.hash_one(key))
    }
}

impl<V: ?Sized> Clone for Kept<V> {
    fn clone(&self) -> Self {
        let Self { value, ttl, bytes, client } = self;
        Self { value: Arc::clone(value), ttl: *ttl, bytes: *bytes, client: client.clone() }
    }
}

/// About the memory of a value.
pub(crate) fn bytes_of(value: &Value) -> usize {
    let own = size_of::<Value>();
    own + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(bytes_of).sum(),
        // A tree of its own for each object, whose first node has room for eleven fields.
        Value::Object(fields) if fields.is_empty() => 0,
        Value::Object(fields) => {
            OBJECT_BYTES + fields.iter().map(|(name, value)| 64 + name.len() + bytes_of(value)).sum::<usize>()
        }
    }
}

impl fmt::Debug for KeptAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptAnswers")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(rule: u8, key: &str, call: u8) -> CacheKey {
        CacheKey { rule: [rule; 16], key: key.into(), call: [call; 16] }
    }

    #[test]
    fn an_answer_is_kept_for_its_rule_key_and_call() {
        let answers = KeptAnswers::default();
        let value = Arc::new(json!({"sub": "anna"}));
        answers.keep(&key(1, "/", 1), &value, Duration::from_secs(60));
        assert_eq!(answers.get(&key(1, "/", 1)), Some(value));
        for other in [key(2, "/", 1), key(1, "/a", 1), key(1, "/", 2), key(1, "", 1)] {
            assert_eq!(answers.get(&other), None, "{}", other.key);
        }
    }

    #[test]
    fn an_answer_without_a_lifetime_is_not_kept() {
        let answers = KeptAnswers::default();
        answers.keep(&key(1, "/", 1), &Arc::new(json!(1)), Duration::ZERO);
        assert_eq!(answers.get(&key(1, "/", 1)), None);
        answers.keep(&key(1, "/", 1), &Arc::new(json!(1)), Duration::from_nanos(1));
        while answers.get(&key(1, "/", 1)).is_some() {
            std::thread::yield_now();
        }
    }
}
