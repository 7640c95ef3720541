//! URLs that policies write.

use std::net::IpAddr;
use std::sync::Arc;

use http::uri::PathAndQuery;

use super::CallServer;
use crate::model::HostPattern;

impl CallServer {
    /// Splits a URL of http or https (RFC 9110 section 4.2) into its server, whose host is not looked up yet, and the
    /// rest of the text. A template has `{` and `}` around its variable parts, which may be in the rest only.
    ///
    /// # Errors
    /// Returns the reason why it cannot be used, as a predicate.
    pub fn split(url: &str) -> Result<(Self, &str), &'static str> {
        const NO_HOST: &str = "has no DNS name or IP address as its host, with a port from 1 to 65535 if any";
        let (scheme, rest) = url.split_once("://").ok_or("is not a URL of http or https")?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err("is not a URL of http or https"),
        };
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('{') {
            return Err("has a host or a port that depends on the request, and servers are looked up before requests");
        }
        if authority.contains('@') {
            return Err("has a user: name a Secret instead");
        }
        if rest.contains('#') {
            return Err("has a fragment");
        }
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port),
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let is_bracketed = authority.starts_with('[');
        let host: Arc<str> = match host.parse::<IpAddr>() {
            Ok(address) if address.is_ipv6() == is_bracketed => address.to_string().into(),
            Err(_) if !is_bracketed => match HostPattern::parse(host.strip_suffix('.').unwrap_or(host)) {
                Ok(HostPattern::Exact(name)) => name,
                _ => return Err(NO_HOST),
            },
            _ => return Err(NO_HOST),
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => Some(if tls { 443 } else { 80 }),
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
            _ => None,
        };
        let port: u16 = port.filter(|port| *port != 0).ok_or(NO_HOST)?;
        Ok((Self { tls, host, port, target: None }, rest))
    }

    /// Splits a URL into its server, whose host is not looked up yet, and its path with the query.
    ///
    /// # Errors
    /// Returns the reason why it cannot be used, as a predicate.
    pub fn of_url(url: &str) -> Result<(Self, Arc<str>), &'static str> {
        let (server, rest) = Self::split(url)?;
        let path = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
        if Self::is_path(&path) {
            Ok((server, path.into()))
        } else {
            Err("has characters that a URL must have encoded")
        }
    }

    /// Whether a text is a path with a query, as a request has it.
    #[must_use]
    pub fn is_path(text: &str) -> bool {
        text.is_ascii() && text.parse::<PathAndQuery>().is_ok_and(|parsed| parsed.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_server_and_a_path() {
        let check = |url: &str, want: Option<&str>| {
            let got = CallServer::of_url(url).ok().map(|(server, path)| format!("{server} {} {path}", server.port));
            assert_eq!(got.as_deref(), want, "{url}");
        };
        check("http://a.test", Some("http://a.test 80 /"));
        check("HTTPS://A.Test./b?c=d", Some("https://a.test 443 /b?c=d"));
        check("https://a.test:8443?c", Some("https://a.test:8443 8443 /?c"));
        check("http://10.0.0.1:80/", Some("http://10.0.0.1 80 /"));
        check("http://[2001:DB8::1]:81/", Some("http://[2001:db8::1]:81 81 /"));
        for bad in [
            "",
            "a.test",
            "ftp://a.test",
            "//a.test",
            "http://",
            "http:///a",
            "http://a@b.test",
            "http://a.test:",
            "http://a.test:0",
            "http://a.test:65536",
            "http://a.test:+1",
            "http://*.test",
            "http://a b",
            "http://a.test/ b",
            "http://a.test/#b",
            "http://a.test#b",
            "http://[10.0.0.1]",
            "http://[a.test]",
            "http://2001:db8::1",
            "http://[::1",
            "http://a\\b",
            "http://a.test/ä",
            "http://a{request.host}/",
        ] {
            check(bad, None);
        }
    }
}
