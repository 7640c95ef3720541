//! The name of a listener in the cluster.

use std::fmt;
use std::sync::Arc;

use tidegate_config::object::ObjectRef;

/// A listener of a Gateway or ListenerSet. Printed as `listener web of Gateway infra/edge`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerRef {
    /// The Gateway or ListenerSet.
    pub owner: ObjectRef,
    /// The name of the listener there: the section of a parent reference.
    pub section: Arc<str>,
}

impl fmt::Display for ListenerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listener {} of {}", self.section, self.owner)
    }
}
