//! What is compiled on its own, and all there is of it in an order that can be walked a little at a time.

use std::fmt;
use std::ops::Bound::{self, Excluded, Unbounded};

use serde::{Serialize, Serializer};
use tidegate_config::model::{BackendKey, HostPattern};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use super::Compiled;
use crate::topology::Topology;
use crate::world::World;

/// What is compiled on its own. In their order, what hosts and Services are found by comes before them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unit {
    /// An object by itself: its projection and its class.
    Object(ObjectRef),
    /// The routes and certificates of a host.
    Host(HostPattern),
    /// The backends of a Service.
    Service(ObjectName),
    /// The default certificate.
    DefaultCertificate,
}

impl Unit {
    /// What units there are, as [`Unit::as_str`] names them.
    pub(crate) const SORTS: [&'static str; 4] = ["object", "host", "service", "default_certificate"];

    /// Which of the four it is: the label `unit` of metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Object(_) => Self::SORTS[0],
            Self::Host(_) => Self::SORTS[1],
            Self::Service(_) => Self::SORTS[2],
            Self::DefaultCertificate => Self::SORTS[3],
        }
    }

    /// The first unit after another one, or of all. Those that only one of the three knows of are among them, so that what
    /// has stayed behind in one is found as well. The default certificate is always the last. Costs the logarithm of what there is.
    pub(crate) fn after(last: Option<&Self>, world: &World, topology: &Topology, compiled: &Compiled) -> Self {
        let mut found = Self::DefaultCertificate;
        if let Some(object) = object_after(last, world, topology, compiled) {
            found = Self::Object(object);
        } else if let Some(host) = host_after(last, topology, compiled) {
            found = Self::Host(host);
        } else if let Some(service) = service_after(last, world, compiled) {
            found = Self::Service(service);
        }
        match compiled.findings.by_unit().range::<Self, _>(beyond(last)).next() {
            Some((told, _)) if *told < found => told.clone(),
            _ => found,
        }
    }
}

/// Everything after this, or everything.
fn beyond<T>(last: Option<&T>) -> (Bound<&T>, Bound<&T>) {
    (last.map_or(Unbounded, Excluded), Unbounded)
}

fn object_after(last: Option<&Unit>, world: &World, topology: &Topology, compiled: &Compiled) -> Option<ObjectRef> {
    let last = match last {
        None => None,
        Some(Unit::Object(last)) => Some(last),
        Some(Unit::Host(_) | Unit::Service(_) | Unit::DefaultCertificate) => return None,
    };
    // Verdicts are those of Ingresses, which come first of all kinds.
    let judging = last.is_none_or(|last| last.kind == Kind::Ingress);
    let names = beyond(last.map(|last| &last.name));
    let judged = compiled.verdicts.range::<ObjectName, _>(names).next().filter(|_| judging);
    let judged = judged.map(|(name, _)| ObjectRef::new(Kind::Ingress, name.clone()));
    [world.after(last).cloned(), topology.after(last).cloned(), judged].into_iter().flatten().min()
}

fn host_after(last: Option<&Unit>, topology: &Topology, compiled: &Compiled) -> Option<HostPattern> {
    let last = match last {
        None | Some(Unit::Object(_)) => None,
        Some(Unit::Host(last)) => Some(last),
        Some(Unit::Service(_) | Unit::DefaultCertificate) => return None,
    };
    let compiled = compiled.hosts.range::<HostPattern, _>(beyond(last)).next();
    [topology.host_after(last), compiled].into_iter().flatten().min().cloned()
}

fn service_after(last: Option<&Unit>, world: &World, compiled: &Compiled) -> Option<ObjectName> {
    let last = match last {
        None | Some(Unit::Object(_) | Unit::Host(_)) => None,
        Some(Unit::Service(last)) => Some(last),
        Some(Unit::DefaultCertificate) => return None,
    };
    let there = world.services.range::<ObjectName, _>(beyond(last)).next().map(|(service, _)| service);
    let last = last.map(|last| BackendKey { service: last.clone(), port: u16::MAX });
    let compiled = compiled.backends.range::<BackendKey, _>(beyond(last.as_ref())).next().map(|key| &key.service);
    [there, compiled].into_iter().flatten().min().cloned()
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(object) => object.fmt(f),
            Self::Host(host) => write!(f, "host {host}"),
            Self::Service(service) => write!(f, "endpoints of {service}"),
            Self::DefaultCertificate => f.write_str("the default certificate"),
        }
    }
}

impl Serialize for Unit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
