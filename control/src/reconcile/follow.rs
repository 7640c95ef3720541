//! Which Secrets are followed by name: those that an Ingress of ours refers to, and that of the default certificate.

use std::collections::BTreeSet;

use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use super::Reconciler;
use crate::compile::{Membership, membership};
use crate::informer::Follow;
use crate::options::Secrets;
use crate::topology::Key;

/// Which are followed.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// As was told; `None` before anything was.
    told: Option<BTreeSet<ObjectName>>,
}

impl Followed {
    /// Has these followed, and no others; the changes.
    fn all(&mut self, wanted: BTreeSet<ObjectName>) -> Vec<Follow> {
        let before = self.told.take().unwrap_or_default();
        let begin = wanted.difference(&before).cloned().map(Follow::Begin);
        let changes = begin.chain(before.difference(&wanted).cloned().map(Follow::End)).collect();
        self.told = Some(wanted);
        changes
    }
}

impl Reconciler {
    /// What the first model needs, once it is known whose the Ingresses are: Secrets can be asked for only then, and the model
    /// waits for them as it waits for a list.
    pub(super) fn follow_first(&mut self) -> Option<Vec<Follow>> {
        let open = self.listing.comes(|source| source.kind != Kind::Secret);
        if !self.by_name() || self.followed.told.is_some() || open {
            return None;
        }
        let ours = |ingress: &&_| matches!(membership(&self.world, &self.options, ingress), Membership::Ours(_));
        let ingresses = self.world.ingresses.values().map(|ingress| &**ingress).filter(ours);
        let secrets = ingresses.flat_map(|ingress| ingress.tls.iter().map(|it| it.secret.clone()));
        let wanted = secrets.chain(self.options.default_certificate.clone()).collect();
        Some(self.followed.all(wanted))
    }

    /// What the first model refers to, now that it is there; where nothing could be asked for before, all of it.
    pub(super) fn follow_all(&mut self) -> Option<Vec<Follow>> {
        if !self.by_name() {
            return None;
        }
        let ingresses = self.compiled.verdicts.iter().filter(|(_, verdict)| verdict.class.is_some());
        let ingresses = ingresses.map(|(name, _)| ObjectRef::new(Kind::Ingress, name.clone()));
        let secrets = ingresses.flat_map(|ingress| secrets(self.topology.references_of(&ingress)).cloned());
        let wanted: BTreeSet<ObjectName> = secrets.chain(self.options.default_certificate.clone()).collect();
        let first = self.followed.told.is_none();
        Some(self.followed.all(wanted)).filter(|changes| first || !changes.is_empty())
    }

    /// What of these Secrets, and of those that changed Ingresses refer to now, begins or ends to be followed.
    pub(super) fn follow_others(
        &mut self,
        mut candidates: BTreeSet<ObjectName>,
        changed: &BTreeSet<ObjectRef>,
    ) -> Option<Vec<Follow>> {
        if !self.by_name() {
            return None;
        }
        let ingresses = changed.iter().filter(|object| object.kind == Kind::Ingress);
        candidates.extend(ingresses.flat_map(|ingress| secrets(self.topology.references_of(ingress)).cloned()));
        let Self { topology, compiled, options, followed, .. } = self;
        let told = followed.told.get_or_insert_default();
        let ours = |ingress: &ObjectRef| compiled.verdicts.get(&ingress.name).is_some_and(|it| it.class.is_some());
        let mut changes = Vec::new();
        for secret in candidates {
            let key = ObjectRef::new(Kind::Secret, secret.clone());
            let wanted = options.default_certificate.as_ref() == Some(&secret)
                || topology.referrers_of(key, Kind::Ingress).any(ours);
            if wanted && told.insert(secret.clone()) {
                changes.push(Follow::Begin(secret));
            } else if !wanted && told.remove(&secret) {
                changes.push(Follow::End(secret));
            }
        }
        Some(changes).filter(|changes| !changes.is_empty())
    }

    const fn by_name(&self) -> bool {
        matches!(self.options.secrets, Secrets::Referenced { .. })
    }
}

/// The Secrets among references.
pub(super) fn secrets(keys: &[Key]) -> impl Iterator<Item = &ObjectName> {
    keys.iter().filter_map(|key| match key {
        Key::Object(object) if object.kind == Kind::Secret => Some(&object.name),
        Key::Object(_) | Key::InNamespace(..) | Key::Any(_) | Key::Host(_) | Key::Name(_) => None,
    })
}
