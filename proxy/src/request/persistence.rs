//! Persistent sessions: the endpoint in a client's token, and the tokens for clients. Whatever a client sends, it can
//! only select an endpoint of the route.

use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_config::model::{
    Backend, BackendKey, EndpointId, Head, PathMatch, Route, SameSite, SessionCarrier, SessionCookie,
    SessionPersistence, SessionToken, TOKEN_CHARACTERS, Target, WeightedTarget,
};

/// Tokens of one request that are looked at. A browser has one cookie of a name for each path that it was set for.
pub(crate) const TOKENS_MAX: usize = 4;

/// The destination of a returning client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SessionEndpoint {
    /// The index of the share of its session.
    pub(crate) share: usize,
    /// Its endpoint; `None` if that no longer exists.
    pub(crate) endpoint: Option<EndpointId>,
}

/// The destination in a request's token; `None` if it has no valid token of the route, or its session is over. Of
/// several tokens the first with an existing endpoint counts. A session whose endpoint is gone stays with its share,
/// unless that gets no new sessions.
pub(crate) fn returning<'b, H: Head + ?Sized>(
    policy: &SessionPersistence,
    shares: &'b [WeightedTarget],
    backend_of: impl Fn(&'b Target) -> Option<&'b Arc<Backend>>,
    head: &H,
    now_s: u32,
) -> Option<SessionEndpoint> {
    let mut orphan = None;
    for text in presented(policy, head) {
        let token = policy.key.open(&text).filter(|token| lasts(token, policy.absolute_timeout, now_s));
        let Some(token) = token else { continue };
        let marks = (0..shares.len()).map(|place| mark(shares, place));
        let Some(share) = marks.into_iter().position(|mark| mark == Some(token.share)) else { continue };
        let Some(backend) = shares.get(share).and_then(WeightedTarget::target).and_then(|it| backend_of(it)) else {
            continue;
        };
        if backend.of_session(token.endpoint).is_some() {
            return Some(SessionEndpoint { share, endpoint: Some(token.endpoint) });
        }
        let is_open = shares.get(share).is_some_and(|share| share.weight > 0) && !backend.endpoints.is_empty();
        orphan = orphan.or(is_open.then_some(SessionEndpoint { share, endpoint: None }));
    }
    orphan
}

/// The token of a session that begins now at an endpoint of a share.
pub(crate) fn token(
    policy: &SessionPersistence,
    shares: &[WeightedTarget],
    share: usize,
    endpoint: EndpointId,
    now_s: u32,
) -> Option<[u8; TOKEN_CHARACTERS]> {
    let began_s = if policy.absolute_timeout.is_some() { now_s } else { 0 };
    Some(policy.key.seal(&SessionToken { endpoint, share: mark(shares, share)?, began_s }))
}

/// Writes the value of `Set-Cookie` (RFC 6265 section 4.1).
pub(crate) fn write_cookie(
    cookie: &SessionCookie,
    lifetime: Option<Duration>,
    (route, secure): (&Route, bool),
    token: &[u8],
    out: &mut Vec<u8>,
) {
    let path = cookie.path.as_deref().unwrap_or_else(|| path_of(&route.path));
    for part in [cookie.name.as_bytes(), b"=", token, b"; Path=", path.as_bytes()] {
        out.extend_from_slice(part);
    }
    if let Some(lifetime) = lifetime.filter(|_| cookie.permanent) {
        // Never 0, with which browsers delete the cookie.
        let seconds = lifetime.as_secs() + u64::from(lifetime.subsec_nanos() > 0);
        out.extend_from_slice(b"; Max-Age=");
        out.extend_from_slice(itoa::Buffer::new().format(seconds).as_bytes());
    }
    out.extend_from_slice(b"; HttpOnly; SameSite=");
    out.extend_from_slice(cookie.same_site.as_str().as_bytes());
    if cookie.secure.unwrap_or(secure) || cookie.same_site == SameSite::None {
        out.extend_from_slice(b"; Secure");
    }
}

/// The possible tokens in the client's request.
fn presented<H: Head + ?Sized>(policy: &SessionPersistence, head: &H) -> ArrayVec<[u8; TOKEN_CHARACTERS], TOKENS_MAX> {
    let mut tokens = ArrayVec::new();
    let mut see = |text: &[u8]| {
        if let Ok(text) = text.try_into() {
            // Those beyond the limit are ignored.
            let _ = tokens.try_push(text);
        }
    };
    match &policy.carrier {
        SessionCarrier::Header(name) => head.each_value(name.as_str(), &mut |value| see(value.trim_ascii())),
        SessionCarrier::Cookie(cookie) => head.each_value("cookie", &mut |value| {
            for pair in value.split(|byte| *byte == b';').map(<[u8]>::trim_ascii) {
                let Some(value) = pair.strip_prefix(cookie.name.as_bytes()).and_then(|it| it.strip_prefix(b"=")) else {
                    continue;
                };
                let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
                see(quoted.unwrap_or(value));
            }
        }),
    }
    tokens
}

/// Returns `true` if a session is not over. Clocks of replicas differ: a session that began in the future has just
/// begun.
fn lasts(token: &SessionToken, limit: Option<Duration>, now_s: u32) -> bool {
    limit.is_none_or(|limit| Duration::from_secs(now_s.saturating_sub(token.began_s).into()) < limit)
}

/// The identity of a share in tokens, independent of its position: its Service port, and its number among the shares
/// with the same port.
fn mark(shares: &[WeightedTarget], place: usize) -> Option<u32> {
    let key = backend_key(shares.get(place)?)?;
    let earlier = shares.iter().take(place).filter(|share| backend_key(share) == Some(key)).count();
    Some(fingerprint(key, earlier))
}

fn backend_key(share: &WeightedTarget) -> Option<&BackendKey> {
    share.target().map(|target| &target.backend)
}

/// A hash that is equal in every process (FNV-1a). It only distinguishes shares of one rule, so it need not be secure.
fn fingerprint(key: &BackendKey, number: usize) -> u32 {
    let name = &key.service;
    let parts = [name.namespace.as_bytes(), b"/", name.name.as_bytes(), b":", &key.port.to_be_bytes(), &[number as u8]];
    parts.into_iter().flatten().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The path of a route for a cookie: as far as browsers and rules have the same form of it, and by whole elements.
fn path_of(path: &PathMatch) -> &str {
    let (text, is_whole) = match path {
        PathMatch::Exact(path) | PathMatch::Prefix(path) => (&**path, true),
        PathMatch::PrefixCharacters(path) => (&**path, false),
        PathMatch::Regex(_) | PathMatch::AnyService(_) => ("", true),
    };
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+=:@".contains(byte);
    let plain = text.bytes().take_while(is_plain).count();
    let path = if plain == text.len() && is_whole {
        text
    } else {
        text.get(..plain).and_then(|plain| plain.rfind('/')).and_then(|end| text.get(..end)).unwrap_or_default()
    };
    if path.is_empty() { "/" } else { path }
}

#[cfg(test)]
mod tests;
