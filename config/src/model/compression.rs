//! Settings of response compression: the responses, the clients and the level. The data plane decides by these for each
//! response.

use serde::Serialize;

use super::expression::{Comparison, Expression, ExpressionFault, Extent, Subject};
use super::path::RegexCase;

/// The media type that is compressed in any case.
const ALWAYS: &str = "text/html";

/// The settings of gzip compression (RFC 1952).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Compression {
    /// From 1, the fastest, to 9, the smallest.
    pub level: u8,
    /// The least `Content-Length` of a compressed response; one without a `Content-Length` is compressed in any case.
    pub length_min: u64,
    /// The media types besides `text/html`.
    pub types: MediaTypes,
    /// Whether clients of HTTP/1.0 get compressed responses, which end with the connection.
    pub http10: bool,
    /// The responses that are compressed for requests that came through another proxy.
    pub proxied: Box<[Proxied]>,
    /// The user agents that get no compressed responses.
    pub disabled: DisabledAgents,
    /// Whether compressible responses carry `Vary` for caches (RFC 9110 section 12.5.5).
    pub vary: bool,
}

/// A response that is compressed although its request has `Via`, as from a cache in front. Several are evaluated in
/// this order: `Off`, `Any` and `Auth` decide at once; then a response with `Expires` needs `Expired`, and one with
/// `Cache-Control` one of the next three; any other is compressed unless it lacks what `NoLastModified` or `NoEtag`
/// require.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proxied {
    /// No response.
    Off,
    /// A response that has expired by its `Expires`.
    Expired,
    /// A response with `Cache-Control: no-cache`.
    NoCache,
    /// A response with `Cache-Control: no-store`.
    NoStore,
    /// A response with `Cache-Control: private`.
    Private,
    /// Only one without `Last-Modified`.
    NoLastModified,
    /// Only one without `ETag`.
    NoEtag,
    /// A response to a request with `Authorization`.
    Auth,
    /// Every response.
    Any,
}

/// Media types, in lower case and ascending order, each once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MediaTypes(Box<[Box<str>]>);

impl MediaTypes {
    /// These types.
    pub fn new<'a>(types: impl Iterator<Item = &'a str>) -> Self {
        let mut types: Vec<Box<str>> = types.map(|name| name.to_ascii_lowercase().into()).collect();
        types.sort_unstable();
        types.dedup();
        Self(types.into())
    }

    /// Returns `true` if a value of `Content-Type`, with any parameters, is one of these types or `text/html`.
    #[must_use]
    pub fn holds(&self, content_type: &[u8]) -> bool {
        let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
        let name = content_type.get(..end).unwrap_or_default().trim_ascii();
        let is = |listed: &str| listed.as_bytes().eq_ignore_ascii_case(name);
        is(ALWAYS) || self.0.iter().any(|listed| is(listed))
    }
}

/// User agents that get no compressed response.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DisabledAgents {
    /// None.
    Nobody,
    /// Internet Explorer 4 to 6, except that of Windows XP with service pack 2, which sends `SV1`.
    Msie6,
    /// Those that match an expression.
    Matching(Expression),
}

impl DisabledAgents {
    /// Those in which an expression finds a match, by bytes and without regard to case.
    ///
    /// # Errors
    /// See [`Expression::new`].
    pub fn matching(pattern: &str) -> Result<Self, ExpressionFault> {
        let comparison = Comparison { subject: Subject::Agent, case: RegexCase::Insensitive, extent: Extent::Anywhere };
        Expression::new(pattern, comparison).map(Self::Matching)
    }

    /// Returns `true` if a value of `User-Agent` is one of them. One that is too long for an expression may be.
    #[must_use]
    pub fn hold(&self, agent: &[u8]) -> bool {
        match self {
            Self::Nobody => false,
            Self::Msie6 => is_msie6(agent),
            Self::Matching(expression) => expression.test(agent).unwrap_or(true),
        }
    }
}

/// Returns `true` for Internet Explorer 4, 5 or 6, the last only without `SV1`.
fn is_msie6(agent: &[u8]) -> bool {
    let name = b"MSIE ";
    let Some(at) = agent.windows(name.len()).position(|window| window == name) else { return false };
    match agent.get(at + name.len()..) {
        Some([b'4' | b'5', b'.', ..]) => true,
        Some([b'6', b'.', rest @ ..]) => !rest.windows(3).any(|window| window == b"SV1"),
        Some(_) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_are_compared_without_case_and_parameters() {
        let types = MediaTypes::new(["text/css", "Application/JSON", "text/css"].into_iter());
        for (value, want) in [
            ("text/html", true),
            ("TEXT/HTML; charset=utf-8", true),
            ("text/css", true),
            (" text/css ;x", true),
            ("application/json;charset=UTF-8", true),
            ("application/jsonx", false),
            ("text/plain", false),
            ("text/cs", false),
            ("", false),
            (";text/css", false),
        ] {
            assert_eq!(types.holds(value.as_bytes()), want, "{value:?}");
        }
        assert_eq!(types.0.len(), 2);
    }

    #[test]
    fn old_internet_explorers_are_detected_by_version() {
        for (agent, want) in [
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)", true),
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)", false),
            ("Mozilla/4.0 (compatible; MSIE 5.5; Windows 98; SV1)", true),
            ("Mozilla/4.0 (compatible; MSIE 4.01; Windows 95)", true),
            ("Mozilla/4.0 (compatible; MSIE 7.0; Windows NT 6.0)", false),
            ("Mozilla/5.0 (compatible; MSIE 10.0; Windows NT 6.2)", false),
            ("MSIE 6", false),
            ("MSIE 6.", true),
            ("msie 6.0", false),
            ("curl/8.5.0", false),
            ("", false),
        ] {
            assert_eq!(DisabledAgents::Msie6.hold(agent.as_bytes()), want, "{agent:?}");
            assert!(!DisabledAgents::Nobody.hold(agent.as_bytes()));
        }
    }

    #[test]
    fn agent_expressions_ignore_case_and_are_limited() {
        let agents = DisabledAgents::matching("^old|Robot/[0-9]").unwrap();
        for (agent, want) in [("Old one", true), ("a ROBOT/7", true), ("not old", false), ("robot/x", false)] {
            assert_eq!(agents.hold(agent.as_bytes()), want, "{agent:?}");
        }
        assert!(agents.hold(b"\xff robot/1 \xff"));
        assert!(agents.hold(&[b'x'; 10_000]), "too long to be tried");
        assert!(DisabledAgents::matching("(").is_err() && DisabledAgents::matching("(?=x)").is_err());
    }
}
