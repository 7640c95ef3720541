//! Kinds that are stored on disk and served again although no route comes from them, for other programs of a site:
//! their names and states. Their informers run beside the control loop, which gets no events of them.

mod kind;
mod state;

pub use kind::{CachedKind, ServedKind};
pub use state::{CachedCondition, CachedState, CachedStates, awaited};
pub(crate) use state::{StateReporter, served, unknown};
