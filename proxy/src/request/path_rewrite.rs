//! The path of the forwarded request: as it was sent, unless it must be changed.

use tidegate_config::model::{Normalized, PathMatch, PathRewrite};

/// The forwarded path; `None` leaves it unchanged. A path with dot segments is forwarded without them, so that no
/// endpoint can resolve it to a place whose guards were not evaluated.
pub(crate) fn onward(
    rewrite: Option<&PathRewrite>,
    matched: &PathMatch,
    sent: &str,
    path: &Normalized<'_>,
) -> Option<String> {
    match rewrite {
        None => path.had_dot_segments.then(|| encode(&path.path)),
        Some(PathRewrite::Full(full)) => Some(encode_rest(full)),
        Some(PathRewrite::Prefix(prefix)) => {
            let mut out = encode_rest(prefix.trim_end_matches('/'));
            out.push_str(&below(matched, sent, path));
            if !out.starts_with('/') {
                out.insert(0, '/');
            }
            Some(out)
        }
    }
}

/// The rest after the matched prefix: as it was sent if the prefix is literally present, else normalised.
fn below(matched: &PathMatch, sent: &str, path: &Normalized<'_>) -> String {
    let PathMatch::Prefix(prefix) = matched else { return String::new() };
    let rest = |text: &str| {
        let rest = text.strip_prefix(&**prefix)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| rest.to_owned())
    };
    let literal = if path.had_dot_segments { None } else { rest(sent) };
    literal.or_else(|| rest(&path.path).map(|rest| encode(&rest))).unwrap_or_default()
}

/// Percent-encodes bytes that are not allowed in a path (RFC 3986 section 3.3), including the percent sign.
pub(crate) fn encode(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.extend([byte >> 4, byte & 15].map(|digit| char::from(b"0123456789ABCDEF"[usize::from(digit)])));
        }
    }
    out
}

/// The same for text that may contain escapes already.
fn encode_rest(text: &str) -> String {
    let mut parts = text.split('%');
    let mut out = parts.next().map(encode).unwrap_or_default();
    for part in parts {
        let is_escape = part.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        out.push_str(if is_escape { "%" } else { "%25" });
        out.push_str(&encode(part));
    }
    out
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::normalize;

    use super::*;

    #[track_caller]
    fn check(rewrite: Option<PathRewrite>, matched: &str, sent: &str, want: Option<&str>) {
        let matched = PathMatch::prefix(matched).unwrap();
        let path = normalize(sent).unwrap();
        assert_eq!(onward(rewrite.as_ref(), &matched, sent, &path).as_deref(), want, "{sent}");
    }

    #[test]
    fn a_path_is_left_as_it_was_sent() {
        check(None, "/", "/a%2Fb//c", None);
        check(None, "/", "/a%20b", None);
    }

    #[test]
    fn dot_segments_are_removed() {
        check(None, "/", "/a/../b c%3f", Some("/b%20c%3F"));
        check(None, "/", "/a/%2e%2e/b%25", Some("/b%25"));
    }

    #[test]
    fn whole_paths_and_prefixes_are_replaced() {
        check(Some(PathRewrite::Full("/x y".into())), "/a", "/a/b", Some("/x%20y"));
        check(Some(PathRewrite::Prefix("/x".into())), "/a", "/a/b", Some("/x/b"));
        check(Some(PathRewrite::Prefix("/x/".into())), "/a", "/a/b", Some("/x/b"));
        check(Some(PathRewrite::Prefix("/x".into())), "/a", "/a", Some("/x"));
        check(Some(PathRewrite::Prefix("/".into())), "/a", "/a/b", Some("/b"));
        check(Some(PathRewrite::Prefix("/".into())), "/a", "/a", Some("/"));
        check(Some(PathRewrite::Prefix("/x".into())), "/a", "/a/b%2Fc", Some("/x/b%2Fc"));
        check(Some(PathRewrite::Prefix("/x".into())), "/a", "/%61/b c", Some("/x/b%20c"));
        check(Some(PathRewrite::Prefix("/x".into())), "/a", "/a/z/../b", Some("/x/b"));
        check(Some(PathRewrite::Prefix("/x".into())), "/", "/b", Some("/x/b"));
        check(Some(PathRewrite::Full("/x%2Fy%zz%".into())), "/a", "/a/b", Some("/x%2Fy%25zz%25"));
        check(Some(PathRewrite::Prefix("/x%20y/".into())), "/a", "/a/b", Some("/x%20y/b"));
    }

    /// The table of the Gateway API's `ReplacePrefixMatch`.
    #[test]
    fn no_slash_is_doubled_where_a_prefix_was() {
        for (sent, matched, prefix, want) in [
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo/", "/foo/", "/xyz/", "/xyz/"),
            ("/foo/bar", "/foo", "", "/bar"),
            ("/foo/", "/foo", "", "/"),
            ("/foo", "/foo", "", "/"),
            ("/foo/", "/foo", "/", "/"),
            ("/foo", "/foo", "/", "/"),
            ("/bar", "/", "/xyz", "/xyz/bar"),
            ("/", "/", "/xyz", "/xyz/"),
            ("/", "/", "", "/"),
        ] {
            check(Some(PathRewrite::Prefix(prefix.into())), matched, sent, Some(want));
        }
    }
}
