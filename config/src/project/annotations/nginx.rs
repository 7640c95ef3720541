//! The annotations of ingress-nginx on an Ingress. Some have the effect that they have there. One that restricts access
//! in a way that Tidegate does not enforce closes the routes of its object, unless its owner gives it up. A finding
//! reports each of the others. The reasons are in docs/decisions/0042-annotations-of-ingress-nginx.md.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ingress::{Draft, TRIES_MAX, allow_sources, require_tls};
use super::nginx_snippet::questionable;
use super::{Fallbacks, OnInvalid, TIDEGATE, set};
use crate::model::{AppProtocol, Balance};
use crate::project::annotation_value::{
    boolean, bytes, cookie_name, cookie_path, same_site, seconds, seconds_of_cookie, whole,
};
use crate::project::field::{FindingList, read as read_field};
use crate::project::raw_object::{Annotations, annotation_field};
use serde_json::value::RawValue;

/// The common prefix of their keys.
pub(super) const PREFIX: &str = "nginx.ingress.kubernetes.io/";

/// The annotation of Tidegate that names those without effect.
pub(super) const IGNORE: &str = "ignore-nginx-annotations";

/// How an annotation is handled.
#[derive(Clone, Copy)]
pub(super) enum Handling {
    /// It has the effect of an annotation of ours.
    As {
        /// The keys of ours.
        ours: &'static [&'static str],
        /// The consequence of a value that cannot be read.
        otherwise: OnInvalid,
        /// Parses its value.
        read: fn(&mut Draft, &str) -> Result<(), String>,
    },
    /// It is the protocol of endpoints, in place of the Service's.
    Protocol,
    /// It keeps requests from the Service, which nothing here does in its place: the routes are closed. The text says
    /// what could, outside of an Ingress.
    Closes(&'static str),
    /// The same, if the directives of nginx in it may do so.
    Snippet,
    /// The same, if it redirects.
    Rewrite,
    /// It redirects to https if the Ingress has TLS entries.
    SslRedirect,
    /// It makes the rules additions to those of another Ingress, which they could replace without it.
    Canary,
    /// It has no effect, for this reason.
    WithoutEffect(&'static str),
    /// It has no effect, unless it is off: then nothing is missing.
    Switch(&'static str),
}

use Handling::{As, Canary, Closes, Protocol, Rewrite, Snippet, SslRedirect, Switch, WithoutEffect};

const SOURCES: Handling = As { ours: &["allow-source-range"], otherwise: OnInvalid::Closed, read: allow_sources };
const TLS: Handling = As { ours: &["ssl-redirect"], otherwise: OnInvalid::Redirected, read: require_tls };

const AGE: Handling =
    setting(&["session-cookie-max-age"], |draft, text| set(&mut draft.nginx_session.max_age, seconds_of_cookie(text)));

/// An annotation with the effect of ours, which replace it where an Ingress has both.
const fn setting(ours: &'static [&'static str], read: fn(&mut Draft, &str) -> Result<(), String>) -> Handling {
    As { ours, otherwise: OnInvalid::Default, read }
}

const REDIRECT: &str = "an HTTPRoute can redirect";
const FIREWALL: &str = "Tidegate has no web application firewall; put one in front";
const BASIC: &str = "Tidegate has no basic authentication";
const NO_TLS_ENTRY: &str = "the Ingress has no TLS entry; use tidegate.io/ssl-redirect";
const RATE: &str = "the rate of a client's requests is not limited";
pub(super) const REWRITE: &str = "an HTTPRoute can replace a prefix of the path";
const CORS: &str = "an HTTPRoute can have a CORS filter";
pub(super) const WEIGHTS: &str = "an HTTPRoute can divide requests by weight or by header";
const HEADERS: &str = "an HTTPRoute can set headers";
const ENDPOINT_TLS: &str = "a BackendTLSPolicy verifies endpoints, for routes of the Gateway API";

/// The reason for the keys that are not in the table.
const UNKNOWN: &str = "Tidegate does not implement it";

/// The allowed sources, their old key, which is read where the new one is missing or empty, and the refused ones.
const ALLOWED: &str = "allowlist-source-range";
const ALLOWED_BEFORE: &str = "whitelist-source-range";
const REFUSED: &str = "denylist-source-range";

/// Whether the rules are those of a canary.
const CANARY: &str = "canary";

/// The annotations of ingress-nginx about which there is something to say, in the order of the manual.
pub(super) const NGINX: &[(&str, Handling)] = &[
    (ALLOWED, SOURCES),
    (ALLOWED_BEFORE, SOURCES),
    ("force-ssl-redirect", TLS),
    ("ssl-redirect", SslRedirect),
    ("backend-protocol", Protocol),
    (
        "proxy-connect-timeout",
        setting(&["connect-timeout"], |draft, text| fill(&mut draft.settings.connect_timeout, seconds(text))),
    ),
    (
        "proxy-read-timeout",
        setting(&["read-timeout", "tunnel-idle-timeout"], |draft, text| {
            let time = seconds(text)?;
            fill(&mut draft.settings.read_timeout, Ok(time))?;
            fill(&mut draft.settings.tunnel_idle_timeout, Ok(time))
        }),
    ),
    (
        "proxy-send-timeout",
        setting(&["write-timeout"], |draft, text| fill(&mut draft.settings.write_timeout, seconds(text))),
    ),
    (
        "proxy-body-size",
        setting(&["body-size-max"], |draft, text| fill(&mut draft.settings.body_bytes_max, bytes(text))),
    ),
    // Read before the number of tries, which it overrides.
    (
        "proxy-next-upstream",
        setting(&["tries-max"], |draft, text| match text.trim() {
            "off" => fill(&mut draft.settings.tries_max, Ok(1)),
            _ => Err("is not off, the one value that is read".to_owned()),
        }),
    ),
    (
        "proxy-next-upstream-tries",
        setting(&["tries-max"], |draft, text| fill(&mut draft.settings.tries_max, tries(text))),
    ),
    ("load-balance", setting(&["balance"], |draft, text| fill(&mut draft.settings.balance, balance(text)))),
    (
        "affinity",
        setting(&["session-cookie"], |draft, text| match text.trim() {
            "cookie" => {
                draft.has_affinity = true;
                Ok(())
            }
            _ => Err("is not cookie".to_owned()),
        }),
    ),
    (
        "affinity-mode",
        setting(&["session-cookie"], |_, text| match text.trim() {
            "persistent" => Ok(()),
            _ => Err("is not persistent".to_owned()),
        }),
    ),
    (
        "session-cookie-name",
        setting(&["session-cookie"], |draft, text| set(&mut draft.nginx_session.name, cookie_name(text))),
    ),
    // Annotations are read in the order of their keys: session-cookie-max-age replaces this one.
    ("session-cookie-expires", AGE),
    ("session-cookie-max-age", AGE),
    (
        "session-cookie-path",
        setting(&["session-cookie-path"], |draft, text| set(&mut draft.nginx_session.path, cookie_path(text))),
    ),
    (
        "session-cookie-samesite",
        setting(&["session-cookie-samesite"], |draft, text| set(&mut draft.nginx_session.same_site, same_site(text))),
    ),
    // As in ingress-nginx, `false` is as if it were missing.
    (
        "session-cookie-secure",
        setting(&["session-cookie-secure"], |draft, text| {
            draft.nginx_session.secure = boolean(text)?.then_some(true);
            Ok(())
        }),
    ),
    (
        "session-cookie-change-on-failure",
        setting(&["session-cookie-change-on-failure"], |draft, text| {
            set(&mut draft.nginx_session.change_on_failure, boolean(text))
        }),
    ),
    ("auth-type", Closes("")),
    ("auth-url", Closes("an HTTPRoute can have the filter ExternalAuth")),
    ("auth-tls-secret", Closes("a Gateway can verify the certificates of clients")),
    (REFUSED, Closes("tidegate.io/allow-source-range lists the others")),
    ("permanent-redirect", Closes(REDIRECT)),
    ("temporal-redirect", Closes(REDIRECT)),
    ("configuration-snippet", Snippet),
    ("server-snippet", Snippet),
    ("modsecurity-snippet", Snippet),
    ("rewrite-target", Rewrite),
    (CANARY, Canary),
    ("auth-secret", WithoutEffect(BASIC)),
    ("auth-realm", WithoutEffect(BASIC)),
    ("limit-rps", WithoutEffect(RATE)),
    ("limit-rpm", WithoutEffect(RATE)),
    ("limit-connections", WithoutEffect("the flag --client-requests-max is for all Ingresses")),
    ("enable-modsecurity", Switch(FIREWALL)),
    ("enable-owasp-core-rules", Switch(FIREWALL)),
    ("ssl-passthrough", Switch("a TLSRoute passes connections through")),
    ("proxy-ssl-secret", WithoutEffect(ENDPOINT_TLS)),
    ("proxy-ssl-verify", Switch(ENDPOINT_TLS)),
    ("use-regex", Switch("an HTTPRoute can have regular expressions")),
    ("app-root", WithoutEffect(REDIRECT)),
    ("from-to-www-redirect", Switch(REDIRECT)),
    ("server-alias", WithoutEffect("add a rule for the host")),
    ("enable-cors", Switch(CORS)),
    ("cors-allow-origin", WithoutEffect(CORS)),
    ("cors-allow-methods", WithoutEffect(CORS)),
    ("cors-allow-headers", WithoutEffect(CORS)),
    ("canary-weight", WithoutEffect(WEIGHTS)),
    ("canary-by-header", WithoutEffect(WEIGHTS)),
    ("custom-headers", WithoutEffect(HEADERS)),
    ("upstream-vhost", WithoutEffect(HEADERS)),
    ("x-forwarded-prefix", WithoutEffect(HEADERS)),
    ("mirror-target", WithoutEffect("an HTTPRoute can mirror requests")),
    ("enable-access-log", WithoutEffect("the flag --access-log is for all requests")),
];

/// Reads the annotations of ingress-nginx into a draft, which has those of Tidegate already.
pub(super) fn read(
    draft: &mut Draft,
    annotations: &Annotations<'_>,
    fallbacks: &mut Fallbacks,
    findings: &mut FindingList,
) {
    let mut ignored = std::mem::take(&mut draft.ignored);
    let all = annotations.iter().filter_map(|(name, raw)| Some((name.strip_prefix(PREFIX)?, *raw)));
    let theirs: BTreeMap<&str, &RawValue> = all.filter(|(key, _)| !ignored.remove(*key)).collect();
    let field = |key: &str| annotation_field(&format!("{PREFIX}{key}"));
    if theirs.get(CANARY).is_some_and(|raw| !read_field(raw, "").is_ok_and(|text: String| is_no_canary(&text))) {
        draft.is_canary = true;
        let why = "makes these the rules of a canary, which an Ingress cannot have here";
        findings.dropped(&field(CANARY), CANARY, format_args!("{why} ({WEIGHTS})"));
        // The others are about rules that are not in effect.
        return;
    }
    let is_set = |key: &str| theirs.get(key).is_some_and(|raw| raw.get() != EMPTY);
    let allowed = if is_set(ALLOWED) || !is_set(ALLOWED_BEFORE) { ALLOWED } else { ALLOWED_BEFORE };
    for (key, raw) in theirs {
        let field = field(key);
        let handling = NGINX.iter().find(|(known, _)| *known == key).map_or(Switch(UNKNOWN), |(_, handling)| *handling);
        let text = match read_field::<String>(raw, &field) {
            Ok(text) => text,
            Err(invalid) => {
                fallbacks.add(handling.otherwise(), (&field, key), &invalid.value, invalid.why, findings);
                continue;
            }
        };
        let lists_sources = [ALLOWED, ALLOWED_BEFORE, REFUSED].contains(&key);
        let handling = if matches!(handling, SslRedirect) && draft.has_tls { TLS } else { handling };
        let mut close = |why: String| fallbacks.add(OnInvalid::Closed, (&field, key), key, why, findings);
        match handling {
            // ingress-nginx takes a blank value as a missing one, but for lists of sources, which it then refuses.
            _ if text.trim().is_empty() && !lists_sources => {}
            As { .. } if lists_sources && key != allowed && text.is_empty() => {}
            As { .. } if lists_sources && key != allowed => {
                findings.without_effect(&field, key, format_args!("{PREFIX}{allowed} replaces it"));
            }
            As { otherwise, read, .. } => {
                if let Err(why) = read(draft, &text) {
                    fallbacks.add(otherwise, (&field, key), &text, why, findings);
                }
            }
            SslRedirect | Switch(_) if is_off(&text) => {}
            SslRedirect => findings.without_effect(&field, key, NO_TLS_ENTRY),
            Protocol => match protocol(&text) {
                Ok(protocol) => draft.protocol = Some(protocol),
                Err(why) => findings.ignored(&field, &text, why),
            },
            Closes(instead) => close(not_enforced("keeps requests from the Service", instead)),
            Snippet => match questionable(&text) {
                Some(part) => close(not_enforced(&format!("has {part}, and may keep requests from the Service"), "")),
                None => findings.without_effect(&field, key, "Tidegate has no snippets"),
            },
            Rewrite if is_url(&text) => close(not_enforced("keeps requests from the Service", REDIRECT)),
            Rewrite => findings.without_effect(&field, key, REWRITE),
            // It is off: otherwise no other annotation is read.
            Canary => {}
            WithoutEffect(why) | Switch(why) => findings.without_effect(&field, key, why),
        }
    }
    for key in ignored {
        let field = annotation_field(&format!("{}{IGNORE}", TIDEGATE.prefix));
        findings.without_effect(&field, &key, format_args!("the Ingress has no annotation {PREFIX}{key}"));
    }
    draft.add_session();
}

/// An empty text in JSON.
const EMPTY: &str = "\"\"";

impl Draft {
    /// Adds the sessions of ingress-nginx. Without the affinity, the attributes of its cookie have no effect there,
    /// either.
    fn add_session(&mut self) {
        let mut session = std::mem::take(&mut self.nginx_session);
        if !self.has_affinity {
            return;
        }
        if self.session.name.is_none() {
            session.name.get_or_insert_with(|| "INGRESSCOOKIE".into());
            session.change_on_failure.get_or_insert(false);
        }
        self.session.fill(session);
    }
}

impl Handling {
    /// The consequence of a value that is not a text.
    const fn otherwise(self) -> OnInvalid {
        match self {
            As { otherwise, .. } => otherwise,
            Closes(_) | Snippet | Rewrite => OnInvalid::Closed,
            SslRedirect => OnInvalid::Redirected,
            Canary | Protocol | WithoutEffect(_) | Switch(_) => OnInvalid::Default,
        }
    }
}

/// Sets what no annotation of ours has set.
fn fill<T>(slot: &mut Option<T>, value: Result<T, String>) -> Result<(), String> {
    slot.get_or_insert(value?);
    Ok(())
}

/// A number of tries, where 0 stands for any number.
fn tries(text: &str) -> Result<u8, String> {
    match whole(text).map_err(|_| "is not a whole number".to_owned())? {
        0 => Ok(TRIES_MAX),
        tries => Ok(u8::try_from(tries).unwrap_or(TRIES_MAX).min(TRIES_MAX)),
    }
}

/// The protocol of endpoints, in any case. It needs no authority: ingress-nginx verifies none of them by default.
fn protocol(text: &str) -> Result<AppProtocol, String> {
    match &*text.trim().to_ascii_uppercase() {
        "HTTP" => Ok(AppProtocol::Http),
        "HTTPS" => Ok(AppProtocol::Https),
        "GRPC" => Ok(AppProtocol::H2c),
        "GRPCS" => Ok(AppProtocol::H2),
        _ => Err("is not HTTP, HTTPS, GRPC or GRPCS".to_owned()),
    }
}

/// `round_robin` or `ewma`, which draws two endpoints and takes the faster one.
fn balance(text: &str) -> Result<Balance, String> {
    match text.trim() {
        "round_robin" => Ok(Balance::RoundRobin),
        "ewma" => Ok(Balance::PowerOfTwo),
        _ => Err("is neither round_robin nor ewma".to_owned()),
    }
}

/// The reason for routes that are closed, with the ways out.
fn not_enforced(what: &str, instead: &str) -> String {
    let semicolon = if instead.is_empty() { "" } else { "; " };
    let ignore = format!("{}{IGNORE}", TIDEGATE.prefix);
    format!("{what} in a way that Tidegate does not ({instead}{semicolon}to let them all through, name it in {ignore})")
}

/// Whether a value is `false` or `off`.
fn is_off(text: &str) -> bool {
    text.trim() == "off" || boolean(text) == Ok(false)
}

/// Whether a value of `canary` is none. One that cannot be read may be meant for a canary.
fn is_no_canary(text: &str) -> bool {
    text.trim().is_empty() || is_off(text)
}

/// Whether a target is an absolute URL, to which ingress-nginx redirects.
fn is_url(target: &str) -> bool {
    let target = target.trim_start();
    ["http://", "https://", "$scheme"].iter().any(|start| target.starts_with(start))
}

/// The list of annotations of ingress-nginx whose owner accepts that they have no effect.
pub(super) fn ignored(text: &str) -> Result<BTreeSet<Arc<str>>, String> {
    let keys = text.split(',').map(str::trim).filter(|key| !key.is_empty());
    let keys: BTreeSet<Arc<str>> = keys.map(|key| key.strip_prefix(PREFIX).unwrap_or(key).into()).collect();
    if keys.is_empty() { Err("names no annotation".to_owned()) } else { Ok(keys) }
}
