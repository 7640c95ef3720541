//! What the status of each Ingress says of where it is reached, what it ought to say, and which of them may have to be
//! written. Of what stands there only a hash is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::PublicAddress;

use super::Reconciler;
use crate::compile::Unit;
use crate::options::Publish;

/// Public addresses, in order.
pub type Addresses = Arc<[PublicAddress]>;

/// What is known of statuses.
#[derive(Debug, Default)]
pub(super) struct Reporting {
    /// The Service whose addresses are told.
    service: Option<ObjectName>,
    /// What ought to be told, with its hash. While nothing is known nothing is written: a load balancer that is being replaced
    /// must not empty the zone of a domain.
    ought: Option<(Addresses, u64)>,
    /// The hash of what stands in the status of an Ingress, where anything does.
    stands: BTreeMap<ObjectName, u64>,
    /// Ingresses that have been compiled, and may have become ours.
    judged: BTreeSet<ObjectName>,
    /// Ingresses whose status has become another one.
    rewritten: BTreeSet<ObjectName>,
    /// Whether each Ingress has been looked at since every kind was listed and since `ought` was last another one.
    looked: bool,
    /// Whether each object with findings has been named since every kind was listed.
    pub(super) told: bool,
}

/// Ingresses whose status is not what it ought to be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Amiss {
    /// Found in a look at all of them.
    pub all: Vec<ObjectName>,
    /// Changed a moment ago, or new.
    pub changed: Vec<ObjectName>,
    /// Written by somebody else a moment ago.
    pub rewritten: Vec<ObjectName>,
}

impl Reporting {
    pub(super) fn new(publish: &Publish) -> Self {
        let (service, ought) = match publish {
            Publish::Nothing => (None, None),
            Publish::Addresses(addresses) => (None, hashed(addresses)),
            Publish::Service(service) => (Some(service.clone()), None),
        };
        Self { service, ought, ..Self::default() }
    }

    /// These are the addresses of an object now.
    pub(super) fn stands(&mut self, object: &ObjectRef, addresses: &[PublicAddress]) {
        let now = hashed(addresses);
        match object.kind {
            Kind::Ingress => {
                let hash = now.map(|(_, hash)| hash);
                let before = match hash {
                    Some(hash) => self.stands.insert(object.name.clone(), hash),
                    None => self.stands.remove(&object.name),
                };
                if before != hash {
                    self.rewritten.insert(object.name.clone());
                }
            }
            Kind::Service if self.service.as_ref() == Some(&object.name) && now.is_some() && self.ought != now => {
                self.ought = now;
                self.looked = false;
            }
            Kind::Service | Kind::IngressClass | Kind::EndpointSlice | Kind::Secret | Kind::Deployment => {}
            Kind::Namespace
            | Kind::GatewayClass
            | Kind::Gateway
            | Kind::ReferenceGrant
            | Kind::HttpRoute
            | Kind::ListenerSet
            | Kind::GrpcRoute
            | Kind::TlsRoute
            | Kind::TcpRoute
            | Kind::UdpRoute
            | Kind::BackendTlsPolicy => {}
        }
    }

    /// These are compiled.
    pub(super) fn judged<'u>(&mut self, units: impl IntoIterator<Item = &'u Unit>) {
        let ingresses = units.into_iter().filter_map(Unit::object).filter(|object| object.kind == Kind::Ingress);
        self.judged.extend(ingresses.map(|object| object.name.clone()));
    }
}

/// Addresses in order with their hash; `None` for none.
fn hashed(addresses: &[PublicAddress]) -> Option<(Addresses, u64)> {
    if addresses.is_empty() {
        return None;
    }
    let addresses: BTreeSet<PublicAddress> = addresses.iter().cloned().collect();
    let mut hasher = DefaultHasher::new();
    addresses.hash(&mut hasher);
    Some((addresses.into_iter().collect(), hasher.finish()))
}

impl Reconciler {
    /// What has to be written into the status of an Ingress. Nothing when that is there already, when the Ingress is not ours,
    /// when no addresses are known, and until every kind has been listed that is not denied in another namespace.
    #[must_use]
    pub fn amiss_in(&self, ingress: &ObjectName) -> Option<Addresses> {
        let (addresses, hash) = self.reporting.ought.as_ref().filter(|_| self.knows_all_of(&ingress.namespace))?;
        let object = ObjectRef::new(Kind::Ingress, ingress.clone());
        let ours = self.compiled.verdicts.get(&object).is_some_and(|verdict| verdict.parent.is_some());
        (ours && self.reporting.stands.get(ingress) != Some(hash)).then(|| Arc::clone(addresses))
    }

    /// Which Ingresses have come to need their status written since this was last asked.
    pub fn amiss(&mut self) -> Amiss {
        let Reporting { judged, rewritten, looked, .. } = &mut self.reporting;
        let (judged, rewritten) = (std::mem::take(judged), std::mem::take(rewritten));
        let looked = std::mem::replace(looked, true);
        if !self.complete() {
            self.reporting.looked = false;
            return Amiss::default();
        }
        let amiss = |names: &mut dyn Iterator<Item = &ObjectName>| -> Vec<ObjectName> {
            names.filter(|name| self.amiss_in(name).is_some()).cloned().collect()
        };
        if !looked {
            let ingresses = self.compiled.verdicts.keys().filter(|object| object.kind == Kind::Ingress);
            return Amiss { all: amiss(&mut ingresses.map(|object| &object.name)), ..Amiss::default() };
        }
        let changed = amiss(&mut judged.iter());
        Amiss { all: Vec::new(), changed, rewritten: amiss(&mut rewritten.difference(&judged)) }
    }

    /// Has the next [`Reconciler::amiss`] look at every Ingress, and the next [`Reconciler::found`] name every object about
    /// which anything is found.
    pub fn look_again(&mut self) {
        self.reporting.looked = false;
        self.reporting.told = false;
    }

    /// Forgets what has come to be told: nobody here is to tell it.
    pub fn unreported(&mut self) {
        self.reporting.judged.clear();
        self.reporting.rewritten.clear();
        self.compiled.findings.take_moved();
    }

    /// Whether anything is told: all is known but what is denied in namespaces of its own, about which nothing is.
    pub(super) fn complete(&self) -> bool {
        self.running && self.listing.settled()
    }

    /// Whether anything is told about objects of a namespace: who knows half tells nothing.
    pub(super) fn knows_all_of(&self, namespace: &str) -> bool {
        self.running && self.listing.settled_in(namespace)
    }
}
