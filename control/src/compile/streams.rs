//! Where the connections of TCP binds go, and that there are these binds: nobody listens for what leads nowhere.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use tidegate_config::model::{BackendKey, Bind, BindKey, SnapshotParts, StreamRoute};
use tidegate_config::object::ObjectRef;

use super::binds::place;
use super::unit::{Kind, beyond};
use super::{Compiled, Inputs, Pass, User};

/// The TCP binds that objects ask for.
pub(super) struct Streams;

impl Kind for Streams {
    type Key = BindKey;
    /// What the oldest of those who ask for it says.
    type Made = Option<Arc<StreamRoute>>;
    const LABEL: &'static str = "stream";
    const ROUTING: bool = true;

    fn after(last: Option<&BindKey>, inputs: Inputs<'_>, compiled: &Compiled) -> Option<BindKey> {
        let there = compiled.parts.streams.range::<BindKey, _>(beyond(last)).next().map(|(bind, _)| bind);
        [inputs.topology.stream_after(last), there].into_iter().flatten().min().copied()
    }

    fn made_of(inputs: Inputs<'_>, bind: &BindKey) -> Vec<ObjectRef> {
        inputs.topology.streams_of(bind).map(|route| route.origin.object.clone()).collect()
    }

    fn make(inputs: Inputs<'_>, _: &Compiled, bind: &BindKey) -> Option<Arc<StreamRoute>> {
        let oldest = inputs.topology.streams_of(bind).min_by(|a, b| a.origin.age.cmp(&b.origin.age));
        oldest.cloned()
    }

    fn put(compiled: &mut Compiled, bind: &BindKey, route: Option<Arc<StreamRoute>>, pass: &mut Pass<'_>) -> bool {
        let before = compiled.parts.streams.get(bind).cloned();
        if before == route {
            return false;
        }
        let [old, new] = [&before, &route].map(|route| route.as_deref().map(used).unwrap_or_default());
        compiled.use_instead(&User::Stream(*bind), &old, &new, pass);
        let own = route.is_some().then(|| Bind { key: *bind, listeners: Box::default() });
        // There are few of them.
        let streams = Arc::make_mut(&mut compiled.parts.streams);
        match route {
            Some(route) => streams.insert(*bind, route),
            None => streams.remove(bind),
        };
        place(compiled, bind, own);
        true
    }

    fn serves(bind: &BindKey, compiled: &Compiled, serving: &SnapshotParts) -> bool {
        compiled.parts.streams.get(bind) == serving.streams.get(bind)
    }

    fn only_in(one: &SnapshotParts, other: &SnapshotParts) -> Vec<BindKey> {
        one.streams.keys().filter(|bind| !other.streams.contains_key(bind)).copied().collect()
    }

    fn unlike(one: &SnapshotParts, other: &SnapshotParts) -> Vec<BindKey> {
        let unlike = one.streams.iter().filter(|(bind, route)| other.streams.get(bind) != Some(route));
        unlike.map(|(bind, _)| *bind).collect()
    }

    fn describe(bind: &BindKey, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TCP connections to {}", bind.address)
    }
}

/// The Service ports that connections go to, each once.
pub(crate) fn used(route: &StreamRoute) -> BTreeSet<BackendKey> {
    route.backends.iter().map(|weighted| weighted.backend.clone()).collect()
}
