//! A line of the access log, and how it is written.

use std::cell::Cell;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use tidegate_config::object::ObjectRef;

use crate::connection::ConnectionFacts;
use crate::forwarded::Client;

/// What a line says of its request. Durations are milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Entry<'a> {
    #[serde(serialize_with = "rfc3339")]
    pub(crate) time: SystemTime,
    pub(crate) request_id: &'a str,
    pub(crate) client: Option<Address<'a>>,
    pub(crate) peer: Option<&'a str>,
    pub(crate) method: &'a str,
    pub(crate) scheme: &'a str,
    pub(crate) host: &'a str,
    /// The target as sent: path and query.
    pub(crate) path: &'a str,
    pub(crate) protocol: &'a str,
    pub(crate) status: u16,
    pub(crate) bytes_in: usize,
    pub(crate) bytes_out: usize,
    pub(crate) duration_ms: f64,
    pub(crate) upstream: Option<SocketAddr>,
    pub(crate) upstream_connect_ms: Option<f64>,
    pub(crate) upstream_first_byte_ms: Option<f64>,
    pub(crate) tries: usize,
    pub(crate) object: Option<&'a ObjectRef>,
    pub(crate) field: Option<&'a str>,
    pub(crate) listener: Option<&'a str>,
    pub(crate) tls: Option<&'a str>,
    pub(crate) user_agent: &'a str,
    pub(crate) referer: &'a str,
    /// Why no endpoint answered.
    pub(crate) reason: Option<&'a str>,
    pub(crate) generation: u64,
}

/// Where a request came from.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Address<'a> {
    /// As text that is there already.
    Text(&'a str),
    /// As it is.
    Ip(IpAddr),
}

impl<'a> Address<'a> {
    /// Of a client, whose address is most often its connection's.
    pub(crate) fn of(client: &Client, facts: Option<&'a ConnectionFacts>) -> Self {
        let own = facts.filter(|_| client.address == client.peer);
        own.map_or(Self::Ip(client.address), |facts| Self::Text(&facts.text.peer))
    }
}

/// As `2023-11-14T22:13:20.123Z`. What stands before the point changes once a second, so each thread keeps it.
fn rfc3339<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    const LENGTH: usize = "2023-11-14T22:13:20.123Z".len();
    thread_local! {
        static LAST: Cell<(u64, [u8; LENGTH])> = const { Cell::new((u64::MAX, [0; LENGTH])) };
    }
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (mut second, mut text) = LAST.get();
    if second != since.as_secs() {
        second = since.as_secs();
        write!(text.as_mut_slice(), "{}", humantime::format_rfc3339_millis(*time))
            .map_err(serde::ser::Error::custom)?;
        LAST.set((second, text));
    }
    let millis = since.subsec_millis();
    for (place, unit) in [(20, 100), (21, 10), (22, 1)] {
        text[place] = b'0' + (millis / unit % 10) as u8;
    }
    serializer.serialize_str(str::from_utf8(&text).map_err(serde::ser::Error::custom)?)
}

/// Milliseconds to three places.
pub(crate) fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
impl Entry<'_> {
    /// A line about a GET of this path.
    pub(super) fn sample(path: &str) -> Entry<'_> {
        Entry {
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            request_id: "id",
            client: Some(Address::Ip([192, 0, 2, 1].into())),
            peer: None,
            method: "GET",
            scheme: "http",
            host: "a.test",
            path,
            protocol: "HTTP/1.1",
            status: 200,
            bytes_in: 0,
            bytes_out: 5,
            duration_ms: milliseconds(Duration::from_micros(1_234)),
            upstream: None,
            upstream_connect_ms: None,
            upstream_first_byte_ms: None,
            tries: 0,
            object: None,
            field: None,
            listener: None,
            tls: None,
            user_agent: "",
            referer: "",
            reason: None,
            generation: 7,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_json_object() {
        let text = serde_json::to_string(&Entry::sample("/a\"\n\u{7f}b")).unwrap();
        assert!(!text.contains('\n'), "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["path"], "/a\"\n\u{7f}b");
        assert_eq!((line["duration_ms"].as_f64(), line["generation"].as_u64()), (Some(1.234), Some(7)));
    }

    #[test]
    fn times_are_right_whatever_the_line_before_said() {
        for millis in [1_700_000_000_123, 1_700_000_000_007, 1_700_000_001_000, 1_700_000_000_999, 0, 951_782_399_990] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
            let line = serde_json::to_value(Entry { time, ..Entry::sample("/") }).unwrap();
            assert_eq!(line["time"], humantime::format_rfc3339_millis(time).to_string());
        }
    }
}
