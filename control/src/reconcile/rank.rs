//! The ranks of units and objects in the slow lane: those that routes in use depend on come first.

use tidegate_config::object::ObjectRef;

use crate::compile::Unit;
use crate::order::Order;
use crate::topology::Topology;

/// The rank of a unit: the lowest of the objects with routes that it is made of or that use it. Global units go first,
/// and so do units without known users, because routes may be about to use them.
pub(super) fn of_unit(order: &Order, unit: &Unit, topology: &Topology) -> u64 {
    order.lowest(unit.dependent_objects(topology))
}

/// The rank of an object: its own if it has routes, else the lowest of its dependents.
pub(super) fn of_object(order: &Order, object: &ObjectRef, topology: &Topology) -> u64 {
    of_unit(order, &Unit::Object(object.clone()), topology)
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::{HostPattern, VirtualHost};
    use tidegate_config::object::{Age, Kind, ObjectName};

    use super::*;
    use crate::attachment::{Attachment, Claim, ClaimTerms, Key};

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
        let terms = ClaimTerms::sample(ingress(name), Age { created_s: 0, name: ingress(name).name });
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
        assert_eq!(of_unit(&order, unit, &topology), want, "{unit}");
        assert_eq!(of_unit(&Order::default(), unit, &topology), 0, "all are equal");
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
