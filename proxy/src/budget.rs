//! The budget of the process's files and memory for traffic, over all threads. Connections and requests are charged at
//! fixed costs before they are served, independent of the client and the endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use tidegate_config::model::BindProtocol;

/// The low bits of [`Cost`], which count memory in KiB; the bits above them count files.
const MEMORY_BITS: u32 = 40;

/// The percentage of the memory limit above which the resident memory counts as pressure.
const RESIDENT_PRESSED: u64 = 80;

/// The divisor of the memory for optional work: a quarter. Half of the memory is pressure, and with a quarter charged
/// to traffic the resident memory is compared with the limit.
const SPARE_PART: u64 = 4;

/// The percentage of the memory limit above which nothing more is charged.
const RESIDENT_EXHAUSTED: u64 = 90;

/// The number of listening sockets of all threads that are not taken from the files for traffic.
const LISTENING_RESERVED: u32 = 64;

/// Files and memory as one number, so that both are charged by one atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cost(u64);

impl Cost {
    /// A plain-text downstream connection: its socket, and the buffer of an incoming head.
    pub(crate) const PLAIN: Self = Self::new(1, 8);
    /// A downstream connection over TLS.
    pub(crate) const TLS: Self = Self::new(1, 16);
    /// The additional cost of HTTP/2: the state of h2, and its read and write buffers.
    pub(crate) const HTTP2: Self = Self::new(0, 40);
    /// A request in the native driver: its upstream connection, and a buffer for each end of both directions.
    pub(crate) const NATIVE_REQUEST: Self = Self::new(1, 64);
    /// A request in the Pingora driver, where Pingora buffers up to ten pieces of a response for a slow client, and h2
    /// decodes up to 128 KiB of a head before it can be refused.
    pub(crate) const PINGORA_REQUEST: Self = Self::new(1, 256);
    /// A tunnel, such as a WebSocket, which is mostly idle.
    pub(crate) const TUNNEL: Self = Self::new(1, 64);
    /// The additional cost of a compressed response: the window and the hash tables of the encoder, and its pending
    /// output.
    pub(crate) const COMPRESSION: Self = Self::new(0, 376);

    /// A mirrored request: its connection, its head and its body.
    pub(crate) const MIRROR: Self = Self::new(1, 72);

    /// A call to an authorisation service: its connection, head and answer, which is up to the size of a held body.
    pub(crate) const EXTERNAL_AUTH: Self = Self::new(1, 96);

    /// The additional cost of a connection of a TLS listener whose bytes are passed on: the upstream socket, and a
    /// pending piece in each direction.
    pub(crate) const TLS_STREAM: Self = Self::new(1, 32);

    /// A local reply that its client does not take at once: the head of the request stays until it does.
    pub(crate) const LOCAL_REPLY: Self = Self::new(0, 64);

    /// A connection that is passed on unread: its socket and the upstream one, and a pending piece in each direction.
    pub(crate) const STREAM: Self = Self::new(2, 40);

    /// A flow of datagrams: its upstream socket, its task, and the kernel's buffers.
    pub(crate) const FLOW: Self = Self::new(1, 8);

    /// The cost of a connection before its first request.
    pub(crate) const fn of_connection(protocol: BindProtocol) -> Self {
        match protocol {
            BindProtocol::Http => Self::PLAIN,
            BindProtocol::Https => Self::TLS,
            BindProtocol::Tcp => Self::STREAM,
            BindProtocol::Udp => Self::FLOW,
        }
    }

    /// The additional cost of an incomplete head that has outgrown the buffer of a plain connection.
    pub(crate) const fn of_long_head(bytes_max: usize) -> Self {
        Self::of(0, bytes_max.div_ceil(1024) as u64)
    }

    /// A cost in files and KiB of memory.
    pub(crate) const fn new(files: u32, memory_kib: u32) -> Self {
        Self::of(files as u64, memory_kib as u64)
    }

    /// A cost in files and KiB of memory, each within the range of the type.
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

    /// The sum of two costs.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// The difference to a smaller cost.
    pub(crate) const fn beyond(self, smaller: Self) -> Self {
        Self(self.0.saturating_sub(smaller.0))
    }

    /// Returns `true` if neither files nor memory exceed those of another cost.
    pub(crate) const fn is_within(self, other: Self) -> bool {
        self.files() <= other.files() && self.memory_kib() <= other.memory_kib()
    }
}

/// Charged files and memory, shared by several threads.
#[derive(Debug, Default)]
pub(crate) struct Usage(AtomicU64);

impl Usage {
    /// Adds a cost and returns the new sum.
    pub(crate) fn add(&self, cost: Cost) -> Cost {
        Cost(self.0.fetch_add(cost.0, Relaxed) + cost.0)
    }

    /// Adds a cost if the new sum is allowed. Returns `true` if it was added.
    fn add_if(&self, cost: Cost, may: impl Fn(Cost) -> bool) -> bool {
        let more = |taken: u64| Some(Cost(taken).and(cost)).filter(|then| may(*then)).map(|then| then.0);
        self.0.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Subtracts a cost that was added.
    pub(crate) fn sub(&self, cost: Cost) {
        self.0.fetch_sub(cost.0, Relaxed);
    }

    /// The current sum.
    pub(crate) fn now(&self) -> Cost {
        Cost(self.0.load(Relaxed))
    }
}

/// The limits of the budget, and its fair shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetLimits {
    /// The maximum number of open sockets of clients and to endpoints; idle connections to endpoints are counted
    /// elsewhere. From 1 to 8,388,607.
    pub files: u32,
    /// The maximum memory of connections and requests together, in KiB, from 1 to 274,877,906,943.
    pub memory_kib: u64,
    /// The limit of the whole process's resident memory in KiB; 0 for none.
    pub resident_max_kib: u64,
    /// The share of either, in percent from 1 to 100, that one client address may hold under pressure, which begins
    /// when half is taken; 100 for no limit.
    pub client_share: u8,
    /// The maximum number of connections of one client address; 0 for no limit.
    pub client_connections: u32,
    /// The maximum number of requests in flight of one client address; 0 for no limit.
    pub client_requests: u32,
    /// The maximum number of requests in flight to one Service port, unless the Service sets its own; 0 for no limit.
    pub service_requests: u32,
}

impl Default for BudgetLimits {
    /// The largest possible limits, a quarter for each client address, and 1,024 requests for each Service port.
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

/// The charged costs and their limits.
#[derive(Debug)]
pub(crate) struct Budget {
    /// The limits of the process.
    max: Cost,
    /// The limit of files in the configuration; `u64::MAX` for that of the process.
    files_max: AtomicU64,
    client_percent: u64,
    resident_max_kib: u64,
    taken: Usage,
    /// The number of listening sockets.
    listening: AtomicU32,
    /// The state of the resident memory.
    resident_pressed: AtomicBool,
    resident_exhausted: AtomicBool,
}

/// A cost that is charged until this is dropped.
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

/// A listening socket, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct ListeningSocket(Arc<Budget>);

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        self.0.listening.fetch_sub(1, Relaxed);
    }
}

impl Budget {
    /// A budget with nothing charged.
    pub(crate) fn new(limits: &BudgetLimits) -> Self {
        let most = BudgetLimits::default();
        let files = limits.files.clamp(1, most.files);
        let memory_kib = limits.memory_kib.clamp(1, most.memory_kib);
        Self {
            max: Cost::of(files.into(), memory_kib),
            files_max: AtomicU64::new(u64::MAX),
            client_percent: u64::from(limits.client_share.clamp(1, 100)),
            resident_max_kib: limits.resident_max_kib,
            taken: Usage::default(),
            listening: AtomicU32::new(0),
            resident_pressed: AtomicBool::new(false),
            resident_exhausted: AtomicBool::new(false),
        }
    }

    /// Charges a cost unless that exceeds the limits. Returns `true` if it was charged; the caller must return it with
    /// [`Self::release`].
    pub(crate) fn charge(&self, cost: Cost) -> bool {
        let fits = self.taken.add(cost).is_within(self.max());
        if !fits {
            self.release(cost);
        }
        fits
    }

    /// Charges optional work of a request, while less than a quarter of the memory is taken with it and there is no
    /// pressure. Returns `true` if it was charged. Optional work alone never causes pressure.
    pub(crate) fn charge_spare(&self, cost: Cost) -> bool {
        let is_spare = |taken: Cost| taken.memory_kib() * SPARE_PART < self.max.memory_kib();
        !self.is_pressed() && self.taken.add_if(cost, is_spare)
    }

    /// Returns a charged cost.
    pub(crate) fn release(&self, cost: Cost) {
        self.taken.sub(cost);
    }

    /// Keeps a charged cost until the returned value is dropped.
    pub(crate) fn keep(self: &Arc<Self>, cost: Cost) -> Charge {
        Charge { budget: Arc::clone(self), cost }
    }

    /// The sum of the charged costs.
    pub(crate) fn taken(&self) -> Cost {
        self.taken.now()
    }

    /// The limits.
    pub(crate) fn max(&self) -> Cost {
        let beyond = u64::from(self.listening.load(Relaxed).saturating_sub(LISTENING_RESERVED));
        let files = self.max.files().saturating_sub(beyond).max(1);
        Cost::of(files.min(self.files_max.load(Relaxed)), self.max.memory_kib())
    }

    /// Counts a listening socket. It is never refused; beyond a reserve, traffic has fewer files for it.
    pub(crate) fn listen(self: &Arc<Self>) -> ListeningSocket {
        self.listening.fetch_add(1, Relaxed);
        ListeningSocket(Arc::clone(self))
    }

    /// Sets the limit of files in the configuration, `None` for that of the process. It applies to later charges;
    /// existing ones end by themselves.
    pub(crate) fn allow_files(&self, files: Option<u64>) {
        let files = files.map_or(u64::MAX, |files| files.max(1));
        // Written only if it differs, because all traffic threads read it.
        if self.files_max.load(Relaxed) != files {
            self.files_max.store(files, Relaxed);
        }
    }

    /// The maximum cost of the requests of one Service port, whatever it or the operator sets: half of the memory, and
    /// a quarter of the files, because each request may hold a connection of a client as well. So the endpoints of one
    /// tenant do not take everything.
    pub(crate) fn service_max(&self) -> Cost {
        let max = self.max();
        Cost::of(max.files().div_ceil(4), max.memory_kib().div_ceil(2))
    }

    /// Returns `true` under pressure: half of the files or of the memory is taken. Slow clients, and those that hold
    /// much, are then disconnected or refused.
    pub(crate) fn is_pressed(&self) -> bool {
        let (taken, max) = (self.taken(), self.max());
        taken.files() * 2 >= max.files()
            || taken.memory_kib() * 2 >= max.memory_kib()
            || self.resident_pressed.load(Relaxed)
    }

    /// Returns `true` if the resident memory leaves no room, whatever is charged.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.resident_exhausted.load(Relaxed)
    }

    /// Returns `true` if one client may hold this cost at present.
    pub(crate) fn is_fair(&self, held: Cost) -> bool {
        self.is_within_share(held) || !self.is_pressed()
    }

    /// Returns `true` if this is within one client's share, which limits clients under pressure.
    pub(crate) fn is_within_share(&self, held: Cost) -> bool {
        let max = self.max();
        self.is_part(held.files(), max.files()) && self.is_part(held.memory_kib(), max.memory_kib())
    }

    /// Returns `true` if `held` is within one client's share of `all`.
    pub(crate) fn is_part(&self, held: u64, all: u64) -> bool {
        // With 100 percent there is no limit: pressure may come from the client's own connections.
        self.client_percent == 100 || held <= (all * self.client_percent / 100).max(1)
    }

    /// Sets the resident memory of the process, in KiB. Costs are those of typical requests; the resident memory shows
    /// when traffic takes more. A process that is large for other reasons continues to serve: it refuses traffic only
    /// while a quarter of its memory is charged to traffic.
    pub(crate) fn note_resident(&self, kib: u64) {
        let above = |percent: u64| self.resident_max_kib > 0 && kib * 100 >= self.resident_max_kib * percent;
        let is_traffic = self.taken().memory_kib() * SPARE_PART >= self.max.memory_kib();
        self.resident_pressed.store(above(RESIDENT_PRESSED) && is_traffic, Relaxed);
        self.resident_exhausted.store(above(RESIDENT_EXHAUSTED) && is_traffic, Relaxed);
    }
}

#[cfg(test)]
mod tests;
