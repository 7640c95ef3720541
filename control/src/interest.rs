//! The loop's interests in what the informers and the resolver do not find by themselves: Secrets by name, and DNS
//! names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::object::ObjectName;

/// The DNS names to look up, in lower case without a trailing dot, each with the namespaces of its Services.
pub type Names = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

/// A change to the set of Secrets that are polled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SecretInterest {
    /// Poll this Secret from now on, starting at once.
    Add(ObjectName),
    /// Stop polling it.
    Remove(ObjectName),
}
