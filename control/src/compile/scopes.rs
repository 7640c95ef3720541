//! Settings that the routes of one scope share, so that a change of them compiles no host.

use std::fmt;
use std::sync::Arc;

use tidegate_config::model::{ScopeId, Settings, SnapshotParts};
use tidegate_config::object::ObjectRef;

use super::unit::{UnitKind, beyond};
use super::{Compiled, Inputs, Pass};
use crate::attachment::Attachment;

/// The settings of scopes: one unit per scope.
pub(super) struct Scopes;

impl UnitKind for Scopes {
    type Key = ScopeId;
    /// The settings of its objects; the oldest object that sets a value wins.
    type Output = Option<Arc<Settings>>;
    const LABEL: &'static str = "scope";
    const ROUTING: bool = true;

    fn after(last: Option<&ScopeId>, inputs: Inputs<'_>, compiled: &Compiled) -> Option<ScopeId> {
        let there = compiled.parts.scopes.range::<ScopeId, _>(beyond(last)).next().map(|(scope, _)| scope);
        [inputs.topology.scope_after(last), there].into_iter().flatten().min().cloned()
    }

    fn owners_of(inputs: Inputs<'_>, scope: &ScopeId) -> Vec<ObjectRef> {
        inputs.topology.settings_of(scope).map(|(object, _)| object.clone()).collect()
    }

    fn make(inputs: Inputs<'_>, _: &Compiled, scope: &ScopeId) -> Option<Arc<Settings>> {
        inputs.topology.settings_of(scope).next().map(|(_, settings)| Arc::clone(settings))
    }

    fn put(compiled: &mut Compiled, scope: &ScopeId, settings: Option<Arc<Settings>>, _: &mut Pass<'_>) -> bool {
        if compiled.parts.scopes.get(scope) == settings.as_ref() {
            return false;
        }
        // There are few scopes, and their settings are behind pointers.
        let scopes = Arc::make_mut(&mut compiled.parts.scopes);
        match settings {
            Some(settings) => scopes.insert(scope.clone(), settings),
            None => scopes.remove(scope),
        };
        true
    }

    fn serves(scope: &ScopeId, compiled: &Compiled, serving: &SnapshotParts) -> bool {
        compiled.parts.scopes.get(scope) == serving.scopes.get(scope)
    }

    fn only_in(one: &SnapshotParts, other: &SnapshotParts) -> Vec<ScopeId> {
        one.scopes.keys().filter(|scope| !other.scopes.contains_key(scope)).cloned().collect()
    }

    fn changed_between(one: &SnapshotParts, other: &SnapshotParts) -> Vec<ScopeId> {
        let changed = one.scopes.iter().filter(|(scope, settings)| other.scopes.get(scope) != Some(settings));
        changed.map(|(scope, _)| scope.clone()).collect()
    }

    fn differing(_: &ObjectRef, before: &Attachment, after: &Attachment) -> Vec<ScopeId> {
        let scopes = before.other_claims().scopes.iter().chain(&after.other_claims().scopes).map(|(scope, _)| scope);
        scopes.filter(|scope| before.settings_of(scope) != after.settings_of(scope)).cloned().collect()
    }

    fn describe(scope: &ScopeId, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the settings of {scope}")
    }
}
