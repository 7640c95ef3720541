//! Timeouts, retries and session persistence of a rule.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::duration::duration;
use crate::project::field::{Found, read};

/// Codes that are read of one rule: as many as there can be.
const CODES_MAX: usize = 200;
/// Bytes of the path of a cookie.
const COOKIE_PATH_BYTES_MAX: usize = 1024;

/// `timeouts`. Zero is none; absent is the default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Timeouts {
    /// From a request to the end of its response, all tries included.
    pub request: Option<Duration>,
    /// For one try.
    pub backend_request: Option<Duration>,
}

/// `retry`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retry {
    /// The statuses of endpoints after which another try is made, in ascending order.
    pub codes: Box<[u16]>,
    /// Tries after the first; 0 for none.
    pub attempts: u32,
    /// Time between two tries.
    pub backoff: Option<Duration>,
}

/// `sessionPersistence`: how a client comes back to its endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionPersistence {
    /// By what it is known.
    pub by: SessionToken,
    /// Time after which a session ends, however often the client comes.
    pub absolute_timeout: Option<Duration>,
}

/// What a client is known by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionToken {
    /// A cookie.
    Cookie {
        /// Its name; `None` for one of the edge's own.
        name: Option<Arc<str>>,
        /// The paths that it is sent for.
        path: Option<Arc<str>>,
        /// Whether it outlives the client's session.
        permanent: bool,
    },
    /// A header.
    Header {
        /// Its name; `None` for one of the edge's own.
        name: Option<Arc<str>>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct TimeoutsJson<'a> {
    #[serde(borrow)]
    request: Option<&'a RawValue>,
    #[serde(borrow)]
    backend_request: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct RetryJson<'a> {
    #[serde(borrow)]
    codes: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    attempts: Option<&'a RawValue>,
    #[serde(borrow)]
    backoff: Option<&'a RawValue>,
}

/// The form of v1.7, and that of the releases before it (`sessionName`, `cookieConfig`).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct SessionJson<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    session_name: Option<Arc<str>>,
    #[serde(borrow)]
    absolute_timeout: Option<&'a RawValue>,
    cookie: Option<CookieJson>,
    cookie_config: Option<CookieJson>,
    header: Option<HeaderJson>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct CookieJson {
    name: Option<Arc<str>>,
    path: Option<Arc<str>>,
    lifetime_type: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(expecting = "an object")]
struct HeaderJson {
    name: Option<Arc<str>>,
}

/// Reads a setting, or takes its default.
fn setting<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>, field: &str, found: &mut Found) -> Option<T> {
    let read = raw.map(|raw| read(raw, field)).transpose();
    read.unwrap_or_else(|misread| {
        found.ignored(&misread.field, &misread.value, &misread.why);
        None
    })
}

fn time(raw: Option<&RawValue>, field: &str, found: &mut Found) -> Option<Duration> {
    let text: String = setting(raw, field, found)?;
    duration(&text).map_err(|why| found.ignored(field, &text, why)).ok()
}

pub(super) fn timeouts(raw: Option<&RawValue>, field: &str, found: &mut Found) -> Timeouts {
    let Some(json) = setting::<TimeoutsJson<'_>>(raw, field, found) else { return Timeouts::default() };
    Timeouts {
        request: time(json.request, &format!("{field}.request"), found),
        backend_request: time(json.backend_request, &format!("{field}.backendRequest"), found),
    }
}

pub(super) fn retry(raw: Option<&RawValue>, field: &str, found: &mut Found) -> Option<Retry> {
    let json: RetryJson<'_> = setting(raw, field, found)?;
    let mut codes: Vec<u16> = Vec::new();
    for (field, raw) in found.entries(json.codes, CODES_MAX, &format!("{field}.codes")) {
        let Some(number) = found.entry::<i64>(raw, &field) else { continue };
        match u16::try_from(number) {
            Ok(code @ 400..=599) => codes.push(code),
            _ => found.dropped(&field, &number.to_string(), "is not between 400 and 599"),
        }
    }
    codes.sort_unstable();
    codes.dedup();
    let attempts = format!("{field}.attempts");
    let attempts = setting::<i64>(json.attempts, &attempts, found).and_then(|number| {
        u32::try_from(number).map_err(|_| found.ignored(&attempts, &number.to_string(), "is no number of tries")).ok()
    });
    let backoff = time(json.backoff, &format!("{field}.backoff"), found);
    Some(Retry { codes: codes.into(), attempts: attempts.unwrap_or(1), backoff })
}

pub(super) fn session(raw: Option<&RawValue>, field: &str, found: &mut Found) -> Option<SessionPersistence> {
    let json: SessionJson<'_> = setting(raw, field, found)?;
    let absolute_timeout = time(json.absolute_timeout, &format!("{field}.absoluteTimeout"), found);
    let mut none = |below: &str, value: &str, why: &str| {
        found.ignored(&format!("{field}.{below}"), value, why);
        None
    };
    let by = match json.kind.as_deref() {
        None | Some("Cookie") => {
            let cookie = json.cookie.or(json.cookie_config).unwrap_or_default();
            let name = cookie.name.or(json.session_name);
            if let Some(name) = name.as_ref().filter(|name| !is_token(name)) {
                return none("cookie.name", name, "is not the name of a cookie");
            }
            if let Some(path) = cookie.path.as_ref().filter(|path| !is_cookie_path(path)) {
                return none("cookie.path", path, "is not the path of a cookie");
            }
            let permanent = match cookie.lifetime_type.as_deref() {
                None | Some("Session") => false,
                Some("Permanent") if absolute_timeout.is_some() => true,
                Some("Permanent") => return none("cookie.lifetimeType", "Permanent", "needs an absoluteTimeout"),
                Some(text) => return none("cookie.lifetimeType", text, "is neither Session nor Permanent"),
            };
            SessionToken::Cookie { name, path: cookie.path, permanent }
        }
        Some("Header") => {
            let name = json.header.unwrap_or_default().name.or(json.session_name);
            if let Some(name) = name.as_ref().filter(|name| !is_token(name)) {
                return none("header.name", name, "is not the name of a header");
            }
            SessionToken::Header { name }
        }
        Some(text) => return none("type", text, "is neither Cookie nor Header"),
    };
    Some(SessionPersistence { by, absolute_timeout })
}

fn is_token(text: &str) -> bool {
    text.len() <= 256 && http::HeaderName::from_bytes(text.as_bytes()).is_ok()
}

/// Nothing in it may end the attribute of the cookie.
fn is_cookie_path(text: &str) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b';' | b',' | b'"' | b'\\'));
    text.starts_with('/') && text.len() <= COOKIE_PATH_BYTES_MAX && plain
}
