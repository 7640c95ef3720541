//! The port that the client connected to. Everything that writes a port or a URL of the edge asks here: the headers for
//! endpoints and authorisation services, and redirects.

use tidegate_config::model::Head;

use crate::request::client::Client;

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
    let of_host = || head.authority().and_then(|host| in_authority(host.as_bytes()));
    let or_default = |port: Option<u16>| port.unwrap_or_else(|| default_port(client.secure));
    if let Some(port) = believed_port(head, client) {
        return port;
    }
    if client.trusted {
        let host = last(head, "x-forwarded-host", in_authority);
        if client.names_scheme || host.is_some() {
            return or_default(host.unwrap_or_else(of_host));
        }
    }
    or_default(named.or_else(of_host))
}

/// The port that a trusted proxy forwards.
pub(crate) fn believed_port<H: Head + ?Sized>(head: &H, client: &Client) -> Option<u16> {
    if client.trusted { last(head, "x-forwarded-port", port)? } else { None }
}

/// The port of a URL without one.
pub(crate) const fn default_port(secure: bool) -> u16 {
    if secure { 443 } else { 80 }
}

/// What the last element of a header says, if there is the header: a proxy that appends its own leaves the client's
/// claim to the left of it.
fn last<H: Head + ?Sized, T>(head: &H, name: &str, says: impl Fn(&[u8]) -> T) -> Option<T> {
    let mut said = None;
    head.each_value(name, &mut |value| {
        said = value.rsplit(|byte| *byte == b',').next().map(|element| says(element.trim_ascii()));
    });
    said
}

/// The port in an authority.
fn in_authority(authority: &[u8]) -> Option<u16> {
    let colon = memchr::memrchr(b':', authority)?;
    port(authority.get(colon + 1..)?)
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
}
