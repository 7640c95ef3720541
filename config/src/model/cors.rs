//! Cross-origin requests (CORS): the allowed origins, methods and headers.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use serde::Serialize;

use super::backend::WeightedTarget;
use super::condition::Head;
use super::filter::Filter;
use super::host::HostPattern;
use super::route::Route;

/// `http` or `https`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scheme {
    /// `http`.
    Http,
    /// `https`.
    Https,
}

/// The CORS policy of a route ([Fetch standard](https://fetch.spec.whatwg.org/#http-cors-protocol)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cors {
    /// The allowed origins.
    pub origins: AnyOr<Origin>,
    /// Whether requests may carry credentials.
    pub credentials: bool,
    /// The allowed methods besides GET, HEAD and POST.
    pub methods: AnyOr<Arc<str>>,
    /// The allowed request headers.
    pub headers: AnyOr<HeaderName>,
    /// The response headers that pages may read.
    pub exposed: AnyOr<HeaderName>,
    /// How long a client may cache the answer to a preflight, in seconds.
    pub max_age_s: u32,
}

/// A list, or a star for everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnyOr<T> {
    /// Everything.
    Any,
    /// These.
    These(Box<[T]>),
}

/// One of `allowOrigins`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The scheme.
    pub scheme: Scheme,
    /// The host. A star stands for one label or more, and alone for every host.
    pub host: HostPattern,
    /// The port; that of the scheme if none is written.
    pub port: u16,
}

impl Cors {
    /// The last CORS filter of a list, which holds.
    #[must_use]
    pub fn of(filters: &[Filter]) -> Option<&Arc<Self>> {
        filters.iter().rev().find_map(|filter| match filter {
            Filter::Cors(cors) => Some(cors),
            Filter::RequestHeaders(_)
            | Filter::ResponseHeaders(_)
            | Filter::Path(_)
            | Filter::Host(_)
            | Filter::Mirror(_) => None,
        })
    }

    /// The policy that answers a request as a preflight, which the guards of its route allow: that of the route, or
    /// else that of the share that it goes to.
    pub fn answering<'r, H: Head + ?Sized>(
        route: &'r Route,
        share: impl FnOnce() -> Option<&'r WeightedTarget>,
        head: &H,
    ) -> Option<&'r Arc<Self>> {
        if !Self::is_preflight(head) {
            return None;
        }
        Self::of(&route.filters).or_else(|| Self::of(&share()?.filters))
    }

    /// Returns `true` for a [preflight](https://fetch.spec.whatwg.org/#cors-preflight-request), which a route with such
    /// a filter answers itself.
    #[must_use]
    pub fn is_preflight<H: Head + ?Sized>(head: &H) -> bool {
        let has = |name: HeaderName| head.header(name.as_str()).is_some();
        head.method() == "OPTIONS" && has(ORIGIN) && has(ACCESS_CONTROL_REQUEST_METHOD)
    }
}

impl Scheme {
    /// The default port of the scheme.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// The scheme of a name in lower case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "http" => Some(Self::Http),
            "https" => Some(Self::Https),
            _ => None,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

impl Cors {
    /// Returns `true` if pages of an origin, as clients write it, may send requests. The star also allows the origin
    /// `null`.
    #[must_use]
    pub fn allows(&self, origin: &str) -> bool {
        match &self.origins {
            AnyOr::Any => true,
            AnyOr::These(origins) => origins.iter().any(|own| own.is(origin)),
        }
    }
}

impl Origin {
    /// Returns `true` if it is the origin that a client writes: scheme, host and port, the port only if it is not the
    /// scheme's.
    fn is(&self, origin: &str) -> bool {
        let Some((scheme, rest)) = origin.split_once("://") else { return false };
        let Some(scheme) = Scheme::parse(&scheme.to_ascii_lowercase()) else { return false };
        let (host, port) = match rest.rsplit_once(':') {
            // The colons of an IPv6 address in brackets do not separate a port.
            Some((host, digits)) if !digits.ends_with(']') => match digits.parse() {
                Ok(port) if digits.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
                Ok(_) | Err(_) => return false,
            },
            Some(_) | None => (rest, scheme.port()),
        };
        self.scheme == scheme && self.port == port && self.host.matches(&host.to_ascii_lowercase())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host)?;
        if self.port == self.scheme.port() { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

impl Serialize for Cors {
    /// The allowed origins, and whether credentials are.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let origins = match &self.origins {
            AnyOr::Any => "*".to_owned(),
            AnyOr::These(origins) => origins.iter().map(Origin::to_string).collect::<Vec<_>>().join(" "),
        };
        let credentials = if self.credentials { ", with credentials" } else { "" };
        serializer.collect_str(&format_args!("{origins}{credentials}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::WildcardDepth;

    fn cors(origins: AnyOr<Origin>) -> Cors {
        let (methods, headers, exposed) = (AnyOr::Any, AnyOr::Any, AnyOr::Any);
        Cors { origins, credentials: false, methods, headers, exposed, max_age_s: 5 }
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let exact = |scheme, host: &str, port| Origin { scheme, host: HostPattern::Exact(host.into()), port };
        let wildcard = HostPattern::Wildcard("bar.com".into(), WildcardDepth::Any);
        let policy = cors(AnyOr::These(
            [
                exact(Scheme::Https, "www.foo.com", 443),
                exact(Scheme::Http, "www.foo.com", 8080),
                Origin { scheme: Scheme::Https, host: wildcard, port: 443 },
                Origin { scheme: Scheme::Http, host: HostPattern::Any, port: 81 },
            ]
            .into(),
        ));
        for origin in [
            "https://www.foo.com",
            "https://www.foo.com:443",
            "HTTPS://WWW.Foo.com",
            "http://www.foo.com:8080",
            "https://a.bar.com",
            "https://a.b.bar.com",
            "http://anything:81",
            "http://[::1]:81",
        ] {
            assert!(policy.allows(origin), "{origin}");
        }
        for origin in [
            "http://www.foo.com",
            "https://www.foo.com:8443",
            "https://foo.com",
            "https://bar.com",
            "https://a.bar.com.evil.test",
            "https://abar.com",
            "http://a.bar.com",
            "https://www.foo.com:+443",
            "https://www.foo.com:",
            "https://www.foo.com/",
            "http://[::1]",
            "www.foo.com",
            "null",
            "",
        ] {
            assert!(!policy.allows(origin), "{origin}");
        }
        assert!(cors(AnyOr::Any).allows("null") && !cors(AnyOr::These(Box::default())).allows("https://a"));
    }
}
