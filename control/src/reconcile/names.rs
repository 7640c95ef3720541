//! The DNS names to look up: those of ExternalName Services that routes use. Other names are not looked up, so that an
//! unused Service causes no DNS queries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::model::BackendKey;
use tidegate_config::object::{Kind, ObjectRef};

use crate::attachment::Key;
use crate::compile::Compiled;
use crate::topology::Topology;

/// The DNS names to look up, in lower case without a trailing dot, each with the namespaces of its Services.
pub type Names = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

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

    /// The names in use, if they have changed.
    pub(super) fn refresh(
        &mut self,
        topology: &Topology,
        compiled: &Compiled,
        held: &BTreeSet<BackendKey>,
    ) -> Option<Arc<Names>> {
        if !std::mem::take(&mut self.stale) {
            return None;
        }
        let mut names = Names::new();
        for name in topology.names() {
            let services = topology.dependents(&Key::of_name(name));
            let wanted = |service: &&ObjectRef| {
                topology.has_dependents(&Key::Object((*service).clone())) || compiled.uses(&service.name, held)
            };
            for service in services.filter(wanted) {
                names.entry(Arc::clone(name)).or_default().insert(Arc::clone(&service.name.namespace));
            }
        }
        if *self.names == names {
            return None;
        }
        self.names = Arc::new(names);
        Some(Arc::clone(&self.names))
    }
}

/// Whether a Service has an external name.
fn has_name(service: &ObjectRef, topology: &Topology) -> bool {
    topology.links_of(service).iter().any(|key| key.name().is_some())
}
