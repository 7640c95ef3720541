//! Which DNS names are looked up: those of ExternalName Services that an Ingress of ours leads to. Others are left alone, so
//! that a Service that nobody uses makes the edge ask nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use crate::compile::Compiled;
use crate::topology::{Key, Topology};

/// The DNS names to look up, in lower case without a trailing dot, each with the namespaces whose Services have it.
pub type Names = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

/// The names that are in use. Whoever leads to them, those of `kept` are: Services that a host stays with for now.
pub(crate) fn in_use<'a>(
    topology: &'a Topology,
    compiled: &Compiled,
    kept: impl Iterator<Item = &'a ObjectName>,
) -> Names {
    let ours = |ingress: &ObjectRef| compiled.verdicts.get(&ingress.name).is_some_and(|it| it.class.is_some());
    let led_to = |service: &&ObjectRef| topology.referrers_of((*service).clone(), Kind::Ingress).any(ours);
    let mut names = Names::new();
    let mut add = |name: &Arc<str>, namespace: &Arc<str>| {
        names.entry(Arc::clone(name)).or_default().insert(Arc::clone(namespace));
    };
    for name in topology.names() {
        let services = topology.referrers(&Key::Name(Arc::clone(name)));
        services.filter(&led_to).for_each(|service| add(name, &service.name.namespace));
    }
    for service in kept {
        let keys = topology.references_of(&ObjectRef::new(Kind::Service, service.clone()));
        keys.iter().filter_map(dns_name).for_each(|name| add(name, &service.namespace));
    }
    names
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
