//! Reads for the Deis router: its Deployment, and applications by their domains.

use std::sync::Arc;

use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::{DeisApp, DeisDomain, DeisRouter};

use crate::attachment::Key;
use crate::sources::reader::Reader;

impl<'w> Reader<'w> {
    /// The settings of a Deis router's Deployment, if it exists.
    pub(super) fn deis_router(&mut self, name: &ObjectName) -> Option<&'w DeisRouter> {
        self.note(Key::Object(ObjectRef::new(Kind::Deployment, name.clone())));
        self.world().deployments.get(name).map(|deployment| &deployment.router)
    }

    /// The oldest application in a namespace that lists a domain.
    pub(super) fn deis_app(&mut self, namespace: &Arc<str>, domain: &DeisDomain) -> Option<&'w DeisApp> {
        self.note(Key::in_namespace(Kind::Service, namespace));
        let names = self.world().names_of(Kind::Service, Some(namespace));
        let apps = names.filter_map(|object| self.world().services.get(&object.name)?.deis.as_deref());
        apps.filter(|app| app.domains.binary_search(domain).is_ok()).min_by(|a, b| a.age.cmp(&b.age))
    }
}
