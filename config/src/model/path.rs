//! Paths: the matches of rules, and the normalised form in which rules and requests are compared.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::expression::{Comparison, Expression, ExpressionFault, Extent, Steps, Subject};

/// The path match of a rule. Literal paths are in the form of [`normalize`].
#[derive(Clone)]
pub enum PathMatch {
    /// This path and no other.
    Exact(Arc<str>),
    /// This path and everything below it, by whole elements. Kept without a trailing slash, so that the
    /// empty string stands for every path.
    Prefix(Arc<str>),
    /// Every path that starts with these characters, whatever follows.
    PrefixCharacters(Arc<str>),
    /// Every path that the expression matches.
    Regex(Expression),
    /// Every path of two elements of which the second is this: the gRPC method of any service.
    AnyService(Arc<str>),
}

/// Whether an expression is case-sensitive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub enum RegexCase {
    /// It is.
    Sensitive,
    /// It is not.
    Insensitive,
}

impl PathMatch {
    /// The expression, if it is one.
    #[must_use]
    pub const fn expression(&self) -> Option<&Expression> {
        match self {
            Self::Regex(expression) => Some(expression),
            Self::Exact(_) | Self::Prefix(_) | Self::PrefixCharacters(_) | Self::AnyService(_) => None,
        }
    }

    /// Like [`PathMatch::expression`], to replace it by an equal one.
    pub const fn expression_mut(&mut self) -> Option<&mut Expression> {
        match self {
            Self::Regex(expression) => Some(expression),
            Self::Exact(_) | Self::Prefix(_) | Self::PrefixCharacters(_) | Self::AnyService(_) => None,
        }
    }

    /// Only this path.
    ///
    /// # Errors
    /// If the text is not a path: a predicate that says why.
    pub fn exact(text: &str) -> Result<Self, &'static str> {
        Ok(Self::Exact(literal(text)?.into()))
    }

    /// This path and everything below it, by whole elements; a trailing slash makes no difference.
    ///
    /// # Errors
    /// If the text is not a path: a predicate that says why.
    pub fn prefix(text: &str) -> Result<Self, &'static str> {
        let path = literal(text)?;
        Ok(Self::Prefix(path.strip_suffix('/').unwrap_or(&path).into()))
    }

    /// Every path that starts with these characters.
    ///
    /// # Errors
    /// If the text is not a path: a predicate that says why.
    pub fn prefix_characters(text: &str) -> Result<Self, &'static str> {
        Ok(Self::PrefixCharacters(literal(text)?.into()))
    }

    /// Every path that the expression matches, whole or anywhere.
    ///
    /// # Errors
    /// See [`Expression::new`].
    pub fn regex(pattern: &str, case: RegexCase, extent: Extent) -> Result<Self, ExpressionFault> {
        Expression::new(pattern, Comparison { subject: Subject::Path, case, extent }).map(Self::Regex)
    }

    /// Returns `true` if a normalised path matches the rule. An expression takes some of the steps.
    #[must_use]
    pub fn matches(&self, path: &str, steps: &Steps) -> bool {
        match self {
            Self::Exact(exact) => **exact == *path,
            Self::Prefix(prefix) => {
                path.strip_prefix(&**prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Self::PrefixCharacters(prefix) => path.starts_with(&**prefix),
            Self::Regex(regex) => regex.is_match(path.as_bytes(), steps),
            Self::AnyService(method) => {
                let call = path.strip_prefix('/').and_then(|path| path.split_once('/'));
                call.is_some_and(|(service, called)| !service.is_empty() && *called == **method)
            }
        }
    }

    /// Precedence among the rules of a host, the lesser first: exact, then expressions, then prefixes, the longer ones
    /// first, then gRPC methods of any service, then every path.
    #[must_use]
    pub(super) fn rank(&self) -> (u8, std::cmp::Reverse<usize>, u8) {
        let (class, length, kind) = match self {
            Self::Exact(path) => (0, path.len(), 0),
            Self::Regex(regex) => (1, regex.as_str().len(), regex.comparison().case as u8),
            Self::AnyService(_) => (2, 0, 0),
            Self::Prefix(path) => (2, path.len(), 1),
            Self::PrefixCharacters(path) => (2, path.len(), 2),
        };
        (class, std::cmp::Reverse(length), kind)
    }

    /// The text of the rule, compared and printed beside [`PathMatch::kind`].
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Exact(text) | Self::PrefixCharacters(text) | Self::AnyService(text) => text,
            Self::Prefix(path) if path.is_empty() => "/",
            Self::Prefix(path) => path,
            Self::Regex(regex) => regex.as_str(),
        }
    }

    /// The kind of the rule, for dumps: `exact`, `prefix`, `prefix-characters`, `regex`, `regex-ignore-case` or
    /// `any-service`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Exact(_) => "exact",
            Self::Prefix(_) => "prefix",
            Self::PrefixCharacters(_) => "prefix-characters",
            Self::Regex(regex) => match regex.comparison().case {
                RegexCase::Sensitive => "regex",
                RegexCase::Insensitive => "regex-ignore-case",
            },
            Self::AnyService(_) => "any-service",
        }
    }
}

impl PartialEq for PathMatch {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.text() == other.text()
    }
}

impl Eq for PathMatch {}

/// By kind and text; this is not the order of precedence.
impl Ord for PathMatch {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.kind(), self.text()).cmp(&(other.kind(), other.text()))
    }
}

impl PartialOrd for PathMatch {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for PathMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.text())
    }
}

impl fmt::Debug for PathMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for PathMatch {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn literal(text: &str) -> Result<Cow<'_, str>, &'static str> {
    if !text.starts_with('/') {
        return Err("does not start with a slash");
    }
    normalize(text).map(|normal| normal.path).ok_or("is not a valid request path")
}

/// A path in the form in which it is compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Normalized<'a> {
    /// Percent-encoding undone, dot segments removed (RFC 3986 section 5.2.4), repeated slashes merged.
    pub path: Cow<'a, str>,
    /// Whether there were dot segments. Such a path is forwarded in this form, so that no endpoint can resolve it to a
    /// place whose guards were not evaluated.
    pub had_dot_segments: bool,
}

/// Normalises a path for comparison. `None` if it is malformed: it does not start with a slash, has a broken
/// percent-encoding or an encoded NUL, leads above the root, or has a dot segment that only some servers see: `..;x` to
/// servers that cut parameters off, `..\` to those that read a backslash as a slash.
#[must_use]
pub fn normalize(path: &str) -> Option<Normalized<'_>> {
    if !path.starts_with('/') {
        return None;
    }
    let unusual = path.bytes().fold(false, |any, byte| any | (byte == b'%') | (byte == b'\\'));
    let plain = !unusual && !path.contains("//") && !path.contains("/.");
    if plain {
        return Some(Normalized { path: Cow::Borrowed(path), had_dot_segments: false });
    }
    let decoded = decode(path)?;
    let mut had_dot_segments = false;
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = decoded.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." => had_dot_segments = true,
            ".." => {
                had_dot_segments = true;
                kept.pop()?;
            }
            "" => {}
            name if has_hidden_dots(name) => return None,
            name => kept.push(name),
        }
        if last && matches!(segment, "" | "." | "..") {
            kept.push("");
        }
    }
    let mut path = String::with_capacity(decoded.len());
    for segment in kept {
        path.push('/');
        path.push_str(segment);
    }
    Some(Normalized { path: Cow::Owned(path), had_dot_segments })
}

/// Returns `true` if a segment is a dot segment, or contains one, for a server that takes a backslash for a slash or a
/// semicolon as the start of parameters (RFC 3986 section 3.3). It would resolve the path to a place whose guards were
/// not evaluated. No honest client sends such a segment: clients that resolve dot segments do so before they send the
/// request.
fn has_hidden_dots(segment: &str) -> bool {
    segment.split('\\').any(|part| {
        let name = part.split_once(';').map_or(part, |(name, _)| name);
        matches!(name, "." | "..")
    })
}

fn decode(path: &str) -> Option<String> {
    let mut bytes = path.bytes();
    let mut out = Vec::with_capacity(path.len());
    while let Some(byte) = bytes.next() {
        let byte = if byte == b'%' {
            let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16));
            u8::try_from(digit(bytes.next())? * 16 + digit(bytes.next())?).ok()?
        } else {
            byte
        };
        if byte == 0 {
            return None;
        }
        out.push(byte);
    }
    Some(String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, want: Option<&str>, dots: bool) {
        let got = normalize(path);
        assert_eq!(got.as_ref().map(|n| &*n.path), want, "{path}");
        assert!(got.is_none_or(|n| n.had_dot_segments == dots), "{path}");
    }

    #[test]
    fn equivalent_paths_compare_equal() {
        check("/", Some("/"), false);
        check("/a/b", Some("/a/b"), false);
        check("/a/b/", Some("/a/b/"), false);
        check("//a///b", Some("/a/b"), false);
        check("/%61dmin", Some("/admin"), false);
        check("/a%2Fb", Some("/a/b"), false);
        check("/b%C3%BCcher", Some("/bücher"), false);
        check("/.well-known/x", Some("/.well-known/x"), false);
        check("/a/./b/../c", Some("/a/c"), true);
        check("/a/%2e%2E/b", Some("/b"), true);
        check("/a/..%2fadmin", Some("/admin"), true);
        check("/a/..", Some("/"), true);
        check("/a/b/.", Some("/a/b/"), true);
        check("/a//..//b", Some("/b"), true);
    }

    #[test]
    fn malformed_paths_are_refused() {
        for path in ["", "a", "*", "/%", "/%4", "/%zz", "/%00", "/..", "/a/../../b"] {
            check(path, None, false);
        }
    }

    #[test]
    fn ambiguous_dot_segments_are_refused() {
        for path in [
            "/x/..;/admin",
            "/x/..;a=b/admin",
            "/x/..;",
            "/x/.;/admin",
            "/.;/admin",
            "/x/%2e%2e;/admin",
            "/x/%2E.%3b/admin",
            "/x/..\\admin",
            "/x\\..\\admin",
            "/x\\../admin",
            "/x\\..",
            "/x\\.",
            "/x/.\\admin",
            "/x/..%5cadmin",
            "/x%5C..%5cadmin",
            "/x%5c%2e%2e/admin",
            "/x/\\..;a/admin",
            "/x;a\\..;b\\admin",
            "/..\\",
        ] {
            check(path, None, false);
        }
        for path in
            ["/a;b", "/a..b", "/..a", "/a..", "/...", "/...;a", "/a;..", "/;..", "/.a;b", "/a\\b", "/a\\.b", "/a.\\b"]
        {
            check(path, Some(path), false);
        }
        check("/a%5Cb", Some("/a\\b"), false);
        check("/a;b/../c", Some("/c"), true);
        check("/a\\b/./c", Some("/a\\b/c"), true);
    }

    #[track_caller]
    fn check_match(rule: &PathMatch, path: &str, want: bool) {
        assert_eq!(rule.matches(path, &Steps::of_request()), want, "{rule} on {path}");
    }

    #[test]
    fn prefixes_match_whole_elements() {
        // The table of examples of the Kubernetes documentation on Ingress path matching.
        for (rule, path, want) in [
            ("/", "/anything", true),
            ("/foo", "/foo", true),
            ("/foo", "/foo/", true),
            ("/foo/", "/foo", true),
            ("/foo/", "/foo/", true),
            ("/aaa/bb", "/aaa/bbb", false),
            ("/aaa/bbb", "/aaa/bbb", true),
            ("/aaa/bbb/", "/aaa/bbb", true),
            ("/aaa/bbb", "/aaa/bbb/", true),
            ("/aaa/bbb", "/aaa/bbb/ccc", true),
            ("/aaa/bbb", "/aaa/bbbxyz", false),
        ] {
            check_match(&PathMatch::prefix(rule).unwrap(), path, want);
        }
    }

    #[test]
    fn exact_paths_match_only_themselves() {
        for (rule, path, want) in
            [("/foo", "/foo", true), ("/foo", "/bar", false), ("/foo", "/foo/", false), ("/foo/", "/foo", false)]
        {
            check_match(&PathMatch::exact(rule).unwrap(), path, want);
        }
    }

    #[test]
    fn a_method_of_any_service_is_the_second_of_two_elements() {
        let ping = PathMatch::AnyService("Ping".into());
        for (path, want) in
            [("/a.B/Ping", true), ("/a.B/Pong", false), ("/a.B/c/Ping", false), ("//Ping", false), ("/Ping", false)]
        {
            check_match(&ping, path, want);
        }
        let order = ["/a.B/Ping", "/a.B"].map(|path| PathMatch::prefix(path).unwrap());
        let [long, short] = &order;
        let every = PathMatch::prefix("/").unwrap();
        assert!([long.rank(), short.rank(), ping.rank(), every.rank()].is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn characters_and_expressions() {
        check_match(&PathMatch::prefix_characters("/web").unwrap(), "/webhooks", true);
        let regex = |pattern, case| PathMatch::regex(pattern, case, Extent::Anywhere).unwrap();
        check_match(&regex("^/v[0-9]+/", RegexCase::Sensitive), "/v12/x", true);
        check_match(&regex("^/V[0-9]+/", RegexCase::Sensitive), "/v12/x", false);
        check_match(&regex("^/V[0-9]+/", RegexCase::Insensitive), "/v12/x", true);
    }
}
