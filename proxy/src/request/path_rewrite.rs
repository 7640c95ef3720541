//! The path of the forwarded request: as it was sent, unless it must be changed.

use std::borrow::Cow;

use tidegate_config::model::{Normalized, PathMatch, PathRewrite};

/// The forwarded path, or that of a redirect; `None` leaves it unchanged. A path with dot segments is forwarded without
/// them, so that no endpoint can resolve it to a place whose guards were not evaluated; of every other path, the part
/// behind a replaced prefix stays as it was sent.
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

/// The rest behind the matched prefix. Without dot segments, the segments of the normalised path are those of the sent
/// one, whatever their encoding, so the prefix ends behind as many of them as it has.
fn below<'a>(matched: &PathMatch, sent: &'a str, path: &Normalized<'_>) -> Cow<'a, str> {
    let PathMatch::Prefix(prefix) = matched else { return Cow::Borrowed("") };
    if path.had_dot_segments {
        return Cow::Owned(encode(path.path.strip_prefix(&**prefix).unwrap_or_default()));
    }
    Cow::Borrowed(behind(sent, prefix.matches('/').count()))
}

/// The rest of a path behind its first segments. Segments are separated by one or more slashes, encoded or not, as
/// [`normalize`](tidegate_config::model::normalize) reads them.
fn behind(sent: &str, segments: usize) -> &str {
    let bytes = sent.as_bytes();
    let slash = |at: usize| match bytes.get(at..) {
        Some([b'/', ..]) => 1,
        Some([b'%', b'2', b'f' | b'F', ..]) => 3,
        Some(_) | None => 0,
    };
    let mut at = 0;
    for _ in 0..segments {
        while slash(at) > 0 {
            at += slash(at);
        }
        while at < bytes.len() && slash(at) == 0 {
            at += 1;
        }
    }
    sent.get(at..).unwrap_or_default()
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
        check(Some(PathRewrite::Prefix("/x".into())), "/a", "/a/z/../b", Some("/x/b"));
        check(Some(PathRewrite::Prefix("/x".into())), "/", "/b", Some("/x/b"));
        check(Some(PathRewrite::Full("/x%2Fy%zz%".into())), "/a", "/a/b", Some("/x%2Fy%25zz%25"));
        check(Some(PathRewrite::Prefix("/x%20y/".into())), "/a", "/a/b", Some("/x%20y/b"));
    }

    #[test]
    fn the_rest_behind_a_prefix_stays_as_it_was_sent() {
        for (matched, sent, want) in [
            ("/foo", "/f%6Fo/b%2Fc", "/xyz/b%2Fc"),
            ("/foo", "/%66oo/a%2fb/c", "/xyz/a%2fb/c"),
            ("/foo", "//foo/b%2Fc", "/xyz/b%2Fc"),
            ("/foo", "/foo//b///c//", "/xyz//b///c//"),
            ("/foo", "///f%6fo//%62", "/xyz//%62"),
            ("/foo", "/foo%2Fb", "/xyz%2Fb"),
            ("/foo", "/%2Ffoo%2f%2Fb", "/xyz%2f%2Fb"),
            ("/foo", "/f%6Fo", "/xyz"),
            ("/foo", "/f%6Fo/", "/xyz/"),
            ("/foo", "/f%6Fo%2F", "/xyz%2F"),
            ("/foo", "/f%6Fo/b%20c;d=%3F", "/xyz/b%20c;d=%3F"),
            ("/foo/bar", "/foo//b%61r/%C3%A9", "/xyz/%C3%A9"),
            ("/foo/bar", "/foo%2Fbar/x", "/xyz/x"),
            ("/foo%2Fbar", "/foo/bar/%2E%2Ex", "/xyz/%2E%2Ex"),
            ("/caf%C3%A9", "/caf%c3%a9/b%2Fc//d", "/xyz/b%2Fc//d"),
            ("/%FF", "/%FE/b%2Fc", "/xyz/b%2Fc"),
            ("/", "//b%2Fc", "/xyz//b%2Fc"),
            ("/", "/%2Fb", "/xyz/%2Fb"),
            // With dot segments, all of it is normalised.
            ("/foo", "/foo/x/../b%2Fc", "/xyz/b/c"),
            ("/foo", "/f%6Fo/%2e/b%2Fc%25", "/xyz/b/c%25"),
        ] {
            check(Some(PathRewrite::Prefix("/xyz".into())), matched, sent, Some(want));
        }
    }

    /// A path of these segments: each character and slash is encoded or not, and slashes are repeated.
    fn spelled(segments: &[&str], draw: &mut fastrand::Rng) -> String {
        let mut path = String::new();
        for (number, segment) in segments.iter().enumerate() {
            for at in 0..draw.usize(1..4) {
                // Only the first character of a target must be a slash.
                let is_first = number == 0 && at == 0;
                path.push_str(if is_first || draw.bool() { "/" } else { ["%2F", "%2f"][draw.usize(..2)] });
            }
            for byte in segment.bytes() {
                match byte {
                    b'%' | 0x80.. => path.push_str(&format!("%{byte:02X}")),
                    _ if draw.u8(..4) == 0 => path.push_str(&format!("%{byte:02x}")),
                    _ => path.push(char::from(byte)),
                }
            }
        }
        path
    }

    #[test]
    fn a_rewritten_path_ends_as_sent_and_means_the_rewritten_normalised_path() {
        const SEGMENTS: [&str; 9] = ["a", "foo", "x%2Fy", "caf\u{e9}", "..a", "b;c", "", "~", "%"];
        let mut draw = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let segments: Vec<&str> = (0..draw.usize(1..6)).map(|_| SEGMENTS[draw.usize(..SEGMENTS.len())]).collect();
            let sent = spelled(&segments, &mut draw);
            let normal = normalize(&sent).unwrap();
            let ends: Vec<usize> =
                normal.path.match_indices('/').map(|(at, _)| at).chain([normal.path.len()]).collect();
            let prefix = &normal.path[..ends[draw.usize(..ends.len())]];
            let matched = PathMatch::Prefix(prefix.trim_end_matches('/').into());
            let replacement = ["", "/", "/xyz", "/x/y/", "/a%20b"][draw.usize(..5)];
            let rewrite = PathRewrite::Prefix(replacement.into());
            let got = onward(Some(&rewrite), &matched, &sent, &normal).unwrap();
            let PathMatch::Prefix(prefix) = &matched else { unreachable!() };
            let rest = got.strip_prefix(replacement.trim_end_matches('/')).unwrap();
            assert!(sent.ends_with(rest) || rest.strip_prefix('/').is_some_and(|rest| sent.ends_with(rest)), "{sent}");
            let normalised = format!("{replacement}/{}", encode(&normal.path[prefix.len()..]));
            let (got, want) = (normalize(&got).unwrap(), normalize(&normalised).unwrap());
            let same = got.path.trim_end_matches('/') == want.path.trim_end_matches('/');
            assert!(same && !got.had_dot_segments, "{matched} -> {replacement:?}: {sent} -> {got:?}, not {want:?}");
        }
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
