//! The annotations of the router's Deployment, under `router.deis.io/nginx.`.

use super::deis::Router;
use super::deis_app::{annotation, referrer_policy};
use super::deis_edge::{buffer_size, buffers, ciphers, connections, log_format, methods, protocols, workers};
use super::deis_value::{address, boolean, networks, one_of, platform_domain, positive, size, time};
use super::{Annotation, OnInvalid, deis_gzip, set};

/// Every annotation of the router, in the order of the manual.
pub(super) const ROUTER: &[Annotation<Router>] = &[
    annotation!(
        "platformDomain",
        "domain",
        "none",
        "Short names of applications stand below it.",
        Default,
        None,
        |router, text| set(&mut router.platform_domain, platform_domain(text))
    ),
    annotation!(
        "defaultTimeout",
        "time",
        "`1300s`",
        "The `tcpTimeout` of applications that set none.",
        Default,
        None,
        |router, text| set(&mut router.default_timeout, time(text))
    ),
    annotation!(
        "bodySize",
        "size, or 0 for no limit",
        "`1m`",
        "Size of a request's body; a larger one is answered 413.",
        Default,
        None,
        |router, text| set(&mut router.body_size, size(text, true))
    ),
    annotation!(
        "defaultWhitelist",
        "comma-separated addresses and networks",
        "none",
        "The clients that may use applications, unless an application has a list of its own (`whitelistMode`).",
        Closed,
        None,
        |router, text| set(&mut router.default_whitelist, networks(text))
    ),
    annotation!(
        "whitelistMode",
        "`extend` or `override`",
        "`extend`",
        "Whether an application's list is added to the default list, or replaces it.",
        Dropped,
        None,
        |router, text| set(
            &mut router.whitelist_override,
            one_of(text, &["extend", "override"]).map(|mode| mode == "override")
        )
    ),
    annotation!(
        "enforceWhitelists",
        "boolean",
        "`false`",
        "Applications without any list refuse all clients.",
        Enforced,
        None,
        |router, text| set(&mut router.enforce_whitelists, boolean(text))
    ),
    annotation!(
        "ssl.enforce",
        "boolean",
        "`false`",
        "Sends plain-text requests to https with status 301, for all applications.",
        Redirected,
        None,
        |router, text| set(&mut router.ssl_enforce, boolean(text))
    ),
    annotation!(
        "ssl.hsts.enabled",
        "boolean",
        "`false`",
        "As `ssl.enforce`; and the header `Strict-Transport-Security` on responses to requests that came by TLS.",
        Redirected,
        None,
        |router, text| set(&mut router.hsts, boolean(text))
    ),
    annotation!(
        "proxyRealIpCidrs",
        "comma-separated addresses and networks",
        "`10.0.0.0/8`",
        "Peers whose `X-Forwarded-*` headers are trusted, besides those of `--trusted-proxies`, on every host. An empty value trusts no peer.",
        Dropped,
        None,
        |router, text| set(
            &mut router.trusted_proxies,
            if text.trim().is_empty() { Ok(Box::default()) } else { networks(text) }
        )
    ),
    annotation!(
        "useProxyProtocol",
        "boolean",
        "`false`",
        "Every new connection to the ports for HTTP, HTTPS and the builder has to begin with a header of the PROXY protocol, version 1 or 2, whose address is trusted from the peers of `proxyRealIpCidrs`. Like `--proxy-protocol`, which requires it whatever the value here.",
        Default,
        None,
        |router, text| set(&mut router.edge.proxy_protocol, boolean(text))
    ),
    annotation!(
        "ssl.hsts.maxAge",
        "whole number",
        "`15552000`",
        "`max-age` of that header, in seconds.",
        Default,
        None,
        |router, text| set(&mut router.hsts_max_age_s, positive(text))
    ),
    annotation!(
        "ssl.hsts.includeSubDomains",
        "boolean",
        "`false`",
        "`includeSubDomains` of that header.",
        Default,
        None,
        |router, text| set(&mut router.hsts_subdomains, boolean(text))
    ),
    annotation!(
        "ssl.hsts.preload",
        "boolean",
        "`false`",
        "`preload` of that header.",
        Default,
        None,
        |router, text| set(&mut router.hsts_preload, boolean(text))
    ),
    annotation!(
        "ssl.earlyDataMethods",
        "methods between bars, such as `GET&#124;HEAD`",
        "none",
        "Methods of requests that are accepted before the TLS handshake is complete, from returning clients (TLS 1.3 early data, RFC 8470); a request of another method is answered 425, and applications see `Early-Data: 1`. Each process then keeps the sessions of its clients, as without tickets. An empty value, or no annotation, disables early data, because a copied request could be replayed.",
        Default,
        None,
        |router, text| set(&mut router.edge.early_data, methods(text))
    ),
    annotation!(
        "ssl.protocols",
        "versions between spaces",
        "`TLSv1.2 TLSv1.3`",
        "Versions of TLS for clients. Versions before TLSv1.2 are not supported (RFC 8996); naming one makes a finding.",
        Default,
        None,
        |router, text| set(&mut router.edge.protocols, protocols(text))
    ),
    annotation!(
        "ssl.ciphers",
        "a cipher list of OpenSSL",
        "all that rustls has, in the order that the client prefers",
        "Cipher suites, in the order that the edge prefers. Those without forward secrecy or authenticated encryption are not supported; naming one makes a finding.",
        Default,
        None,
        |router, text| set(&mut router.edge.ciphers, ciphers(text))
    ),
    annotation!(
        "ssl.useSessionTickets",
        "boolean",
        "`true`",
        "Sessions are resumed by tickets. Without them each process keeps sessions for its clients.",
        Default,
        None,
        |router, text| set(&mut router.edge.tickets, boolean(text))
    ),
    annotation!(
        "requestIDs",
        "boolean",
        "`false`",
        "A new `X-Request-Id` for every request, and `X-Correlation-Id`, which keeps what the client sent: to applications, and to clients on every response but the maintenance page.",
        Default,
        None,
        |router, text| set(&mut router.request_ids, boolean(text))
    ),
    annotation!(
        "requestStartHeader",
        "boolean",
        "`false`",
        "`X-Request-Start: t=<seconds>` gives applications the arrival time of a request.",
        Default,
        None,
        |router, text| set(&mut router.request_start, boolean(text))
    ),
    annotation!(
        "referrerPolicy",
        "a referrer policy, or `none`",
        "none",
        "`Referrer-Policy`, added to responses of status 200, 201, 204, 206, 301 to 304, 307 and 308.",
        Default,
        None,
        |router, text| set(&mut router.referrer_policy, referrer_policy(text))
    ),
    annotation!(
        "enableRegexDomains",
        "boolean",
        "`false`",
        "Whether `regexDomain` of applications has an effect. The owner of an application can then claim any host that no other object names.",
        Default,
        None,
        |router, text| set(&mut router.regex_domains, boolean(text))
    ),
    annotation!(
        "defaultServiceEnabled",
        "boolean",
        "`false`",
        "Requests over plain HTTP for hosts that no object names go to port 80 of `defaultServiceIP`, but for `/healthz`.",
        Default,
        None,
        |router, text| set(&mut router.default_service.enabled, boolean(text))
    ),
    annotation!(
        "defaultServiceIP",
        "IP address",
        "none",
        "The destination of those requests, such as the cluster IP of a Service.",
        Default,
        None,
        |router, text| set(&mut router.default_service.address, address(text))
    ),
    annotation!(
        "defaultAppName",
        "text",
        "none",
        "The name of that destination in the access log and in `explain`.",
        Default,
        None,
        |router, text| set(&mut router.default_service.name, Ok(text.into()))
    ),
    annotation!(
        "maxWorkerConnections",
        "whole number from 64",
        "as many as the process may have",
        "How many connections of clients and to applications together there may be, times `workerProcesses`; \
         never more than the limit of open files allows. Those that wait for a request give way to new ones.",
        Default,
        None,
        |router, text| set(&mut router.edge.connections, connections(text))
    ),
    annotation!(
        "workerProcesses",
        "whole number, or `auto`",
        "`auto`",
        "The factor for `maxWorkerConnections`; `auto` is the number of traffic threads (`--threads`).",
        Default,
        None,
        |router, text| set(&mut router.edge.workers, workers(text))
    ),
    annotation!(
        "http2Enabled",
        "boolean",
        "`true`",
        "HTTP/2 is offered to clients over TLS.",
        Default,
        None,
        |router, text| set(&mut router.edge.http2, boolean(text))
    ),
    annotation!(
        "logFormat",
        "text with variables of nginx",
        "that of `--access-log-format`",
        "The form of a line of the access log, for all requests of the edge. `deis`, or `--access-log-format deis`, is the old router's own.",
        Default,
        None,
        |router, text| set(&mut router.edge.log_format, log_format(text))
    ),
    annotation!(
        "largeHeaderBuffersCount",
        "whole number up to 64",
        "`4`",
        "The maximum size of a request head in multiples of `largeHeaderBuffersSize`, up to 512k; a larger one is answered 431.",
        Default,
        None,
        |router, text| set(&mut router.edge.head_buffers, buffers(text))
    ),
    annotation!(
        "largeHeaderBuffersSize",
        "size from 1k to 512k",
        "`32k`",
        "The maximum size of a request line and of each header line: a larger request line is answered 414, a larger header line 431.",
        Default,
        None,
        |router, text| set(&mut router.edge.head_buffer_bytes, buffer_size(text))
    ),
    deis_gzip::ENABLED,
    deis_gzip::COMP_LEVEL,
    deis_gzip::DISABLE,
    deis_gzip::HTTP_VERSION,
    deis_gzip::MIN_LENGTH,
    deis_gzip::PROXIED,
    deis_gzip::MEDIA_TYPES,
    deis_gzip::VARY,
];
