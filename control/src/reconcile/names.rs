//! The DNS names to look up: those of ExternalName Services that routes use. Other names are not looked up, so that an
//! unused Service causes no DNS queries.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_config::object::{Kind, ObjectRef};

use super::model::Model;
use crate::attachment::Key;
use crate::interest::Names;
use crate::topology::Topology;

/// The names that are looked up.
#[derive(Debug, Default)]
pub(super) struct ResolvedNames {
    names: Arc<Names>,
    /// Names whose Services may have changed, or their use.
    candidates: BTreeSet<Arc<str>>,
    /// Whether any name may have changed.
    all: bool,
}

impl ResolvedNames {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// These dependencies were added or removed.
    pub(super) fn note(&mut self, keys: &[Key], topology: &Topology) {
        self.candidates.extend(keys.iter().filter_map(Key::name).cloned());
        let services = keys.iter().filter_map(|key| key.object(Kind::Service));
        services.for_each(|service| self.note_use(service, topology));
    }

    /// Routes have begun or stopped using this Service.
    pub(super) fn note_use(&mut self, service: &ObjectRef, topology: &Topology) {
        self.candidates.extend(topology.links_of(service).iter().filter_map(Key::name).cloned());
    }

    /// Any name may have changed.
    pub(super) const fn note_all(&mut self) {
        self.all = true;
    }

    pub(super) fn stale(&self) -> bool {
        self.all || !self.candidates.is_empty()
    }

    /// Updates the names to look up, and removes the addresses of others. Returns the names if they have changed.
    pub(super) fn refresh(&mut self, model: &mut Model) -> Option<Arc<Names>> {
        let (mut candidates, all) = (std::mem::take(&mut self.candidates), std::mem::take(&mut self.all));
        if all {
            candidates.extend(model.topology.names().chain(self.names.keys()).cloned());
        }
        let mut changed = false;
        for name in candidates {
            let namespaces = namespaces(&name, model);
            if self.names.get(&name).map_or(namespaces.is_empty(), |known| *known == namespaces) {
                continue;
            }
            changed = true;
            let names = Arc::make_mut(&mut self.names);
            if namespaces.is_empty() {
                names.remove(&name);
                model.world.names.remove(&name);
            } else {
                names.insert(name, namespaces);
            }
        }
        if all {
            model.world.names.retain(|name, _| self.names.contains_key(name));
        }
        changed.then(|| Arc::clone(&self.names))
    }
}

/// The namespaces of the Services with an external name that routes use.
fn namespaces(name: &Arc<str>, model: &Model) -> BTreeSet<Arc<str>> {
    let wanted = |service: &&ObjectRef| {
        model.topology.has_dependents(&Key::Object((*service).clone())) || model.uses(&service.name)
    };
    let services = model.topology.dependents(&Key::of_name(name)).filter(wanted);
    services.map(|service| Arc::clone(&service.name.namespace)).collect()
}
