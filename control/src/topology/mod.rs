//! Topology: who refers to whom, as data. References to what does not exist yet are kept, so that its
//! arrival finds those who wait for it.

mod edges;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

pub use edges::references;
use serde::Serialize;
use tidegate_config::model::HostPattern;
use tidegate_config::object::{Kind, ObjectName, ObjectRef};

/// What an object can refer to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// One object, there or not.
    Object(ObjectRef),
    /// Every object of a kind in a namespace: selectors refer to objects that have no name yet.
    InNamespace(Kind, Arc<str>),
    /// Every object of a kind.
    Any(Kind),
    /// A host: the unit of compiling. Who claims it refers to it.
    Host(HostPattern),
    /// A DNS name.
    Name(Arc<str>),
}

impl Key {
    /// The host, where it is one.
    #[must_use]
    pub const fn host(&self) -> Option<&HostPattern> {
        match self {
            Self::Host(host) => Some(host),
            Self::Object(_) | Self::InNamespace(..) | Self::Any(_) | Self::Name(_) => None,
        }
    }

    /// The Service, where it is one.
    #[must_use]
    pub fn service(&self) -> Option<&ObjectRef> {
        match self {
            Self::Object(object) => (object.kind == Kind::Service).then_some(object),
            Self::InNamespace(..) | Self::Any(_) | Self::Host(_) | Self::Name(_) => None,
        }
    }
}

/// The references of every object, both ways.
#[derive(Debug, Default)]
pub struct Topology {
    forward: BTreeMap<ObjectRef, Box<[Key]>>,
    /// The same references by what they lead to. One set of pairs, because most keys have one or two referrers, and a set
    /// for each key would cost ten times its content.
    reverse: BTreeSet<(Key, ObjectRef)>,
}

impl Topology {
    /// Replaces what an object refers to, given as [`references`] gives it, and returns what it referred to before.
    pub fn relink(&mut self, object: &ObjectRef, keys: Vec<Key>) -> Box<[Key]> {
        let before = self.forward.remove(object).unwrap_or_default();
        for key in before.iter().filter(|key| keys.binary_search(key).is_err()) {
            self.reverse.remove(&(key.clone(), object.clone()));
        }
        for key in keys.iter().filter(|key| before.binary_search(key).is_err()) {
            self.reverse.insert((key.clone(), object.clone()));
        }
        if !keys.is_empty() {
            self.forward.insert(object.clone(), keys.into());
        }
        before
    }

    /// What an object refers to, in ascending order.
    #[must_use]
    pub fn references_of(&self, object: &ObjectRef) -> &[Key] {
        self.forward.get(object).map_or(&[], |keys| keys)
    }

    /// Who refers to a key, in ascending order.
    pub fn referrers<'t>(&'t self, key: &Key) -> impl Iterator<Item = &'t ObjectRef> + use<'t> {
        self.referrers_from(key.clone(), Kind::FIRST)
    }

    /// Who refers to an object by name, of one kind, in ascending order. The referrers of other kinds cost nothing: a
    /// Service that thousands of Ingresses lead to has few EndpointSlices.
    pub fn referrers_of(&self, object: ObjectRef, kind: Kind) -> impl Iterator<Item = &ObjectRef> {
        self.referrers_from(Key::Object(object), kind).take_while(move |referrer| referrer.kind == kind)
    }

    fn referrers_from(&self, key: Key, kind: Kind) -> impl Iterator<Item = &ObjectRef> + use<'_> {
        let first = (key.clone(), ObjectRef::new(kind, ObjectName::default()));
        self.reverse.range(first..).take_while(move |(to, _)| *to == key).map(|(_, referrer)| referrer)
    }

    /// The first object after another one, or of all, that refers to anything.
    pub(crate) fn after(&self, last: Option<&ObjectRef>) -> Option<&ObjectRef> {
        let beyond = (last.map_or(Unbounded, Excluded), Unbounded);
        self.forward.range::<ObjectRef, _>(beyond).next().map(|(object, _)| object)
    }

    /// The first host after another one, or of all, that anything refers to.
    pub(crate) fn host_after(&self, last: Option<&HostPattern>) -> Option<&HostPattern> {
        let first = last.cloned().unwrap_or_else(|| HostPattern::Exact(Arc::default()));
        let first = (Key::Host(first), ObjectRef::new(Kind::FIRST, ObjectName::default()));
        let mut hosts = self.reverse.range(first..).map_while(|(key, _)| key.host());
        hosts.find(|host| Some(*host) != last)
    }

    /// Every DNS name that anything refers to.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        let first = (Key::Name(Arc::default()), ObjectRef::new(Kind::FIRST, ObjectName::default()));
        let names = self.reverse.range(first..).filter_map(|(key, _)| match key {
            Key::Name(name) => Some(name),
            Key::Object(_) | Key::InNamespace(..) | Key::Any(_) | Key::Host(_) => None,
        });
        let mut last = None;
        names.filter(move |name| last.replace(*name) != Some(name))
    }

    /// Every reference, for dumps.
    pub fn edges(&self) -> impl Iterator<Item = (&ObjectRef, &Key)> {
        self.forward.iter().flat_map(|(object, keys)| keys.iter().map(move |key| (object, key)))
    }
}

/// Objects and what each refers to, as [`references`] gives it: all at once costs less than one by one, and packs better.
impl FromIterator<(ObjectRef, Vec<Key>)> for Topology {
    fn from_iter<T: IntoIterator<Item = (ObjectRef, Vec<Key>)>>(objects: T) -> Self {
        let linked = objects.into_iter().filter(|(_, keys)| !keys.is_empty());
        let forward: BTreeMap<_, Box<[Key]>> = linked.map(|(object, keys)| (object, keys.into())).collect();
        let edges = forward.iter().flat_map(|(object, keys)| keys.iter().map(|key| (key.clone(), object.clone())));
        Self { reverse: edges.collect(), forward }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Object(object) => write!(f, "{object}"),
            Self::InNamespace(kind, namespace) => write!(f, "any {kind} in {namespace}"),
            Self::Any(kind) => write!(f, "any {kind}"),
            Self::Host(host) => write!(f, "host {host}"),
            Self::Name(name) => write!(f, "name {name}"),
        }
    }
}

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ingress(name: &str) -> ObjectRef {
        ObjectRef::new(Kind::Ingress, ObjectName::new("shop", name))
    }

    fn host(name: &str) -> Key {
        Key::Host(HostPattern::Exact(name.into()))
    }

    #[track_caller]
    fn check(topology: &Topology, key: &Key, want: &[&str]) {
        let got: Vec<&str> = topology.referrers(key).map(|object| &*object.name.name).collect();
        assert_eq!(got, want, "{key}");
    }

    #[test]
    fn referrers_are_found_by_kind() {
        let service = ObjectRef::new(Kind::Service, ObjectName::new("shop", "web"));
        let slice = ObjectRef::new(Kind::EndpointSlice, ObjectName::new("shop", "web-1"));
        let mut topology = Topology::default();
        let mut check = |object: &ObjectRef, ingresses: &[&str], slices: &[&str]| {
            topology.relink(object, vec![Key::Object(service.clone())]);
            for (kind, want) in [(Kind::Ingress, ingresses), (Kind::EndpointSlice, slices), (Kind::Secret, &[])] {
                let got: Vec<&str> = topology.referrers_of(service.clone(), kind).map(|o| &*o.name.name).collect();
                assert_eq!(got, want, "{kind}");
            }
        };
        check(&slice, &[], &["web-1"]);
        check(&ingress("b"), &["b"], &["web-1"]);
        check(&ingress("a"), &["a", "b"], &["web-1"]);
    }

    #[test]
    fn relinking_forgets_what_is_no_longer_referred_to() {
        let mut topology = Topology::default();
        topology.relink(&ingress("a"), vec![host("x"), host("y")]);
        topology.relink(&ingress("b"), vec![host("x")]);
        check(&topology, &host("x"), &["a", "b"]);
        let before = topology.relink(&ingress("a"), vec![host("z")]);
        assert_eq!(*before, [host("x"), host("y")]);
        check(&topology, &host("x"), &["b"]);
        check(&topology, &host("y"), &[]);
        check(&topology, &host("z"), &["a"]);
        topology.relink(&ingress("a"), vec![]);
        topology.relink(&ingress("b"), vec![]);
        assert_eq!(topology.edges().count(), 0);
        assert!(topology.reverse.is_empty());
    }
}
