//! The client of a request: the peer, or the address that a trusted peer forwards. `X-Forwarded-*` from other peers is
//! ignored.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use tidegate_config::model::Head;

/// The client of a request, for guards, endpoints and the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Client {
    /// Its address.
    pub(crate) address: IpAddr,
    /// The peer: the client, or the nearest proxy.
    pub(crate) peer: IpAddr,
    /// Whether the peer's forwarded headers are trusted.
    pub(crate) trusted: bool,
    /// Whether the client uses TLS, here or to a trusted proxy.
    pub(crate) secure: bool,
    /// Whether the client's URL has a WebSocket scheme (`ws` or `wss`), according to a trusted proxy.
    pub(crate) websocket: bool,
    /// Whether a trusted proxy named the scheme.
    pub(crate) names_scheme: bool,
}

impl Client {
    /// `http` or `https`.
    pub(crate) const fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }
}

/// Determines the client: from the right of `X-Forwarded-For`, the first address that is not trusted itself, since that
/// client could have written everything to its left.
pub(crate) fn client<H: Head + ?Sized>(head: &H, peer: SocketAddr, secure: bool, trusted: &[IpNet]) -> Client {
    let peer = peer.ip().to_canonical();
    let believed = |address: IpAddr| trusted.iter().any(|net| net.contains(&address));
    if !believed(peer) {
        return Client { address: peer, peer, trusted: false, secure, websocket: false, names_scheme: false };
    }
    // Read from the left: an untrusted address replaces those to its left, and an invalid word invalidates all to its
    // left. If all addresses are trusted, the farthest is the client.
    let mut untrusted = None;
    let mut farthest = None;
    head.each_value("x-forwarded-for", &mut |value| {
        for word in value.split(|byte| *byte == b',') {
            match address(word) {
                None => (untrusted, farthest) = (None, None),
                Some(address) if believed(address) => farthest = farthest.or(Some(address)),
                Some(address) => untrusted = Some(address),
            }
        }
    });
    let scheme = last_word(head, "x-forwarded-proto", scheme);
    let (secure, websocket) = scheme.unwrap_or((secure, false));
    let address = untrusted.or(farthest).unwrap_or(peer);
    Client { address, peer, trusted: true, secure, websocket, names_scheme: scheme.is_some() }
}

/// The result of `read` for the last word of the last line of a header. The nearest proxy wrote it, if it appends its
/// own to a list. If `read` returns `None`, no earlier word is tried: another hop wrote those.
pub(crate) fn last_word<H: Head + ?Sized, T>(
    head: &H,
    name: &str,
    mut read: impl FnMut(&[u8]) -> Option<T>,
) -> Option<T> {
    let mut last = None;
    head.each_value(name, &mut |value| {
        last = read(value.rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii());
    });
    last
}

/// Whether a scheme is that of TLS, and whether of WebSocket.
fn scheme(word: &[u8]) -> Option<(bool, bool)> {
    let known: [(&[u8], _); 4] =
        [(b"https", (true, false)), (b"http", (false, false)), (b"wss", (true, true)), (b"ws", (false, true))];
    known.into_iter().find_map(|(name, of)| word.eq_ignore_ascii_case(name).then_some(of))
}

/// An address, or an address with a port, as some proxies append it.
fn address(word: &[u8]) -> Option<IpAddr> {
    let word = std::str::from_utf8(word).ok()?.trim();
    let bare = word.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(word);
    let address = bare.parse().or_else(|_| word.parse().map(|socket: SocketAddr| socket.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    #[track_caller]
    fn check(peer: &str, chain: &[&str], want: &str) {
        let head = chain.iter().fold(Sample::get("a", "/"), |head, value| head.with("x-forwarded-for", value));
        let trusted = ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let got = client(&head, peer.parse().unwrap(), false, &trusted);
        assert_eq!(got.address.to_string(), want, "{peer} {chain:?}");
    }

    #[test]
    fn the_first_untrusted_address_from_the_right() {
        check("192.0.2.1:9", &["198.51.100.1"], "192.0.2.1");
        check("10.0.0.1:9", &[], "10.0.0.1");
        check("10.0.0.1:9", &["198.51.100.1"], "198.51.100.1");
        check("10.0.0.1:9", &["1.1.1.1, 198.51.100.1"], "198.51.100.1");
        check("10.0.0.1:9", &["1.1.1.1, 198.51.100.1, 10.0.0.2"], "198.51.100.1");
        check("10.0.0.1:9", &["1.1.1.1", "198.51.100.1", "10.0.0.2"], "198.51.100.1");
        check("10.0.0.1:9", &["10.0.0.3, 10.0.0.2"], "10.0.0.3");
        check("10.0.0.1:9", &["198.51.100.1:4711"], "198.51.100.1");
        check("10.0.0.1:9", &["[2001:db8::1]:4711"], "2001:db8::1");
        check("10.0.0.1:9", &["[2001:db8::1]"], "2001:db8::1");
        check("[::ffff:10.0.0.1]:9", &["198.51.100.1"], "198.51.100.1");
    }

    #[test]
    fn an_invalid_address_ends_the_chain() {
        check("10.0.0.1:9", &["unknown"], "10.0.0.1");
        check("10.0.0.1:9", &["198.51.100.1, unknown, 10.0.0.2"], "10.0.0.2");
        check("10.0.0.1:9", &["unknown, 198.51.100.1"], "198.51.100.1");
        check("10.0.0.1:9", &["198.51.100.1, unknown"], "10.0.0.1");
    }

    #[track_caller]
    fn check_scheme(peer: &str, secure: bool, proto: &str, want: &str) {
        let head = Sample::get("a", "/").with("x-forwarded-proto", proto);
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        assert_eq!(client(&head, peer.parse().unwrap(), secure, &trusted).scheme(), want, "{peer} {proto}");
    }

    #[test]
    fn the_scheme_is_taken_from_trusted_peers_only() {
        check_scheme("10.0.0.1:9", false, "https", "https");
        check_scheme("10.0.0.1:9", false, "http, HTTPS", "https");
        check_scheme("10.0.0.1:9", false, "https, http", "http");
        check_scheme("10.0.0.1:9", true, "http, gopher", "https");
        check_scheme("10.0.0.1:9", true, "http,", "https");
        check_scheme("10.0.0.1:9", true, "http", "http");
        check_scheme("10.0.0.1:9", true, "gopher", "https");
        check_scheme("192.0.2.1:9", false, "https", "http");
    }
}
