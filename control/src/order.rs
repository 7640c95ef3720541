//! The order of compilation after a list: objects whose routes are in use come first.

use std::fmt;
use std::sync::Arc;

use tidegate_config::object::{Kind, ObjectRef};

use crate::compile::Unit;
use crate::topology::{Key, Topology};

/// The rank of objects with routes; the lowest goes first, and without an order all are equal.
#[derive(Clone, Default)]
pub struct Order {
    rank: Option<Arc<Rank>>,
}

type Rank = dyn Fn(&ObjectRef) -> u64 + Send + Sync;

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Order").field("given", &self.rank.is_some()).finish()
    }
}

/// The number of dependents with routes whose ranks are considered for a changed object. The limit keeps the cost of a
/// Service with thousands of routes constant.
const ASKED_MAX: usize = 16;

impl Order {
    /// The order of a function, which is called for objects with routes when something they depend on changes.
    pub fn by(rank: impl Fn(&ObjectRef) -> u64 + Send + Sync + 'static) -> Self {
        Self { rank: Some(Arc::new(rank)) }
    }

    /// The rank of a unit: the lowest of the objects with routes that it is made of or that use it. Global units go
    /// first, and so do units without known users, because routes may be about to use them.
    pub(crate) fn of(&self, unit: &Unit, topology: &Topology) -> u64 {
        let Some(rank) = &self.rank else { return 0 };
        let lowest = |objects: &mut dyn Iterator<Item = &ObjectRef>| {
            objects.take(ASKED_MAX).map(|object| rank(object)).min().unwrap_or(0)
        };
        match unit {
            Unit::Object(object) => self.of_object(object, topology),
            Unit::Host(host) => lowest(&mut topology.dependents(&Key::Host(host.clone()))),
            Unit::Service(service) => {
                let service = Key::Object(ObjectRef::new(Kind::Service, service.clone()));
                lowest(&mut topology.dependents(&service))
            }
            Unit::Bind(_) | Unit::Stream(_) | Unit::Scope(_) | Unit::Globals(()) => 0,
        }
    }

    /// The rank of an object: its own if it has routes, else the lowest of its dependents.
    pub(crate) fn of_object(&self, object: &ObjectRef, topology: &Topology) -> u64 {
        let Some(rank) = &self.rank else { return 0 };
        if topology.get(object).is_some_and(|attachment| !attachment.claims.is_empty()) {
            return rank(object);
        }
        let dependents = topology.dependents(&Key::Object(object.clone()));
        dependents.take(ASKED_MAX).map(|object| rank(object)).min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::{HostPattern, VirtualHost};
    use tidegate_config::object::{Age, ObjectName};

    use super::*;
    use crate::sources::{Attachment, Claim, ClaimTerms};

    fn ingress(name: &str) -> ObjectRef {
        ObjectRef::new(Kind::Ingress, ObjectName::new("shop", name))
    }

    fn service(name: &str) -> ObjectName {
        ObjectName::new("shop", name)
    }

    fn host(name: &str) -> VirtualHost {
        HostPattern::Exact(name.into()).into()
    }

    /// The attachment of an Ingress with one host and one Service.
    fn attached(name: &str, of: &str, to: &str) -> Attachment {
        let terms = ClaimTerms {
            object: ingress(name),
            age: Age { created_s: 0, name: ingress(name).name },
            field: "spec.rules",
            routes: Box::default(),
            fallback: None,
            last_resort: false,
            guest: false,
            certificates: Box::default(),
            missing: Box::default(),
        };
        let to = Key::Object(ObjectRef::new(Kind::Service, service(to)));
        Attachment { claims: [Claim::new(host(of), terms)].into(), links: [to].into(), ..Attachment::default() }
    }

    #[track_caller]
    fn check(unit: &Unit, want: u64) {
        let mut topology = Topology::default();
        topology.replace(&ingress("busy"), attached("busy", "one", "front"));
        topology.replace(&ingress("silent"), attached("silent", "one", "front"));
        topology.replace(&ingress("asleep"), attached("asleep", "two", "back"));
        for number in 10..99 {
            let name = format!("many-{number}");
            topology.replace(&ingress(&name), attached(&name, "three", "all"));
        }
        let order = Order::by(|ingress| match &*ingress.name.name {
            "busy" => 1,
            "silent" | "asleep" => 2,
            name => name.strip_prefix("many-").map_or(3, |number| 200 - number.parse::<u64>().unwrap()),
        });
        assert_eq!(order.of(unit, &topology), want, "{unit}");
        assert_eq!(Order::default().of(unit, &topology), 0, "all are equal");
    }

    #[test]
    fn a_unit_has_the_rank_of_the_first_object_that_needs_it() {
        check(&Unit::Host(host("one")), 1);
        check(&Unit::Host(host("two")), 2);
        check(&Unit::Host(host("new")), 0);
        check(&Unit::Service(service("front")), 1);
        check(&Unit::Service(service("back")), 2);
        check(&Unit::Service(service("alone")), 0);
        check(&Unit::Object(ingress("silent")), 2);
        check(&Unit::Object(ObjectRef::new(Kind::Service, service("front"))), 1);
        check(&Unit::Service(service("all")), 200 - 25);
        check(&Unit::Globals(()), 0);
    }
}
