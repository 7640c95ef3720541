//! The sockets that objects ask for, with their listeners. Those of the operator are not units: they never change.

use std::fmt;
use std::sync::Arc;

use tidegate_config::model::{Bind, BindKey, SnapshotParts};
use tidegate_config::object::ObjectRef;

use super::unit::{UnitKind, beyond};
use super::{Compiled, Inputs, Pass};
use crate::attachment::{Attachment, BindClaim};

/// Sockets and their listeners.
pub(super) struct Binds;

impl UnitKind for Binds {
    type Key = BindKey;
    /// The listeners of the object that asks for it; of several objects, of the first. Every Gateway has an address of
    /// its own.
    type Output = Option<BindClaim>;
    const LABEL: &'static str = "bind";
    const ROUTING: bool = true;

    fn after(last: Option<&BindKey>, inputs: Inputs<'_>, compiled: &Compiled) -> Option<BindKey> {
        let there = compiled.binds.range::<BindKey, _>(beyond(last)).next();
        [inputs.topology.bind_after(last), there].into_iter().flatten().min().copied()
    }

    fn owners_of(inputs: Inputs<'_>, bind: &BindKey) -> Vec<ObjectRef> {
        inputs.topology.binds_of(bind).map(|(object, _)| object.clone()).collect()
    }

    fn make(inputs: Inputs<'_>, _: &Compiled, bind: &BindKey) -> Option<BindClaim> {
        inputs.topology.binds_of(bind).next().map(|(_, listeners)| Arc::clone(listeners))
    }

    fn put(compiled: &mut Compiled, key: &BindKey, listeners: Option<BindClaim>, _: &mut Pass<'_>) -> bool {
        let before = compiled.binds.contains(key).then(|| of(&compiled.parts, key)).flatten();
        if before.map(|bind| &*bind.listeners) == listeners.as_deref() {
            return false;
        }
        match &listeners {
            Some(_) => compiled.binds.insert(*key),
            None => compiled.binds.remove(key),
        };
        let own = listeners.map(|listeners| Bind { key: *key, listeners: listeners.iter().cloned().collect() });
        put(compiled, key, own);
        true
    }

    fn serves(key: &BindKey, compiled: &Compiled, serving: &SnapshotParts) -> bool {
        of(&compiled.parts, key) == of(serving, key)
    }

    fn only_in(one: &SnapshotParts, other: &SnapshotParts) -> Vec<BindKey> {
        one.binds.iter().map(|bind| bind.key).filter(|key| of(other, key).is_none()).collect()
    }

    fn differing(_: &ObjectRef, before: &Attachment, after: &Attachment) -> Vec<BindKey> {
        let binds = before.other_claims().binds.iter().chain(&after.other_claims().binds).map(|(bind, _)| bind);
        binds.filter(|bind| before.bind(bind) != after.bind(bind)).copied().collect()
    }

    fn changed_between(one: &SnapshotParts, other: &SnapshotParts) -> Vec<BindKey> {
        one.binds.iter().filter(|bind| of(other, &bind.key) != Some(*bind)).map(|bind| bind.key).collect()
    }

    fn describe(key: &BindKey, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the listeners on {}", key.address)
    }
}

/// Sets a bind, or removes it: the operator's come first, and the others in their order. There are few.
fn put(compiled: &mut Compiled, key: &BindKey, bind: Option<Bind>) {
    let others = compiled.parts.binds.iter().filter(|other| other.key != *key).cloned();
    let mut binds: Vec<Bind> = others.chain(bind).collect();
    binds.sort_by_key(|bind| compiled.binds.contains(&bind.key).then_some(bind.key));
    compiled.parts.binds = binds.into_iter().collect();
}

fn of<'p>(parts: &'p SnapshotParts, key: &BindKey) -> Option<&'p Bind> {
    parts.binds.get(key)
}
