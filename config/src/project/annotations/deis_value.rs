//! Parsers of the values that the Deis router passed on to nginx. Errors are predicates that say why a text is not
//! valid.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::finding::printable;
use crate::model::{
    Comparison, DisabledAgents, Extent, HostPattern, MediaTypes, PathMatch, Proxied, RegexCase, Subject, WildcardDepth,
};
use crate::project::annotation_value::sources;
#[cfg(test)]
use crate::project::expressions::Compiling;
use crate::project::expressions::Expressions;

/// The longest time of an annotation: a year.
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The maximum number of media types, which are compared with that of each response.
const MEDIA_TYPES_MAX: usize = 128;

/// A domain of an application, as listed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DeisDomain {
    /// A name without a dot, below the platform's domain.
    Short(Arc<str>),
    /// A whole name, or one with a leading star, which stands for any number of labels.
    Full(HostPattern),
}

impl fmt::Display for DeisDomain {
    /// In the form of the list, in lower case.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(name) => f.write_str(name),
            Self::Full(HostPattern::Wildcard(suffix, _)) => write!(f, "*.{suffix}"),
            Self::Full(pattern) => pattern.fmt(f),
        }
    }
}

/// `true` or `false` in any case: the platform writes `True`.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("is neither true nor false".to_owned()),
    }
}

/// A time of nginx: a whole number from 1, with at most one of the units ms, s, m, h, d, w, M and y; seconds without
/// one. A month is 30 days and a year 365.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let why = || "is not a duration such as 30, 30s, 500ms or 2m".to_owned();
    let (digits, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let one_ms: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 24 * 3_600_000,
        "w" => 7 * 24 * 3_600_000,
        "M" => 30 * 24 * 3_600_000,
        "y" => 365 * 24 * 3_600_000,
        _ => return Err(why()),
    };
    let number: u64 = digits.parse().ok().filter(|_| !digits.starts_with('0')).ok_or_else(why)?;
    let time = number.checked_mul(one_ms).map(Duration::from_millis).filter(|time| *time <= TIME_MAX);
    time.ok_or_else(|| "is more than a year".to_owned())
}

/// A size in bytes, with `k` or `m` for powers of 1024; 0 only if `zero`.
pub(super) fn size(text: &str, zero: bool) -> Result<u64, String> {
    let why = || "is not a size such as 512, 32k or 1m".to_owned();
    let (digits, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let shift = match unit {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        _ => return Err(why()),
    };
    if text == "0" && zero {
        return Ok(0);
    }
    let number: u64 = digits.parse().ok().filter(|_| !digits.starts_with('0')).ok_or_else(why)?;
    number.checked_mul(1 << shift).ok_or_else(|| "is too large".to_owned())
}

/// Any text.
pub(super) fn any(_: &str) -> Result<(), String> {
    Ok(())
}

/// A whole number from 1.
pub(super) fn positive(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0 && !text.starts_with(['0', '+']));
    number.ok_or_else(|| "is not a whole number from 1".to_owned())
}

/// One of several words.
pub(super) fn one_of<'w>(text: &str, words: &[&'w str]) -> Result<&'w str, String> {
    let word = words.iter().find(|word| **word == text);
    word.copied().ok_or_else(|| format!("is not one of {}", words.join(", ")))
}

/// Words of a list between spaces.
pub(super) fn each_of(text: &str, words: &[&str]) -> Result<(), String> {
    text.split_whitespace().try_for_each(|word| one_of(word, words).map(drop))
}

/// An IP address.
pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| "is not an IP address".to_owned())
}

/// Comma-separated networks and addresses. IPv6 is accepted, which the router refused.
pub(super) fn networks(text: &str) -> Result<Box<[IpNet]>, String> {
    sources(text)
}

/// The parent domain of short names: with a dot, and a last label of at least two characters.
pub(super) fn platform_domain(text: &str) -> Result<Arc<str>, String> {
    match domain(text)? {
        DeisDomain::Full(HostPattern::Exact(name)) => Ok(name),
        DeisDomain::Full(_) | DeisDomain::Short(_) => Err("is not a domain such as apps.example.com".to_owned()),
    }
}

/// One domain of an application.
pub(super) fn domain(text: &str) -> Result<DeisDomain, String> {
    let pattern = match text.strip_prefix("*.") {
        None => HostPattern::parse(text)?,
        Some(suffix) => match HostPattern::parse(suffix)? {
            HostPattern::Exact(suffix) => HostPattern::Wildcard(suffix, WildcardDepth::Any),
            HostPattern::Wildcard(..) | HostPattern::FirstLabel(_) | HostPattern::Expression(_) | HostPattern::Any => {
                return Err("has more than one star".to_owned());
            }
        },
    };
    match pattern {
        HostPattern::Exact(name) if !name.contains('.') => Ok(DeisDomain::Short(name)),
        HostPattern::Exact(ref name) | HostPattern::Wildcard(ref name, _) => {
            let last = name.rsplit('.').next().unwrap_or_default();
            if last.len() < 2 {
                Err("ends with a label of one character".to_owned())
            } else {
                Ok(DeisDomain::Full(pattern))
            }
        }
        HostPattern::FirstLabel(_) | HostPattern::Expression(_) | HostPattern::Any => Err("is not a domain".to_owned()),
    }
}

/// The entries of a comma-separated list, without surrounding spaces and without empty ones.
pub(super) fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

/// `DOMAIN:NAME`: the domain as listed, in lower case, and the name of its certificate.
pub(super) fn certificate(entry: &str) -> Result<(Arc<str>, Arc<str>), String> {
    let why = || "is not a domain and the name of a certificate, such as www.example.com:www".to_owned();
    let (domain, name) = entry.split_once(':').ok_or_else(why)?;
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    self::domain(domain)?;
    if plain(name) { Ok((domain.to_ascii_lowercase().into(), name.into())) } else { Err(why()) }
}

/// The path of a `location` of nginx: a prefix of characters, or the match of its modifier. `^~` gives the prefix
/// precedence over expressions.
pub(super) fn location(entry: &str, expressions: &mut Expressions<'_>) -> Result<PathMatch, String> {
    let (modifier, path) = match entry.split_once(char::is_whitespace) {
        Some((modifier, path)) => (modifier, path.trim_start()),
        None => ("", entry),
    };
    match modifier {
        "" | "^~" if path == "/" => Err("would take the whole host from the other application".to_owned()),
        "" | "^~" => PathMatch::prefix_characters(path).map_err(str::to_owned),
        "=" => PathMatch::exact(path).map_err(str::to_owned),
        "~" => expression(path, RegexCase::Sensitive, expressions),
        "~*" => expression(path, RegexCase::Insensitive, expressions),
        _ => Err("is not a path, optionally preceded by =, ^~, ~ or ~*".to_owned()),
    }
}

fn expression(text: &str, case: RegexCase, expressions: &mut Expressions<'_>) -> Result<PathMatch, String> {
    let comparison = Comparison { subject: Subject::Path, case, extent: Extent::Anywhere };
    expressions.compile(text, comparison).map(PathMatch::Regex)
}

/// User agents that match one expression, or nginx's word for the oldest. An empty expression would match all agents;
/// it stands for none.
pub(super) fn agents(text: &str) -> Result<DisabledAgents, String> {
    match text.trim() {
        "" => Ok(DisabledAgents::Nobody),
        "msie6" => Ok(DisabledAgents::Msie6),
        _ => DisabledAgents::matching(text).map_err(|fault| fault.to_string()),
    }
}

/// The values of nginx's `gzip_proxied`.
pub(super) fn proxied(text: &str) -> Result<Box<[Proxied]>, String> {
    const WORDS: [(&str, Proxied); 9] = [
        ("off", Proxied::Off),
        ("expired", Proxied::Expired),
        ("no-cache", Proxied::NoCache),
        ("no-store", Proxied::NoStore),
        ("private", Proxied::Private),
        ("no_last_modified", Proxied::NoLastModified),
        ("no_etag", Proxied::NoEtag),
        ("auth", Proxied::Auth),
        ("any", Proxied::Any),
    ];
    let words: Vec<&str> = text.split_whitespace().collect();
    if let Some(strange) = words.iter().find(|word| WORDS.iter().all(|(known, _)| known != *word)) {
        return one_of(strange, &WORDS.map(|(known, _)| known)).map(|_| Box::default());
    }
    let found: Box<[Proxied]> = WORDS.iter().filter(|(known, _)| words.contains(known)).map(|(_, it)| *it).collect();
    if found.is_empty() { Err("names nothing".to_owned()) } else { Ok(found) }
}

/// Media types between spaces, at most [`MEDIA_TYPES_MAX`].
pub(super) fn media_types(text: &str) -> Result<MediaTypes, String> {
    let is_token = |word: &str| {
        let may = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !word.is_empty() && word.bytes().all(may)
    };
    let is_type = |word: &str| word.split_once('/').is_some_and(|(kind, name)| is_token(kind) && is_token(name));
    if text.split_whitespace().count() > MEDIA_TYPES_MAX {
        return Err(format!("names more than {MEDIA_TYPES_MAX} media types"));
    }
    match text.split_whitespace().find(|word| !is_type(word)) {
        Some(word) => Err(format!("holds \"{}\", which is not a media type such as text/css", printable(word))),
        None => Ok(MediaTypes::new(text.split_whitespace())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T: std::fmt::Debug>(read: impl Fn(&str) -> Result<T, String>, good: &[&str], bad: &[&str]) {
        good.iter().for_each(|text| assert!(read(text).is_ok(), "{text:?}: {:?}", read(text)));
        bad.iter().for_each(|text| assert!(read(text).is_err(), "{text:?}: {:?}", read(text)));
    }

    #[test]
    fn accepted_values_are_those_of_the_router() {
        check(time, &["1", "2", "10", "1ms", "2s", "10m", "1M", "1y"], &["0", "-1", "text", "", "01", "1m30s", "2y"]);
        check(|text| size(text, false), &["1", "20", "1k", "10m", "10M"], &["0", "-1", "text", "", "1g", "01"]);
        check(|text| size(text, true), &["0", "1m"], &["-1", "0k"]);
        check(boolean, &["true", "false", "TRUE", "False", "True"], &["0", "-1", "text", ""]);
        let domains =
            ["foobar", "foo-bar", "foo--bar", "foobar.com", "*.foobar.com", "xn--bcher-kva.example", "Foo.COM"];
        let refused =
            ["-1", "foo_bar", "foobar.c", "foo bar", "*", "foo.com:80", "foo.com.", "", "foo.*.com", "1.2.3.4"];
        check(domain, &domains, &refused);
        check(platform_domain, &["foobar.com", "foo-bar.io"], &["0", "foobar", "foo_bar.com", "foobar.c", "*.foo.com"]);
        check(
            certificate,
            &["foobar.com:foobar", "*.foobar.deis.ninja:foobar-deis-ninja"],
            &["0", "-1", "text", "a.com: b"],
        );
        check(
            |text| location(text, &mut Expressions::new(1, Compiling::default())),
            &["/webhooks", "= /x", "^~ /x", "~ ^/v[0-9]+", "~* \\.png$"],
            &["/", "^~ /", "webhooks", "", "! /x", "~ (", "/a b"],
        );
        check(agents, &["msie6", "", "MSIE [4-6]\\.", "bot|spider"], &["(", "(?<!x)y", "(x{999}){999}"]);
        check(proxied, &["any", "off", "no-store  private auth"], &["", " ", "some", "any,off", "Any"]);
        check(
            media_types,
            &["text/css", "", "a/b  C/d+e"],
            &["text", "text/", "/css", "a/b/c", "*", "text/*", "a/b,c/d"],
        );
        let networks = |text: &str| networks(text);
        check(
            networks,
            &["1.2.3.4", "0.0.0.0/0", "1.2.3.4, 10.0.0.0/8", "1.2.3.4,"],
            &["0", "-1", "text", "1.2.3.4/33", "256.1.1.1"],
        );
    }

    #[test]
    fn times_and_sizes_have_the_units_of_nginx() {
        assert_eq!(time("1300s"), Ok(Duration::from_secs(1300)));
        assert_eq!(time("1300"), Ok(Duration::from_secs(1300)));
        assert_eq!(time("1M"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(size("32k", false), Ok(32 << 10));
        assert_eq!(entries("a, b,,c,").collect::<Vec<_>>(), ["a", "b", "c"]);
    }
}
