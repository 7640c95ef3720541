//! Which Secrets are followed by name: those that anything of ours depends on, and that of the default certificate.

use std::collections::BTreeSet;

use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use crate::compile::globals_read;
use crate::informer::SecretInterest;
use crate::options::{Options, Secrets};
use crate::topology::{Key, Topology};

/// Which are followed.
#[derive(Debug, Default)]
pub(super) struct FollowedSecrets {
    /// As was told; `None` before anything was.
    told: Option<BTreeSet<ObjectName>>,
    /// Those on which something depends that did not before, or no longer.
    candidates: BTreeSet<ObjectName>,
}

impl FollowedSecrets {
    /// These dependencies have come or gone.
    pub(super) fn note(&mut self, keys: &[Key]) {
        self.candidates.extend(keys.iter().filter_map(|key| key.object(Kind::Secret)).map(|it| it.name.clone()));
    }

    /// Whether some may have to be followed that are not, or the other way round.
    pub(super) fn stale(&self) -> bool {
        !self.candidates.is_empty()
    }

    /// Whether nothing was told yet.
    pub(super) const fn untold(&self) -> bool {
        self.told.is_none()
    }

    /// Has all followed that is depended on, and nothing else; the changes. `None` for none, but for the first time.
    pub(super) fn all(&mut self, topology: &Topology, options: &Options) -> Option<Vec<SecretInterest>> {
        self.candidates.clear();
        if !by_name(options) {
            return None;
        }
        let default = globals_read(options).filter(|object| object.kind == Kind::Secret).map(|object| object.name);
        let wanted = topology.wanted(Kind::Secret).map(|secret| secret.name.clone()).chain(default);
        let wanted: BTreeSet<ObjectName> = wanted.collect();
        let first = self.told.is_none();
        let before = self.told.take().unwrap_or_default();
        let begin = wanted.difference(&before).cloned().map(SecretInterest::Add);
        let changes: Vec<SecretInterest> =
            begin.chain(before.difference(&wanted).cloned().map(SecretInterest::Remove)).collect();
        self.told = Some(wanted);
        Some(changes).filter(|changes| first || !changes.is_empty())
    }

    /// What begins or ends to be followed since this was last asked.
    pub(super) fn changes(&mut self, topology: &Topology, options: &Options) -> Option<Vec<SecretInterest>> {
        let candidates = std::mem::take(&mut self.candidates);
        if !by_name(options) {
            return None;
        }
        let told = self.told.get_or_insert_default();
        let mut changes = Vec::new();
        for name in candidates {
            let secret = ObjectRef::new(Kind::Secret, name.clone());
            let default = globals_read(options).any(|object| object == secret);
            let wanted = default || topology.has_dependents(&Key::Object(secret));
            if wanted && told.insert(name.clone()) {
                changes.push(SecretInterest::Add(name));
            } else if !wanted && told.remove(&name) {
                changes.push(SecretInterest::Remove(name));
            }
        }
        Some(changes).filter(|changes| !changes.is_empty())
    }
}

pub(super) const fn by_name(options: &Options) -> bool {
    matches!(options.secrets, Secrets::Referenced { .. })
}
