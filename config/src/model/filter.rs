//! What is changed on the way: header edits, rewrites and redirects, in the order they are listed.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use serde::Serialize;

/// One step of a route's ordered list of changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Filter {
    /// Edits the headers that go to the endpoint.
    RequestHeaders(HeaderEdits),
    /// Edits the headers that go to the client.
    ResponseHeaders(HeaderEdits),
    /// Replaces the path, or the part of it that the route matched.
    Path(PathRewrite),
    /// Replaces the host that the endpoint is told.
    Host(Arc<str>),
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

/// How a path is replaced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum PathRewrite {
    /// By this whole path.
    Full(Arc<str>),
    /// The matched prefix by this one.
    Prefix(Arc<str>),
}

/// An answer that sends the client elsewhere. What is `None` stays as the client asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Redirect {
    /// `http` or `https`.
    pub scheme: Option<Arc<str>>,
    /// The host.
    pub host: Option<Arc<str>>,
    /// The port; `None` is the scheme's own, left out of the URL.
    pub port: Option<u16>,
    /// The path.
    pub path: Option<PathRewrite>,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}
