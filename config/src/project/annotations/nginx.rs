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
    /// It keeps requests from the Service, which nothing here does in its place: the routes are closed. The text says
    /// what could, outside of an Ingress.
    Closes(&'static str),
    /// The same, if the directives of nginx in it may do so.
    Snippet,
    /// The same, if it redirects.
    Rewrite,
    /// It makes the rules additions to those of another Ingress: without it they would replace them.
    Canary,
    /// It has no effect, for this reason.
    WithoutEffect(&'static str),
    /// It has no effect, unless it is off: then nothing is missing.
    Switch(&'static str),
}

use Handling::{As, Canary, Closes, Rewrite, Snippet, Switch, WithoutEffect};

const SOURCES: Handling = As { ours: "allow-source-range", otherwise: OnInvalid::Closed, read: allow_sources };
const TLS: Handling = As { ours: "ssl-redirect", otherwise: OnInvalid::Redirected, read: require_tls };

const REDIRECT: &str = "an HTTPRoute can redirect";
const FIREWALL: &str = "there is no web application firewall; put one in front";
const BASIC: &str = "there is no basic authentication";
const RATE: &str = "the rate of a client's requests is not limited";
pub(super) const REWRITE: &str = "an HTTPRoute can replace a prefix of the path";
const CORS: &str = "an HTTPRoute can have a CORS filter";
pub(super) const WEIGHTS: &str = "an HTTPRoute can divide requests by weight or by header";
const HEADERS: &str = "an HTTPRoute can set headers";
const ENDPOINT_TLS: &str = "a BackendTLSPolicy verifies endpoints, for routes of the Gateway API";

/// The reason for the keys that are not in the table.
const UNKNOWN: &str = "Tidegate does not implement it";

/// The old key of the allowed sources, and the one that replaces it.
const WHITELIST: (&str, &str) = ("whitelist-source-range", "allowlist-source-range");

/// The annotations of ingress-nginx about which there is something to say, in the order of the manual.
pub(super) const NGINX: &[(&str, Handling)] = &[
    (WHITELIST.1, SOURCES),
    (WHITELIST.0, SOURCES),
    ("force-ssl-redirect", TLS),
    ("auth-type", Closes("")),
    ("auth-url", Closes("an HTTPRoute can have the filter ExternalAuth")),
    ("auth-tls-secret", Closes("a Gateway can verify the certificates of clients")),
    ("denylist-source-range", Closes("tidegate.io/allow-source-range lists the others")),
    ("permanent-redirect", Closes(REDIRECT)),
    ("temporal-redirect", Closes(REDIRECT)),
    ("configuration-snippet", Snippet),
    ("server-snippet", Snippet),
    ("modsecurity-snippet", Snippet),
    ("rewrite-target", Rewrite),
    ("canary", Canary),
    ("auth-secret", WithoutEffect(BASIC)),
    ("auth-realm", WithoutEffect(BASIC)),
    ("limit-rps", WithoutEffect(RATE)),
    ("limit-rpm", WithoutEffect(RATE)),
    ("limit-connections", WithoutEffect("the flag --client-requests-max is for all Ingresses")),
    ("enable-modsecurity", Switch(FIREWALL)),
    ("enable-owasp-core-rules", Switch(FIREWALL)),
    ("ssl-redirect", Switch("use tidegate.io/ssl-redirect")),
    ("ssl-passthrough", Switch("a TLSRoute passes connections through")),
    ("backend-protocol", WithoutEffect("the protocol of endpoints is appProtocol of the Service's port")),
    ("proxy-ssl-secret", WithoutEffect(ENDPOINT_TLS)),
    ("proxy-ssl-verify", Switch(ENDPOINT_TLS)),
    ("proxy-connect-timeout", WithoutEffect("use tidegate.io/connect-timeout")),
    ("proxy-read-timeout", WithoutEffect("use tidegate.io/read-timeout, and tidegate.io/tunnel-idle-timeout")),
    ("proxy-send-timeout", WithoutEffect("use tidegate.io/write-timeout")),
    ("proxy-body-size", WithoutEffect("use tidegate.io/body-size-max")),
    ("proxy-next-upstream-tries", WithoutEffect("use tidegate.io/tries-max")),
    ("load-balance", WithoutEffect("use tidegate.io/balance")),
    ("affinity", WithoutEffect("use tidegate.io/session-cookie")),
    ("session-cookie-name", WithoutEffect("use tidegate.io/session-cookie")),
    ("session-cookie-expires", WithoutEffect("use tidegate.io/session-cookie-max-age")),
    ("session-cookie-max-age", WithoutEffect("use tidegate.io/session-cookie-max-age")),
    ("session-cookie-path", WithoutEffect("use tidegate.io/session-cookie-path")),
    ("session-cookie-samesite", WithoutEffect("use tidegate.io/session-cookie-samesite")),
    ("session-cookie-secure", WithoutEffect("use tidegate.io/session-cookie-secure")),
    ("session-cookie-change-on-failure", WithoutEffect("use tidegate.io/session-cookie-change-on-failure")),
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

/// The directives of nginx that keep no request from the Service, in a snippet: about headers of responses,
/// compression, cookies, buffers, timeouts, limits of rate and size, and logs.
const HARMLESS: &[&str] = &[
    "absolute_redirect",
    "access_log",
    "add_header",
    "add_trailer",
    "brotli",
    "brotli_comp_level",
    "brotli_min_length",
    "brotli_static",
    "brotli_types",
    "charset",
    "chunked_transfer_encoding",
    "client_body_buffer_size",
    "client_body_timeout",
    "client_header_buffer_size",
    "client_header_timeout",
    "client_max_body_size",
    "default_type",
    "error_log",
    "etag",
    "expires",
    "grpc_read_timeout",
    "grpc_send_timeout",
    "gzip",
    "gzip_buffers",
    "gzip_comp_level",
    "gzip_disable",
    "gzip_http_version",
    "gzip_min_length",
    "gzip_proxied",
    "gzip_types",
    "gzip_vary",
    "keepalive_requests",
    "keepalive_timeout",
    "large_client_header_buffers",
    "limit_conn",
    "limit_rate",
    "limit_rate_after",
    "limit_req",
    "log_not_found",
    "more_clear_headers",
    "more_set_headers",
    "port_in_redirect",
    "proxy_buffer_size",
    "proxy_buffering",
    "proxy_buffers",
    "proxy_busy_buffers_size",
    "proxy_connect_timeout",
    "proxy_cookie_domain",
    "proxy_cookie_flags",
    "proxy_cookie_path",
    "proxy_hide_header",
    "proxy_http_version",
    "proxy_ignore_headers",
    "proxy_max_temp_file_size",
    "proxy_next_upstream",
    "proxy_next_upstream_timeout",
    "proxy_next_upstream_tries",
    "proxy_pass_header",
    "proxy_read_timeout",
    "proxy_redirect",
    "proxy_request_buffering",
    "proxy_send_timeout",
    "send_timeout",
    "server_tokens",
    "sub_filter",
    "sub_filter_last_modified",
    "sub_filter_once",
    "sub_filter_types",
    "tcp_nodelay",
];

/// Reads the annotations of ingress-nginx into a draft, which has those of Tidegate already.
pub(super) fn read(
    draft: &mut Draft,
    annotations: &Annotations<'_>,
    fallbacks: &mut Fallbacks,
    findings: &mut FindingList,
) {
    let mut ignored = std::mem::take(&mut draft.ignored);
    let has = |key: &str| annotations.get(&format!("{PREFIX}{key}")).is_some_and(|raw| raw.get() != "\"\"");
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
        let mut close = |why: String| fallbacks.add(OnInvalid::Closed, (&field, key), key, why, findings);
        match handling {
            _ if text.trim().is_empty() && !refuses_blank(key, &text) => {}
            As { .. } if key == WHITELIST.0 && has(WHITELIST.1) => {
                findings.without_effect(&field, key, format_args!("{PREFIX}{} replaces it", WHITELIST.1));
            }
            As { otherwise, read, .. } => {
                if let Err(why) = read(draft, &text) {
                    fallbacks.add(otherwise, (&field, key), &text, why, findings);
                }
            }
            Closes(instead) => close(not_enforced("keeps requests from the Service", instead)),
            Snippet => match questionable(&text) {
                Some(part) => close(not_enforced(&format!("has {part}, and may keep requests from the Service"), "")),
                None => findings.without_effect(&field, key, "there are no snippets"),
            },
            Rewrite if is_url(&text) => close(not_enforced("keeps requests from the Service", REDIRECT)),
            Rewrite => findings.without_effect(&field, key, REWRITE),
            Canary | Switch(_) if is_off(&text) => {}
            Canary => {
                draft.is_canary = true;
                let why = "makes these the rules of a canary, which an Ingress cannot have here";
                findings.dropped(&field, key, format_args!("{why} ({WEIGHTS})"));
            }
            WithoutEffect(why) | Switch(why) => findings.without_effect(&field, key, why),
        }
    }
    let field = annotation_field(&format!("{}{IGNORE}", TIDEGATE.prefix));
    for key in ignored {
        findings.without_effect(&field, &key, format_args!("there is no annotation {PREFIX}{key}"));
    }
}

impl Handling {
    /// The consequence of a value that is not a text.
    const fn otherwise(self) -> OnInvalid {
        match self {
            As { otherwise, .. } => otherwise,
            Closes(_) | Snippet | Rewrite | Canary => OnInvalid::Closed,
            WithoutEffect(_) | Switch(_) => OnInvalid::Default,
        }
    }
}

/// The reason for routes that are closed, with the ways out.
fn not_enforced(what: &str, instead: &str) -> String {
    let semicolon = if instead.is_empty() { "" } else { "; " };
    let ignore = format!("{}{IGNORE}", TIDEGATE.prefix);
    format!("{what} in a way that Tidegate does not ({instead}{semicolon}to let them all through, name it in {ignore})")
}

/// Whether a blank list refuses every request in ingress-nginx, too. It takes other blank values as absent ones, and an
/// empty one of the old key.
fn refuses_blank(key: &str, text: &str) -> bool {
    match key {
        "allowlist-source-range" | "denylist-source-range" => true,
        "whitelist-source-range" => !text.is_empty(),
        _ => false,
    }
}

/// Whether a value is `false` or `off`.
fn is_off(text: &str) -> bool {
    text.trim() == "off" || boolean(text) == Ok(false)
}

/// Whether a target is an absolute URL, to which ingress-nginx redirects.
fn is_url(target: &str) -> bool {
    let target = target.trim_start();
    ["http://", "https://", "$scheme"].iter().any(|start| target.starts_with(start))
}

/// The white space of nginx.
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// The characters that end a parameter.
const ENDS: [char; 5] = [' ', '\t', '\r', '\n', ';'];

/// The first part of a snippet that may keep requests from the Service: a directive that is not known to be harmless, a
/// block, or what is not read here as nginx reads it.
fn questionable(snippet: &str) -> Option<String> {
    // A backslash can make a space, a quote or the end of a directive a part of the parameter.
    if snippet.contains('\\') {
        return Some("a backslash".to_owned());
    }
    let mut rest = snippet;
    loop {
        rest = parameter(rest);
        let name = rest.split(ENDS).next().filter(|name| !name.is_empty());
        let Some(name) = name else {
            // The end, or a semicolon alone.
            rest = rest.strip_prefix(';')?;
            continue;
        };
        if !HARMLESS.contains(&name) {
            let is_name = name.len() < 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            return Some(if is_name { format!("the directive {name}") } else { "an unknown directive".to_owned() });
        }
        rest = match after_parameters(&rest[name.len()..]) {
            Some(rest) => rest,
            None => return Some("a block, or a quote without its end".to_owned()),
        };
    }
}

/// The snippet from the beginning of the next parameter on, without space and comments.
fn parameter(snippet: &str) -> &str {
    let mut rest = snippet.trim_start_matches(SPACES);
    while let Some(comment) = rest.strip_prefix('#') {
        rest = comment.split_once('\n').map_or("", |(_, rest)| rest).trim_start_matches(SPACES);
    }
    rest
}

/// The snippet after the end of a directive; `None` if the directive has a block, or a quote without its end. Quotes
/// and comments begin only where a parameter does.
fn after_parameters(snippet: &str) -> Option<&str> {
    let mut rest = snippet;
    loop {
        rest = parameter(rest);
        let first = rest.chars().next();
        match first {
            None => return Some(""),
            Some(';') => return Some(&rest[1..]),
            Some(quote @ ('"' | '\'')) => rest = rest[1..].split_once(quote)?.1,
            Some(_) => {
                let end = rest.find(ENDS).unwrap_or(rest.len());
                if rest[..end].contains(['{', '}']) {
                    return None;
                }
                rest = &rest[end..];
            }
        }
    }
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
    fn check(snippet: &str, want: Option<&str>) {
        assert_eq!(questionable(snippet).as_deref(), want, "{snippet:?}");
    }

    #[test]
    fn headers_of_responses_are_harmless() {
        for snippet in [
            "",
            " ;; ",
            "more_set_headers \"X-Frame-Options: SAMEORIGIN\";",
            "add_header X-XSS-Protection \"1; mode=block\" always;\r\n\texpires 1h;",
            "add_header Content-Security-Policy 'default-src \"self\"; img-src {*}';",
            "# deny all;\n  add_header A b; # of the office\n",
            "add_header A b#c; add_header D e\"f;",
            "add_header A # to the end of the line; deny all\n b;",
            "add_header A b",
            "# deny all;",
        ] {
            check(snippet, None);
        }
    }

    #[test]
    fn all_other_directives_are_questionable() {
        let deny = Some("the directive deny");
        for snippet in [
            "deny all;",
            "deny",
            ";deny all;",
            "add_header A b; deny all;",
            "add_header A b;deny all;",
            "add_header A b;\tdeny\tall;",
            "add_header A \"b\"; deny all;",
            "add_header A \"b\";deny all;",
            "add_header A b#c; deny all;",
            "add_header A b\"c; deny all; add_header D e\"f;",
            "add_header A b'c; deny all; #'",
            "add_header A b; # c\ndeny all;",
            // No space of nginx, so neither a comment nor a quote begins.
            "add_header A b\u{a0}#c; deny all;",
            "add_header A b\u{b}#c; deny all;",
            "add_header A b\u{2003}\"; deny all; add_header C \"d\";",
        ] {
            check(snippet, deny);
        }
        check("if ($http_x_token != \"s\") { return 403; }", Some("the directive if"));
        check("proxy_set_header X-User \"\";", Some("the directive proxy_set_header"));
        check("access_by_lua_block { ngx.exit(403) }", Some("the directive access_by_lua_block"));
        check("add_header_ A b;", Some("the directive add_header_"));
        for snippet in ["\"deny\" all;", "{", "}", "deny{", "\u{a0}deny all;", "a\u{301};", &"a".repeat(64)] {
            check(snippet, Some("an unknown directive"));
        }
        for snippet in ["add_header A {", "add_header A ${b};", "add_header A b}c;", "add_header A \"b; deny all;"] {
            check(snippet, Some("a block, or a quote without its end"));
        }
        check("add_header A b\\; deny all;", Some("a backslash"));
    }
}
