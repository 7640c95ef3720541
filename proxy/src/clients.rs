//! How much each client address holds of the budget, so that one cannot take everything. An address is an IPv4 address or an
//! IPv6 network of 64 bits, which is what one subscriber has. Trusted proxies speak for many clients and are not counted.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use foldhash::fast::RandomState;
use papaya::{Compute, Operation};

use crate::budget::{Budget, BudgetLimits, Cost, Taken};

/// The clients that have connections.
#[derive(Debug)]
pub(crate) struct Clients {
    connections_max: u32,
    requests_max: u32,
    budget: Arc<Budget>,
    by_address: papaya::HashMap<IpAddr, Entry, RandomState>,
}

/// A client and the number of its connections; it is forgotten with the last of them.
#[derive(Clone, Debug)]
struct Entry {
    held: Arc<Held>,
    connections: u32,
}

/// What a client holds.
#[derive(Debug, Default)]
struct Held {
    taken: Taken,
    requests: AtomicU32,
}

/// A connection of a client, counted for as long as this lives.
#[derive(Debug)]
pub(crate) struct ClientPlace {
    clients: Arc<Clients>,
    address: IpAddr,
    held: Arc<Held>,
    cost: Cost,
}

impl Clients {
    /// Without any.
    pub(crate) fn new(limits: &BudgetLimits, budget: Arc<Budget>) -> Self {
        let by_address = papaya::HashMap::with_hasher(RandomState::default());
        let any = |max: u32| if max == 0 { u32::MAX } else { max };
        Self {
            connections_max: any(limits.client_connections),
            requests_max: any(limits.client_requests),
            budget,
            by_address,
        }
    }

    /// Counts a connection of a client; `None` when it holds too much already.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr, cost: Cost) -> Option<ClientPlace> {
        let address = subscriber(peer);
        let held = self.counted(address)?;
        // From here on, dropping it counts the connection out again.
        let place = ClientPlace { clients: Arc::clone(self), address, held, cost };
        self.budget.is_fair(place.held.taken.add(cost)).then_some(place)
    }

    fn counted(&self, address: IpAddr) -> Option<Arc<Held>> {
        let clients = self.by_address.pin();
        let counted = clients.compute(address, |entry| match entry {
            Some((_, entry)) if entry.connections >= self.connections_max => Operation::Abort(()),
            Some((_, entry)) => {
                Operation::Insert(Entry { held: Arc::clone(&entry.held), connections: entry.connections + 1 })
            }
            None => Operation::Insert(Entry { held: Arc::default(), connections: 1 }),
        });
        match counted {
            Compute::Inserted(_, entry) | Compute::Updated { new: (_, entry), .. } => Some(Arc::clone(&entry.held)),
            Compute::Removed(..) | Compute::Aborted(()) => None,
        }
    }

    fn leave(&self, address: IpAddr) {
        self.by_address.pin().compute(address, |entry| match entry {
            Some((_, entry)) if entry.connections > 1 => {
                Operation::Insert(Entry { held: Arc::clone(&entry.held), connections: entry.connections - 1 })
            }
            Some(_) => Operation::Remove,
            None => Operation::Abort(()),
        });
    }
}

impl ClientPlace {
    /// Charges a request to its client, unless that holds too much already; whether it did. What was charged is to be given
    /// back by [`Self::release`].
    pub(crate) fn charge(&self, cost: Cost) -> bool {
        let taken = self.held.taken.add(cost);
        let requests = self.held.requests.fetch_add(1, Relaxed) + 1;
        let may = requests <= self.clients.requests_max && self.clients.budget.is_fair(taken);
        if !may {
            self.release(cost);
        }
        may
    }

    /// Gives back a part of what was charged for a request, which goes on.
    pub(crate) fn release_part(&self, cost: Cost) {
        self.held.taken.sub(cost);
    }

    /// Gives back what was charged for a request.
    pub(crate) fn release(&self, cost: Cost) {
        self.held.taken.sub(cost);
        self.held.requests.fetch_sub(1, Relaxed);
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        self.held.taken.sub(self.cost);
        self.clients.leave(self.address);
    }
}

/// The address that stands for a client.
fn subscriber(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(limits: BudgetLimits) -> (Arc<Clients>, Arc<Budget>) {
        let budget = Arc::new(Budget::new(&limits));
        (Arc::new(Clients::new(&limits, Arc::clone(&budget))), budget)
    }

    fn ip(address: &str) -> IpAddr {
        address.parse().unwrap()
    }

    #[test]
    fn an_address_has_at_most_its_connections_and_is_forgotten_with_the_last() {
        let (clients, _) = clients(BudgetLimits { client_connections: 2, ..BudgetLimits::default() });
        let enter = |address| clients.enter(ip(address), Cost::PLAIN);
        let (first, second) = (enter("192.0.2.1").unwrap(), enter("192.0.2.1").unwrap());
        assert!(enter("192.0.2.1").is_none() && enter("::ffff:192.0.2.1").is_none());
        let other = enter("192.0.2.2").unwrap();
        drop(first);
        let third = enter("192.0.2.1").unwrap();
        drop((second, third, other));
        assert_eq!(clients.by_address.pin().len(), 0);
    }

    #[test]
    fn an_ipv6_network_of_64_bits_is_one_client() {
        let (clients, _) = clients(BudgetLimits { client_connections: 1, ..BudgetLimits::default() });
        let enter = |address| clients.enter(ip(address), Cost::PLAIN);
        let _first = enter("2001:db8:0:1::1").unwrap();
        assert!(enter("2001:db8:0:1:ffff::2").is_none());
        assert!(enter("2001:db8:0:2::1").is_some());
    }

    #[test]
    fn requests_of_an_address_are_limited() {
        let (clients, _) = clients(BudgetLimits { client_requests: 2, ..BudgetLimits::default() });
        let [one, other] = [(); 2].map(|()| clients.enter(ip("192.0.2.1"), Cost::PLAIN).unwrap());
        assert!(one.charge(Cost::LEAN_REQUEST) && other.charge(Cost::LEAN_REQUEST));
        assert!(!one.charge(Cost::LEAN_REQUEST) && !other.charge(Cost::LEAN_REQUEST));
        one.release(Cost::LEAN_REQUEST);
        assert!(other.charge(Cost::LEAN_REQUEST));
    }

    #[test]
    fn under_pressure_an_address_holds_no_more_than_its_share() {
        let (clients, budget) = clients(BudgetLimits { files: 8, ..BudgetLimits::default() });
        let place = clients.enter(ip("192.0.2.1"), Cost::PLAIN).unwrap();
        let request = Cost::LEAN_REQUEST;
        assert!(place.charge(request) && place.charge(request), "more than a quarter, with room left");
        budget.charge_anyway(Cost::new(4, 0));
        assert!(!place.charge(request) && clients.enter(ip("192.0.2.1"), Cost::PLAIN).is_none());
        assert!(clients.enter(ip("192.0.2.2"), Cost::PLAIN).is_some());
        place.release(request);
        place.release(request);
        assert!(place.charge(request));
        budget.release(Cost::new(4, 0));
        assert!(place.charge(request));
    }
}
