//! URLs: `url` and its functions.
//!
//! The real server reads them as Go's `net/url` does: nothing is normalized, neither case nor default ports nor
//! escapes, and a path alone is one too. The `url` crate follows the WHATWG standard, which normalizes all of them, and
//! `http::Uri` refuses much that is good there, so the parser is our own.

use std::collections::HashMap;
use std::net::IpAddr;

use cel::common::types::{CelBool, CelList, CelMap, CelMapKey, CelString};
use cel::common::value::Val;
use cel::{DeclarationError, Env, ExecutionError};

use super::{failed, value_type};

pub(super) const FUNCTIONS: &[&str] =
    &["getEscapedPath", "getHost", "getHostname", "getPort", "getQuery", "getScheme", "isURL", "url"];

/// The parts of a URL, as they are written.
#[derive(Clone, Debug, Default, PartialEq)]
struct Url {
    /// In lower case; empty for a path alone.
    scheme: String,
    /// Of a URL without an authority and a rooted path, such as `mailto:`.
    opaque: String,
    user: String,
    /// With its port.
    host: String,
    path: String,
    query: String,
    fragment: String,
}

value_type!(Url, "kubernetes.URL");

pub(super) fn extend(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn is_url: (CelString<'_>) -> CelBool, name = "isURL")?;
    cel::add_overload!(env, fn url: (CelString<'_>) -> Result<Url>)?;
    cel::add_member_overload!(env, fn get_scheme: (Url) -> CelString<'_>)?;
    cel::add_member_overload!(env, fn get_host: (Url) -> CelString<'_>)?;
    cel::add_member_overload!(env, fn get_hostname: (Url) -> CelString<'_>)?;
    cel::add_member_overload!(env, fn get_port: (Url) -> CelString<'_>)?;
    cel::add_member_overload!(env, fn get_escaped_path: (Url) -> CelString<'_>)?;
    cel::add_member_overload!(env, fn get_query: (Url) -> CelMap<'_>)
}

/// Why this is no URL or rooted path; nothing if it is.
pub(super) fn complaint(text: &str) -> Option<String> {
    Url::parse(text).err().map(|why| format!("parse {text:?}: {why}"))
}

impl Url {
    /// Reads a URL. The text behind `#` is a part of the path or the query, as in the first line of a request.
    fn parse(text: &str) -> Result<Self, String> {
        if text.bytes().any(|one| one.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if text.is_empty() {
            return Err("empty url".to_owned());
        }
        let mut url = Self::default();
        if text == "*" {
            url.path = text.to_owned();
            return Ok(url);
        }
        let (scheme, rest) = split_scheme(text)?;
        url.scheme = scheme.to_ascii_lowercase();
        let (mut rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        url.query = query.to_owned();
        if !rest.starts_with('/') {
            if scheme.is_empty() {
                return Err("invalid URI for request".to_owned());
            }
            url.opaque = rest.to_owned();
            return Ok(url);
        }
        if let (false, Some(after)) = (scheme.is_empty(), rest.strip_prefix("//")) {
            let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            rest = path;
            let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
            url.host = host_of(&url.scheme, host)?;
            if !user.bytes().all(|one| one.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&one)) {
                return Err("net/url: invalid userinfo".to_owned());
            }
            unescape(user)?;
            url.user = user.to_owned();
        }
        unescape(rest)?;
        url.path = rest.to_owned();
        Ok(url)
    }

    /// The host without and with its port apart.
    fn host_and_port(&self) -> (&str, &str) {
        let (host, port) = match self.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|one| one.is_ascii_digit()) => (host, port),
            Some(_) | None => (self.host.as_str(), ""),
        };
        (host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port)
    }
}

/// The scheme, if there is one, and the rest.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let letter = |one: char| one.is_ascii_alphanumeric() || matches!(one, '+' | '-' | '.');
    match text.split_once(':') {
        Some(("", _)) => Err("missing protocol scheme".to_owned()),
        Some((scheme, rest))
            if scheme.starts_with(|one: char| one.is_ascii_alphabetic()) && scheme.chars().all(letter) =>
        {
            Ok((scheme, rest))
        }
        Some(_) | None => Ok(("", text)),
    }
}

/// A host with its port, with its escapes resolved.
fn host_of(scheme: &str, host: &str) -> Result<String, String> {
    let port_fits = |port: &str| {
        let fits =
            port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|one| one.is_ascii_digit()));
        if fits { Ok(()) } else { Err(format!("invalid port {port:?} after host")) }
    };
    if let Some(literal) = host.strip_prefix('[') {
        let (address, port) = literal.rsplit_once(']').ok_or("missing ']' in host")?;
        port_fits(port)?;
        // A zone is behind an escaped percent sign (RFC 6874).
        let (plain, zone) = address.split_once("%25").map_or((address, None), |(plain, zone)| (plain, Some(zone)));
        if !plain.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()) || zone == Some("") {
            return Err("invalid IP-literal".to_owned());
        }
        let zone = zone.map(unescape).transpose()?.map(|zone| format!("%{zone}")).unwrap_or_default();
        return Ok(format!("[{plain}{zone}]{port}"));
    }
    if host.contains('[') {
        return Err("invalid IP-literal".to_owned());
    }
    let colon = if matches!(scheme, "http" | "https") { host.find(':') } else { host.rfind(':') };
    port_fits(colon.and_then(|at| host.get(at..)).unwrap_or_default())?;
    let fits = |one: u8| !one.is_ascii() || one.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&one);
    if let Some(bad) = host.bytes().find(|one| !fits(*one)) {
        return Err(format!("invalid character {:?} in host name", char::from(bad).to_string()));
    }
    // Only bytes beyond ASCII may be escaped in a host (RFC 3986, 3.2.2).
    for (at, _) in host.match_indices('%') {
        let escape = host.get(at..at + 3).unwrap_or_default();
        if escape != "%25" && escape.as_bytes().get(1).is_some_and(|digit| matches!(digit, b'0'..=b'7')) {
            return Err(format!("invalid URL escape {escape:?}"));
        }
    }
    unescape(host)
}

/// A text with its escapes resolved, or the first that is none.
fn unescape(text: &str) -> Result<String, String> {
    for (at, _) in text.match_indices('%') {
        let escape = text.as_bytes().get(at + 1..at + 3).unwrap_or_default();
        if escape.len() != 2 || !escape.iter().all(u8::is_ascii_hexdigit) {
            let shown: String = text.get(at..).unwrap_or_default().chars().take(3).collect();
            return Err(format!("invalid URL escape {shown:?}"));
        }
    }
    Ok(percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned())
}

fn is_url(text: &CelString<'_>) -> CelBool {
    Url::parse(text.inner()).is_ok().into()
}

fn url(text: &CelString<'_>) -> Result<Url, ExecutionError> {
    let text = text.inner();
    let wrong = |why: String| failed("url", format!("URL parse error during conversion from string: {why}"));
    complaint(text).map_or(Ok(()), |why| Err(wrong(why)))?;
    // A fragment is known only now: what is checked before is what a request may ask for.
    let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
    let mut url = Url::parse(before).map_err(wrong)?;
    fragment.clone_into(&mut url.fragment);
    Ok(url)
}

fn get_scheme(this: &Url) -> CelString<'static> {
    this.scheme.clone().into()
}

fn get_host(this: &Url) -> CelString<'static> {
    this.host.clone().into()
}

fn get_hostname(this: &Url) -> CelString<'static> {
    this.host_and_port().0.to_owned().into()
}

fn get_port(this: &Url) -> CelString<'static> {
    this.host_and_port().1.to_owned().into()
}

/// The path as it is written; one with bytes that have to be escaped, escaped again as a whole.
fn get_escaped_path(this: &Url) -> CelString<'static> {
    let path = this.path.as_str();
    let plain = |one: u8| one.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&one);
    if path.bytes().all(|one| plain(one) || b"!'()*[]%".contains(&one)) {
        return path.to_owned().into();
    }
    let bytes = percent_encoding::percent_decode_str(path);
    let escape = |one: u8| if plain(one) { char::from(one).to_string() } else { format!("%{one:02X}") };
    bytes.map(escape).collect::<String>().into()
}

/// The values of each name. Pairs with a semicolon or a bad escape are left out, as Go does.
fn get_query(this: &Url) -> CelMap<'static> {
    let mut values: HashMap<String, Vec<Box<dyn Val>>> = HashMap::new();
    for pair in this.query.split('&').filter(|pair| !pair.contains(';') && unescape(pair).is_ok()) {
        for (name, value) in form_urlencoded::parse(pair.as_bytes()) {
            values.entry(name.into_owned()).or_default().push(Box::new(CelString::from(value.into_owned())));
        }
    }
    let values = values
        .into_iter()
        .map(|(name, values)| (CelMapKey::from(name), Box::new(CelList::from(values)) as Box<dyn Val>));
    values.collect::<HashMap<_, _>>().into()
}
