//! The order of compilation after a list: objects whose routes are in use come first.

use std::fmt;
use std::sync::Arc;

use tidegate_config::object::ObjectRef;

/// The number of objects whose ranks are considered for a changed object that they depend on. The limit keeps the cost
/// of a Service with thousands of routes constant.
const ASKED_MAX: usize = 16;

/// The rank of objects with routes; the lowest goes first, and without an order all are equal.
#[derive(Clone, Default)]
pub struct Order {
    rank: Option<Arc<Rank>>,
}

type Rank = dyn Fn(&ObjectRef) -> u64 + Send + Sync;

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Order").field("given", &self.rank.is_some()).finish()
    }
}

impl Order {
    /// The order of a function, which is called for objects with routes when something they depend on changes.
    pub fn by(rank: impl Fn(&ObjectRef) -> u64 + Send + Sync + 'static) -> Self {
        Self { rank: Some(Arc::new(rank)) }
    }

    /// The lowest rank of the first few of these objects with routes; 0 for no objects, and without an order.
    pub(crate) fn lowest<'o>(&self, objects: impl Iterator<Item = &'o ObjectRef>) -> u64 {
        let Some(rank) = &self.rank else { return 0 };
        objects.take(ASKED_MAX).map(|object| rank(object)).min().unwrap_or(0)
    }
}
