//! The authority of the URL that the client used: host and port. Everything that writes a host, a port or a URL of the
//! edge asks here: the headers for endpoints, mirrors and authorisation services, and redirects, which keep the host of
//! `Host` (those to TLS have the port of `https`). The scheme is that of the [`Client`].
//!
//! Scheme, host and port are those of one hop: the last word of the last line of a header of a trusted proxy, as
//! [`last_word`] reads it. A proxy that appends its own leaves the client's claim to the left of it.

use tidegate_config::model::{Head, request_host};

use crate::request::client::{Client, last_word};

/// Writes the authority of the URL that the client used. Returns `false` if there is none.
///
/// It is that of a trusted proxy's `X-Forwarded-Host`, else that of `Host`.
pub(crate) fn write_authority<H: Head + ?Sized>(head: &H, client: &Client, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let named = forwarded_host(head, client, |authority, _| {
        out.truncate(start);
        out.extend_from_slice(authority.as_bytes());
    });
    if named.is_some() {
        return true;
    }
    out.truncate(start);
    head.authority().inspect(|authority| out.extend_from_slice(authority.as_bytes())).is_some()
}

/// The port in the URL that the client used. The port of the edge's own socket says nothing about it: usually a
/// Service, a node or a load balancer maps another one to it.
///
/// Of these, the first that there is:
///
/// 1. from a trusted proxy, `X-Forwarded-Port`;
/// 2. if a trusted proxy names the scheme or the host, the port of its `X-Forwarded-Host`, else of `Host`, else that of
///    the scheme;
/// 3. `named`: the port in the PROXY header, or that of the Gateway's listener;
/// 4. the port in `Host`, which clients leave out if it is that of the scheme (RFC 9110 section 7.2);
/// 5. that of the scheme.
pub(crate) fn client_port<H: Head + ?Sized>(head: &H, client: &Client, named: Option<u16>) -> u16 {
    port_beside(forwarded_host(head, client, |authority, _| in_authority(authority)), head, client, named)
}

/// The port of a URL with the host of `Host`, as redirects have it: that of [`client_port`] without `X-Forwarded-Host`.
pub(crate) fn own_port<H: Head + ?Sized>(head: &H, client: &Client, named: Option<u16>) -> u16 {
    port_beside(None, head, client, named)
}

/// See [`client_port`]. `forwarded` is the port in the authority that a trusted proxy forwards, if it forwards one.
fn port_beside<H: Head + ?Sized>(forwarded: Option<Option<u16>>, head: &H, client: &Client, named: Option<u16>) -> u16 {
    let of_host = || head.authority().and_then(in_authority);
    let or_default = |port: Option<u16>| port.unwrap_or_else(|| default_port(client.secure));
    if let Some(port) = believed_port(head, client) {
        return port;
    }
    if client.names_scheme || forwarded.is_some() {
        return or_default(forwarded.unwrap_or_else(of_host));
    }
    or_default(named.or_else(of_host))
}

/// The port that a trusted proxy forwards.
pub(crate) fn believed_port<H: Head + ?Sized>(head: &H, client: &Client) -> Option<u16> {
    if client.trusted { last_word(head, "x-forwarded-port", port) } else { None }
}

/// The port of a URL without one.
pub(crate) const fn default_port(secure: bool) -> u16 {
    if secure { 443 } else { 80 }
}

/// The result of `read` for the authority that a trusted proxy forwards, and its host. An authority that would be
/// invalid in `Host` names nothing.
fn forwarded_host<H: Head + ?Sized, T>(head: &H, client: &Client, mut read: impl FnMut(&str, &str) -> T) -> Option<T> {
    if !client.trusted {
        return None;
    }
    last_word(head, "x-forwarded-host", |word| {
        let authority = std::str::from_utf8(word).ok()?;
        Some(read(authority, &request_host(authority)?))
    })
}

/// The port in an authority.
fn in_authority(authority: &str) -> Option<u16> {
    port(authority.rsplit_once(':')?.1.as_bytes())
}

/// A port from 1 to 65535 in its shortest form.
fn port(text: &[u8]) -> Option<u16> {
    let digits = text.iter().all(u8::is_ascii_digit) && text.first().is_some_and(|first| *first != b'0');
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::client::client;
    use crate::sample::Sample;

    /// The port of a request from a trusted peer, or another one, over TLS or in plain text.
    #[track_caller]
    fn check(trusted: bool, secure: bool, named: Option<u16>, host: &str, lines: &[(&str, &str)], want: u16) {
        let head = lines.iter().fold(Sample::get(host, "/"), |head, (name, value)| head.with(name, value));
        let peer = if trusted { "10.0.0.1:9" } else { "192.0.2.1:9" };
        let client = client(&head, peer.parse().unwrap(), secure, &["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(client_port(&head, &client, named), want, "{trusted} {secure} {named:?} {host} {lines:?}");
    }

    #[test]
    fn the_port_of_a_client_that_connects_to_the_edge() {
        for trusted in [false, true] {
            check(trusted, false, None, "a.test", &[], 80);
            check(trusted, true, None, "a.test", &[], 443);
            check(trusted, false, None, "a.test:8080", &[], 8080);
            check(trusted, true, None, "a.test:8443", &[], 8443);
            check(trusted, true, None, "[2001:db8::1]", &[], 443);
            check(trusted, true, None, "[2001:db8::1]:8443", &[], 8443);
            // The PROXY header, or the listener of a Gateway.
            check(trusted, false, Some(8000), "a.test", &[], 8000);
            check(trusted, false, Some(8000), "a.test:8080", &[], 8000);
        }
        for bad in ["a.test:", "a.test:0", "a.test:080", "a.test:65536", "a.test:http", ""] {
            check(false, false, None, bad, &[], 80);
        }
    }

    #[test]
    fn a_trusted_proxy_names_the_port_or_the_scheme() {
        let (port, proto, host) = ("x-forwarded-port", "x-forwarded-proto", "x-forwarded-host");
        check(true, false, Some(8000), "a.test", &[(port, "8443"), (proto, "https")], 8443);
        check(true, false, None, "a.test", &[(port, "8443")], 8443);
        check(true, false, None, "a.test", &[(port, "1, 8443")], 8443);
        check(true, false, None, "a.test", &[(proto, "https")], 443);
        check(true, true, None, "a.test", &[(proto, "http")], 80);
        check(true, true, Some(8443), "a.test", &[(proto, "http")], 80);
        check(true, false, Some(8000), "a.test", &[(proto, "http")], 80);
        check(true, false, None, "a.test:8443", &[(proto, "https")], 8443);
        check(true, false, None, "edge:8080", &[(proto, "https"), (host, "a.test")], 443);
        check(true, false, None, "edge:8080", &[(proto, "https"), (host, "a.test:8443")], 8443);
        check(true, false, None, "edge:8080", &[(host, "x.test:1, a.test:8081")], 8081);
        check(true, false, None, "edge:8080", &[(host, "a.test")], 80);
        for bad in ["", "x", "0", "65536", "443;x", "+443", " "] {
            check(true, false, None, "a.test", &[(port, bad), (proto, "https")], 443);
        }
        check(true, false, None, "a.test:8080", &[(proto, "gopher")], 8080);
    }

    #[test]
    fn headers_of_others_name_nothing() {
        let lines = [("x-forwarded-port", "1"), ("x-forwarded-proto", "https"), ("x-forwarded-host", "a.test:2")];
        check(false, false, None, "a.test", &lines, 80);
        check(false, true, Some(8443), "a.test:3", &lines, 8443);
    }

    /// The authority and the port of a request for `edge:1`, and the port of a redirect.
    #[track_caller]
    fn check_authority(trusted: bool, lines: &[(&str, &str)], want: (&str, u16, u16)) {
        let head = lines.iter().fold(Sample::get("edge:1", "/"), |head, (name, value)| head.with(name, value));
        let peer = if trusted { "10.0.0.1:9" } else { "192.0.2.1:9" };
        let client = client(&head, peer.parse().unwrap(), false, &["10.0.0.0/8".parse().unwrap()]);
        let mut authority = b"before ".to_vec();
        assert!(write_authority(&head, &client, &mut authority));
        let authority = String::from_utf8(authority).unwrap();
        let port = client_port(&head, &client, None);
        let of_redirect = own_port(&head, &client, None);
        assert_eq!((authority.strip_prefix("before ").unwrap(), port, of_redirect), want, "{trusted} {lines:?}");
    }

    #[test]
    fn host_and_port_are_of_the_same_proxy() {
        let (port, host) = ("x-forwarded-port", "x-forwarded-host");
        check_authority(true, &[], ("edge:1", 1, 1));
        check_authority(true, &[(host, "a.test:2")], ("a.test:2", 2, 1));
        for near in ["b.test:3", "a.test:2, b.test:3", "a.test:2,b.test:3 ", ", b.test:3"] {
            check_authority(true, &[(host, near)], ("b.test:3", 3, 1));
            check_authority(true, &[(host, "a.test:2"), (host, near)], ("b.test:3", 3, 1));
            check_authority(true, &[(host, "bad host"), (host, near)], ("b.test:3", 3, 1));
        }
        check_authority(true, &[(host, "a.test:2"), (host, "B.test")], ("B.test", 80, 1));
        check_authority(true, &[(host, "[2001:db8::1]:2")], ("[2001:db8::1]:2", 2, 1));
        check_authority(true, &[(host, "a.test"), (port, "2"), (port, "4, 3")], ("a.test", 3, 3));
        // No other hop takes the place of one that names nothing.
        for nothing in ["", ",", "a.test,", "a.test, ", "a.test, b/c", "b c", "b@c", "b:x", "b:65536", "a..b", "\u{fc}"]
        {
            check_authority(true, &[(host, "a.test:2"), (host, nothing)], ("edge:1", 1, 1));
        }
        for nothing in ["", "2,", "2, x", "0"] {
            check_authority(true, &[(port, "2"), (port, nothing)], ("edge:1", 1, 1));
            check_authority(true, &[(host, "a.test:3"), (port, nothing)], ("a.test:3", 3, 1));
        }
        check_authority(false, &[(host, "a.test:2"), (port, "3")], ("edge:1", 1, 1));
    }

    #[test]
    fn a_request_without_a_host_has_no_authority() {
        let client = client(&Sample::default(), "192.0.2.1:9".parse().unwrap(), false, &[]);
        assert!(!write_authority(&Sample::default(), &client, &mut Vec::new()));
    }
}
