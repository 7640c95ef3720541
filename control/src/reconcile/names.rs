//! The DNS names to look up: those of ExternalName Services that routes use. Other names are not looked up, so that an
//! unused Service causes no DNS queries.

use std::sync::Arc;

use tidegate_config::object::{Kind, ObjectRef};

use super::model::Model;
use crate::attachment::Key;
use crate::interest::Names;
use crate::topology::Topology;

/// The names that are looked up.
#[derive(Debug, Default)]
pub(super) struct LookedUp {
    names: Arc<Names>,
    /// Whether the names may have changed.
    stale: bool,
}

impl LookedUp {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// These dependencies were added or removed.
    pub(super) fn note(&mut self, keys: &[Key], topology: &Topology) {
        self.stale |= keys.iter().any(|key| {
            key.name().is_some() || key.object(Kind::Service).is_some_and(|service| has_name(service, topology))
        });
    }

    /// Routes have begun or stopped using this Service.
    pub(super) fn note_use(&mut self, service: &ObjectRef, topology: &Topology) {
        self.stale |= has_name(service, topology);
    }

    /// Any name may have changed.
    pub(super) const fn note_all(&mut self) {
        self.stale = true;
    }

    pub(super) const fn stale(&self) -> bool {
        self.stale
    }

    /// Updates the names to look up, and removes the addresses of others. Returns the names if they have changed.
    pub(super) fn refresh(&mut self, model: &mut Model) -> Option<Arc<Names>> {
        if !std::mem::take(&mut self.stale) {
            return None;
        }
        let mut names = Names::new();
        for name in model.topology.names() {
            let services = model.topology.dependents(&Key::of_name(name));
            let wanted = |service: &&ObjectRef| {
                model.topology.has_dependents(&Key::Object((*service).clone())) || model.uses(&service.name)
            };
            for service in services.filter(wanted) {
                names.entry(Arc::clone(name)).or_default().insert(Arc::clone(&service.name.namespace));
            }
        }
        if *self.names == names {
            return None;
        }
        model.world.names.retain(|name, _| names.contains_key(name));
        self.names = Arc::new(names);
        Some(Arc::clone(&self.names))
    }
}

/// Whether a Service has an external name.
fn has_name(service: &ObjectRef, topology: &Topology) -> bool {
    topology.links_of(service).iter().any(|key| key.name().is_some())
}
