//! What must be compiled again after a change: found by walking the topology from the changed objects.

use std::collections::BTreeSet;

use tidegate_config::model::{BackendKey, HostPattern};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use super::Unit;
use crate::options::Options;
use crate::topology::{Key, Topology};

/// Units to compile again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dirty {
    /// Hosts: routes and certificates.
    pub hosts: BTreeSet<HostPattern>,
    /// Services: backends.
    pub services: BTreeSet<ObjectName>,
    /// Objects by themselves: class and projection.
    pub objects: BTreeSet<ObjectRef>,
    /// The default certificate.
    pub default_certificate: bool,
    /// Of these Services, the backends that routes need whether an Ingress leads there or not.
    pub needed: BTreeSet<BackendKey>,
}

impl Dirty {
    /// One unit alone.
    pub(crate) fn only(unit: Unit) -> Self {
        let mut dirty = Self::default();
        match unit {
            Unit::Object(object) => dirty.objects = BTreeSet::from([object]),
            Unit::Host(host) => dirty.hosts = BTreeSet::from([host]),
            Unit::Service(service) => dirty.services = BTreeSet::from([service]),
            Unit::DefaultCertificate => dirty.default_certificate = true,
        }
        dirty
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.services.is_empty() && self.objects.is_empty() && !self.default_certificate
    }

    /// Adds what a changed object affects. `before` is what it referred to until now; the topology already
    /// holds what it refers to.
    pub fn object(&mut self, object: &ObjectRef, before: &[Key], topology: &Topology, options: &Options) {
        self.objects.insert(object.clone());
        match object.kind {
            Kind::Ingress => {
                self.claims(before);
                self.claims(topology.references_of(object));
            }
            Kind::EndpointSlice => {
                self.services_among(before);
                self.services_among(topology.references_of(object));
            }
            Kind::Service => {
                self.services.insert(object.name.clone());
                self.claimants(&Key::Object(object.clone()), topology);
            }
            Kind::Secret => {
                self.default_certificate |= options.default_certificate.as_ref() == Some(&object.name);
                self.claimants(&Key::Object(object.clone()), topology);
            }
            Kind::IngressClass => {
                self.members(&Key::Object(object.clone()), topology);
                self.members(&Key::Any(Kind::IngressClass), topology);
            }
        }
    }

    /// Adds what a DNS name with other addresses affects.
    pub fn name(&mut self, name: &std::sync::Arc<str>, topology: &Topology) {
        let services = topology.referrers(&Key::Name(name.clone())).filter(|object| object.kind == Kind::Service);
        self.services.extend(services.map(|object| object.name.clone()));
    }

    /// What an Ingress claims: its hosts, and the Services whose backends exist because it leads to them.
    fn claims(&mut self, keys: &[Key]) {
        self.hosts.extend(keys.iter().filter_map(Key::host).cloned());
        self.services_among(keys);
    }

    fn services_among(&mut self, keys: &[Key]) {
        self.services.extend(keys.iter().filter_map(Key::service).map(|service| service.name.clone()));
    }

    /// The hosts of the Ingresses that refer to a key.
    fn claimants(&mut self, key: &Key, topology: &Topology) {
        for ingress in topology.referrers(key).filter(|object| object.kind == Kind::Ingress) {
            self.hosts.extend(topology.references_of(ingress).iter().filter_map(Key::host).cloned());
        }
    }

    /// The Ingresses that refer to a key, as if each had changed.
    fn members(&mut self, key: &Key, topology: &Topology) {
        for ingress in topology.referrers(key).filter(|object| object.kind == Kind::Ingress) {
            self.objects.insert(ingress.clone());
            self.claims(topology.references_of(ingress));
        }
    }
}
