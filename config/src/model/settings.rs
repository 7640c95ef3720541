//! Settings that many routes share. A route refers to its scopes, which are resolved for each request, so a changed
//! default does not change any route.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::compression::Compression;
use super::retry::RetryPolicy;
use super::session::SessionPersistence;

/// The load balancing algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balance {
    /// Of two endpoints drawn at random, the one with fewer requests in flight and lower latency.
    #[default]
    PowerOfTwo,
    /// One after the other.
    RoundRobin,
}

/// The request ids that endpoints and clients get.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestIds {
    /// `X-Request-Id` to the endpoint: the client's own if the operator allows it, else a new one. Clients get it in
    /// responses of the edge itself.
    #[default]
    Kept,
    /// A new `X-Request-Id` for every request, and `X-Correlation-Id`: the value from the client, a comma, and the new
    /// id. Both go to the endpoint, and to the client with every response except direct responses of the route.
    Correlated,
}

/// The value of `X-Forwarded-For` for endpoints, and of `X-Forwarded-Port` if no trusted proxy sends it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardedFor {
    /// The addresses from a trusted proxy, followed by the address of the peer; and the port of the connection.
    #[default]
    Append,
    /// Only the address of the client; and 443 for a TLS connection, else 80: the ports of the Service before the Deis
    /// router, whatever port its pod listened on.
    Replace,
}

/// The settings of a scope; `None` leaves a setting to the next wider scope.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Settings {
    /// The timeout for opening a connection to an endpoint, including TLS.
    pub connect_timeout: Option<Duration>,
    /// The timeout between two reads from an endpoint.
    pub read_timeout: Option<Duration>,
    /// The timeout between two writes to an endpoint.
    pub write_timeout: Option<Duration>,
    /// The time without a byte in either direction after which an upgraded connection is closed.
    pub tunnel_idle_timeout: Option<Duration>,
    /// The timeout of a request until the response's head; zero for no limit.
    pub request_timeout: Option<Duration>,
    /// The timeout of a request until the end of its response, including every attempt and the pauses between them;
    /// zero for no limit. It does not apply to an upgraded connection.
    pub total_timeout: Option<Duration>,
    /// The timeout of one attempt until the end of its response; zero for no limit. It does not apply to an upgraded
    /// connection.
    pub attempt_timeout: Option<Duration>,
    /// The maximum size of a request's body in bytes; zero for no limit.
    pub body_bytes_max: Option<u64>,
    /// The maximum number of attempts of one request while no endpoint has begun to answer, at least 1; connections
    /// that are refused at once are not counted.
    pub tries_max: Option<u8>,
    /// The policy for retries after an answer of an endpoint. Not in [`Effective`]: use
    /// [`Snapshot::retry`](super::Snapshot::retry).
    pub retry: Option<Arc<RetryPolicy>>,
    /// The load balancing algorithm.
    pub balance: Option<Balance>,
    /// The request ids.
    pub request_ids: Option<RequestIds>,
    /// Whether `X-Request-Start` is sent to the endpoint with the arrival time of the request.
    pub request_start: Option<bool>,
    /// The form of `X-Forwarded-For`.
    pub forwarded_for: Option<ForwardedFor>,
    /// The compression of responses; `None` in all scopes for no compression. Not in [`Effective`]: use
    /// [`Snapshot::compression`](super::Snapshot::compression).
    pub compression: Option<Arc<Compression>>,
    /// Session persistence. Without it, load balancing chooses the endpoint of each request. Not in [`Effective`]:
    /// tokens belong to one rule, so only routes set it.
    pub session: Option<Arc<SessionPersistence>>,
}

impl Settings {
    /// The settings as a shared object. Empty settings, the usual case, share one.
    #[must_use]
    pub fn shared(self) -> Arc<Self> {
        static NOTHING: LazyLock<Arc<Settings>> = LazyLock::new(Arc::default);
        if self == **NOTHING { Arc::clone(&NOTHING) } else { Arc::new(self) }
    }
}

/// The scope of shared settings: the routes of one source, by its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct ScopeId(pub Arc<str>);

impl fmt::Display for ScopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "source {}", self.0)
    }
}

/// Settings with a value for every field.
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
    /// The defaults.
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

    /// The defaults, overridden by one scope.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        Self::resolve([settings].into_iter())
    }

    /// Resolves scopes given from narrow to wide.
    pub fn resolve<'a>(scopes: impl DoubleEndedIterator<Item = &'a Settings>) -> Self {
        let mut effective = Self::DEFAULT;
        scopes.rev().for_each(|settings| effective.narrow(settings));
        effective
    }

    /// Overrides them by the settings of a narrower scope.
    pub fn narrow(&mut self, by: &Settings) {
        let limit = |limit: Duration| Some(limit).filter(|limit| !limit.is_zero());
        set(&mut self.connect_timeout, by.connect_timeout);
        set(&mut self.read_timeout, by.read_timeout);
        set(&mut self.write_timeout, by.write_timeout);
        set(&mut self.tunnel_idle_timeout, by.tunnel_idle_timeout);
        set(&mut self.request_timeout, by.request_timeout.map(limit));
        set(&mut self.total_timeout, by.total_timeout.map(limit));
        set(&mut self.attempt_timeout, by.attempt_timeout.map(limit));
        set(&mut self.body_bytes_max, by.body_bytes_max.map(|max| Some(max).filter(|bytes| *bytes > 0)));
        set(&mut self.tries_max, by.tries_max.map(|tries| tries.max(1)));
        set(&mut self.balance, by.balance);
        set(&mut self.request_ids, by.request_ids);
        set(&mut self.request_start, by.request_start);
        set(&mut self.forwarded_for, by.forwarded_for);
    }
}

fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_scope_with_a_value_wins() {
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
