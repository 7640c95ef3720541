//! Snippets of nginx's configuration in annotations of ingress-nginx, read only as far as it takes to see whether they
//! may keep requests from the Service.

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

/// The white space of nginx.
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// The characters that end a parameter.
const ENDS: [char; 5] = [' ', '\t', '\r', '\n', ';'];

/// The first part of a snippet that may keep requests from the Service: a directive that is not known to be harmless, a
/// block, or text that nginx may read in another way.
pub(super) fn questionable(snippet: &str) -> Option<String> {
    // A backslash can make a space, a quote or the end of a directive a part of the parameter. ingress-nginx removes
    // more kinds of white space from the lines than nginx knows, so that a quote can come to the beginning of one.
    if snippet.contains(|char: char| char == '\\' || (char.is_whitespace() && !SPACES.contains(&char))) {
        return Some("a backslash or a white space that nginx does not know".to_owned());
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
        ] {
            check(snippet, deny);
        }
        check("if ($http_x_token != \"s\") { return 403; }", Some("the directive if"));
        check("proxy_set_header X-User \"\";", Some("the directive proxy_set_header"));
        check("access_by_lua_block { ngx.exit(403) }", Some("the directive access_by_lua_block"));
        check("add_header_ A b;", Some("the directive add_header_"));
        for snippet in ["\"deny\" all;", "{", "}", "deny{", "a\u{301};", &"a".repeat(64)] {
            check(snippet, Some("an unknown directive"));
        }
        for snippet in ["add_header A {", "add_header A ${b};", "add_header A b}c;", "add_header A \"b; deny all;"] {
            check(snippet, Some("a block, or a quote without its end"));
        }
        for snippet in [
            "add_header A b\\; deny all;",
            "add_header A b\u{a0}#c; deny all;",
            "add_header A b\u{2003}\"; deny all; add_header C \"d\";",
            "add_header A\n\u{b}\"b; add_header C \"; deny all; add_header D \"e\";",
        ] {
            check(snippet, Some("a backslash or a white space that nginx does not know"));
        }
    }
}
