//! All limits and timeouts of the data plane in one place. Settings of routes are in the snapshot.

mod limit_store;
mod reviews;

use std::path::PathBuf;
use std::time::Duration;

use crate::budget::BudgetLimits;
use crate::http::cdn_loop::LoopToken;

pub use self::limit_store::{LimitStore, ReadSecrets, Secret, StoreAway, StoreNode, StoreSecrets};
pub use self::reviews::{CreateReview, ReviewError, Reviews};

/// Settings of the data plane that do not depend on the snapshot. The defaults suit an edge with untrusted clients.
/// Times of less than a millisecond count as one. Those without a flag have values that suit every edge; they are
/// options because tests shorten them, and so that all limits stand in one place.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of traffic threads, at least 1; each has its own runtime, sockets and upstream connections.
    pub threads: usize,
    /// The files and memory of the process that all traffic together may take.
    pub budget: BudgetLimits,
    /// The limits of a client.
    pub client: ClientLimits,
    /// HTTP/2 with clients.
    pub http2: Http2Limits,
    /// Connections to endpoints.
    pub upstream: UpstreamLimits,
    /// TLS with clients.
    pub tls: TlsLimits,
    /// The counters of rate limits.
    pub counters: CounterLimits,
    /// The store in which all replicas share the counts of rate limits; without one each counts by itself.
    pub limit_store: Option<LimitStore>,
    /// The API server, for rules of authentication and authorisation that ask it; without it they refuse.
    pub reviews: Option<Reviews>,
    /// The drain of connections and flows whose bind or endpoint is removed.
    pub drain: DrainLimits,
    /// The allowed upgrade tokens (RFC 9110 section 7.8), in lower case.
    pub upgrade_tokens: Vec<String>,
    /// Whether a client's valid `X-Request-Id` is kept instead of replaced.
    pub keep_request_id: bool,
    /// Whether responses without `Server`, and local replies, get `Server: tidegate`.
    pub server_header: bool,
    /// Whether responses tell clients their rate limits.
    pub limit_headers: LimitHeaders,
    /// The name for counting passes through this edge in `CDN-Loop` (RFC 8586). Edges in front of one another may share
    /// it or not: each name is counted separately.
    pub loop_token: LoopToken,
    /// How often a request may have passed an edge of this name already; beyond that it is refused.
    pub passes_max: usize,
    /// The destination of the access log.
    pub access_log: AccessLogSink,
    /// The drivers of requests.
    pub driver: Driver,
    /// The interval at which each thread compares its sockets with the snapshot although nothing has changed.
    pub audit: Duration,
}

/// The destination of the access log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum AccessLogSink {
    /// No log.
    Off,
    /// The standard output.
    #[default]
    Stdout,
    /// Appended to this file, which is created if it does not exist.
    File(PathBuf),
}

/// The drivers of requests. The choice does not change the messages to endpoints and clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Driver {
    /// The native driver for unambiguous plain requests, and the Pingora driver for all others.
    #[default]
    Both,
    /// The Pingora driver for all requests; the native one is off.
    Pingora,
}

/// Whether responses tell clients the state of the tightest rate limit of the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LimitHeaders {
    /// No; only refused requests get `Retry-After`.
    #[default]
    Off,
    /// In the fields `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-10.
    Draft,
}

/// The limits of a client in connections, bytes and time.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Whether every connection must begin with a PROXY protocol header, version 1 or 2, as sent by load balancers. It
    /// is used from trusted proxies (those of the snapshot), and read and ignored from others; a connection without one
    /// is closed.
    pub proxy_header: bool,
    /// The maximum size of an HTTP/1 request head in bytes, from the request line to the empty line.
    pub head_bytes_max: usize,
    /// The maximum number of header lines of an HTTP/1 request head. Pingora itself accepts at most 256.
    pub head_lines_max: usize,
    /// The timeout of a new connection's PROXY header, of its first byte, and of each request head from its first byte
    /// to its end.
    pub head_deadline: Duration,
    /// The idle timeout between two requests of a connection.
    pub keep_alive_idle: Duration,
    /// The same for a connection of a trusted proxy, over HTTP/1.1 and over HTTP/2, if it is longer than theirs: a
    /// proxy that sends a request just when the edge closes an idle connection has to answer 502.
    pub proxy_idle: Duration,
    /// The idle timeout within a request body.
    pub body_read_stall: Duration,
    /// The timeout for discarding the rest of a request body before the connection is closed.
    pub body_discard: Duration,
    /// The timeout of one write to a client that does not read.
    pub write_stall: Duration,
    /// The minimum rate of clients while the edge waits for them.
    pub rates: RateLimits,
}

impl ClientLimits {
    /// The idle timeout of a connection, `usual` for clients that are not trusted proxies.
    pub(crate) fn idle(&self, usual: Duration, is_proxy: bool) -> Duration {
        if is_proxy { usual.max(self.proxy_idle) } else { usual }
    }
}

/// The minimum rate at which a client sends a request body or reads a response. Only time in which the edge waits for
/// the client counts: a slow endpoint does not affect its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimits {
    /// Bytes per second in either direction; 0 counts as [`Enforce::Never`].
    pub bytes_per_second: u32,
    /// The accumulated waiting time after which a rate is checked.
    pub grace: Duration,
    /// Whether a slower client is disconnected.
    pub enforce: Enforce,
}

/// Whether clients that are too slow are disconnected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Enforce {
    /// If half of the [`Options::budget`] is in use.
    #[default]
    UnderPressure,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// HTTP/2 with clients.
#[derive(Clone, Debug)]
pub struct Http2Limits {
    /// The maximum number of concurrent requests on one connection.
    pub streams_max: u32,
    /// The maximum size of one decoded header list in bytes, plus 32 for each field (RFC 9113 section 6.5.2).
    pub header_list_bytes_max: u32,
    /// The flow-control window of one request's body (RFC 9113 section 6.9) in bytes, from 65,535 to 2,147,483,647. It
    /// limits an upload per round trip.
    pub stream_window_bytes: u32,
    /// The same for all requests of a connection together, in the same range. With a buffer and a frame for each
    /// request, it is the memory that a client can occupy.
    pub connection_window_bytes: u32,
    /// The maximum number of buffered bytes of one response that its client does not read, from 1 to 4,294,967,295,
    /// whatever window the client announces. With [`Self::streams_max`] it is the memory that a connection can occupy
    /// in this direction.
    pub send_buffer_bytes: usize,
    /// The idle timeout of a connection without a request.
    pub idle: Duration,
}

/// Connections to endpoints.
#[derive(Clone, Debug)]
pub struct UpstreamLimits {
    /// The maximum number of endpoints tried for one request, including the first, whatever its route allows; at least
    /// 1.
    pub tries_max: usize,
    /// The maximum number of idle connections of each thread, separately for HTTP/1.1 endpoints, HTTP/2 endpoints and
    /// authorisation services.
    pub pool_size: usize,
    /// The idle timeout of a connection; shorter than that of usual upstreams (60 s and more).
    pub idle: Duration,
    /// The maximum number of concurrent requests on one HTTP/2 connection to an endpoint.
    pub http2_streams_max: usize,
    /// The timeout of a call to an authorisation service, from connecting to the end of its answer.
    pub external_auth: Duration,
}

/// TLS with clients.
#[derive(Clone, Debug)]
pub struct TlsLimits {
    /// The timeout of the whole handshake.
    pub handshake_deadline: Duration,
    /// The maximum number of cached sessions, for clients that resume without a ticket, in the whole process.
    pub sessions_max: usize,
}

/// The counters of rate limits in memory, of some 100 bytes each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterLimits {
    /// The maximum number of counters of one limit and window: one for each tuple of values.
    pub limit_counters_max: usize,
    /// The maximum number of counters of all limits. Half of them are for the limits that have less than their share.
    pub counters_max: usize,
}

/// The drain of connections and flows whose bind or endpoint is removed.
#[derive(Clone, Debug)]
pub struct DrainLimits {
    /// How long the requests and flows of a removed bind may continue.
    pub removed_bind_grace: Duration,
    /// The idle timeout of a datagram flow while its bind drains, if that of its route is longer.
    pub flow_silence: Duration,
    /// How long a datagram flow stays with an endpoint that is no longer one of its route's.
    pub endpoint_grace: Duration,
}

impl Options {
    /// The same with minimum values: all times at least a millisecond, which is the resolution of Pingora's timers
    /// (they panic in builds with overflow checks), and required counts at least 1.
    pub(crate) fn floored(mut self) -> Self {
        self.threads = self.threads.max(1);
        self.passes_max = self.passes_max.max(1);
        self.http2.send_buffer_bytes = self.http2.send_buffer_bytes.clamp(1, u32::MAX as usize);
        self.upstream.tries_max = self.upstream.tries_max.max(1);
        let client = &mut self.client;
        for time in [
            &mut client.head_deadline,
            &mut client.keep_alive_idle,
            &mut client.proxy_idle,
            &mut client.body_read_stall,
            &mut client.body_discard,
            &mut client.write_stall,
            &mut client.rates.grace,
            &mut self.http2.idle,
            &mut self.upstream.idle,
            &mut self.upstream.external_auth,
            &mut self.tls.handshake_deadline,
            &mut self.audit,
        ] {
            *time = (*time).max(Duration::from_millis(1));
        }
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            budget: BudgetLimits::default(),
            client: ClientLimits::default(),
            http2: Http2Limits::default(),
            upstream: UpstreamLimits::default(),
            tls: TlsLimits::default(),
            counters: CounterLimits::default(),
            limit_store: None,
            reviews: None,
            drain: DrainLimits::default(),
            upgrade_tokens: vec!["websocket".to_owned()],
            keep_request_id: true,
            server_header: true,
            limit_headers: LimitHeaders::default(),
            loop_token: LoopToken::default(),
            passes_max: 3,
            access_log: AccessLogSink::default(),
            driver: Driver::default(),
            audit: Duration::from_secs(60),
        }
    }
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            proxy_header: false,
            head_bytes_max: 64 * 1024,
            head_lines_max: 128,
            head_deadline: Duration::from_secs(30),
            keep_alive_idle: Duration::from_secs(75),
            proxy_idle: Duration::from_secs(920),
            body_read_stall: Duration::from_secs(60),
            body_discard: Duration::from_secs(5),
            write_stall: Duration::from_secs(60),
            rates: RateLimits::default(),
        }
    }
}

impl Default for RateLimits {
    fn default() -> Self {
        Self { bytes_per_second: 500, grace: Duration::from_secs(60), enforce: Enforce::default() }
    }
}

impl Default for Http2Limits {
    fn default() -> Self {
        Self {
            streams_max: 128,
            header_list_bytes_max: 64 * 1024,
            stream_window_bytes: 256 * 1024,
            connection_window_bytes: 1024 * 1024,
            send_buffer_bytes: 16 * 1024,
            idle: Duration::from_secs(180),
        }
    }
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self {
            tries_max: 10,
            pool_size: 512,
            idle: Duration::from_secs(50),
            http2_streams_max: 100,
            external_auth: Duration::from_secs(5),
        }
    }
}

impl Default for TlsLimits {
    fn default() -> Self {
        Self { handshake_deadline: Duration::from_secs(10), sessions_max: 4096 }
    }
}

impl Default for CounterLimits {
    fn default() -> Self {
        Self { limit_counters_max: 65_536, counters_max: 524_288 }
    }
}

impl Default for DrainLimits {
    fn default() -> Self {
        Self {
            removed_bind_grace: Duration::from_secs(300),
            flow_silence: Duration::from_secs(5),
            endpoint_grace: Duration::from_secs(30),
        }
    }
}
