//! The Secrets to watch by name: those that objects depend on.

use std::collections::BTreeSet;

use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use crate::attachment::Key;
use crate::interest::SecretInterest;
use crate::options::{Options, Secrets};
use crate::topology::Topology;

/// The Secrets that are watched by name.
#[derive(Debug, Default)]
pub(super) struct PolledSecrets {
    /// The Secrets as last reported to the informers; `None` before the first report.
    announced: Option<BTreeSet<ObjectName>>,
    /// Secrets that have gained or lost a dependent.
    candidates: BTreeSet<ObjectName>,
}

impl PolledSecrets {
    /// These dependencies were added or removed.
    pub(super) fn note(&mut self, keys: &[Key]) {
        self.candidates.extend(keys.iter().filter_map(|key| key.object(Kind::Secret)).map(|it| it.name.clone()));
    }

    /// Whether the set of Secrets may have changed.
    pub(super) fn stale(&self) -> bool {
        !self.candidates.is_empty()
    }

    /// Whether nothing was reported yet.
    pub(super) const fn untold(&self) -> bool {
        self.announced.is_none()
    }

    /// Compares all dependencies with the last report and returns the changes; `None` if there are none, except the
    /// first time.
    pub(super) fn all(&mut self, topology: &Topology, options: &Options) -> Option<Vec<SecretInterest>> {
        self.candidates.clear();
        if !by_name(options) {
            return None;
        }
        let wanted: BTreeSet<ObjectName> = topology.wanted(Kind::Secret).map(|secret| secret.name.clone()).collect();
        let first = self.announced.is_none();
        let before = self.announced.take().unwrap_or_default();
        let begin = wanted.difference(&before).cloned().map(SecretInterest::Add);
        let changes: Vec<SecretInterest> =
            begin.chain(before.difference(&wanted).cloned().map(SecretInterest::Remove)).collect();
        self.announced = Some(wanted);
        Some(changes).filter(|changes| first || !changes.is_empty())
    }

    /// The changes among the candidates since the last call; `None` if there are none.
    pub(super) fn changes(&mut self, topology: &Topology, options: &Options) -> Option<Vec<SecretInterest>> {
        let candidates = std::mem::take(&mut self.candidates);
        if !by_name(options) {
            return None;
        }
        let announced = self.announced.get_or_insert_default();
        let mut changes = Vec::new();
        for name in candidates {
            let secret = ObjectRef::new(Kind::Secret, name.clone());
            let wanted = topology.has_dependents(&Key::Object(secret));
            if wanted && announced.insert(name.clone()) {
                changes.push(SecretInterest::Add(name));
            } else if !wanted && announced.remove(&name) {
                changes.push(SecretInterest::Remove(name));
            }
        }
        Some(changes).filter(|changes| !changes.is_empty())
    }
}

pub(super) const fn by_name(options: &Options) -> bool {
    matches!(options.secrets, Secrets::Referenced { .. })
}
