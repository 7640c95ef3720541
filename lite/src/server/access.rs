//! Access control: a request needs the token and one of this server's own names.

use std::net::SocketAddr;

use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;

use crate::failure::Failure;

/// A bearer token of 256 random bits. It has no `Debug`.
pub(super) struct Token(String);

impl Token {
    /// Draws a token; `None` if the system has no randomness.
    pub(super) fn draw() -> Option<Self> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The text, for the kubeconfig and for comparisons.
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

/// Refuses a request without one of this server's names or without its token.
pub(super) fn check(parts: &Parts, token: &Token, bound: SocketAddr) -> Result<(), Failure> {
    named(parts, bound)?;
    authorized(parts, token.text())
}

/// Refuses a request that does not use one of this server's names.
pub(super) fn named(parts: &Parts, bound: SocketAddr) -> Result<(), Failure> {
    // A page in a browser can make its own name resolve to a loopback address, but cannot change the name in the
    // request.
    let mut hosts = parts.headers.get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let named = parts.uri.authority().map(http::uri::Authority::as_str);
    let (host, second) = (hosts.next(), hosts.next());
    let mut names = host.into_iter().chain(named).peekable();
    // Two readers of several hosts may choose different ones (RFC 9112 section 3.2).
    if second.is_some() || names.peek().is_none() || !names.all(|name| is_ours(name, bound)) {
        return Err(Failure::misdirected());
    }
    Ok(())
}

/// Refuses a request without the token. The time of the comparison does not depend on where the texts differ.
pub(super) fn authorized(parts: &Parts, token: &str) -> Result<(), Failure> {
    let given = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let given = given.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    if given.is_some_and(|(_, given)| token.as_bytes().ct_eq(given.trim().as_bytes()).into()) {
        Ok(())
    } else {
        Err(Failure::unauthorized())
    }
}

fn is_ours(authority: &str, bound: SocketAddr) -> bool {
    let (host, port) = match authority.rsplit_once(':') {
        // The last colon of a bare IPv6 address is not before a port.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let host = host.to_ascii_lowercase();
    let names = ["localhost", "127.0.0.1", "[::1]"];
    let own = match bound {
        SocketAddr::V4(bound) => bound.ip().to_string(),
        SocketAddr::V6(bound) => format!("[{}]", bound.ip()),
    };
    (names.contains(&host.as_str()) || host == own) && port.is_none_or(|port| port == bound.port().to_string())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[track_caller]
    fn check_host(host: &str, expected: bool) {
        assert_eq!(is_ours(host, "10.1.2.3:6443".parse().unwrap()), expected, "{host}");
    }

    #[test]
    fn only_requests_for_our_own_names_are_answered() {
        for ours in [
            "localhost",
            "localhost:6443",
            "127.0.0.1:6443",
            "[::1]:6443",
            "[::1]",
            "10.1.2.3:6443",
            "10.1.2.3",
            "LOCALHOST",
        ] {
            check_host(ours, true);
        }
        for foreign in [
            "evil.example",
            "evil.example:6443",
            "127.0.0.1:80",
            "localhost.evil.example",
            "",
            "localhost:",
            "localhost:6443.evil.test",
            "localhost:6443:6443",
            "localhost@evil.test:6443",
            "10.1.2.4",
            "::1",
        ] {
            check_host(foreign, false);
        }
    }

    #[test]
    fn a_token_is_required() {
        let token = Token::draw().unwrap();
        assert_eq!(token.text().len(), 64);
        let bound = "127.0.0.1:1".parse().unwrap();
        let code = |host: Option<&str>, given: Option<&str>| {
            let mut request = Request::builder().uri("/api");
            if let Some(host) = host {
                request = request.header(HOST, host);
            }
            if let Some(given) = given {
                request = request.header(AUTHORIZATION, given);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            check(&parts, &token, bound).map_err(|failure| failure.code.as_u16())
        };
        let right = format!("Bearer {}", token.text());
        assert_eq!(code(Some("localhost"), Some(&right)), Ok(()));
        assert_eq!(code(Some("localhost"), None), Err(401));
        assert_eq!(code(Some("localhost"), Some("Bearer x")), Err(401));
        assert_eq!(code(Some("localhost"), Some(&right[..70])), Err(401));
        assert_eq!(code(Some("localhost"), Some(&right.replace("Bearer", "Basic"))), Err(401));
        assert_eq!(code(Some("evil.example"), Some(&right)), Err(421));
        assert_eq!(code(None, Some(&right)), Err(421));
        let twice = Request::builder().uri("/api").header(HOST, "localhost").header(HOST, "localhost");
        let (parts, ()) = twice.header(AUTHORIZATION, &right).body(()).unwrap().into_parts();
        assert_eq!(check(&parts, &token, bound).map_err(|failure| failure.code.as_u16()), Err(421));
    }
}
