//! The loop's interests in what the informers do not find by themselves: Secrets by name, DNS names, and the keys of
//! issuers of tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::model::auth::KeySource;
use tidegate_config::object::ObjectName;

/// The DNS names to look up, in lower case without a trailing dot, each with the namespaces of its Services.
pub type Names = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

/// The key sets to fetch, each with the namespaces of the policies that name it.
pub type KeySources = BTreeMap<KeySource, BTreeSet<Arc<str>>>;

/// A change to the set of Secrets that are polled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SecretInterest {
    /// Poll this Secret from now on, starting at once.
    Add(ObjectName),
    /// Stop polling it.
    Remove(ObjectName),
}
