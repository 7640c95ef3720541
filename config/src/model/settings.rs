//! Settings that many routes share. A route names its scopes; they are resolved when a request comes,
//! so a changed default touches no route.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::compression::Compression;
use super::host::HostPattern;
use super::listener::ListenerName;
use super::retry::RetryPolicy;
use super::session::SessionPersistence;

/// How an endpoint is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balance {
    /// Of two drawn at random, the one with less in flight and lower latency.
    #[default]
    PowerOfTwo,
    /// One after the other.
    RoundRobin,
}

/// How a request is named to its endpoint and its client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestIds {
    /// `X-Request-Id` to the endpoint: the client's own where the operator lets it be kept, else a new one. Clients are told
    /// of it in answers of the edge's own.
    #[default]
    Kept,
    /// A new `X-Request-Id` for every request, and `X-Correlation-Id`: what the client sent of it, a comma, and the new id.
    /// Both go to the endpoint, and to the client with every response but those that the route has ready.
    Correlated,
}

/// What `X-Forwarded-For` tells an endpoint, and `X-Forwarded-Port` where no trusted proxy says it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardedFor {
    /// The addresses that a trusted proxy named, and the address of the peer behind them; and the port of the connection.
    #[default]
    Append,
    /// The address of the client alone, as it was found out; and 443 where the connection is TLS, else 80: the ports of the
    /// Service before the Deis router, whatever port its pod listened on.
    Replace,
}

/// What a scope sets; `None` leaves it to the next wider scope.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Settings {
    /// Time to open a connection to an endpoint, TLS included.
    pub connect_timeout: Option<Duration>,
    /// Time between two reads from an endpoint.
    pub read_timeout: Option<Duration>,
    /// Time between two writes to an endpoint.
    pub write_timeout: Option<Duration>,
    /// Time without a byte either way after which an upgraded connection is closed.
    pub tunnel_idle_timeout: Option<Duration>,
    /// Time for the whole request until the response's head; zero for no limit.
    pub request_timeout: Option<Duration>,
    /// Time for the whole request until the end of its response, every try and the pauses between them included; zero for no limit.
    /// An upgraded connection has none.
    pub total_timeout: Option<Duration>,
    /// Time for one try until the end of its response; zero for no limit. An upgraded connection has none.
    pub attempt_timeout: Option<Duration>,
    /// Bytes of a request's body; zero for no limit.
    pub body_bytes_max: Option<u64>,
    /// Tries that one request may have while no endpoint has begun to answer, at least 1; what is refused at once is not
    /// counted.
    pub tries_max: Option<u8>,
    /// When a request is tried again although an endpoint has answered it. Not among [`Effective`]: it is looked up for itself, by
    /// [`Snapshot::retry`](super::Snapshot::retry).
    pub retry: Option<Arc<RetryPolicy>>,
    /// How an endpoint is chosen.
    pub balance: Option<Balance>,
    /// How a request is named.
    pub request_ids: Option<RequestIds>,
    /// Whether `X-Request-Start` tells the endpoint when the request came.
    pub request_start: Option<bool>,
    /// What `X-Forwarded-For` tells the endpoint.
    pub forwarded_for: Option<ForwardedFor>,
    /// How its responses are compressed, which none are where nothing is set. Not among [`Effective`]: it is looked up for itself, by
    /// [`Snapshot::compression`](super::Snapshot::compression).
    pub compression: Option<Arc<Compression>>,
    /// How clients come back to their endpoint. Without it, each request goes to whichever endpoint balancing gives. Not among
    /// [`Effective`]: tokens are those of one rule, so it is a route's own, and scopes have none.
    pub session: Option<Arc<SessionPersistence>>,
}

impl Settings {
    /// The settings as an object to share. Those that say nothing, which are most, are one.
    #[must_use]
    pub fn shared(self) -> Arc<Self> {
        static NOTHING: LazyLock<Arc<Settings>> = LazyLock::new(Arc::default);
        if self == **NOTHING { Arc::clone(&NOTHING) } else { Arc::new(self) }
    }
}

/// The scope of shared settings, from narrow to wide.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub enum ScopeId {
    /// One host.
    Host(HostPattern),
    /// The routes of one namespace's objects.
    Namespace(Arc<str>),
    /// The routes of one listener.
    Listener(ListenerName),
    /// The routes of one source.
    Source(Arc<str>),
}

impl fmt::Display for ScopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(f, "host {host}"),
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Self::Listener(listener) => write!(f, "listener {}", listener.0),
            Self::Source(source) => write!(f, "source {source}"),
        }
    }
}

/// Settings with every question answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Effective {
    /// See [`Settings::connect_timeout`].
    pub connect_timeout: Duration,
    /// See [`Settings::read_timeout`].
    pub read_timeout: Duration,
    /// See [`Settings::write_timeout`].
    pub write_timeout: Duration,
    /// See [`Settings::tunnel_idle_timeout`].
    pub tunnel_idle_timeout: Duration,
    /// See [`Settings::request_timeout`]; `None` for no limit.
    pub request_timeout: Option<Duration>,
    /// See [`Settings::total_timeout`]; `None` for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_timeout: Option<Duration>,
    /// See [`Settings::attempt_timeout`]; `None` for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_timeout: Option<Duration>,
    /// See [`Settings::body_bytes_max`]; `None` for no limit.
    pub body_bytes_max: Option<u64>,
    /// See [`Settings::tries_max`].
    pub tries_max: u8,
    /// See [`Settings::balance`].
    pub balance: Balance,
    /// See [`Settings::request_ids`].
    pub request_ids: RequestIds,
    /// See [`Settings::request_start`].
    pub request_start: bool,
    /// See [`Settings::forwarded_for`].
    pub forwarded_for: ForwardedFor,
}

impl Default for Effective {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Effective {
    /// What applies where nothing is set.
    pub const DEFAULT: Self = Self {
        connect_timeout: Duration::from_secs(5),
        read_timeout: Duration::from_secs(60),
        write_timeout: Duration::from_secs(60),
        tunnel_idle_timeout: Duration::from_secs(3600),
        request_timeout: None,
        total_timeout: None,
        attempt_timeout: None,
        body_bytes_max: None,
        tries_max: 3,
        balance: Balance::PowerOfTwo,
        request_ids: RequestIds::Kept,
        request_start: false,
        forwarded_for: ForwardedFor::Append,
    };

    /// Resolves scopes given from narrow to wide.
    pub fn resolve<'a>(scopes: impl DoubleEndedIterator<Item = &'a Settings>) -> Self {
        scopes.rev().fold(Self::DEFAULT, Self::narrowed)
    }

    /// These, but for what a narrower scope sets.
    #[must_use]
    pub fn narrowed(self, by: &Settings) -> Self {
        let limit = |set: Option<Duration>, wider| set.map_or(wider, |limit| Some(limit).filter(|t| !t.is_zero()));
        Self {
            connect_timeout: by.connect_timeout.unwrap_or(self.connect_timeout),
            read_timeout: by.read_timeout.unwrap_or(self.read_timeout),
            write_timeout: by.write_timeout.unwrap_or(self.write_timeout),
            tunnel_idle_timeout: by.tunnel_idle_timeout.unwrap_or(self.tunnel_idle_timeout),
            request_timeout: limit(by.request_timeout, self.request_timeout),
            total_timeout: limit(by.total_timeout, self.total_timeout),
            attempt_timeout: limit(by.attempt_timeout, self.attempt_timeout),
            body_bytes_max: by.body_bytes_max.map_or(self.body_bytes_max, |max| Some(max).filter(|bytes| *bytes > 0)),
            tries_max: by.tries_max.map_or(self.tries_max, |tries| tries.max(1)),
            balance: by.balance.unwrap_or(self.balance),
            request_ids: by.request_ids.unwrap_or(self.request_ids),
            request_start: by.request_start.unwrap_or(self.request_start),
            forwarded_for: by.forwarded_for.unwrap_or(self.forwarded_for),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_scope_that_sets_something_wins() {
        let narrow = Settings { tries_max: Some(0), request_timeout: Some(Duration::ZERO), ..Settings::default() };
        let (wide, second) = (Some(5), Duration::from_secs(1));
        let wide =
            Settings { tries_max: wide, request_timeout: Some(second), body_bytes_max: Some(7), ..narrow.clone() };
        let got = Effective::resolve([&narrow, &wide].into_iter());
        assert_eq!((got.tries_max, got.request_timeout, got.body_bytes_max), (1, None, Some(7)));
        let got = Effective::resolve([&wide, &narrow].into_iter());
        assert_eq!((got.tries_max, got.request_timeout, got.body_bytes_max), (5, Some(second), Some(7)));
        let timed = Settings { total_timeout: Some(second), attempt_timeout: Some(second), ..Settings::default() };
        let got = Effective::resolve([&Settings::default(), &timed].into_iter());
        assert_eq!((got.total_timeout, got.attempt_timeout), (Some(second), Some(second)));
        let (none, nothing) = (Some(Duration::ZERO), Settings::default());
        let untimed = Settings { total_timeout: none, attempt_timeout: none, ..nothing };
        assert_eq!(Effective::resolve([&untimed, &timed].into_iter()), Effective::DEFAULT);
        let unlimited = Settings { body_bytes_max: Some(0), ..Settings::default() };
        assert_eq!(Effective::resolve([&unlimited, &wide].into_iter()).body_bytes_max, None);
        assert_eq!(Effective::resolve(std::iter::empty()), Effective::DEFAULT);
    }
}
