//! Every limit and deadline of the data plane in one place. What routes may set for themselves is not here
//! but in the snapshot.

use std::time::Duration;

use crate::budget::BudgetLimits;
use crate::observe::access_log::AccessLogSink;
use crate::request::cdn_loop::LoopToken;

/// How the data plane behaves whatever the snapshot says. The defaults suit an edge that strangers reach. Times of less
/// than a millisecond count as one.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that carry traffic, at least 1; each has its own runtime, sockets and upstream connections.
    pub threads: usize,
    /// What all traffic together may take of the process's files and memory.
    pub budget: BudgetLimits,
    /// What a client may cost.
    pub client: ClientLimits,
    /// HTTP/2 with clients.
    pub http2: Http2Limits,
    /// Connections to endpoints.
    pub upstream: UpstreamLimits,
    /// TLS with clients.
    pub tls: TlsLimits,
    /// How connections and flows end when their bind or endpoint goes away.
    pub drain: DrainLimits,
    /// The upgrade tokens (RFC 9110 section 7.8) that may pass, in lower case.
    pub upgrade_tokens: Vec<String>,
    /// Whether a client's `X-Request-Id` is kept where it is well-formed, instead of replaced.
    pub keep_request_id: bool,
    /// Whether responses that name no server, and answers of the edge's own, have `Server: tidegate`.
    pub server_header: bool,
    /// The name under which passes through this edge are counted in `CDN-Loop` (RFC 8586). Edges that may stand behind one
    /// another share it or not: with a name of its own, each counts for itself.
    pub loop_token: LoopToken,
    /// How often a request may have passed an edge of this name already; one that comes once more is refused.
    pub passes_max: usize,
    /// Where the access log goes.
    pub access_log: AccessLogSink,
    /// Who carries requests.
    pub driver: Driver,
    /// How often each thread compares its sockets with what the snapshot wants although nothing has happened.
    pub audit: Duration,
}

/// Who carries requests. Whichever does, the endpoint is sent the same and the client gets the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Driver {
    /// The native driver carries what it may, plain requests beyond doubt, and the full one everything else.
    #[default]
    Both,
    /// The full driver carries everything; the native one is off.
    Full,
}

/// What a client may cost in connections, bytes and time.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Whether every connection has to begin with a header of the PROXY protocol, version 1 or 2, as load balancers send it that
    /// pass connections on. It is believed from trusted proxies (those of the snapshot), and read and ignored from others; a
    /// connection without one is closed.
    pub proxy_header: bool,
    /// Bytes of one HTTP/1 request head, from the request line to the empty line.
    pub head_bytes_max: usize,
    /// Header lines of one HTTP/1 request head. Pingora itself takes no more than 256.
    pub head_lines_max: usize,
    /// For a new connection's PROXY header, for its first byte, and from the first byte of each request head to its end.
    pub head_deadline: Duration,
    /// Silence between two requests of a connection.
    pub keep_alive_idle: Duration,
    /// Silence in the middle of a request body.
    pub body_read_stall: Duration,
    /// For the rest of a request body that nobody wants any more, before the connection is closed.
    pub body_discard: Duration,
    /// For one write to a client that does not read.
    pub write_stall: Duration,
    /// The rate that clients have to keep up while the edge waits for them.
    pub rates: RateLimits,
}

/// The least rate at which a client sends a request body or takes a response. Only time in which the edge waits for the client
/// counts: an endpoint that is slow to take a body or to produce a response costs its client nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimits {
    /// Bytes a second in either direction; 0 counts as [`Enforce::Never`].
    pub bytes_per_second: u32,
    /// How much waiting has to add up before a rate is judged.
    pub grace: Duration,
    /// When a client that is slower is disconnected.
    pub enforce: Enforce,
}

/// When clients that are too slow are disconnected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Enforce {
    /// Once half of the [`Options::budget`] is in use.
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
    /// Requests at the same time on one connection.
    pub streams_max: u32,
    /// Bytes of one decoded header list, with 32 for each field (RFC 9113 section 6.5.2).
    pub header_list_bytes_max: u32,
    /// Bytes of one request's body that a client may send before they are taken (RFC 9113 section 6.9), from 65,535 to
    /// 2,147,483,647. An upload gets no further than this in one round trip.
    pub stream_window_bytes: u32,
    /// The same for all requests of a connection together, in the same range: besides a buffer and a frame for each request,
    /// this is what a client can have held for it in memory.
    pub connection_window_bytes: u32,
    /// Bytes of one response, from 1 to 4,294,967,295, that are held while its client does not take them, whatever window it announces; with
    /// [`Self::streams_max`], this is what a client can have held for a connection in this direction.
    pub send_buffer_bytes: usize,
    /// Silence of a connection without a request.
    pub idle: Duration,
}

/// Connections to endpoints.
#[derive(Clone, Debug)]
pub struct UpstreamLimits {
    /// Endpoints tried for one request at most, the first included, whatever its route allows; at least 1.
    pub tries_max: usize,
    /// Idle connections that each thread keeps to endpoints in HTTP/1.1, as many to those in HTTP/2, and as many to authorisation services.
    pub pool_size: usize,
    /// How long a connection is kept idle; less than what upstreams usually wait (60 s and more).
    pub idle: Duration,
    /// Requests at the same time on one HTTP/2 connection to an endpoint.
    pub http2_streams_max: usize,
    /// How long an authorisation service is waited for, from the connection to the end of its answer.
    pub external_auth: Duration,
}

/// TLS with clients.
#[derive(Clone, Debug)]
pub struct TlsLimits {
    /// For the whole handshake.
    pub handshake_deadline: Duration,
    /// Sessions kept for clients that resume without a ticket, in the whole process.
    pub sessions_max: usize,
}

/// How connections and flows end when their bind or endpoint goes away.
#[derive(Clone, Debug)]
pub struct DrainLimits {
    /// How long the requests and flows of a bind that left the snapshot may go on.
    pub removed_bind_grace: Duration,
    /// Silence after which a flow of datagrams ends whose bind is to end, where its route has it wait longer.
    pub flow_silence: Duration,
    /// How long a flow of datagrams stays with an endpoint that its route no longer leads to.
    pub endpoint_grace: Duration,
}

impl Options {
    /// The same with every time at least a millisecond and at least one of what nothing works without: Pingora's timers
    /// cannot count less than a millisecond, and panic in builds that check for overflow.
    pub(crate) fn floored(mut self) -> Self {
        self.threads = self.threads.max(1);
        self.passes_max = self.passes_max.max(1);
        self.http2.send_buffer_bytes = self.http2.send_buffer_bytes.clamp(1, u32::MAX as usize);
        self.upstream.tries_max = self.upstream.tries_max.max(1);
        let client = &mut self.client;
        for time in [
            &mut client.head_deadline,
            &mut client.keep_alive_idle,
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
            drain: DrainLimits::default(),
            upgrade_tokens: vec!["websocket".to_owned()],
            keep_request_id: true,
            server_header: true,
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
            send_buffer_bytes: 64 * 1024,
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

impl Default for DrainLimits {
    fn default() -> Self {
        Self {
            removed_bind_grace: Duration::from_secs(300),
            flow_silence: Duration::from_secs(5),
            endpoint_grace: Duration::from_secs(30),
        }
    }
}
