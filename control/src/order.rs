//! Which of the objects that lists bring are compiled first: those whose routes are in use.

use std::fmt;
use std::sync::Arc;

use tidegate_config::object::{Kind, ObjectRef};

use crate::topology::{Key, Topology};

/// Gives the rank of an object that has routes; the lowest goes first, and without an order all are equal.
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

/// Of so many objects with routes at most that a changed object stands behind, the first to go counts. More are not
/// looked at, so that a Service under thousands of routes costs no more than another.
const ASKED_MAX: usize = 16;

impl Order {
    /// The order that a function gives, asked of objects with routes when something that these stand on changes.
    pub fn by(rank: impl Fn(&ObjectRef) -> u64 + Send + Sync + 'static) -> Self {
        Self { rank: Some(Arc::new(rank)) }
    }

    /// The rank of any object: that of the first to go of the objects with routes that stand on it. A class is for all, and
    /// goes first; so does what none is known to stand on, because routes may be about to move there.
    pub(crate) fn of(&self, object: &ObjectRef, topology: &Topology) -> u64 {
        let Some(rank) = &self.rank else { return 0 };
        let lowest = |ranks: &mut dyn Iterator<Item = u64>| ranks.take(ASKED_MAX).min().unwrap_or(0);
        match object.kind {
            Kind::Ingress => rank(object),
            Kind::IngressClass => 0,
            Kind::Service | Kind::Secret => {
                lowest(&mut topology.referrers_of(object.clone(), Kind::Ingress).map(|ingress| rank(ingress)))
            }
            Kind::EndpointSlice => {
                let services = topology.references_of(object).iter().filter_map(Key::service);
                let ingresses = services.flat_map(|service| topology.referrers_of(service.clone(), Kind::Ingress));
                lowest(&mut ingresses.map(|ingress| rank(ingress)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::object::ObjectName;

    use super::*;

    fn object(kind: Kind, name: &str) -> ObjectRef {
        ObjectRef::new(kind, ObjectName::new("shop", name))
    }

    fn topology(links: &[(Kind, &str, Kind, &str)]) -> Topology {
        let mut topology = Topology::default();
        for (kind, name, to, service) in links {
            topology.relink(&object(*kind, name), vec![Key::Object(object(*to, service))]);
        }
        topology
    }

    #[track_caller]
    fn check(kind: Kind, name: &str, want: u64) {
        let (ingress, service, slice) = (Kind::Ingress, Kind::Service, Kind::EndpointSlice);
        let mut links = vec![
            (ingress, "busy", service, "front"),
            (ingress, "silent", service, "front"),
            (ingress, "asleep", service, "back"),
            (slice, "front-1", service, "front"),
            (slice, "back-1", service, "back"),
            (slice, "alone-1", service, "alone"),
        ];
        let many: Vec<String> = (10..99).map(|number| format!("many-{number}")).collect();
        links.extend(many.iter().map(|name| (ingress, &**name, Kind::Secret, "all")));
        let order = Order::by(|ingress| match &*ingress.name.name {
            "busy" => 1,
            "silent" | "asleep" => 2,
            name => name.strip_prefix("many-").map_or(3, |number| 200 - number.parse::<u64>().unwrap()),
        });
        assert_eq!(order.of(&object(kind, name), &topology(&links)), want, "{kind} {name}");
        assert_eq!(Order::default().of(&object(kind, name), &topology(&links)), 0, "all are equal");
    }

    #[test]
    fn what_stands_on_an_object_gives_its_rank() {
        check(Kind::Ingress, "busy", 1);
        check(Kind::Ingress, "new", 3);
        check(Kind::Service, "front", 1);
        check(Kind::Service, "back", 2);
        check(Kind::EndpointSlice, "front-1", 1);
        check(Kind::EndpointSlice, "back-1", 2);
        check(Kind::EndpointSlice, "alone-1", 0);
        check(Kind::EndpointSlice, "new", 0);
        check(Kind::IngressClass, "silent", 0);
        check(Kind::Secret, "all", 200 - 25);
    }
}
