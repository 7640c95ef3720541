//! Lines of the access log in a custom format.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::time::{Duration, SystemTime};

use tidegate_config::model::{LogFormat, LogPiece, LogVariable};

use super::entry::{Address, Entry, rfc3339};

/// The text for an unknown value.
const UNKNOWN: &[u8] = b"-";

/// The names of months in log lines.
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Writes a line, including its end.
///
/// # Errors
/// If a value cannot be printed; a part of the line may have been written then.
pub(super) fn write(format: &LogFormat, entry: &Entry<'_>, out: &mut Vec<u8>) -> io::Result<()> {
    for piece in format.pieces() {
        match piece {
            LogPiece::Text(text) => out.extend_from_slice(text.as_bytes()),
            LogPiece::Variable(variable) => value(variable, entry, out)?,
        }
    }
    out.push(b'\n');
    Ok(())
}

fn value(variable: &LogVariable, entry: &Entry<'_>, out: &mut Vec<u8>) -> io::Result<()> {
    match variable {
        LogVariable::TimeIso8601 => {
            out.extend_from_slice(&rfc3339(entry.time)?[..SECONDS]);
            out.extend_from_slice(b"+00:00");
        }
        LogVariable::TimeLocal => time_local(entry.time, out)?,
        LogVariable::Msec => {
            let since = entry.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            seconds(since, out)?;
        }
        LogVariable::AppName => app_name(entry, out),
        LogVariable::RemoteAddr => match entry.client {
            Some(Address::Ip(ip)) => write!(out, "{ip}")?,
            Some(Address::Text(address)) => text(address, out),
            None => text("", out),
        },
        LogVariable::RemoteUser => text(entry.user.unwrap_or_default(), out),
        LogVariable::Status => write!(out, "{}", entry.status)?,
        LogVariable::Request if entry.method.is_empty() => out.extend_from_slice(UNKNOWN),
        LogVariable::Request => {
            escaped(entry.method, out);
            out.push(b' ');
            escaped(entry.path, out);
            out.push(b' ');
            escaped(entry.protocol, out);
        }
        LogVariable::RequestMethod => text(entry.method, out),
        LogVariable::RequestUri => text(entry.path, out),
        LogVariable::ServerProtocol => text(entry.protocol, out),
        LogVariable::Scheme => text(entry.scheme, out),
        LogVariable::Host | LogVariable::ServerName => text(entry.host, out),
        LogVariable::BytesSent | LogVariable::BodyBytesSent => write!(out, "{}", entry.bytes_out)?,
        LogVariable::RequestId => text(entry.request_id, out),
        LogVariable::RequestTime => seconds(entry.duration, out)?,
        LogVariable::SslProtocol => text(entry.tls.unwrap_or_default(), out),
        LogVariable::UpstreamAddr => known(entry.upstream, out)?,
        LogVariable::UpstreamConnectTime => known_seconds(entry.upstream_connect, out)?,
        LogVariable::UpstreamHeaderTime => {
            let connect = entry.upstream_connect.unwrap_or_default();
            known_seconds(entry.upstream_first_byte.map(|first_byte| connect + first_byte), out)?;
        }
        LogVariable::UpstreamResponseTime => known_seconds(entry.upstream.map(|_| entry.duration), out)?,
        LogVariable::Header(name) => text((entry.header)(name), out),
    }
    Ok(())
}

/// The length of a time of ISO 8601 to the second.
const SECONDS: usize = "2023-11-14T22:13:20".len();

/// For example `14/Nov/2023:22:13:20 +0000`.
fn time_local(time: SystemTime, out: &mut Vec<u8>) -> io::Result<()> {
    let [y3, y2, y1, y0, _, m1, m0, _, d1, d0, _, clock @ ..] = rfc3339(time)?;
    let month = usize::from(10 * (m1 - b'0') + (m0 - b'0')).saturating_sub(1);
    out.extend_from_slice(&[d1, d0, b'/']);
    out.extend_from_slice(MONTHS.get(month).unwrap_or(&MONTHS[0]).as_bytes());
    out.extend_from_slice(&[b'/', y3, y2, y1, y0, b':']);
    out.extend_from_slice(&clock[.."22:13:20".len()]);
    out.extend_from_slice(b" +0000");
    Ok(())
}

/// The application, or the object of the route with its namespace, in the Deis router's form.
fn app_name(entry: &Entry<'_>, out: &mut Vec<u8>) {
    if let Some(name) = entry.log_name {
        return escaped(name, out);
    }
    let Some(object) = entry.object else { return out.extend_from_slice(UNKNOWN) };
    if object.name.namespace != object.name.name {
        escaped(&object.name.namespace, out);
        out.push(b'/');
    }
    escaped(&object.name.name, out);
}

fn seconds(duration: Duration, out: &mut Vec<u8>) -> io::Result<()> {
    write!(out, "{}.{:03}", duration.as_secs(), duration.subsec_millis())
}

fn known_seconds(duration: Option<Duration>, out: &mut Vec<u8>) -> io::Result<()> {
    match duration {
        Some(duration) => seconds(duration, out),
        None => out.write_all(UNKNOWN),
    }
}

fn known(value: Option<impl Display>, out: &mut Vec<u8>) -> io::Result<()> {
    match value {
        Some(value) => write!(out, "{value}"),
        None => out.write_all(UNKNOWN),
    }
}

fn text(text: &str, out: &mut Vec<u8>) {
    if text.is_empty() { out.extend_from_slice(UNKNOWN) } else { escaped(text, out) }
}

/// Escapes like nginx: bytes that could end a quoted field or a line, and non-ASCII bytes, are written in hexadecimal.
fn escaped(text: &str, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if matches!(byte, b'"' | b'\\' | ..b' ' | 0x7f..) {
            let digit = |half: u8| DIGITS[usize::from(half & 15)];
            out.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte)]);
        } else {
            out.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::object::{Kind, ObjectName, ObjectRef};

    use super::*;

    #[track_caller]
    fn check(format: &str, entry: &Entry<'_>, want: &str) {
        let format = LogFormat::named(format).unwrap_or_else(|| LogFormat::parse(format).unwrap());
        let mut line = Vec::new();
        write(&format, entry, &mut line).unwrap();
        assert_eq!(String::from_utf8(line).unwrap(), format!("{want}\n"));
    }

    #[test]
    fn the_named_formats_are_nginxs_and_the_deis_routers() {
        let object = ObjectRef::new(Kind::Service, ObjectName::new("blog", "blog"));
        let header = |name: &str| if name == "host" { "a.test:80" } else { "" };
        let entry = Entry {
            object: Some(&object),
            upstream: Some(([10, 0, 0, 1], 5000).into()),
            duration: Duration::from_millis(1234),
            bytes_out: 17,
            referer: "https://b.test/",
            user_agent: "curl/8 \"x\"",
            header: &|name| match name {
                "referer" => "https://b.test/",
                "user-agent" => "curl/8 \"x\"",
                name => header(name),
            },
            ..Entry::sample("/a?b=c")
        };
        let deis = "[2023-11-14T22:13:20+00:00] - blog - 192.0.2.1 - - - 200 - \"GET /a?b=c HTTP/1.1\" - 17 - \
                    \"https://b.test/\" - \"curl/8 \\x22x\\x22\" - \"a.test\" - 10.0.0.1:5000 - a.test:80 - 1.234 - 1.234";
        check("deis", &entry, deis);
        let combined = "192.0.2.1 - - [14/Nov/2023:22:13:20 +0000] \"GET /a?b=c HTTP/1.1\" 200 17 \
                        \"https://b.test/\" \"curl/8 \\x22x\\x22\"";
        check("combined", &entry, combined);
    }

    #[test]
    fn unknown_values_are_a_dash() {
        let nothing = Entry { client: None, method: "", host: "", request_id: "", ..Entry::sample("") };
        let all = "$app_name$remote_addr$remote_user$request$request_method$request_uri$host$request_id$ssl_protocol\
                   $upstream_addr$upstream_connect_time$upstream_header_time$upstream_response_time$http_x";
        check(all, &nothing, &"-".repeat(14));
        check("$msec $status", &nothing, "1700000000.123 200");
    }

    #[test]
    fn no_bytes_of_a_client_end_a_field_or_a_line() {
        let entry = Entry { header: &|_| "a\"b\\c\nd\u{7f}\u{e9}", ..Entry::sample("/") };
        check("\"$http_x\"", &entry, r#""a\x22b\x5Cc\x0Ad\x7F\xC3\xA9""#);
        let other = ObjectRef::new(Kind::Service, ObjectName::new("deis", "deis-controller"));
        check("$app_name", &Entry { log_name: Some("blog"), object: Some(&other), ..Entry::sample("/") }, "blog");
        check("$app_name", &Entry { object: Some(&other), ..Entry::sample("/") }, "deis/deis-controller");
    }
}
