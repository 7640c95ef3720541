//! The keys of counters in the store, which all replicas make alike: hashes, so that they are short, and nobody reads
//! in them what clients send.

use std::fmt::{self, Write as _};
use std::time::Duration;

use ring::hmac;
use tidegate_config::model::Limit;

use super::super::values::Values;

/// The bytes of the hash that stands for a limit.
const LIMIT_BYTES: usize = 16;

/// The identity of a limit and window, in 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limit) struct LimitKey([u8; LIMIT_BYTES]);

/// The counter of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limit) enum CounterValues {
    /// That of these values.
    Of(Values),
    /// That of all values for which a replica has no room.
    Overflow,
}

/// The identity of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CounterKey {
    pub(super) limit: LimitKey,
    pub(super) values: CounterValues,
}

impl LimitKey {
    /// The key of a limit and one of its windows. The path is no part of it, and neither is the maximum, as for
    /// counters in memory.
    pub(in crate::limit) fn new(hash: &hmac::Key, limit: &Limit, window: Duration) -> Self {
        let mut hash = hmac::Context::with_key(hash);
        let policy = limit.id.policy();
        for part in [policy.kind.as_str(), &policy.name.namespace, &policy.name.name, limit.id.name()] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        hash.update(&window.as_millis().to_le_bytes());
        let mut key = [0; LIMIT_BYTES];
        key.copy_from_slice(&hash.sign().as_ref()[..LIMIT_BYTES]);
        Self(key)
    }
}

impl CounterKey {
    /// Its name in the store, without the prefix: `c:`, 32 hexadecimal digits for the limit, and 16 for the values, or
    /// a word.
    pub(super) fn name(&self, prefix: &str) -> String {
        let mut name = String::with_capacity(prefix.len() + 64);
        // A string takes everything.
        write!(name, "{prefix}:c:{self}").ok();
        name
    }
}

impl fmt::Display for CounterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.limit.0 {
            write!(f, "{byte:02x}")?;
        }
        match self.values {
            CounterValues::Of(Values::Shared) => f.write_str(":all"),
            CounterValues::Of(Values::Failed) => f.write_str(":failed"),
            CounterValues::Of(Values::Of(key)) => write!(f, ":{:016x}", key.0),
            CounterValues::Overflow => f.write_str(":overflow"),
        }
    }
}
