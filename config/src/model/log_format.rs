//! The form of a line of the access log, in the syntax of nginx: text with variables.

use std::fmt;

use serde::Serialize;

/// The format that nginx calls `combined`.
const COMBINED: &str = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#;

/// The format of the Deis router. The log collectors of the platform parse it by field position.
const DEIS: &str = r#"[$time_iso8601] - $app_name - $remote_addr - $remote_user - $status - "$request" - $bytes_sent - "$http_referer" - "$http_user_agent" - "$server_name" - $upstream_addr - $http_host - $upstream_response_time - $request_time"#;

/// The maximum length of a format in bytes.
const BYTES_MAX: usize = 8 * 1024;

/// The form of a line of the access log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogFormat(Box<[LogPiece]>);

/// A part of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogPiece {
    /// Text as it stands.
    Text(Box<str>),
    /// The value of a variable.
    Variable(LogVariable),
}

macro_rules! variables {
    ($($variant:ident $name:literal $what:literal,)*) => {
        /// A variable of the request, with its name in nginx. Unknown values are written as `-`.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum LogVariable {
            $(#[doc = $what] $variant,)*
            /// `$http_NAME`: a header of the request, its name in lower case with dashes.
            Header(Box<str>),
        }

        impl LogVariable {
            fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => {
                        let header = name.strip_prefix("http_").filter(|header| !header.is_empty())?;
                        Some(Self::Header(header.replace('_', "-").into()))
                    }
                }
            }
        }

        impl fmt::Display for LogVariable {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str(concat!("${", $name, "}")),)*
                    Self::Header(name) => write!(f, "${{http_{}}}", name.replace('-', "_")),
                }
            }
        }
    };
}

variables! {
    TimeIso8601 "time_iso8601" "The time of the end, to the second, as ISO 8601 has it.",
    TimeLocal "time_local" "The time of the end, as `23/Nov/2026:18:00:00 +0000`.",
    Msec "msec" "The time of the end in seconds since 1970, to the millisecond.",
    AppName "app_name" "The application, or else the object of the route: its name, behind its namespace and a slash where they differ.",
    RemoteAddr "remote_addr" "The address of the client.",
    RemoteUser "remote_user" "The identity from the authorisation service.",
    Status "status" "The status.",
    Request "request" "The request line.",
    RequestMethod "request_method" "The method.",
    RequestUri "request_uri" "Path and query as sent.",
    ServerProtocol "server_protocol" "The version, as `HTTP/1.1`.",
    Scheme "scheme" "`http` or `https`.",
    Host "host" "The host that was asked for.",
    ServerName "server_name" "The host that was asked for.",
    BytesSent "bytes_sent" "Bytes of the response's body.",
    BodyBytesSent "body_bytes_sent" "Bytes of the response's body.",
    RequestId "request_id" "The identity of the request.",
    RequestTime "request_time" "Seconds until the end, to the millisecond.",
    SslProtocol "ssl_protocol" "The version of TLS.",
    UpstreamAddr "upstream_addr" "The endpoint.",
    UpstreamConnectTime "upstream_connect_time" "Seconds that it took to open a connection to the endpoint.",
    UpstreamHeaderTime "upstream_header_time" "Seconds from then until the endpoint began to answer, with those for the connection.",
    UpstreamResponseTime "upstream_response_time" "Seconds until the end, where there was an endpoint.",
}

impl LogFormat {
    /// The format with a name: `combined` or `deis`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let text = match name {
            "combined" => COMBINED,
            "deis" => DEIS,
            _ => return None,
        };
        Self::parse(text).ok()
    }

    /// Parses a format: text in which `$name` and `${name}` stand for the value of a variable.
    ///
    /// # Errors
    /// If the text is not a format: a predicate that says why.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > BYTES_MAX {
            return Err(format!("is longer than {BYTES_MAX} bytes"));
        }
        if text.chars().any(char::is_control) {
            return Err("has a control character".to_owned());
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('$') {
            if !before.is_empty() {
                pieces.push(LogPiece::Text(before.into()));
            }
            let (name, behind) = match behind.strip_prefix('{') {
                Some(braced) => braced.split_once('}').ok_or("has a ${ without its }")?,
                None => {
                    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                    behind.split_at(behind.bytes().take_while(|byte| is_of_name(byte)).count())
                }
            };
            let variable = LogVariable::named(name).ok_or_else(|| format!("names an unknown variable, ${name}"))?;
            pieces.push(LogPiece::Variable(variable));
            rest = behind;
        }
        if !rest.is_empty() {
            pieces.push(LogPiece::Text(rest.into()));
        }
        if pieces.is_empty() { Err("is empty".to_owned()) } else { Ok(Self(pieces.into())) }
    }

    /// The parts of a line, in order.
    #[must_use]
    pub const fn pieces(&self) -> &[LogPiece] {
        &self.0
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            LogPiece::Text(text) => f.write_str(text),
            LogPiece::Variable(variable) => variable.fmt(f),
        })
    }
}

impl Serialize for LogFormat {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: Result<&str, &str>) {
        let got = LogFormat::parse(text).map(|format| format.to_string());
        assert_eq!(got.as_deref().map_err(String::as_str), want, "{text:?}");
    }

    #[test]
    fn formats_are_text_with_variables() {
        check("$status", Ok("${status}"));
        check("[${status}x] \"$http_x_real_ip\"", Ok("[${status}x] \"${http_x_real_ip}\""));
        check("only text", Ok("only text"));
        check("", Err("is empty"));
        check("a\nb", Err("has a control character"));
        check("${status", Err("has a ${ without its }"));
        check("5 $", Err("names an unknown variable, $"));
        check("$http_", Err("names an unknown variable, $http_"));
        check("$nonesuch!", Err("names an unknown variable, $nonesuch"));
        check(&"x".repeat(BYTES_MAX + 1), Err("is longer than 8192 bytes"));
    }

    #[test]
    fn the_named_formats_are_valid() {
        for name in ["combined", "deis"] {
            assert!(LogFormat::named(name).is_some(), "{name}");
        }
        assert_eq!(LogFormat::named("json"), None);
    }
}
