//! Filters: header edits, rewrites, mirrors and redirects, in the order they are listed.

use std::sync::Arc;

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, PROXY_AUTHENTICATE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderName, HeaderValue};
use serde::Serialize;

use super::backend::Target;
use super::policy::Cors;

/// One step of a route's ordered list of changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Filter {
    /// Edits the headers of the request to the endpoint.
    RequestHeaders(HeaderEdits),
    /// Edits the headers of the response to the client.
    ResponseHeaders(ResponseEdits),
    /// Replaces the path as the client sent it, or the part of it that the route matched; the last of several holds.
    Path(PathRewrite),
    /// Replaces the host in the request to the endpoint.
    Host(Arc<str>),
    /// The CORS policy: preflights are answered, and other responses, also those of the edge itself, get the headers of
    /// the policy. The last of several holds.
    Cors(Arc<Cors>),
    /// Sends copies of requests to another target and ignores the responses.
    Mirror(Mirror),
}

impl Filter {
    /// The target of a mirror.
    #[must_use]
    pub const fn mirrored(&self) -> Option<&Arc<Target>> {
        match self {
            Self::Mirror(mirror) => Some(&mirror.to),
            Self::RequestHeaders(_) | Self::ResponseHeaders(_) | Self::Path(_) | Self::Host(_) | Self::Cors(_) => None,
        }
    }
}

/// The target of a mirror, and the fraction of requests.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Mirror {
    /// The target. Its endpoints must be requested, as those of the targets of routes.
    pub to: Arc<Target>,
    /// The numerator of the fraction of mirrored requests.
    pub numerator: u32,
    /// The denominator, at least 1. Each request is chosen at random.
    pub denominator: u32,
}

/// Headers that belong to one connection (RFC 9110 section 7.6.1) or frame a message (RFC 9112 section 6). With one of
/// them changed, the next hop could take the body of a request for another request.
pub const CONNECTION_HEADERS: [HeaderName; 10] = [
    CONNECTION,
    CONTENT_LENGTH,
    EXPECT,
    PROXY_AUTHENTICATE,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Header edits, applied as removals, then replacements, then additions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HeaderEdits {
    /// Names whose every value is removed.
    pub remove: Box<[HeaderName]>,
    /// Names that get this one value.
    pub set: Box<[(HeaderName, HeaderValue)]>,
    /// Values added to those that exist.
    pub add: Box<[(HeaderName, HeaderValue)]>,
}

impl Serialize for HeaderEdits {
    /// Names only: values may be secrets.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = |pairs: &[(HeaderName, HeaderValue)]| {
            pairs.iter().map(|(name, _)| name.as_str().to_owned()).collect::<Vec<_>>().join(",")
        };
        let removed = self.remove.iter().map(HeaderName::as_str).collect::<Vec<_>>().join(",");
        serializer.collect_str(&format_args!("-{removed} ={} +{}", names(&self.set), names(&self.add)))
    }
}

/// The responses that edits apply to, by their origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResponseScope {
    /// Responses of endpoints.
    #[default]
    Proxied,
    /// Also responses that the edge makes itself while the route has an endpoint: refusals, redirects and failures, but
    /// neither a direct response of the route nor the 503 without endpoints.
    Backed,
    /// All responses.
    Every,
}

/// Header edits of responses, and the responses that they apply to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ResponseEdits {
    /// The edits.
    pub edits: HeaderEdits,
    /// The origin of the responses.
    pub scope: ResponseScope,
    /// The statuses, in ascending order; empty for all.
    pub statuses: Box<[u16]>,
    /// Whether they apply only to clients that came over TLS.
    pub secure_only: bool,
}

impl ResponseEdits {
    /// Edits of every response of an endpoint.
    #[must_use]
    pub fn proxied(edits: HeaderEdits) -> Self {
        Self { edits, scope: ResponseScope::Proxied, statuses: Box::default(), secure_only: false }
    }

    /// Returns `true` if the edits apply to a response of this origin and status. `secure` is `true` for a client over
    /// TLS.
    #[must_use]
    pub fn applies(&self, scope: ResponseScope, status: u16, secure: bool) -> bool {
        self.scope >= scope
            && (secure || !self.secure_only)
            && (self.statuses.is_empty() || self.statuses.binary_search(&status).is_ok())
    }
}

/// A complete response of the edge's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectResponse {
    /// The status, from 200 to 599.
    pub status: u16,
    /// Headers besides `Content-Type` and `Content-Length`.
    pub headers: Box<[(HeaderName, HeaderValue)]>,
    /// The `Content-Type`; `None` for a response without one.
    pub content_type: Option<HeaderValue>,
    /// The body.
    pub body: Arc<[u8]>,
}

impl Serialize for DirectResponse {
    /// The length in place of the body.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{} of {} bytes", self.status, self.body.len()))
    }
}

/// How a path is replaced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum PathRewrite {
    /// The whole path is replaced by this one. Escapes such as `%2F` stay as they are written.
    Full(Arc<str>),
    /// The matched prefix is replaced by this one, written likewise. Between it and the rest of the path is one slash,
    /// whichever of the two has it; an empty one removes the prefix.
    Prefix(Arc<str>),
}

/// A redirect. Parts that are `None` stay as in the request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Redirect {
    /// `http` or `https`.
    pub scheme: Option<Arc<str>>,
    /// The host.
    pub host: Option<Arc<str>>,
    /// The port. `None` is the port of `scheme` if that is given, else the listener's port. The default port of a
    /// scheme is left out of the URL.
    pub port: Option<u16>,
    /// The path.
    pub path: Option<PathRewrite>,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}
