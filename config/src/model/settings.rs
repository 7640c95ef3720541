//! Settings that many routes share. A route names its scopes; they are resolved when a request comes,
//! so a changed default touches no route.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::host::HostPattern;
use super::listener::ListenerName;

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
    /// Bytes of a request's body; zero for no limit.
    pub body_bytes_max: Option<u64>,
    /// Tries that one request may have while no endpoint has begun to answer, at least 1; what is refused at once is not
    /// counted.
    pub tries_max: Option<u8>,
    /// How an endpoint is chosen.
    pub balance: Option<Balance>,
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
    /// See [`Settings::body_bytes_max`]; `None` for no limit.
    pub body_bytes_max: Option<u64>,
    /// See [`Settings::tries_max`].
    pub tries_max: u8,
    /// See [`Settings::balance`].
    pub balance: Balance,
}

impl Effective {
    /// What applies where nothing is set.
    pub const DEFAULT: Self = Self {
        connect_timeout: Duration::from_secs(5),
        read_timeout: Duration::from_secs(60),
        write_timeout: Duration::from_secs(60),
        tunnel_idle_timeout: Duration::from_secs(3600),
        request_timeout: None,
        body_bytes_max: None,
        tries_max: 3,
        balance: Balance::PowerOfTwo,
    };

    /// Resolves scopes given from narrow to wide.
    pub fn resolve<'a>(scopes: impl Iterator<Item = &'a Settings> + Clone) -> Self {
        fn first<'a, T>(
            scopes: impl Iterator<Item = &'a Settings>,
            read: impl Fn(&'a Settings) -> Option<T>,
            default: T,
        ) -> T {
            scopes.into_iter().find_map(read).unwrap_or(default)
        }
        let default = Self::DEFAULT;
        Self {
            connect_timeout: first(scopes.clone(), |s| s.connect_timeout, default.connect_timeout),
            read_timeout: first(scopes.clone(), |s| s.read_timeout, default.read_timeout),
            write_timeout: first(scopes.clone(), |s| s.write_timeout, default.write_timeout),
            tunnel_idle_timeout: first(scopes.clone(), |s| s.tunnel_idle_timeout, default.tunnel_idle_timeout),
            request_timeout: first(scopes.clone(), |s| s.request_timeout.map(Some), None).filter(|t| !t.is_zero()),
            body_bytes_max: first(scopes.clone(), |s| s.body_bytes_max.map(Some), None).filter(|bytes| *bytes > 0),
            tries_max: first(scopes.clone(), |s| s.tries_max, default.tries_max).max(1),
            balance: first(scopes, |s| s.balance, default.balance),
        }
    }
}
