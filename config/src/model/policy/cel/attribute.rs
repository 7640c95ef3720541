//! The attributes of a request that expressions can name.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;

use super::super::super::condition::Head;
use super::super::Attributes;

/// An attribute that an expression refers to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Attribute {
    Id,
    Scheme,
    Protocol,
    Host,
    Method,
    /// With the query.
    Path,
    UrlPath,
    Query,
    /// A header by its name in lower case.
    Header(Arc<str>),
    Time,
    Size,
    ClientAddress,
    ClientPort,
    LocalAddress,
    LocalPort,
    ServerName,
    TlsVersion,
    MutualTls,
    /// A value below `auth`, by the names of the fields.
    Auth(Arc<[Box<str>]>),
}

/// The result of looking up a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Named {
    Attribute(Attribute),
    /// Attributes have names that begin with this one.
    Group,
    Unknown,
}

/// The roots of the names of attributes.
pub(super) const ROOTS: &[&str] = &["request", "source", "destination", "connection", IDENTITY];

/// The root of what policies know of the client.
pub(super) const IDENTITY: &str = "auth";
/// The field of it with the results of rules of metadata.
const METADATA: &str = "metadata";
/// The fields of it.
const IDENTITY_FIELDS: &[&str] = &["identity", METADATA, "authorization", "response"];

/// The prefix of the names of headers.
const HEADERS: &str = "request.headers";

/// The maximum length in bytes of a text that an expression is evaluated with: the default maximum of a head.
pub(super) const TEXT_BYTES_MAX: usize = 64 << 10;

const TABLE: &[(&str, Attribute)] = &[
    ("request.id", Attribute::Id),
    ("request.scheme", Attribute::Scheme),
    ("request.protocol", Attribute::Protocol),
    ("request.host", Attribute::Host),
    ("request.method", Attribute::Method),
    ("request.path", Attribute::Path),
    ("request.url_path", Attribute::UrlPath),
    ("request.query", Attribute::Query),
    ("request.time", Attribute::Time),
    ("request.size", Attribute::Size),
    ("source.address", Attribute::ClientAddress),
    ("source.remote_address", Attribute::ClientAddress),
    ("source.port", Attribute::ClientPort),
    ("destination.address", Attribute::LocalAddress),
    ("destination.port", Attribute::LocalPort),
    ("connection.requested_server_name", Attribute::ServerName),
    ("connection.tls_session.sni", Attribute::ServerName),
    ("connection.tls_version", Attribute::TlsVersion),
    ("connection.mtls", Attribute::MutualTls),
];

/// Attributes that are headers, and names of headers that are attributes in every version of HTTP.
const ALIASES: &[(&str, &str)] = &[("referer", "referer"), ("useragent", "user-agent"), ("user_agent", "user-agent")];
const PSEUDO_HEADERS: &[(&str, Attribute)] = &[
    (":method", Attribute::Method),
    (":scheme", Attribute::Scheme),
    (":authority", Attribute::Host),
    (":path", Attribute::Path),
    ("host", Attribute::Host),
];

/// The value of an attribute of another type than text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Scalar {
    Int(i64),
    Bool(bool),
    Time(std::time::SystemTime),
}

impl Attribute {
    /// Looks up a name by its segments.
    pub(super) fn named(segments: &[&str]) -> Named {
        if let ["request", "headers", header] = segments {
            let pseudo = PSEUDO_HEADERS.iter().find(|(name, _)| name == header);
            return Named::Attribute(pseudo.map_or_else(|| Self::Header((*header).into()), |(_, of)| of.clone()));
        }
        if let ["request", field] = segments
            && let Some((_, header)) = ALIASES.iter().find(|(name, _)| name == field)
        {
            return Named::Attribute(Self::Header((*header).into()));
        }
        if let [IDENTITY, field, ..] = segments {
            let path = segments.iter().skip(1).map(|segment| (*segment).into());
            let is_known = IDENTITY_FIELDS.contains(field);
            return if is_known { Named::Attribute(Self::Auth(path.collect())) } else { Named::Unknown };
        }
        let name = segments.join(".");
        if let Some((_, attribute)) = TABLE.iter().find(|(known, _)| *known == name) {
            return Named::Attribute(attribute.clone());
        }
        let below = |known: &str| known.strip_prefix(&*name).is_some_and(|rest| rest.starts_with('.'));
        let is_group = name == HEADERS || TABLE.iter().any(|(known, _)| below(known));
        if is_group { Named::Group } else { Named::Unknown }
    }

    /// The name of the header that it is, in lower case.
    pub(super) const fn header(&self) -> Option<&Arc<str>> {
        if let Self::Header(name) = self { Some(name) } else { None }
    }

    /// The rule of metadata whose result it reads; `Some(None)` if it reads those of all, and `None` if of none.
    #[allow(clippy::option_option, reason = "one rule, all of them, or none")]
    pub(super) fn metadata(&self) -> Option<Option<&str>> {
        let Self::Auth(path) = self else { return None };
        let (first, rest) = path.split_first()?;
        (**first == *METADATA).then(|| rest.first().map(|rule| &**rule))
    }

    /// The maximum length of its text in bytes; `None` if it is no text.
    pub(super) const fn text_bytes_max(&self) -> Option<usize> {
        match self {
            Self::Scheme | Self::Protocol | Self::TlsVersion => Some(8),
            Self::ClientAddress | Self::LocalAddress => Some(ADDRESS_BYTES_MAX),
            Self::Id | Self::Host | Self::ServerName => Some(256),
            Self::Method | Self::Path | Self::UrlPath | Self::Query | Self::Header(_) => Some(TEXT_BYTES_MAX),
            Self::Time | Self::Size | Self::ClientPort | Self::LocalPort | Self::MutualTls | Self::Auth(_) => None,
        }
    }

    /// The value below `auth`, if it is one and the request has it.
    pub(super) fn json<'a, H: ?Sized>(&self, attributes: &Attributes<'a, H>) -> Option<&'a Value> {
        let Self::Auth(path) = self else { return None };
        attributes.auth?.get(path)
    }

    /// The text of a request; `None` if it has none, or this attribute is no text.
    pub(super) fn text<'a, H: Head + ?Sized>(&self, attributes: &Attributes<'a, H>) -> Option<Cow<'a, str>> {
        let Attributes { head, connection, .. } = attributes;
        let text = match self {
            Self::Id => attributes.request_id?,
            Self::Scheme if attributes.secure => "https",
            Self::Scheme => "http",
            Self::Protocol => attributes.protocol?,
            Self::Host => attributes.host,
            Self::Method => head.method(),
            Self::UrlPath => attributes.path,
            Self::Query => head.query().unwrap_or_default(),
            Self::Path => match head.query() {
                Some(query) => return Some([attributes.path, "?", query].concat().into()),
                None => attributes.path,
            },
            Self::Header(name) => return header(*head, name),
            Self::ClientAddress => return Some(attributes.address?.to_string().into()),
            Self::LocalAddress => return Some(local(attributes)?.to_string().into()),
            Self::ServerName => connection.server_name?,
            Self::TlsVersion => connection.tls_version?,
            Self::Time | Self::Size | Self::ClientPort | Self::LocalPort | Self::MutualTls | Self::Auth(_) => {
                return None;
            }
        };
        Some(Cow::Borrowed(text))
    }

    /// The result of a function of its text, without an allocation unless the text consists of several parts. `None`
    /// if the request has none.
    pub(super) fn with_text<H: Head + ?Sized, T>(
        &self,
        attributes: &Attributes<'_, H>,
        read: impl FnOnce(&str) -> T,
    ) -> Option<T> {
        let address = if *self == Self::ClientAddress {
            attributes.address?
        } else if *self == Self::LocalAddress {
            local(attributes)?
        } else {
            return self.text(attributes).map(|text| read(&text));
        };
        let mut buffer = [0; ADDRESS_BYTES_MAX];
        let mut rest = buffer.as_mut_slice();
        write!(rest, "{address}").ok()?;
        let left = rest.len();
        let text = buffer.get(..ADDRESS_BYTES_MAX - left)?;
        std::str::from_utf8(text).ok().map(read)
    }

    /// The value of a request; `None` if it has none, or this attribute is a text.
    pub(super) fn scalar<H: Head + ?Sized>(&self, attributes: &Attributes<'_, H>) -> Option<Scalar> {
        let int = |number: u64| Scalar::Int(i64::try_from(number).unwrap_or(i64::MAX));
        match self {
            Self::Time => Some(Scalar::Time((attributes.now)())),
            Self::Size => Some(attributes.body_bytes.map_or(Scalar::Int(-1), int)),
            Self::ClientPort => attributes.connection.client_port.map(|port| int(port.into())),
            Self::LocalPort => attributes.connection.local.map(|local| int(local.port().into())),
            Self::MutualTls => Some(Scalar::Bool(false)),
            Self::Id
            | Self::Scheme
            | Self::Protocol
            | Self::Host
            | Self::Method
            | Self::Path
            | Self::UrlPath
            | Self::Query
            | Self::Header(_)
            | Self::ClientAddress
            | Self::LocalAddress
            | Self::ServerName
            | Self::TlsVersion
            | Self::Auth(_) => None,
        }
    }

    /// Returns `true` if a request has it.
    pub(super) fn is_present<H: Head + ?Sized>(&self, attributes: &Attributes<'_, H>) -> bool {
        if let Self::Header(name) = self {
            return attributes.head.header(name).is_some();
        }
        if self.json(attributes).is_some() {
            return true;
        }
        self.with_text(attributes, |_| ()).is_some() || self.scalar(attributes).is_some()
    }
}

/// The length of the longest address as text (RFC 4291 section 2.2, with an embedded IPv4 address).
const ADDRESS_BYTES_MAX: usize = 45;

fn local<H: ?Sized>(attributes: &Attributes<'_, H>) -> Option<IpAddr> {
    attributes.connection.local.map(|local| local.ip().to_canonical())
}

/// The values of a header as one list (RFC 9110 section 5.3); those of `cookie` as one cookie string (RFC 9113 section
/// 8.2.3). Bytes that are not UTF-8 are replaced, so that no client can avoid a comparison by them.
fn header<'a, H: Head + ?Sized>(head: &'a H, name: &str) -> Option<Cow<'a, str>> {
    let first = head.header(name)?;
    let mut lines = 0_usize;
    head.each_value(name, &mut |_| lines += 1);
    if lines <= 1 {
        return Some(String::from_utf8_lossy(first));
    }
    let separator: &[u8] = if name == "cookie" { b"; " } else { b"," };
    let mut all = Vec::new();
    head.each_value(name, &mut |value| {
        all.extend_from_slice(value);
        all.extend_from_slice(separator);
    });
    all.truncate(all.len() - separator.len());
    Some(String::from_utf8_lossy(&all).into_owned().into())
}

/// The name in expressions.
impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Header(name) = self {
            return write!(f, "{HEADERS}['{name}']");
        }
        if let Self::Auth(path) = self {
            return write!(f, "{IDENTITY}.{}", path.join("."));
        }
        f.write_str(TABLE.iter().find(|(_, of)| of == self).map_or("", |(name, _)| name))
    }
}
