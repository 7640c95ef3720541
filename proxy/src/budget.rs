//! What traffic may take of the process's files and memory at once, over all threads. Connections and requests are charged
//! before they are served, at fixed costs, so that no client and no endpoint decides how much that is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tidegate_config::model::BindProtocol;

/// Bits of [`Cost`] that count memory, in KiB; the bits above them count files.
const MEMORY_BITS: u32 = 40;

/// The share of the memory limit above which the resident memory speaks of pressure, in percent.
const RESIDENT_PRESSED: u64 = 80;

/// The part of the memory, as its divisor, that is left to what can be done without. Half of this would be pressure, and this much of
/// traffic would have the resident memory be held against it.
const SPARE_PART: u64 = 4;

/// The share of the memory limit above which nothing more is charged, in percent.
const RESIDENT_EXHAUSTED: u64 = 90;

/// Files and memory as one number, so that both are charged by one atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cost(u64);

impl Cost {
    /// A connection of a client in plain text: its socket, and the buffer of a head that arrives.
    pub(crate) const PLAIN: Self = Self::new(1, 8);
    /// A connection of a client over TLS.
    pub(crate) const TLS: Self = Self::new(1, 16);
    /// What HTTP/2 adds to a connection: the state of h2, and its buffers for reading and writing.
    pub(crate) const HTTP2: Self = Self::new(0, 40);
    /// A request in the native driver: its connection to an endpoint, and a buffer for each end of both directions.
    pub(crate) const NATIVE_REQUEST: Self = Self::new(1, 64);
    /// A request in the full driver, where Pingora buffers up to ten pieces of a response that its client does not take, 160 KiB of an
    /// endpoint in HTTP/2, and h2 decodes heads before anybody can refuse them.
    pub(crate) const FULL_REQUEST: Self = Self::new(1, 256);
    /// A tunnel, such as a WebSocket, which is mostly silent.
    pub(crate) const TUNNEL: Self = Self::new(1, 64);
    /// What the encoder of a compressed response adds to its request: the window, the tables of what was seen in it, and what waits
    /// to be given.
    pub(crate) const COMPRESSION: Self = Self::new(0, 376);

    /// A copy of a request for another target: its connection, its head and its body.
    pub(crate) const MIRROR: Self = Self::new(1, 72);

    /// A question to an authorisation service: its connection, and the head and the answer, which may be as long as a held body.
    pub(crate) const EXTERNAL_AUTH: Self = Self::new(1, 96);

    /// A connection that is passed on unread: its socket and that to an endpoint, and a piece that waits in each direction.
    pub(crate) const STREAM: Self = Self::new(2, 40);

    /// A flow of datagrams: its socket to an endpoint, its task, and what the kernel keeps of it.
    pub(crate) const FLOW: Self = Self::new(1, 8);

    /// What a connection takes before it has a request.
    pub(crate) const fn of_connection(protocol: BindProtocol) -> Self {
        match protocol {
            BindProtocol::Http => Self::PLAIN,
            BindProtocol::Https => Self::TLS,
            BindProtocol::Tcp => Self::STREAM,
            BindProtocol::Udp => Self::FLOW,
        }
    }

    /// So many files and so many KiB of memory.
    pub(crate) const fn new(files: u32, memory_kib: u32) -> Self {
        Self::of(files as u64, memory_kib as u64)
    }

    /// So many files and so many KiB of memory, each within what can be counted.
    const fn of(files: u64, memory_kib: u64) -> Self {
        Self((files << MEMORY_BITS) + memory_kib)
    }

    /// Files.
    pub(crate) const fn files(self) -> u64 {
        self.0 >> MEMORY_BITS
    }

    /// Memory in KiB.
    pub(crate) const fn memory_kib(self) -> u64 {
        self.0 & ((1 << MEMORY_BITS) - 1)
    }

    /// This and another one.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// How much more it is than a smaller one.
    pub(crate) const fn beyond(self, smaller: Self) -> Self {
        Self(self.0.saturating_sub(smaller.0))
    }

    /// Whether neither files nor memory are more than those of another.
    const fn is_within(self, other: Self) -> bool {
        self.files() <= other.files() && self.memory_kib() <= other.memory_kib()
    }
}

/// Files and memory that are taken, to be charged and released by several threads.
#[derive(Debug, Default)]
pub(crate) struct Taken(AtomicU64);

impl Taken {
    /// Adds a cost; what is taken then.
    pub(crate) fn add(&self, cost: Cost) -> Cost {
        Cost(self.0.fetch_add(cost.0, Relaxed) + cost.0)
    }

    /// Adds a cost if what is taken then may be; whether it did.
    fn add_if(&self, cost: Cost, may: impl Fn(Cost) -> bool) -> bool {
        let more = |taken: u64| Some(Cost(taken).and(cost)).filter(|then| may(*then)).map(|then| then.0);
        self.0.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Takes back a cost that was added.
    pub(crate) fn sub(&self, cost: Cost) {
        self.0.fetch_sub(cost.0, Relaxed);
    }

    /// What is taken now.
    pub(crate) fn now(&self) -> Cost {
        Cost(self.0.load(Relaxed))
    }
}

/// The most that traffic may take, and how it is shared out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetLimits {
    /// Sockets of clients and to endpoints that may be in use at the same time; idle ones to endpoints are counted
    /// elsewhere. From 1 to 8,388,607.
    pub files: u32,
    /// Memory that connections and requests may take at the same time, in KiB, from 1 to 274,877,906,943.
    pub memory_kib: u64,
    /// The limit of the whole process's memory, in KiB, against which its resident memory is held; 0 for none.
    pub resident_max_kib: u64,
    /// The share of either, in percent from 1 to 100, that one client address may hold once half of it is taken; 100 lets it
    /// hold everything.
    pub client_share: u8,
    /// Connections of one client address; 0 for any number.
    pub client_connections: u32,
    /// Requests at endpoints of one client address; 0 for any number.
    pub client_requests: u32,
    /// Requests at the endpoints of one Service port, where the Service says nothing else; 0 for any number.
    pub service_requests: u32,
}

impl Default for BudgetLimits {
    /// As much as can be counted, a quarter for each client address, and 1,024 requests for each Service port.
    fn default() -> Self {
        Self {
            files: (1 << 23) - 1,
            memory_kib: (1 << (MEMORY_BITS - 2)) - 1,
            resident_max_kib: 0,
            client_share: 25,
            client_connections: 0,
            client_requests: 0,
            service_requests: 1024,
        }
    }
}

/// What is taken, and how much may be.
#[derive(Debug)]
pub(crate) struct Budget {
    /// What the process may take.
    max: Cost,
    /// Files that the configuration allows: `u64::MAX` where it leaves that to the process.
    files_max: AtomicU64,
    client_percent: u64,
    resident_max_kib: u64,
    taken: Taken,
    /// What the resident memory says.
    resident_pressed: AtomicBool,
    resident_exhausted: AtomicBool,
}

/// A cost that is charged for as long as this lives.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    cost: Cost,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.release(self.cost);
    }
}

impl Budget {
    /// Nothing is taken yet.
    pub(crate) fn new(limits: &BudgetLimits) -> Self {
        let most = BudgetLimits::default();
        let files = limits.files.clamp(1, most.files);
        let memory_kib = limits.memory_kib.clamp(1, most.memory_kib);
        Self {
            max: Cost::of(files.into(), memory_kib),
            files_max: AtomicU64::new(u64::MAX),
            client_percent: u64::from(limits.client_share.clamp(1, 100)),
            resident_max_kib: limits.resident_max_kib,
            taken: Taken::default(),
            resident_pressed: AtomicBool::new(false),
            resident_exhausted: AtomicBool::new(false),
        }
    }

    /// Charges a cost unless that would be more than there may be; whether it did. What was charged is to be given back by
    /// [`Self::release`].
    pub(crate) fn charge(&self, cost: Cost) -> bool {
        let fits = self.taken.add(cost).is_within(self.max());
        if !fits {
            self.release(cost);
        }
        fits
    }

    /// Charges what a request can do without, as long as less than a quarter of the memory is taken with it, and nothing is pressed;
    /// whether it did. By itself it never brings about pressure.
    pub(crate) fn charge_spare(&self, cost: Cost) -> bool {
        let is_spare = |taken: Cost| taken.memory_kib() * SPARE_PART < self.max.memory_kib();
        !self.is_pressed() && self.taken.add_if(cost, is_spare)
    }

    /// Gives back what was charged.
    pub(crate) fn release(&self, cost: Cost) {
        self.taken.sub(cost);
    }

    /// Keeps what was charged until the returned value is dropped.
    pub(crate) fn keep(self: &Arc<Self>, cost: Cost) -> Charge {
        Charge { budget: Arc::clone(self), cost }
    }

    /// What is taken now.
    pub(crate) fn taken(&self) -> Cost {
        self.taken.now()
    }

    /// The most that may be taken.
    pub(crate) fn max(&self) -> Cost {
        Cost::of(self.max.files().min(self.files_max.load(Relaxed)), self.max.memory_kib())
    }

    /// Notes how many files the configuration allows, `None` for as many as the process may have. It holds for what is charged
    /// from now on; what is taken already ends by itself.
    pub(crate) fn allow_files(&self, files: Option<u64>) {
        let files = files.map_or(u64::MAX, |files| files.max(1));
        // Written only when it differs, for all traffic threads read it.
        if self.files_max.load(Relaxed) != files {
            self.files_max.store(files, Relaxed);
        }
    }

    /// Requests that one Service port may have, whatever it or the operator says: half of as many as there may be at all, so that
    /// no tenant's endpoints take everything.
    pub(crate) fn service_max(&self) -> u32 {
        let max = self.max();
        let half = max.files().min(max.memory_kib() / Cost::NATIVE_REQUEST.memory_kib()).div_ceil(2).max(1);
        u32::try_from(half).unwrap_or(u32::MAX)
    }

    /// Whether half of the files or of the memory is taken: from here on slow clients and those that hold much give way.
    pub(crate) fn is_pressed(&self) -> bool {
        let (taken, max) = (self.taken(), self.max());
        taken.files() * 2 >= max.files()
            || taken.memory_kib() * 2 >= max.memory_kib()
            || self.resident_pressed.load(Relaxed)
    }

    /// Whether the resident memory leaves room for nothing more, whatever is charged.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.resident_exhausted.load(Relaxed)
    }

    /// Whether one client may hold so much, now.
    pub(crate) fn is_fair(&self, held: Cost) -> bool {
        self.is_within_share(held) || !self.is_pressed()
    }

    /// Whether that is no more than one client's share, which counts under pressure.
    pub(crate) fn is_within_share(&self, held: Cost) -> bool {
        let max = self.max();
        self.is_part(held.files(), max.files()) && self.is_part(held.memory_kib(), max.memory_kib())
    }

    /// Whether one client's share of all is so much.
    pub(crate) fn is_part(&self, held: u64, all: u64) -> bool {
        // All of it is more than there is: what is to give way may be the client's own.
        self.client_percent == 100 || held <= (all * self.client_percent / 100).max(1)
    }

    /// Notes the resident memory of the process, in KiB. Costs are what usual requests take; the resident memory shows when
    /// traffic takes more. A process that is large for other reasons goes on serving: only while traffic is charged for at
    /// least a quarter of its memory is it refused.
    pub(crate) fn note_resident(&self, kib: u64) {
        let above = |percent: u64| self.resident_max_kib > 0 && kib * 100 >= self.resident_max_kib * percent;
        let is_traffic = self.taken().memory_kib() * SPARE_PART >= self.max.memory_kib();
        self.resident_pressed.store(above(RESIDENT_PRESSED) && is_traffic, Relaxed);
        self.resident_exhausted.store(above(RESIDENT_EXHAUSTED) && is_traffic, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(files: u32, memory_kib: u64) -> Budget {
        Budget::new(&BudgetLimits { files, memory_kib, resident_max_kib: 1000, ..BudgetLimits::default() })
    }

    #[test]
    fn nothing_is_charged_beyond_either_limit() {
        let budget = budget(4, 100);
        let (file, memory) = (Cost::new(1, 10), Cost::new(0, 61));
        assert!(budget.charge(file) && !budget.is_pressed());
        assert!(budget.charge(file) && budget.is_pressed(), "half of the files");
        assert!(budget.charge(file));
        assert!(!budget.charge(Cost::new(0, 71)) && !budget.charge(Cost::new(2, 0)));
        assert_eq!(budget.taken(), Cost::new(3, 30));
        budget.release(file);
        budget.release(file);
        assert!(!budget.is_pressed());
        assert!(budget.charge(memory) && budget.is_pressed(), "half of the memory");
        budget.release(memory);
        budget.release(file);
        assert_eq!(budget.taken(), Cost::default());
    }

    #[test]
    fn what_can_be_done_without_never_brings_about_pressure() {
        for memory_kib in [1000, 376 * 4, 376 * 4 + 1, 376 * 16, 376 * 16 + 1, 100_000] {
            let budget = budget(1000, memory_kib);
            let count =
                std::iter::repeat_with(|| budget.charge_spare(Cost::COMPRESSION)).take_while(|did| *did).count();
            assert_eq!(count as u64, (memory_kib - 1) / (4 * 376), "of {memory_kib} KiB");
            budget.note_resident(990);
            assert!(!budget.is_pressed() && !budget.is_exhausted(), "of {memory_kib} KiB");
        }
        let budget = budget(2, 100_000);
        assert!(budget.charge(Cost::PLAIN) && budget.is_pressed() && !budget.charge_spare(Cost::COMPRESSION));
    }

    #[test]
    fn limits_are_brought_into_what_can_be_counted() {
        let most = BudgetLimits::default();
        let largest = budget(u32::MAX, u64::MAX).max();
        assert_eq!((largest.files(), largest.memory_kib()), (most.files.into(), most.memory_kib));
        assert!(budget(0, 0).charge(Cost::new(1, 1)));
    }

    #[test]
    fn a_client_may_hold_everything_until_half_is_taken() {
        let budget = budget(100, 1000);
        let held = Cost::new(26, 0);
        assert!(budget.is_fair(held));
        assert!(budget.charge(Cost::new(50, 0)));
        assert!(!budget.is_fair(held) && budget.is_fair(Cost::new(25, 250)) && !budget.is_fair(Cost::new(0, 251)));
    }

    #[test]
    fn the_configuration_allows_fewer_files_and_never_more() {
        let budget = budget(100, 1_000_000);
        let connection = Cost::new(10, 0);
        budget.allow_files(Some(20));
        assert_eq!((budget.max().files(), budget.service_max()), (20, 10));
        assert!(budget.charge(connection) && budget.is_pressed());
        assert!(!budget.is_fair(Cost::new(6, 0)) && budget.is_fair(Cost::new(5, 0)));
        assert!(budget.charge(connection) && !budget.charge(connection));
        budget.allow_files(Some(5));
        assert!(!budget.charge(Cost::new(1, 0)), "what is taken ends by itself");
        budget.allow_files(Some(1000));
        assert_eq!(budget.max().files(), 100);
        budget.allow_files(None);
        assert!(budget.charge(connection) && !budget.is_pressed());
    }

    #[test]
    fn one_service_has_half_of_everything_at_most() {
        assert_eq!(budget(100, 1_000_000).service_max(), 50);
        assert_eq!(budget(100, 64 * 10).service_max(), 5);
        assert_eq!((budget(3, 1_000_000).service_max(), budget(1, 1).service_max()), (2, 1));
    }

    #[test]
    fn resident_memory_counts_while_traffic_takes_its_part() {
        let budget = budget(100, 1000);
        budget.note_resident(950);
        assert!(!budget.is_pressed() && budget.charge(Cost::new(0, 250)), "the rest of the process is large");
        budget.note_resident(950);
        assert!(budget.is_pressed() && budget.is_exhausted());
        budget.note_resident(850);
        assert!(budget.is_pressed() && !budget.is_exhausted());
        budget.note_resident(750);
        assert!(!budget.is_pressed());
    }
}
