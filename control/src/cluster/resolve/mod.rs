//! Resolves the names of ExternalName Services for as long as they are wanted, and sends the control loop an event when
//! their addresses change. Which addresses may be used is decided elsewhere.
//!
//! Names are fully qualified: neither search domains nor the hosts file of this machine apply to names in Services.

mod tracked;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, join};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::clock;
use crate::cluster::cache::Sink;
use crate::cluster::fetch_schedule::{Fetch, FetchSchedule};
use crate::event::Event;
use crate::interest::Names;
use tracked::{LookupResult, Tracked};

/// The names that are wanted.
pub type Wanted = watch::Receiver<Arc<Names>>;

/// The addresses of names from before a restart.
type RestoredAddresses = BTreeMap<Arc<str>, Box<[IpAddr]>>;

/// The DNS servers to query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Upstream {
    /// The servers of `/etc/resolv.conf`, read once when the resolver starts.
    System,
    /// These servers, by UDP, and by TCP for long answers.
    Servers(Vec<SocketAddr>),
}

/// Limits of the resolver. The number of names is limited by the number of Services that have them.
#[derive(Clone, Debug)]
pub struct ResolveLimits {
    /// The range that the TTL of an answer is clamped to.
    pub ttl: RangeInclusive<Duration>,
    /// The back-off after a lookup that found nothing or failed, from its initial to its longest delay.
    pub retry: RangeInclusive<Duration>,
    /// How long addresses are kept while lookups fail.
    pub keep: Duration,
    /// The limit of concurrent lookups. One namespace has at most half of them, rounded up.
    pub lookups_max: usize,
    /// The timeout of one lookup, with its retries.
    pub lookup: Duration,
}

impl Default for ResolveLimits {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(1)..=Duration::from_secs(3600),
            retry: Duration::from_secs(5)..=Duration::from_secs(60),
            keep: Duration::from_secs(3600),
            lookups_max: 32,
            lookup: Duration::from_secs(15),
        }
    }
}

/// Resolves the wanted names. Clones are independent, so that a supervisor can restart one that panicked.
#[derive(Clone)]
pub struct Resolver {
    upstream: Upstream,
    limits: ResolveLimits,
    wanted: Wanted,
    events: mpsc::Sender<Event>,
    rng: fastrand::Rng,
    /// Restored addresses of names that have not been wanted yet.
    kept: RestoredAddresses,
    /// The writer of answers to the cache on disk.
    sink: Option<Sink>,
}

/// The end of a lookup.
struct Looked {
    turn: Fetch<Arc<str>>,
    /// IPv4, then IPv6.
    found: [LookupResult; 2],
}

/// The state of one run.
struct ResolverState {
    dns: TokioResolver,
    limits: ResolveLimits,
    names: BTreeMap<Arc<str>, Tracked>,
    schedule: FetchSchedule<Arc<str>>,
    lookups: FuturesUnordered<BoxFuture<'static, Looked>>,
}

impl Resolver {
    /// A resolver that has not started. `seed` decides its delays.
    #[must_use]
    pub fn new(
        upstream: Upstream,
        limits: ResolveLimits,
        wanted: Wanted,
        events: mpsc::Sender<Event>,
        seed: u64,
    ) -> Self {
        let (rng, kept) = (fastrand::Rng::with_seed(seed), BTreeMap::new());
        Self { upstream, limits, wanted, events, rng, kept, sink: None }
    }

    /// A resolver with the system's DNS servers and the default limits.
    #[must_use]
    pub fn from_system(wanted: Wanted, events: mpsc::Sender<Event>) -> Self {
        Self::new(Upstream::System, ResolveLimits::default(), wanted, events, fastrand::u64(..))
    }

    /// The same, with answers kept on disk, and with the restored ones to start with.
    #[must_use]
    pub fn keeping(mut self, sink: Option<Sink>, kept: BTreeMap<Arc<str>, Box<[IpAddr]>>) -> Self {
        (self.sink, self.kept) = (sink, kept);
        self
    }

    /// Looks names up until `stop` is cancelled, or until the sender of names or the receiver of events is gone.
    pub async fn run(self, stop: CancellationToken) {
        let _done: Option<()> = stop.run_until_cancelled(self.follow()).await;
    }

    async fn follow(mut self) {
        let mut work = ResolverState::new(self.connect().await, self.limits.clone());
        self.wanted.mark_changed();
        let mut any = false;
        loop {
            work.begin_lookups(clock::now());
            let due = work.schedule.due();
            tokio::select! {
                changed = self.wanted.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let wanted = Arc::clone(&self.wanted.borrow_and_update());
                    let recalled = work.want(&wanted, &mut self.kept, clock::now());
                    // The list of names is empty before the first model.
                    any |= !wanted.is_empty();
                    if let Some(sink) = self.sink.as_ref().filter(|_| any) {
                        sink.retain(wanted.keys().map(ToString::to_string));
                    }
                    for (name, addresses) in recalled {
                        if self.events.send(Event::Resolved { name, addresses: Ok(addresses) }).await.is_err() {
                            return;
                        }
                    }
                }
                Some(Looked { turn, found }) = work.lookups.next(), if !work.lookups.is_empty() => {
                    let answer = work.take(&turn, found, clock::now(), self.rng.u64(..));
                    let Some(addresses) = answer else { continue };
                    if let Some(sink) = &self.sink {
                        let found = addresses.as_ref().ok().and_then(|found| serde_json::to_vec(found).ok());
                        sink.value(&turn.key, found.as_deref());
                    }
                    if self.events.send(Event::Resolved { name: turn.key, addresses }).await.is_err() {
                        return;
                    }
                }
                () = tokio::time::sleep_until(due.unwrap_or_else(clock::now).into()), if due.is_some() => {}
            }
        }
    }
}

impl Resolver {
    /// Creates the DNS client, with back-off; until it succeeds the names have no answer.
    async fn connect(&mut self) -> TokioResolver {
        let (first, max) = (*self.limits.retry.start(), *self.limits.retry.end());
        let mut backoff = Backoff::new(first, first, max);
        loop {
            match self.upstream.connect() {
                Ok(dns) => return dns,
                Err(why) => tracing::error!(error = %why, "the DNS client cannot be created; it is retried"),
            }
            tokio::time::sleep(backoff.next(self.rng.u64(..))).await;
        }
    }
}

impl ResolverState {
    fn new(dns: TokioResolver, limits: ResolveLimits) -> Self {
        let schedule = FetchSchedule::new(limits.lookups_max);
        Self { dns, limits, names: BTreeMap::new(), schedule, lookups: FuturesUnordered::new() }
    }

    /// Replaces the set of names. Returns the restored addresses of the new ones: the control loop drops a name that is
    /// not wanted, and a lookup that finds the same addresses would send no event.
    fn want(&mut self, wanted: &Names, kept: &mut RestoredAddresses, now: Instant) -> RestoredAddresses {
        self.names.retain(|name, _| wanted.contains_key(name));
        let mut recalled = RestoredAddresses::new();
        for name in wanted.keys() {
            self.names.entry(Arc::clone(name)).or_insert_with(|| match kept.remove(name) {
                Some(addresses) => {
                    recalled.insert(Arc::clone(name), addresses.clone());
                    Tracked::new(&self.limits).knowing(addresses, &self.limits, now)
                }
                None => Tracked::new(&self.limits),
            });
        }
        self.schedule.want(wanted, now);
        recalled
    }

    fn begin_lookups(&mut self, now: Instant) {
        while let Some(turn) = self.schedule.begin(now) {
            self.lookups.push(look_up(self.dns.clone(), turn, self.limits.lookup).boxed());
        }
    }

    /// Takes the result of a lookup; returns the answer if it has changed.
    fn take(
        &mut self,
        turn: &Fetch<Arc<str>>,
        found: [LookupResult; 2],
        now: Instant,
        draw: u64,
    ) -> Option<tracked::Answer> {
        // The name may no longer be wanted, or may have been dropped and wanted again during the lookup: in the second
        // case this answer is as good as that of the next lookup, which sets its own due time.
        let taken = self.names.get_mut(&turn.key).map(|tracked| tracked.take(found, &self.limits, now, draw));
        self.schedule.end(turn, taken.as_ref().map(|(_, delay)| now + *delay));
        taken?.0
    }
}

async fn look_up(dns: TokioResolver, turn: Fetch<Arc<str>>, within: Duration) -> Looked {
    let found = both_families(&dns, &turn.key, within).await;
    Looked { turn, found }
}

/// The addresses of a name, looked up once.
///
/// # Errors
/// The reason why there are none.
pub(crate) async fn addresses_of(upstream: &Upstream, name: &str) -> Result<Vec<IpAddr>, String> {
    let limits = ResolveLimits::default();
    let dns = upstream.connect().map_err(|why| format!("the DNS client cannot be created: {why}"))?;
    let found = both_families(&dns, name, limits.lookup).await;
    let (answer, _delay) = Tracked::new(&limits).take(found, &limits, clock::now(), 0);
    answer.map_or_else(|| Ok(Vec::new()), |answer| answer.map(Vec::from))
}

/// Looks up both address families concurrently. A name that is not a valid DNS name has no addresses.
async fn both_families(dns: &TokioResolver, name: &str, within: Duration) -> [LookupResult; 2] {
    let Ok(mut full) = Name::from_ascii(name) else {
        return [LookupResult::Nothing, LookupResult::Nothing];
    };
    full.set_fqdn(true);
    let family = async |kind| match tokio::time::timeout(within, dns.lookup(full.clone(), kind)).await {
        Ok(answer) => found(answer),
        Err(_elapsed) => LookupResult::Failed,
    };
    let (v4, v6) = join!(family(RecordType::A), family(RecordType::AAAA));
    [v4, v6]
}

fn found(answer: Result<Lookup, NetError>) -> LookupResult {
    match answer {
        Ok(lookup) => {
            let addresses: Vec<IpAddr> = lookup.answers().iter().filter_map(|record| address(&record.data)).collect();
            // The TTL of a chain of aliases is that of its shortest-lived record.
            let ttl_s = lookup.answers().iter().map(|record| record.ttl).min().unwrap_or_default();
            if addresses.is_empty() {
                LookupResult::Nothing
            } else {
                LookupResult::Addresses { addresses, ttl: Duration::from_secs(u64::from(ttl_s)) }
            }
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(none)))
            if matches!(none.response_code, ResponseCode::NXDomain | ResponseCode::NoError) =>
        {
            LookupResult::Nothing
        }
        Err(why) => {
            tracing::debug!(error = %why, "a DNS look-up failed");
            LookupResult::Failed
        }
    }
}

const fn address(data: &RData) -> Option<IpAddr> {
    #[allow(clippy::wildcard_enum_match_arm, reason = "DNS has a hundred record types; two of them are addresses")]
    match data {
        RData::A(a) => Some(IpAddr::V4(a.0)),
        RData::AAAA(aaaa) => Some(IpAddr::V6(aaaa.0)),
        _ => None,
    }
}

impl Upstream {
    fn connect(&self) -> Result<TokioResolver, NetError> {
        let servers = |servers: &[SocketAddr]| {
            let servers = servers.iter().map(|server| name_server(*server)).collect();
            (ResolverConfig::from_name_servers(servers), ResolverOpts::default())
        };
        let (config, mut options) = match self {
            // Without servers every lookup fails, which the findings of the Services then report.
            Self::System => read_system_conf().unwrap_or_else(|why| {
                tracing::error!(error = %why, "no DNS servers: the system's resolver configuration cannot be read");
                servers(&[])
            }),
            Self::Servers(addresses) => servers(addresses),
        };
        // Answers are cached here instead, by the clock of the control loop.
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options;
        builder.build()
    }
}

fn name_server(server: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = server.port();
        connection
    });
    NameServerConfig::new(server.ip(), true, connections.into())
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}
