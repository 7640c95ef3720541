//! What is changed on the way: header edits, rewrites and redirects, in the order they are listed.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use serde::Serialize;

use super::backend::Target;
use super::cors::Cors;

/// One step of a route's ordered list of changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Filter {
    /// Edits the headers that go to the endpoint.
    RequestHeaders(HeaderEdits),
    /// Edits the headers that go to the client.
    ResponseHeaders(ResponseEdits),
    /// Replaces the path as the client sent it, or the part of that which the route matched; of several the last does.
    Path(PathRewrite),
    /// Replaces the host that the endpoint is told.
    Host(Arc<str>),
    /// Says whose pages may ask: preflights are answered, and the responses to other requests say what the page may see, those of
    /// the edge itself too. Of several the last holds.
    Cors(Arc<Cors>),
    /// Sends copies of requests to another target, whose answers nobody hears.
    Mirror(Mirror),
}

impl Filter {
    /// The target that copies go to.
    #[must_use]
    pub const fn mirrored(&self) -> Option<&Arc<Target>> {
        match self {
            Self::Mirror(mirror) => Some(&mirror.to),
            Self::RequestHeaders(_) | Self::ResponseHeaders(_) | Self::Path(_) | Self::Host(_) | Self::Cors(_) => None,
        }
    }
}

/// Where copies of requests go, and of how many.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Mirror {
    /// The target. The Service is to be wanted for it, as those are that the route forwards to.
    pub to: Arc<Target>,
    /// Of this many requests,
    pub numerator: u32,
    /// out of this many, at least 1. Chance decides for each request.
    pub denominator: u32,
}

/// Header edits, applied as removals, then replacements, then additions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HeaderEdits {
    /// Names whose every value is removed.
    pub remove: Box<[HeaderName]>,
    /// Names that get this one value.
    pub set: Box<[(HeaderName, HeaderValue)]>,
    /// Values added beside what is there.
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

/// Which responses edits are for, by who made them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResponseScope {
    /// Those of endpoints.
    #[default]
    Proxied,
    /// Those too that the edge makes itself while the route has an endpoint to go to: refusals, redirects and failures, but
    /// neither a response of the route's own nor the 503 without endpoints.
    Backed,
    /// All.
    Every,
}

/// Header edits of responses, and the responses that they are for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ResponseEdits {
    /// The edits.
    pub edits: HeaderEdits,
    /// By who made them.
    pub scope: ResponseScope,
    /// By status, in ascending order; all where there is none.
    pub statuses: Box<[u16]>,
    /// Whether they are for clients alone that came by TLS.
    pub secure_only: bool,
}

impl ResponseEdits {
    /// Edits of every response of an endpoint.
    #[must_use]
    pub fn proxied(edits: HeaderEdits) -> Self {
        Self { edits, scope: ResponseScope::Proxied, statuses: Box::default(), secure_only: false }
    }

    /// Whether they are for a response that nothing less than `scope` covers.
    #[must_use]
    pub fn applies(&self, scope: ResponseScope, status: u16, secure: bool) -> bool {
        self.scope >= scope
            && (secure || !self.secure_only)
            && (self.statuses.is_empty() || self.statuses.binary_search(&status).is_ok())
    }
}

/// A finished response of the edge's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectResponse {
    /// The status, from 200 to 599.
    pub status: u16,
    /// Headers besides those that say what the body is.
    pub headers: Box<[(HeaderName, HeaderValue)]>,
    /// What the body is; `None` where there is none.
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
    /// By this whole path. Escapes such as `%2F` stay as they are written.
    Full(Arc<str>),
    /// The matched prefix by this one, written likewise. Between it and what follows the prefix is one slash, whichever of the two
    /// ends with one; an empty one takes the prefix away.
    Prefix(Arc<str>),
}

/// An answer that sends the client elsewhere. What is `None` stays as the client asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Redirect {
    /// `http` or `https`.
    pub scheme: Option<Arc<str>>,
    /// The host.
    pub host: Option<Arc<str>>,
    /// The port. `None` is that of `scheme`, where one is given; else the one that the client came to, which is the listener's. It is
    /// left out of the URL where it is the scheme's own.
    pub port: Option<u16>,
    /// The path.
    pub path: Option<PathRewrite>,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}
