//! Kinds that are stored on disk and served again although no route comes from them, for other programs of a site.
//! Their informers run beside the control loop, which gets no events of them.

mod discovery;
mod follow;
mod kind;
mod state;

pub(crate) use discovery::look_up;
pub use follow::{CachedControl, start_cached};
pub(crate) use follow::{CachedFollower, follow, unknown};
pub use kind::{CachedKind, ServedKind};
pub use state::{CachedStanding, CachedState, CachedStates, awaited};
pub(crate) use state::{Tell, served};
