//! World: the projection of every object as it is now. What equals what is there stops here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use tidegate_config::finding::Finding;
use tidegate_config::object::{Kind, ObjectName, ObjectRef, Uid};
use tidegate_config::project::{
    Deployment, EndpointSlice, Ingress, IngressClass, Meta, Object, Projected, Secret, Service,
};

type Objects<T> = BTreeMap<ObjectName, Arc<T>>;

/// What a DNS name leads to, or why to nothing.
pub type Resolution = Result<Box<[IpAddr]>, String>;

/// Every object that routing may need, as it is now.
#[derive(Debug, Default)]
pub struct World {
    /// By name.
    pub ingresses: Objects<Ingress>,
    /// By name.
    pub classes: Objects<IngressClass>,
    /// By name.
    pub services: Objects<Service>,
    /// By name.
    pub slices: Objects<EndpointSlice>,
    /// By name.
    pub secrets: Objects<Secret>,
    /// By name.
    pub deployments: Objects<Deployment>,
    /// DNS names that ExternalName Services lead to, once they were looked up.
    pub names: BTreeMap<Arc<str>, Resolution>,
    /// What the projections found, for objects where they found anything.
    pub findings: BTreeMap<ObjectRef, Arc<[Finding]>>,
    /// Whether IngressClasses have been listed. Until then classes are compared by name.
    pub classes_known: bool,
    /// Where the edge reaches the API server.
    pub api_server: Arc<BTreeSet<SocketAddr>>,
    /// Every object that is there, whether it can be read or not. The uid is for those who are told about it.
    present: BTreeMap<ObjectRef, Option<Uid>>,
}

impl World {
    /// Takes an object as it is now; whether anything that routing reads is different.
    pub fn apply(&mut self, projected: Projected) -> bool {
        let Projected { meta: Meta { object: key, uid, .. }, object, findings, addresses: _ } = projected;
        let told = self.tell(&key, findings);
        let changed = match object {
            None => self.forget(&key),
            Some(Object::Ingress(object)) => put(&mut self.ingresses, &key.name, object),
            Some(Object::IngressClass(object)) => put(&mut self.classes, &key.name, object),
            Some(Object::Service(object)) => put(&mut self.services, &key.name, object),
            Some(Object::EndpointSlice(object)) => put(&mut self.slices, &key.name, object),
            Some(Object::Secret(object)) => put(&mut self.secrets, &key.name, object),
            Some(Object::Deployment(object)) => put(&mut self.deployments, &key.name, object),
            // Not watched yet: nothing depends on them.
            Some(
                Object::Namespace(_)
                | Object::GatewayClass(_)
                | Object::Gateway(_)
                | Object::ReferenceGrant(_)
                | Object::ListenerSet(_)
                | Object::GrpcRoute(_)
                | Object::TlsRoute(_)
                | Object::TcpRoute(_)
                | Object::UdpRoute(_)
                | Object::BackendTlsPolicy(_)
                | Object::HttpRoute(_),
            ) => false,
        };
        self.present.insert(key, uid);
        told || changed
    }

    /// Forgets an object; whether it was there.
    pub fn delete(&mut self, key: &ObjectRef) -> bool {
        let known = self.present.remove(key).is_some();
        let told = self.tell(key, Vec::new());
        self.forget(key) || told || known
    }

    /// Takes what a DNS name leads to; whether that is different.
    pub fn resolve(&mut self, name: Arc<str>, addresses: Resolution) -> bool {
        if self.names.get(&name) == Some(&addresses) {
            return false;
        }
        self.names.insert(name, addresses);
        true
    }

    /// The object of any kind.
    #[must_use]
    pub fn get(&self, key: &ObjectRef) -> Option<Object> {
        match key.kind {
            Kind::Ingress => self.ingresses.get(&key.name).cloned().map(Object::Ingress),
            Kind::IngressClass => self.classes.get(&key.name).cloned().map(Object::IngressClass),
            Kind::Service => self.services.get(&key.name).cloned().map(Object::Service),
            Kind::EndpointSlice => self.slices.get(&key.name).cloned().map(Object::EndpointSlice),
            Kind::Secret => self.secrets.get(&key.name).cloned().map(Object::Secret),
            Kind::Deployment => self.deployments.get(&key.name).cloned().map(Object::Deployment),
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
            | Kind::BackendTlsPolicy => None,
        }
    }

    /// The names of the objects of a kind, in one namespace or in all, whether they can be read or not.
    pub fn names_of<'a>(&'a self, kind: Kind, namespace: Option<&'a str>) -> impl Iterator<Item = &'a ObjectRef> {
        let first = ObjectRef::new(kind, ObjectName::new(namespace.unwrap_or_default(), ""));
        self.present.range(first..).map(|(key, _)| key).take_while(move |key| {
            key.kind == kind && namespace.is_none_or(|namespace| *key.name.namespace == *namespace)
        })
    }

    /// The first object after another one, or of all, whether it can be read or not.
    pub(crate) fn after(&self, last: Option<&ObjectRef>) -> Option<&ObjectRef> {
        let beyond = (last.map_or(Unbounded, Excluded), Unbounded);
        self.present.range::<ObjectRef, _>(beyond).next().map(|(object, _)| object)
    }

    /// How many objects are there, whether they can be read or not.
    pub(crate) fn count(&self) -> usize {
        self.present.len()
    }

    /// Whether an object is there, whether it can be read or not.
    #[must_use]
    pub fn holds(&self, key: &ObjectRef) -> bool {
        self.present.contains_key(key)
    }

    /// The uid of an object, where it has one.
    #[must_use]
    pub fn uid_of(&self, key: &ObjectRef) -> Option<Uid> {
        self.present.get(key).copied().flatten()
    }

    /// Whether an object is there just as it is here.
    #[must_use]
    pub fn holds_as(&self, projected: &Projected) -> bool {
        let key = &projected.meta.object;
        self.holds(key) && self.get(key) == projected.object && *self.findings_of(key) == *projected.findings
    }

    /// What the projection of an object found.
    #[must_use]
    pub fn findings_of(&self, key: &ObjectRef) -> &[Finding] {
        self.findings.get(key).map_or(&[], |findings| findings)
    }

    /// Packs the maps after lists have filled them. One that is filled in ascending order keeps half of its room empty.
    pub fn compact(&mut self) {
        let Self { ingresses, services, slices, secrets, present, .. } = self;
        pack(ingresses);
        pack(services);
        pack(slices);
        pack(secrets);
        *present = std::mem::take(present).into_iter().collect();
    }

    fn tell(&mut self, key: &ObjectRef, findings: Vec<Finding>) -> bool {
        if self.findings_of(key) == findings {
            return false;
        }
        if findings.is_empty() {
            self.findings.remove(key);
        } else {
            self.findings.insert(key.clone(), findings.into());
        }
        true
    }

    fn forget(&mut self, key: &ObjectRef) -> bool {
        match key.kind {
            Kind::Ingress => self.ingresses.remove(&key.name).is_some(),
            Kind::IngressClass => self.classes.remove(&key.name).is_some(),
            Kind::Service => self.services.remove(&key.name).is_some(),
            Kind::EndpointSlice => self.slices.remove(&key.name).is_some(),
            Kind::Secret => self.secrets.remove(&key.name).is_some(),
            Kind::Deployment => self.deployments.remove(&key.name).is_some(),
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
            | Kind::BackendTlsPolicy => false,
        }
    }
}

fn pack<T>(objects: &mut Objects<T>) {
    *objects = std::mem::take(objects).into_iter().collect();
}

fn put<T: PartialEq>(objects: &mut Objects<T>, name: &ObjectName, object: Arc<T>) -> bool {
    if objects.get(name) == Some(&object) {
        return false;
    }
    objects.insert(name.clone(), object);
    true
}
