//! Origins of web pages ([RFC 6454](https://www.rfc-editor.org/rfc/rfc6454)): scheme, host and port, and nothing else.
//! The origins that objects allow and those that requests name are read by one parser.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use http::header::ORIGIN;

use super::condition::Head;
use super::host::HostPattern;

/// The maximum length of a host name in bytes, without a trailing dot (RFC 1035, section 2.3.4).
const NAME_MAX: usize = 253;
/// The maximum length of a label in bytes (RFC 1035, section 2.3.4).
const LABEL_MAX: usize = 63;

const NOT_ONE: &str = "is not an origin such as https://www.example.com or http://*.example.com:8080";

/// `http` or `https`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scheme {
    /// `http`.
    Http,
    /// `https`.
    Https,
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

/// The origin that a request names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestOrigin<'a> {
    /// `null`: the page has an opaque origin, as of a sandbox or a `data:` URL (RFC 6454, section 6.1).
    Opaque,
    /// Scheme, host and port, as sent.
    Tuple(Parts<'a>),
}

/// The parts of an origin as text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts<'a> {
    /// The scheme, in the case it was sent; not only `http` and `https`: applications have schemes of their own.
    scheme: &'a str,
    /// A name, an IPv4 address, or an IPv6 address in brackets, in the case it was sent.
    host: &'a str,
    /// The port, if one is written.
    port: Option<u16>,
}

/// One of `allowOrigins`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginPattern {
    /// The scheme.
    pub scheme: Scheme,
    /// The host. A star stands for one label or more, and alone for every host.
    pub host: HostPattern,
    /// The port; that of the scheme if none is written.
    pub port: u16,
}

impl<'a> RequestOrigin<'a> {
    /// The origin of a request and its text, or `None` if there is not exactly one header `Origin` with exactly one
    /// origin.
    #[must_use]
    pub fn of<H: Head + ?Sized>(head: &'a H) -> Option<(Self, &'a str)> {
        let mut headers = 0_usize;
        head.each_value(ORIGIN.as_str(), &mut |_| headers += 1);
        let text = std::str::from_utf8(head.header(ORIGIN.as_str())?).ok().filter(|_| headers == 1)?;
        Some((Self::parse(text)?, text))
    }

    /// Parses the text of a serialised origin (RFC 6454, section 6.2). A list of origins is not one, nor is a text with
    /// user information, a path, a query, a fragment, an escape, or a byte outside of ASCII.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        if text == "null" {
            return Some(Self::Opaque);
        }
        let parts = Parts::split(text).ok()?;
        is_host(parts.host).then_some(Self::Tuple(parts))
    }
}

impl<'a> Parts<'a> {
    /// Splits a text at the separators of an origin. The host is not checked.
    fn split(text: &'a str) -> Result<Self, &'static str> {
        let (scheme, authority) = text.split_once("://").ok_or(NOT_ONE)?;
        let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
        if !is_scheme {
            return Err(NOT_ONE);
        }
        let (host, port) = match authority.rsplit_once(':') {
            // The colons of an IPv6 address in brackets do not separate a port.
            Some((host, digits)) if !digits.ends_with(']') => (host, Some(port(digits)?)),
            Some(_) | None => (authority, None),
        };
        Ok(Self { scheme, host, port })
    }
}

impl OriginPattern {
    /// Parses an entry of `allowOrigins` (Gateway API, `CORSOrigin`): `http` or `https`, and a host that may be a star
    /// or begin with `*.`.
    ///
    /// # Errors
    /// If the text is not such an origin: a predicate that says why.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let parts = Parts::split(text)?;
        let scheme = Scheme::parse(&parts.scheme.to_ascii_lowercase()).ok_or("is not an origin of http or https")?;
        let host = match parts.host {
            "*" => HostPattern::Any,
            host if address_v6(host).is_some() || host.parse::<Ipv4Addr>().is_ok() => {
                HostPattern::Exact(lower(host).into())
            }
            host => HostPattern::parse(host)?.at_any_depth(),
        };
        Ok(Self { scheme, host, port: parts.port.unwrap_or(scheme.port()) })
    }

    /// Returns `true` if an origin has this scheme, host and port. Schemes and hosts are compared without case. A name
    /// with a trailing dot is another host (RFC 6454, section 5), which no pattern but the star matches.
    #[must_use]
    pub fn matches(&self, origin: &Parts<'_>) -> bool {
        let scheme = Scheme::parse(&origin.scheme.to_ascii_lowercase());
        scheme == Some(self.scheme)
            && origin.port.unwrap_or(self.scheme.port()) == self.port
            && self.host.matches(&lower(origin.host))
    }
}

impl fmt::Display for OriginPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host)?;
        if self.port == self.scheme.port() { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

/// A port in decimal digits, without leading zeros.
fn port(digits: &str) -> Result<u16, &'static str> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NOT_ONE);
    }
    let number = digits.parse().ok().filter(|_| !digits.starts_with('0'));
    number.ok_or("has a port that is not between 1 and 65535")
}

/// The host in the form in which hosts are compared: in lower case, and addresses of IPv6 in their shortest form.
fn lower(host: &str) -> String {
    address_v6(host).map_or_else(|| host.to_ascii_lowercase(), |address| format!("[{address}]"))
}

fn address_v6(host: &str) -> Option<Ipv6Addr> {
    host.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// Returns `true` for a host of an origin. Names may have underscores, which browsers accept, and a trailing dot.
fn is_host(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        (1..=LABEL_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    address_v6(host).is_some() || name.len() <= NAME_MAX && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks an origin of a request against a pattern of `allowOrigins`: `None` if it is not an origin at all.
    #[track_caller]
    fn check(pattern: &str, origin: &str, want: Option<bool>) {
        let pattern = OriginPattern::parse(pattern).unwrap();
        let got = RequestOrigin::parse(origin).map(|origin| match origin {
            RequestOrigin::Tuple(parts) => pattern.matches(&parts),
            RequestOrigin::Opaque => false,
        });
        assert_eq!(got, want, "{pattern} and {origin:?}");
    }

    #[test]
    fn an_origin_matches_by_scheme_host_and_port() {
        for (pattern, origin) in [
            ("https://www.foo.com", "https://www.foo.com"),
            ("https://www.foo.com", "https://www.foo.com:443"),
            ("https://www.foo.com:443", "https://www.foo.com"),
            ("https://www.foo.com", "HTTPS://WWW.Foo.com"),
            ("https://WWW.foo.com", "https://www.foo.com"),
            ("HTTPS://www.foo.com", "https://www.foo.com"),
            ("http://www.foo.com:8080", "http://www.foo.com:8080"),
            ("https://*.bar.com", "https://a.bar.com"),
            ("https://*.bar.com", "https://a.b.bar.com"),
            ("https://*.bar.com", "https://a_b.bar.com"),
            ("http://*:81", "http://anything:81"),
            ("http://*:81", "http://[::1]:81"),
            ("http://*", "http://a.test."),
            ("http://[::1]", "http://[::1]"),
            ("http://[0:0::1]:81", "http://[::1]:81"),
            ("http://[2001:db8::A]", "http://[2001:DB8::a]:80"),
            ("http://192.0.2.1", "http://192.0.2.1"),
            ("https://xn--bcher-kva.test", "https://xn--bcher-kva.test"),
        ] {
            check(pattern, origin, Some(true));
        }
        for (pattern, origin) in [
            ("https://www.foo.com", "http://www.foo.com"),
            ("https://www.foo.com", "https://www.foo.com:8443"),
            ("https://www.foo.com", "https://foo.com"),
            ("https://www.foo.com", "https://www.foo.com."),
            ("https://www.foo.com", "http://www.foo.com:443"),
            ("https://www.foo.com", "app://www.foo.com"),
            ("https://*.bar.com", "https://bar.com"),
            ("https://*.bar.com", "https://abar.com"),
            ("https://*.bar.com", "https://a.bar.com."),
            ("https://*.bar.com", "https://a.bar.com.evil.test"),
            ("https://*.bar.com", "http://a.bar.com"),
            ("https://*", "null"),
            ("http://*:81", "http://[::1]"),
        ] {
            check(pattern, origin, Some(false));
        }
    }

    #[test]
    fn no_other_text_is_an_origin() {
        for origin in [
            "",
            "*",
            "NULL",
            "null null",
            "www.foo.com",
            "//www.foo.com",
            "://www.foo.com",
            "https:www.foo.com",
            "https:/www.foo.com",
            "https:///www.foo.com",
            "https://",
            "https://:443",
            "1https://a.test",
            "ht tps://a.test",
            "https://www.foo.com/",
            "https://evil.test/.foo.com",
            "https://evil.test?.foo.com",
            "https://evil.test#.foo.com",
            "https://evil.test\\.foo.com",
            "https://user@www.foo.com",
            "https://user:1@www.foo.com",
            "https://evil.test:1.foo.com",
            "https://evil.test:80:443",
            "https://www.foo.com:",
            "https://www.foo.com:+443",
            "https://www.foo.com:0443",
            "https://www.foo.com:0",
            "https://www.foo.com:65536",
            "https://www.foo.com:99999999999",
            "https://www.foo.com: 443",
            "https://a.foo.com https://b.foo.com",
            "https://a.foo.com, https://b.foo.com",
            "https://a.foo.com,b.foo.com",
            " https://www.foo.com",
            "https://www.foo.com ",
            "https://www.foo.com\t",
            "https://www\0.foo.com",
            "https://www\u{1}.foo.com",
            "https://www%2efoo.com",
            "https://b\u{fc}cher.foo.com",
            "https://*.foo.com",
            "https://.foo.com",
            "https://a..foo.com",
            "https://a.foo.com..",
            "https://.",
            "https://[::1",
            "https://::1",
            "https://[::1]x",
            "https://[::1%25lo].foo.com",
            "https://[::g]",
            "https://[127.0.0.1]",
            "https://[a.foo.com]",
        ] {
            for pattern in ["https://*", "https://*.foo.com", "https://www.foo.com"] {
                check(pattern, origin, None);
            }
        }
        let long = |label: usize, labels: usize| format!("https://{}", vec!["a".repeat(label); labels].join("."));
        check("https://*", &long(63, 3), Some(true));
        check("https://*", &long(64, 1), None);
        check("https://*", &long(49, 5), Some(true));
        check("https://*", &long(50, 5), None);
    }

    #[test]
    fn a_pattern_is_an_origin_with_or_without_a_star() {
        for text in [
            "*",
            "null",
            "https://a.example/",
            "https://user@a.example",
            "https://a.example?",
            "https://a*.example",
            "https://*.*.example",
            "https://**.example",
            "https://*.",
            "https://a.example:0",
            "https://a.example:*",
            "https://a.example.",
            "https://b\u{fc}cher.example",
            "ftp://a.example",
            "a.example",
            "https://a.example,https://b.example",
            "",
        ] {
            assert!(OriginPattern::parse(text).is_err(), "{text}");
        }
        for (text, shown) in [
            ("https://*", "https://*"),
            ("http://*.Example.com:8080", "http://**.example.com:8080"),
            ("http://[0::0:1]:80", "http://[::1]"),
        ] {
            assert_eq!(OriginPattern::parse(text).unwrap().to_string(), shown);
        }
    }
}
