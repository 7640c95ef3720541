//! The values by which a limit counts, as a short key.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use ring::hmac;

/// The values of a limit's counter expressions for one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Values {
    /// The limit has no expressions: all requests share one counter.
    Shared,
    /// The values.
    Of(ValuesKey),
    /// An expression failed or its value is absent. All such requests share one counter of their own, so that a client
    /// gains nothing by leaving a value out.
    Failed,
}

/// The values in 64 bits: long values cost no memory. By SipHash with a random key of the process, or, if counts are
/// shared in a store, by HMAC-SHA-256 with a key that all replicas have.
///
/// Values with equal keys share a counter, which can only limit them more. Among the 65,536 values that a limit has at
/// once, some two are equal with a probability of 2^-33; without the key, nobody can look for such values, and a client
/// that tries a value at random hits that of somebody else with a probability of 2^-48. If the key is known, a client
/// that looks for a value with the key of a certain other one has to try 2^64 of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ValuesKey(pub(super) u64);

/// Makes the keys of values.
#[derive(Clone, Debug)]
pub(super) enum ValueKeys {
    /// For this process.
    Own(RandomState),
    /// For all replicas that have the key.
    Shared(hmac::Key),
}

/// The values of one request for one limit, as they are evaluated.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack, while one value is hashed")]
pub(crate) enum ValuesBuilder {
    /// For this process.
    Own(std::hash::DefaultHasher),
    /// For all replicas.
    Shared(hmac::Context),
}

impl ValueKeys {
    pub(super) fn builder(&self) -> ValuesBuilder {
        match self {
            Self::Own(random) => ValuesBuilder::Own(random.build_hasher()),
            Self::Shared(key) => ValuesBuilder::Shared(hmac::Context::with_key(key)),
        }
    }
}

impl ValuesBuilder {
    /// Adds the value of the next expression, as text.
    pub(crate) fn add(&mut self, value: &str) {
        // With its length, so that `a`, `bc` differs from `ab`, `c`.
        match self {
            Self::Own(hash) => {
                value.len().hash(hash);
                hash.write(value.as_bytes());
            }
            Self::Shared(hash) => {
                hash.update(&(value.len() as u64).to_le_bytes());
                hash.update(value.as_bytes());
            }
        }
    }

    /// The values of all expressions.
    pub(crate) fn finish(self) -> Values {
        let key = match self {
            Self::Own(hash) => hash.finish(),
            Self::Shared(hash) => {
                let mut key = [0; 8];
                key.copy_from_slice(&hash.sign().as_ref()[..8]);
                u64::from_le_bytes(key)
            }
        };
        Values::Of(ValuesKey(key))
    }
}
