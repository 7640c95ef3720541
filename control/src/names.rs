//! Which DNS names are looked up: those of ExternalName Services that an Ingress of ours leads to. Others are left alone, so
//! that a Service that nobody uses makes the edge ask nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use crate::compile::Compiled;
use crate::topology::{Key, Topology};

/// The names that are in use. Whoever leads to them, those of `kept` are: Services that a host stays with for now.
pub(crate) fn in_use<'a>(
    topology: &'a Topology,
    compiled: &Compiled,
    kept: impl Iterator<Item = &'a ObjectName>,
) -> BTreeSet<Arc<str>> {
    let ours = |ingress: &ObjectRef| compiled.verdicts.get(&ingress.name).is_some_and(|it| it.class.is_some());
    let led_to = |name: &&Arc<str>| {
        let mut services = topology.referrers(&Key::Name((*name).clone())).cloned();
        services.any(|service| topology.referrers_of(service, Kind::Ingress).any(ours))
    };
    let kept = kept.flat_map(|service| topology.references_of(&ObjectRef::new(Kind::Service, service.clone())));
    topology.names().filter(led_to).chain(kept.filter_map(dns_name)).cloned().collect()
}

/// Whether an edge of an object has come or gone that is one to a DNS name, or to a Service that has one. Only then, or
/// when an Ingress becomes ours or ceases to be, can other names be in use.
///
/// `since` are keys that it referred to in between, when others may have looked.
pub(crate) fn moved(topology: &Topology, object: &ObjectRef, before: &[Key], since: &BTreeSet<Key>) -> bool {
    let after = topology.references_of(object);
    let gone = before.iter().chain(since).filter(|key| after.binary_search(key).is_err());
    let come = after.iter().filter(|key| before.binary_search(key).is_err());
    gone.chain(come).any(|key| match key {
        Key::Name(_) => true,
        Key::Object(object) => topology.references_of(object).iter().any(|key| dns_name(key).is_some()),
        Key::InNamespace(..) | Key::Any(_) | Key::Host(_) => false,
    })
}

const fn dns_name(key: &Key) -> Option<&Arc<str>> {
    match key {
        Key::Name(name) => Some(name),
        Key::Object(_) | Key::InNamespace(..) | Key::Any(_) | Key::Host(_) => None,
    }
}
