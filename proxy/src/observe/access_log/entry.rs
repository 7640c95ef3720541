//! The contents of an access log line about a request.

use std::cell::Cell;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use tidegate_config::model::LogFormat;
use tidegate_config::object::ObjectRef;

use super::custom;
use super::line::{LogLine, field};

/// The contents of a line.
pub(crate) struct Entry<'a> {
    pub(crate) time: SystemTime,
    pub(crate) request_id: &'a str,
    pub(crate) client: Option<Address<'a>>,
    /// The address of the connection's peer, with its port.
    pub(crate) peer: &'a str,
    pub(crate) method: &'a str,
    pub(crate) scheme: &'static str,
    pub(crate) host: &'a str,
    /// The target as sent: path and query.
    pub(crate) path: &'a str,
    pub(crate) protocol: &'static str,
    pub(crate) status: u16,
    pub(crate) bytes_in: usize,
    pub(crate) bytes_out: usize,
    pub(crate) duration: Duration,
    pub(crate) upstream: Option<SocketAddr>,
    pub(crate) upstream_connect: Option<Duration>,
    pub(crate) upstream_first_byte: Option<Duration>,
    pub(crate) tries: usize,
    pub(crate) object: Option<&'a ObjectRef>,
    pub(crate) field: Option<&'a str>,
    /// The name of the route in logs, if it differs from the object's.
    pub(crate) log_name: Option<&'a str>,
    pub(crate) listener: Option<&'a str>,
    pub(crate) tls: Option<&'static str>,
    pub(crate) user_agent: &'a str,
    pub(crate) referer: &'a str,
    /// The first value of a header by its name in lower case, or an empty text.
    pub(crate) header: &'a dyn Fn(&str) -> &'a str,
    /// The client's identity according to its credentials, or to an authorisation service.
    pub(crate) user: Option<&'a str>,
    /// The rule of authentication or authorisation that refused the request.
    pub(crate) auth_rule: Option<&'a str>,
    /// The rule in shadow mode that would have refused it.
    pub(crate) shadow_auth_rule: Option<&'a str>,
    /// The rate limit that refused the request.
    pub(crate) limit: Option<&'a str>,
    /// The rate limit in shadow mode that would have refused it.
    pub(crate) shadow_limit: Option<&'a str>,
    /// The reason why no endpoint answered.
    pub(crate) reason: Option<&'static str>,
    pub(crate) generation: u64,
}

impl Entry<'_> {
    /// Writes the line, in JSON if there is no format.
    ///
    /// # Errors
    /// If a value cannot be printed; a part of the line may have been written then.
    pub(crate) fn write(&self, format: Option<&LogFormat>, out: &mut Vec<u8>) -> io::Result<()> {
        match format {
            None => self.json(out),
            Some(format) => custom::write(format, self, out),
        }
    }

    fn json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let mut line = LogLine::begin(out, "time", &rfc3339(self.time)?);
        line.text(field!("request_id"), self.request_id)?;
        match self.client {
            Some(Address::Ip(ip)) => line.printed(field!("client"), Some(ip))?,
            Some(Address::Text(text)) => line.plain(field!("client"), text),
            None => line.printed(field!("client"), None::<IpAddr>)?,
        }
        line.plain(field!("peer"), self.peer);
        line.text(field!("method"), self.method)?;
        line.plain(field!("scheme"), self.scheme);
        line.text(field!("host"), self.host)?;
        line.text(field!("path"), self.path)?;
        line.plain(field!("protocol"), self.protocol);
        line.number(field!("status"), self.status)?;
        line.number(field!("bytes_in"), self.bytes_in)?;
        line.number(field!("bytes_out"), self.bytes_out)?;
        line.milliseconds(field!("duration_ms"), Some(self.duration))?;
        line.socket(field!("upstream"), self.upstream)?;
        line.milliseconds(field!("upstream_connect_ms"), self.upstream_connect)?;
        line.milliseconds(field!("upstream_first_byte_ms"), self.upstream_first_byte)?;
        line.number(field!("tries"), self.tries)?;
        line.object(field!("object"), self.object)?;
        line.text_or_null(field!("field"), self.field)?;
        line.text_or_null(field!("listener"), self.listener)?;
        line.plain_or_null(field!("tls"), self.tls);
        line.text(field!("user_agent"), self.user_agent)?;
        line.text(field!("referer"), self.referer)?;
        if let Some(user) = self.user {
            line.text(field!("user"), user)?;
        }
        if let Some(rule) = self.auth_rule {
            line.text(field!("auth_rule"), rule)?;
        }
        if let Some(rule) = self.shadow_auth_rule {
            line.text(field!("shadow_auth_rule"), rule)?;
        }
        if let Some(limit) = self.limit {
            line.text(field!("limit"), limit)?;
        }
        if let Some(limit) = self.shadow_limit {
            line.text(field!("shadow_limit"), limit)?;
        }
        line.plain_or_null(field!("reason"), self.reason);
        line.number(field!("generation"), self.generation)?;
        line.end();
        Ok(())
    }
}

/// The address of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Address<'a> {
    /// As formatted text, which needs no escape.
    Text(&'a str),
    /// As an address.
    Ip(IpAddr),
}

/// The length of a time.
const TIME_BYTES: usize = "2023-11-14T22:13:20.123Z".len();

/// For example `2023-11-14T22:13:20.123Z`. The part before the point changes once a second, so each thread caches it.
pub(super) fn rfc3339(time: SystemTime) -> io::Result<[u8; TIME_BYTES]> {
    thread_local! {
        static LAST: Cell<(u64, [u8; TIME_BYTES])> = const { Cell::new((u64::MAX, [0; TIME_BYTES])) };
    }
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (mut second, mut text) = LAST.get();
    if second != since.as_secs() {
        second = since.as_secs();
        write!(text.as_mut_slice(), "{}", humantime::format_rfc3339_millis(time))?;
        LAST.set((second, text));
    }
    let millis = since.subsec_millis();
    for (place, unit) in [(20, 100), (21, 10), (22, 1)] {
        text[place] = b'0' + (millis / unit % 10) as u8;
    }
    Ok(text)
}

#[cfg(test)]
impl Entry<'_> {
    /// A line about a GET of this path.
    pub(super) fn sample(path: &str) -> Entry<'_> {
        Entry {
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            request_id: "id",
            client: Some(Address::Ip([192, 0, 2, 1].into())),
            peer: "192.0.2.1:5000",
            method: "GET",
            scheme: "http",
            host: "a.test",
            path,
            protocol: "HTTP/1.1",
            status: 200,
            bytes_in: 0,
            bytes_out: 5,
            duration: Duration::from_micros(1_234),
            upstream: None,
            upstream_connect: None,
            upstream_first_byte: None,
            tries: 0,
            object: None,
            field: None,
            log_name: None,
            listener: None,
            tls: None,
            user_agent: "",
            referer: "",
            header: &|_| "",
            user: None,
            auth_rule: None,
            shadow_auth_rule: None,
            limit: None,
            shadow_limit: None,
            reason: None,
            generation: 7,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tidegate_config::finding::is_terminal_control;
    use tidegate_config::object::{Kind, ObjectName};

    use super::*;

    #[track_caller]
    fn line(entry: &Entry<'_>) -> Value {
        let mut line = Vec::new();
        entry.write(None, &mut line).unwrap();
        assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1), "one line");
        let text = std::str::from_utf8(&line).unwrap().trim_end_matches('\n');
        assert!(!text.contains(is_terminal_control), "a terminal would obey {text:?}");
        serde_json::from_slice(&line).unwrap()
    }

    #[test]
    fn a_line_has_every_field() {
        let object = ObjectRef::new(Kind::Ingress, ObjectName::new("shop", "web"));
        let entry = Entry {
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            request_id: "5f0c",
            client: Some(Address::Text("203.0.113.9")),
            peer: "192.0.2.1:5000",
            method: "POST",
            scheme: "https",
            host: "a.test",
            path: "/a?b=c",
            protocol: "HTTP/2.0",
            status: 503,
            bytes_in: 1,
            bytes_out: usize::MAX,
            duration: Duration::from_nanos(12_345_678_901),
            upstream: Some(([10, 0, 0, 1], 80).into()),
            upstream_connect: Some(Duration::from_nanos(1_499)),
            upstream_first_byte: Some(Duration::from_nanos(1_500)),
            tries: 2,
            object: Some(&object),
            field: Some("spec.rules[0]"),
            log_name: None,
            listener: Some("https"),
            tls: Some("TLSv1_3"),
            user_agent: "curl/8",
            referer: "https://b.test/",
            header: &|_| "",
            user: Some("ann"),
            auth_rule: Some("shop/api/partners"),
            shadow_auth_rule: Some("shop/api/office"),
            limit: Some("shop/api/login"),
            shadow_limit: Some("shop/api/\"all\""),
            reason: Some("no-endpoints"),
            generation: u64::MAX,
        };
        let want = json!({
            "time": "2023-11-14T22:13:20.123Z", "request_id": "5f0c", "client": "203.0.113.9", "peer": "192.0.2.1:5000",
            "method": "POST", "scheme": "https", "host": "a.test", "path": "/a?b=c", "protocol": "HTTP/2.0", "status": 503,
            "bytes_in": 1, "bytes_out": usize::MAX, "duration_ms": 12345.679, "upstream": "10.0.0.1:80",
            "upstream_connect_ms": 0.001, "upstream_first_byte_ms": 0.002, "tries": 2, "object": "Ingress shop/web",
            "field": "spec.rules[0]", "listener": "https", "tls": "TLSv1_3", "user_agent": "curl/8",
            "referer": "https://b.test/", "user": "ann", "auth_rule": "shop/api/partners",
            "shadow_auth_rule": "shop/api/office", "limit": "shop/api/login",
            "shadow_limit": "shop/api/\"all\"", "reason": "no-endpoints", "generation": u64::MAX,
        });
        assert_eq!(line(&entry), want);
        let nothing = line(&Entry { client: None, ..Entry::sample("/") });
        let null = nothing.as_object().unwrap().iter().filter(|(_, value)| value.is_null()).map(|(name, _)| &**name);
        let want = "client field listener object reason tls upstream upstream_connect_ms upstream_first_byte_ms";
        assert_eq!(null.collect::<Vec<_>>().join(" "), want);
    }

    #[test]
    fn an_upstream_is_its_address_and_port() {
        for upstream in
            ["10.0.0.1:80", "255.255.255.255:65535", "0.0.0.0:0", "[2001:db8::1]:8080", "[::ffff:1.2.3.4]:1"]
        {
            let line = line(&Entry { upstream: Some(upstream.parse().unwrap()), ..Entry::sample("/") });
            assert_eq!(line["upstream"], upstream);
        }
    }

    #[test]
    fn every_text_stays_within_its_field() {
        let marks = (0..0x700).chain(0x2000..0x2070).filter_map(char::from_u32).chain(['\u{fffd}', '\u{10ffff}']);
        for mark in marks {
            // At each position of a block that may be scanned at once.
            for before in ["", "0123456", "0123456789abcdefghijklmnopqrstuvwxyz"] {
                let text = format!("{before}{mark}after");
                let object = ObjectRef::new(Kind::Service, ObjectName::new(&*text, "b"));
                let entry = Entry {
                    user_agent: &text,
                    host: &text,
                    method: &text,
                    object: Some(&object),
                    ..Entry::sample(&text)
                };
                let line = line(&entry);
                for field in ["path", "user_agent", "host", "method"] {
                    assert_eq!(line[field], text, "{field}");
                }
                assert_eq!(line["object"], format!("Service {text}/b"));
            }
        }
    }

    #[test]
    fn terminal_controls_are_escaped() {
        for (text, want) in [
            ("\u{9b}31m", r"\u009b31m"),
            ("a\u{80}\u{9f}b", r"a\u0080\u009fb"),
            ("\u{7f}", r"\u007f"),
            ("\u{200e}\u{200f}\u{61c}", r"\u200e\u200f\u061c"),
            ("\u{202a}x\u{202e}", r"\u202ax\u202e"),
            ("\u{2066}\u{2069}\"\u{1}", r#"\u2066\u2069\"\u0001"#),
            ("\u{a0}\u{fc}\u{2028}\u{200d}\u{1f600}", "\u{a0}\u{fc}\u{2028}\u{200d}\u{1f600}"),
        ] {
            let mut line = Vec::new();
            Entry { referer: text, user: Some(text), ..Entry::sample(text) }.write(None, &mut line).unwrap();
            let line = String::from_utf8(line).unwrap();
            for field in ["referer", "user", "path"] {
                assert!(line.contains(&format!("\"{field}\":\"{want}\"")), "{field} of {line}");
            }
        }
    }

    #[test]
    fn times_do_not_depend_on_the_line_before() {
        for millis in [1_700_000_000_123, 1_700_000_000_007, 1_700_000_001_000, 1_700_000_000_999, 0, 951_782_399_990] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
            let line = line(&Entry { time, ..Entry::sample("/") });
            assert_eq!(line["time"], humantime::format_rfc3339_millis(time).to_string());
        }
    }
}
