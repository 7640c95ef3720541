//! The share of each client address in the budget, so that one client cannot take everything. A client is an IPv4
//! address or an IPv6 network of 64 bits, which is the usual allocation of a subscriber. Trusted proxies act for many
//! clients and are not counted.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use foldhash::fast::RandomState;

use crate::budget::{Budget, BudgetLimits, Cost, Usage};

/// The marker of a removed client in `places`: a connection or flow that finds it looks the client up again.
const FORGOTTEN: u64 = u64::MAX;

/// The largest count of connections, and of flows.
const COUNT_MAX: u32 = u32::MAX - 1;

/// The number of clients without connections and flows that are kept until the next sweep, so that a client that
/// reconnects often is not allocated each time.
const REMEMBERED_MAX: usize = 16 * 1024;

/// The clients that have connections or flows, or had some recently.
#[derive(Debug)]
pub(crate) struct Clients {
    connections_max: u32,
    requests_max: u32,
    budget: Arc<Budget>,
    by_address: papaya::HashMap<IpAddr, Arc<ClientUse>, RandomState>,
}

/// The connections, flows and costs of a client.
#[derive(Debug, Default)]
struct ClientUse {
    /// The cost of its connections and requests. Flows have a separate budget and share.
    taken: Usage,
    /// The counts of connections and flows in one number, so that a client is removed only if it has neither.
    places: AtomicU64,
    requests: AtomicU32,
}

/// A kind of place in [`ClientUse::places`]: connections are counted in the lower half and flows in the upper one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PermitKind {
    Connection,
    Flow,
}

impl PermitKind {
    const fn one(self) -> u64 {
        match self {
            Self::Connection => 1,
            Self::Flow => 1 << u32::BITS,
        }
    }

    /// The count of this kind.
    const fn among(self, places: u64) -> u64 {
        match self {
            Self::Connection => places & u32::MAX as u64,
            Self::Flow => places >> u32::BITS,
        }
    }
}

/// A flow of datagrams of a client, counted until this is dropped. Flows do not count as connections of the client.
#[derive(Debug)]
pub(crate) struct FlowPermit {
    clients: Arc<Clients>,
    address: IpAddr,
    client_use: Arc<ClientUse>,
}

/// The outcome of counting a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CountOutcome {
    Yes,
    TooMany,
    Forgotten,
}

/// A connection of a client, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct ClientPermit {
    clients: Arc<Clients>,
    address: IpAddr,
    client_use: Arc<ClientUse>,
    cost: Cost,
}

/// A cost besides that of connections and requests, charged to a client until this is dropped.
#[derive(Debug)]
pub(crate) struct ClientCharge {
    client_use: Arc<ClientUse>,
    cost: Cost,
}

impl Clients {
    /// No clients.
    pub(crate) fn new(limits: &BudgetLimits, budget: Arc<Budget>) -> Self {
        let by_address = papaya::HashMap::with_hasher(RandomState::default());
        let any = |max: u32| if max == 0 { COUNT_MAX } else { max.min(COUNT_MAX) };
        Self {
            connections_max: any(limits.client_connections),
            requests_max: any(limits.client_requests),
            budget,
            by_address,
        }
    }

    /// Counts a connection of a client; `None` if the client has too many already.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr, cost: Cost) -> Option<ClientPermit> {
        let address = subscriber(peer);
        let client_use =
            self.counted(address, PermitKind::Connection, |connections| connections <= self.connections_max)?;
        // From here on, dropping the place removes the connection.
        let permit = ClientPermit { clients: Arc::clone(self), address, client_use, cost };
        self.budget.is_fair(permit.client_use.taken.add(cost)).then_some(permit)
    }

    /// Counts a flow of a client; `None` if `may` refuses the new number of flows.
    pub(crate) fn enter_flow(self: &Arc<Self>, peer: IpAddr, may: impl Fn(u32) -> bool) -> Option<FlowPermit> {
        let address = subscriber(peer);
        let client_use = self.counted(address, PermitKind::Flow, may)?;
        Some(FlowPermit { clients: Arc::clone(self), address, client_use })
    }

    fn counted(&self, address: IpAddr, permit: PermitKind, may: impl Fn(u32) -> bool) -> Option<Arc<ClientUse>> {
        let clients = self.by_address.pin();
        loop {
            let client_use = clients.get_or_insert_with(address, Arc::default);
            match client_use.count(permit, &may) {
                CountOutcome::Yes => return Some(Arc::clone(client_use)),
                CountOutcome::TooMany => return None,
                CountOutcome::Forgotten => drop(clients.remove_if(&address, |_, client_use| client_use.is_forgotten())),
            }
        }
    }

    /// Removes a place from the count.
    fn leave(&self, address: &IpAddr, client_use: &ClientUse, permit: PermitKind) {
        let last = client_use.places.fetch_sub(permit.one(), Relaxed) == permit.one();
        if last && self.by_address.len() > REMEMBERED_MAX && client_use.forget() {
            self.by_address.pin().remove_if(address, |_, client_use| client_use.is_forgotten()).ok();
        }
    }

    /// Removes the clients that have neither connections nor flows.
    pub(crate) fn sweep(&self) {
        self.by_address.pin().retain(|_, client_use| !client_use.forget());
    }
}

impl ClientUse {
    fn count(&self, permit: PermitKind, may: impl Fn(u32) -> bool) -> CountOutcome {
        let more = |places: u64| {
            let count = u32::try_from(permit.among(places)).unwrap_or(u32::MAX).saturating_add(1);
            (places != FORGOTTEN && count <= COUNT_MAX && may(count)).then(|| places + permit.one())
        };
        match self.places.fetch_update(Relaxed, Relaxed, more) {
            Ok(_) => CountOutcome::Yes,
            Err(FORGOTTEN) => CountOutcome::Forgotten,
            Err(_) => CountOutcome::TooMany,
        }
    }

    fn is_forgotten(&self) -> bool {
        self.places.load(Relaxed) == FORGOTTEN
    }

    /// Marks a client without connections and flows as removed. Returns `true` if it is.
    fn forget(&self) -> bool {
        self.places.compare_exchange(0, FORGOTTEN, Relaxed, Relaxed).is_ok() || self.is_forgotten()
    }
}

impl ClientPermit {
    /// Charges a request to its client, unless the client holds too much already. Returns `true` if it was charged; the
    /// caller must return it with [`Self::release`].
    pub(crate) fn charge(&self, cost: Cost) -> bool {
        let taken = self.client_use.taken.add(cost);
        let requests = self.client_use.requests.fetch_add(1, Relaxed) + 1;
        let may = requests <= self.clients.requests_max && self.clients.budget.is_fair(taken);
        if !may {
            self.release(cost);
        }
        may
    }

    /// Charges a cost, unless the client then holds too much.
    pub(crate) fn hold(&self, cost: Cost) -> Option<ClientCharge> {
        let taken = self.client_use.taken.add(cost);
        // Dropping it returns the cost.
        let charge = ClientCharge { client_use: Arc::clone(&self.client_use), cost };
        self.clients.budget.is_fair(taken).then_some(charge)
    }

    /// Charges optional work of a request, unless its client would then exceed its share. Returns `true` if it was
    /// charged.
    pub(crate) fn charge_spare(&self, cost: Cost) -> bool {
        let fits = self.clients.budget.is_within_share(self.client_use.taken.add(cost));
        if !fits {
            self.release_part(cost);
        }
        fits
    }

    /// Returns a part of the charge of a request that continues.
    pub(crate) fn release_part(&self, cost: Cost) {
        self.client_use.taken.sub(cost);
    }

    /// Returns the charge of a request.
    pub(crate) fn release(&self, cost: Cost) {
        self.client_use.taken.sub(cost);
        self.client_use.requests.fetch_sub(1, Relaxed);
    }
}

impl Drop for ClientCharge {
    fn drop(&mut self) {
        self.client_use.taken.sub(self.cost);
    }
}

impl Drop for FlowPermit {
    fn drop(&mut self) {
        self.clients.leave(&self.address, &self.client_use, PermitKind::Flow);
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        self.client_use.taken.sub(self.cost);
        self.clients.leave(&self.address, &self.client_use, PermitKind::Connection);
    }
}

/// The address by which a client is counted.
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
    fn connections_of_an_address_are_limited_and_an_address_without_any_is_forgotten() {
        let (clients, _) = clients(BudgetLimits { client_connections: 2, ..BudgetLimits::default() });
        let enter = |address| clients.enter(ip(address), Cost::PLAIN);
        let (first, second) = (enter("192.0.2.1").unwrap(), enter("192.0.2.1").unwrap());
        assert!(enter("192.0.2.1").is_none() && enter("::ffff:192.0.2.1").is_none());
        let other = enter("192.0.2.2").unwrap();
        drop(first);
        let third = enter("192.0.2.1").unwrap();
        clients.sweep();
        assert!(enter("192.0.2.1").is_none(), "a sweep forgets nobody who is there");
        drop((second, third, other));
        clients.sweep();
        assert_eq!(clients.by_address.len(), 0);
        assert!(enter("192.0.2.1").is_some());
    }

    #[test]
    fn flows_do_not_count_as_connections() {
        let limits = BudgetLimits { client_connections: 1, files: 8, ..BudgetLimits::default() };
        let (clients, budget) = clients(limits);
        let flow = || clients.enter_flow(ip("192.0.2.1"), |flows| flows <= 3);
        let flows = [(); 3].map(|()| flow().unwrap());
        assert!(flow().is_none() && flow().is_none(), "their own limit, which counts those that there are");
        assert!(budget.charge(Cost::new(4, 0)), "pressure");
        let connection = clients.enter(ip("192.0.2.1"), Cost::PLAIN).unwrap();
        assert!(clients.enter(ip("192.0.2.1"), Cost::PLAIN).is_none());
        let client_use = Arc::clone(&connection.client_use);
        assert_eq!(client_use.taken.now(), Cost::PLAIN);
        drop(connection);
        clients.sweep();
        assert_eq!(clients.by_address.len(), 1, "flows keep their client");
        drop(flows);
        assert_eq!(client_use.places.load(Relaxed), 0);
        clients.sweep();
        assert_eq!(clients.by_address.len(), 0);
    }

    #[test]
    fn a_client_that_is_removed_while_it_connects_is_looked_up_again() {
        let (clients, _) = clients(BudgetLimits::default());
        drop(clients.enter(ip("192.0.2.1"), Cost::PLAIN));
        assert!(clients.by_address.pin().get(&ip("192.0.2.1")).unwrap().forget());
        let permit = clients.enter(ip("192.0.2.1"), Cost::PLAIN).unwrap();
        assert!(!permit.client_use.is_forgotten());
        assert_eq!(PermitKind::Connection.among(permit.client_use.places.load(Relaxed)), 1);
    }

    #[test]
    fn many_clients_that_left_are_not_remembered() {
        let (clients, _) = clients(BudgetLimits::default());
        for number in 0..2 * REMEMBERED_MAX as u32 {
            drop(clients.enter(IpAddr::V4(number.into()), Cost::PLAIN));
        }
        assert!(clients.by_address.len() <= REMEMBERED_MAX + 1);
        clients.sweep();
        assert_eq!(clients.by_address.len(), 0);
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
        assert!(one.charge(Cost::NATIVE_REQUEST) && other.charge(Cost::NATIVE_REQUEST));
        assert!(!one.charge(Cost::NATIVE_REQUEST) && !other.charge(Cost::NATIVE_REQUEST));
        one.release(Cost::NATIVE_REQUEST);
        assert!(other.charge(Cost::NATIVE_REQUEST));
    }

    #[test]
    fn under_pressure_an_address_holds_no_more_than_its_share() {
        let (clients, budget) = clients(BudgetLimits { files: 8, ..BudgetLimits::default() });
        let permit = clients.enter(ip("192.0.2.1"), Cost::PLAIN).unwrap();
        let request = Cost::NATIVE_REQUEST;
        assert!(permit.charge(request) && permit.charge(request), "more than a quarter, with room left");
        assert!(budget.charge(Cost::new(4, 0)));
        assert!(!permit.charge(request) && clients.enter(ip("192.0.2.1"), Cost::PLAIN).is_none());
        assert!(clients.enter(ip("192.0.2.2"), Cost::PLAIN).is_some());
        permit.release(request);
        permit.release(request);
        assert!(permit.charge(request));
        budget.release(Cost::new(4, 0));
        assert!(permit.charge(request));
    }
}
