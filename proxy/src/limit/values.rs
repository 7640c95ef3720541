//! The values by which a limit counts, as a short key.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

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

/// The values in 64 bits, by SipHash with a random key of the process: long values cost no memory.
///
/// Values with equal keys share a counter, which can only limit them more. Among the 65,536 values that a limit has at
/// once, some two are equal with a probability of 2^-33; without the key, nobody can look for such values, and a client
/// that tries a value at random hits that of somebody else with a probability of 2^-48.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ValuesKey(pub(super) u64);

/// Makes the keys of values.
#[derive(Clone, Debug, Default)]
pub(super) struct ValueKeys(RandomState);

/// The values of one request for one limit, as they are evaluated.
#[derive(Debug)]
pub(crate) struct ValuesBuilder(std::hash::DefaultHasher);

impl ValueKeys {
    pub(super) fn builder(&self) -> ValuesBuilder {
        ValuesBuilder(self.0.build_hasher())
    }
}

impl ValuesBuilder {
    /// Adds the value of the next expression, as text.
    pub(crate) fn add(&mut self, value: &str) {
        // With its length, so that `a`, `bc` differs from `ab`, `c`.
        value.len().hash(&mut self.0);
        self.0.write(value.as_bytes());
    }

    /// The values of all expressions.
    pub(crate) fn finish(self) -> Values {
        Values::Of(ValuesKey(self.0.finish()))
    }
}
