//! The annotations of ingress-nginx on an Ingress. Some have the effect that they have there. One that restricts access
//! in a way that Tidegate does not enforce closes the routes of its object, unless its owner gives it up. A finding
//! reports each of the others. The reasons are in docs/decisions/0042-annotations-of-ingress-nginx.md.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Draft, Fallbacks, OnInvalid, TIDEGATE, allow_sources, require_tls};
use crate::project::annotation_value::boolean;
use crate::project::field::{FindingList, read as read_field};
use crate::project::raw_object::{Annotations, annotation_field};

/// The common prefix of their keys.
pub(super) const PREFIX: &str = "nginx.ingress.kubernetes.io/";

/// The annotation of Tidegate that names those without effect.
pub(super) const IGNORE: &str = "ignore-nginx-annotations";

/// What is done with an annotation.
#[derive(Clone, Copy)]
pub(super) enum Handling {
    /// It has the effect of an annotation of ours.
    As {
        /// The key of ours.
        ours: &'static str,
        /// The consequence of a value that cannot be read.
        otherwise: OnInvalid,
        /// Parses its value.
        read: fn(&mut Draft, &str) -> Result<(), String>,
    },
    /// It restricts access, which nothing here does in its place: the routes are closed.
    Closes,
    /// The same, if the directives of nginx in it may restrict access.
    Snippet,
    /// It has no effect, and this replaces it.
    WithoutEffect(&'static str),
    /// It has no effect, unless it is off: then there is nothing to replace.
    Switch(&'static str),
}

use Handling::{As, Closes, Snippet, Switch, WithoutEffect};

const SOURCES: Handling = As { ours: "allow-source-range", otherwise: OnInvalid::Closed, read: allow_sources };
const TLS: Handling = As { ours: "ssl-redirect", otherwise: OnInvalid::Redirected, read: require_tls };

const LIMITS: &str = "requests of a client are not limited";
const FIREWALL: &str = "there is no web application firewall; put one in front";
const BASIC: &str = "there is no basic authentication";
const REGEX: &str = "an HTTPRoute can have regular expressions, and rewrite paths";
const REDIRECT: &str = "an HTTPRoute can redirect";
const CORS: &str = "an HTTPRoute can have a CORS filter";
const WEIGHTS: &str = "an HTTPRoute can share requests by weight, and match headers";
const MIRROR: &str = "an HTTPRoute can mirror requests";
const SESSIONS: &str = "use tidegate.io/session-cookie";

/// The reason for the keys that are not in the table.
const UNKNOWN: &str = "Tidegate has nothing in its place";

/// The annotations of ingress-nginx about which there is something to say, in the order of the manual.
pub(super) const NGINX: &[(&str, Handling)] = &[
    ("allowlist-source-range", SOURCES),
    ("whitelist-source-range", SOURCES),
    ("force-ssl-redirect", TLS),
    ("auth-type", Closes),
    ("auth-url", Closes),
    ("auth-tls-secret", Closes),
    ("auth-tls-match-cn", Closes),
    ("denylist-source-range", Closes),
    ("configuration-snippet", Snippet),
    ("server-snippet", Snippet),
    ("auth-secret", WithoutEffect(BASIC)),
    ("auth-realm", WithoutEffect(BASIC)),
    ("limit-rps", WithoutEffect(LIMITS)),
    ("limit-rpm", WithoutEffect(LIMITS)),
    ("limit-connections", WithoutEffect(LIMITS)),
    ("enable-modsecurity", Switch(FIREWALL)),
    ("enable-owasp-core-rules", Switch(FIREWALL)),
    ("modsecurity-snippet", WithoutEffect(FIREWALL)),
    ("ssl-redirect", Switch("use tidegate.io/ssl-redirect")),
    ("ssl-passthrough", Switch("a TLSRoute passes connections through")),
    ("backend-protocol", WithoutEffect("appProtocol of the Service's port is the protocol of its endpoints")),
    ("proxy-connect-timeout", WithoutEffect("use tidegate.io/connect-timeout")),
    ("proxy-read-timeout", WithoutEffect("use tidegate.io/read-timeout, and tidegate.io/tunnel-idle-timeout")),
    ("proxy-send-timeout", WithoutEffect("use tidegate.io/write-timeout")),
    ("proxy-body-size", WithoutEffect("use tidegate.io/body-size-max")),
    ("proxy-next-upstream-tries", WithoutEffect("use tidegate.io/tries-max")),
    ("load-balance", WithoutEffect("use tidegate.io/balance")),
    ("affinity", WithoutEffect(SESSIONS)),
    ("session-cookie-name", WithoutEffect(SESSIONS)),
    ("session-cookie-max-age", WithoutEffect("use tidegate.io/session-cookie-max-age")),
    ("session-cookie-path", WithoutEffect("use tidegate.io/session-cookie-path")),
    ("session-cookie-samesite", WithoutEffect("use tidegate.io/session-cookie-samesite")),
    ("session-cookie-secure", WithoutEffect("use tidegate.io/session-cookie-secure")),
    ("session-cookie-change-on-failure", WithoutEffect("use tidegate.io/session-cookie-change-on-failure")),
    ("rewrite-target", WithoutEffect(REGEX)),
    ("use-regex", Switch(REGEX)),
    ("app-root", WithoutEffect(REDIRECT)),
    ("permanent-redirect", WithoutEffect(REDIRECT)),
    ("temporal-redirect", WithoutEffect(REDIRECT)),
    ("from-to-www-redirect", Switch(REDIRECT)),
    ("enable-cors", Switch(CORS)),
    ("canary", Switch(WEIGHTS)),
    ("custom-headers", WithoutEffect("an HTTPRoute can edit headers")),
    ("mirror-target", WithoutEffect(MIRROR)),
    ("enable-access-log", WithoutEffect("the flag --access-log is for all requests")),
];

/// The directives of nginx that restrict nothing, in a snippet: about headers of responses, compression, cookies,
/// buffers, timeouts and logs.
const HARMLESS: &[&str] = &[
    "access_log",
    "add_header",
    "brotli",
    "brotli_comp_level",
    "brotli_types",
    "charset",
    "chunked_transfer_encoding",
    "client_body_buffer_size",
    "client_body_timeout",
    "error_log",
    "etag",
    "expires",
    "gzip",
    "gzip_comp_level",
    "gzip_min_length",
    "gzip_proxied",
    "gzip_types",
    "gzip_vary",
    "keepalive_timeout",
    "more_clear_headers",
    "more_set_headers",
    "proxy_buffer_size",
    "proxy_buffering",
    "proxy_buffers",
    "proxy_busy_buffers_size",
    "proxy_connect_timeout",
    "proxy_cookie_domain",
    "proxy_cookie_path",
    "proxy_hide_header",
    "proxy_http_version",
    "proxy_read_timeout",
    "proxy_redirect",
    "proxy_request_buffering",
    "proxy_send_timeout",
    "send_timeout",
    "sub_filter",
    "sub_filter_once",
    "sub_filter_types",
];

/// Reads the annotations of ingress-nginx into a draft, which has those of Tidegate already.
pub(super) fn read(draft: &mut Draft, annotations: &Annotations<'_>, findings: &mut FindingList) -> Fallbacks {
    let mut fallbacks = Fallbacks::default();
    let mut ignored = std::mem::take(&mut draft.ignored);
    for (name, raw) in annotations {
        let Some(key) = name.strip_prefix(PREFIX) else { continue };
        if ignored.remove(key) {
            continue;
        }
        let field = annotation_field(name);
        let handling = NGINX.iter().find(|(known, _)| *known == key).map_or(Switch(UNKNOWN), |(_, handling)| *handling);
        let text = match read_field::<String>(raw, &field) {
            Ok(text) => text,
            Err(invalid) => {
                fallbacks.add(handling.otherwise(), (&field, key), &invalid.value, invalid.why, findings);
                continue;
            }
        };
        // ingress-nginx takes an empty value as an absent one.
        match handling {
            _ if text.trim().is_empty() => {}
            As { otherwise, read, .. } => {
                if let Err(why) = read(draft, &text) {
                    fallbacks.add(otherwise, (&field, key), &text, why, findings);
                }
            }
            Closes => fallbacks.add(OnInvalid::Closed, (&field, key), key, not_enforced("restricts"), findings),
            Snippet if is_harmless(&text) => findings.without_effect(&field, key, "there are no snippets"),
            Snippet => fallbacks.add(OnInvalid::Closed, (&field, key), key, not_enforced("may restrict"), findings),
            Switch(_) if is_off(&text) => {}
            WithoutEffect(instead) | Switch(instead) => findings.without_effect(&field, key, instead),
        }
    }
    let field = annotation_field(&format!("{}{IGNORE}", TIDEGATE.prefix));
    for key in ignored {
        findings.without_effect(&field, &key, format_args!("there is no annotation {PREFIX}{key}"));
    }
    fallbacks
}

impl Handling {
    /// The consequence of a value that is not a text.
    const fn otherwise(self) -> OnInvalid {
        match self {
            As { otherwise, .. } => otherwise,
            Closes | Snippet => OnInvalid::Closed,
            WithoutEffect(_) | Switch(_) => OnInvalid::Default,
        }
    }
}

/// The reason for a restriction that is not enforced, with the ways out.
fn not_enforced(restricts: &str) -> String {
    let ignore = format!("{}{IGNORE}", TIDEGATE.prefix);
    format!("{restricts} access in a way that Tidegate does not enforce (remove it, or name it in {ignore})")
}

/// Whether a value is `false` or `off`.
fn is_off(text: &str) -> bool {
    text.trim() == "off" || boolean(text) == Ok(false)
}

/// Whether a snippet consists of directives that restrict nothing. A block, or what cannot be recognised, may restrict.
fn is_harmless(snippet: &str) -> bool {
    directives(snippet).is_some_and(|all| {
        let names = all.iter().filter_map(|directive| directive.split_whitespace().next());
        names.into_iter().all(|name| HARMLESS.contains(&name))
    })
}

/// The directives of a snippet, each quoted parameter as one quote; `None` if there is a block. As in nginx, quotes and
/// comments begin only at the beginning of a parameter, and a backslash quotes one character.
fn directives(snippet: &str) -> Option<Vec<String>> {
    let mut all = vec![String::new()];
    let (mut quote, mut begins) = (None, true);
    let mut chars = snippet.chars();
    while let Some(next) = chars.next() {
        match next {
            '\\' => drop(chars.next()),
            _ if quote.is_some_and(|quote| quote != next) => continue,
            _ if quote.is_some() => quote = None,
            '"' | '\'' if begins => {
                quote = Some(next);
                all.last_mut()?.push(next);
            }
            '#' if begins => {
                chars.find(|char| *char == '\n');
                continue;
            }
            '{' | '}' => return None,
            ';' => all.push(String::new()),
            _ => all.last_mut()?.push(next),
        }
        begins = next == ';' || next.is_whitespace();
    }
    Some(all)
}

/// The list of annotations of ingress-nginx whose owner accepts that they have no effect.
pub(super) fn ignored(text: &str) -> Result<BTreeSet<Arc<str>>, String> {
    let keys = text.split(',').map(str::trim).filter(|key| !key.is_empty());
    let keys: BTreeSet<Arc<str>> = keys.map(|key| key.strip_prefix(PREFIX).unwrap_or(key).into()).collect();
    if keys.is_empty() { Err("names no annotation".to_owned()) } else { Ok(keys) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_harmless(snippet: &str, want: bool) {
        assert_eq!(is_harmless(snippet), want, "{snippet}");
    }

    #[test]
    fn headers_of_responses_restrict_nothing() {
        check_harmless("more_set_headers \"X-Frame-Options: SAMEORIGIN\";", true);
        check_harmless("add_header X-XSS-Protection \"1; mode=block\" always;\nexpires 1h;", true);
        check_harmless("add_header Content-Security-Policy 'default-src \"self\"; img-src *';", true);
        check_harmless("# deny all;\n  add_header A b; # of the office\n", true);
        check_harmless("add_header A \"\\\"; deny all\";", true);
        check_harmless("add_header A b\\;c;", true);
        check_harmless("add_header A b", true);
    }

    #[test]
    fn what_may_restrict_is_found() {
        for snippet in [
            "deny all;",
            "add_header A b; deny all;",
            "add_header A b;deny all;",
            "add_header A \"b\"; return 403;",
            "if ($http_x_token != \"s\") { return 403; }",
            "location = /admin { deny all; }",
            "proxy_set_header X-User \"\";",
            "auth_basic \"private\"; auth_basic_user_file /a;",
            "access_by_lua_block { ngx.exit(403) }",
            "\"deny\" all;",
            "add_header A b#c; deny all;",
            "add_header A b\"c; deny all; add_header D e\"f;",
            "add_header A \"b\\\\\"; deny all; add_header C \"d\";",
            "add_header_ A b;",
            "{",
            "deny",
        ] {
            check_harmless(snippet, false);
        }
    }
}
