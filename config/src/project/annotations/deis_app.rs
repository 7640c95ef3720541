//! The annotations of an application's Service, under `router.deis.io/`.

use std::time::Duration;

use ipnet::IpNet;

use super::deis_value::{any, boolean, each_of, networks, one_of, positive, size, time};
use super::{Annotation, OnInvalid, set};

macro_rules! annotation {
    ($key:literal, $form:literal, $default:literal, $effect:literal, $otherwise:ident, $inert:expr, $read:expr) => {
        Annotation {
            key: $key,
            form: $form,
            default: |_| $default.to_owned(),
            effect: $effect,
            otherwise: OnInvalid::$otherwise,
            inert: $inert,
            read: $read,
        }
    };
}
pub(super) use annotation;

/// The values of an application's annotations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct App {
    pub(super) domains: Option<String>,
    pub(super) certificates: Option<String>,
    pub(super) whitelist: Option<Box<[IpNet]>>,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) tcp_timeout: Option<Duration>,
    pub(super) ssl_enforce: Option<bool>,
    pub(super) maintenance: Option<bool>,
    pub(super) no_request_start: Option<bool>,
    pub(super) referrer_policy: Option<&'static str>,
    pub(super) proxy_domain: Option<String>,
    pub(super) proxy_locations: Option<String>,
    pub(super) regex_domain: Option<String>,
}

/// The values of a builder's annotations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Builder {
    pub(super) connect_timeout: Option<Duration>,
    pub(super) tcp_timeout: Option<Duration>,
}

/// Every annotation of the builder's Service.
pub(super) const BUILDER: &[Annotation<Builder>] = &[
    annotation!(
        "connectTimeout",
        "time",
        "`10s`",
        "Time to open a connection to the builder.",
        Default,
        None,
        |builder, text| set(&mut builder.connect_timeout, time(text))
    ),
    annotation!(
        "tcpTimeout",
        "time",
        "`1200s`",
        "Time without a byte in either direction after which a connection is closed.",
        Default,
        None,
        |builder, text| set(&mut builder.tcp_timeout, time(text))
    ),
];

/// The reason why the settings of nginx's buffers have no effect.
const BUFFERS: &str = "Tidegate streams responses through bounded buffers of its own";

/// The reason why keys below `ssl.` have no effect on a Service.
const OF_ROUTER: &str = "the Deis router ignored it on a Service; it takes effect only on the router's Deployment";

const POLICIES: [&str; 9] = [
    "no-referrer",
    "no-referrer-when-downgrade",
    "origin",
    "origin-when-cross-origin",
    "same-origin",
    "strict-origin",
    "strict-origin-when-cross-origin",
    "unsafe-url",
    "none",
];

pub(super) fn referrer_policy(text: &str) -> Result<&'static str, String> {
    one_of(text, &POLICIES)
}

/// Every annotation of an application, in the order of the manual.
pub(super) const APP: &[Annotation<App>] = &[
    annotation!(
        "domains",
        "comma-separated domains",
        "none: the Service is not routed",
        "The hosts. A name without a dot stands below the router's `platformDomain`; without one it stands for every name whose first label it is. A leading `*.` stands for any number of labels.",
        Default,
        None,
        |app, text| set(&mut app.domains, Ok(text.to_owned()))
    ),
    annotation!(
        "certificates",
        "comma-separated `DOMAIN:NAME`",
        "the platform's certificate for short names, none for others",
        "The certificate of a domain: the Secret `NAME-cert` in the namespace of the Service. A Secret that does not exist makes no finding: the platform leaves mappings behind.",
        Default,
        None,
        |app, text| set(&mut app.certificates, Ok(text.to_owned()))
    ),
    annotation!(
        "whitelist",
        "comma-separated addresses and networks",
        "all clients, or the router's list",
        "Answers 403 to clients from elsewhere, before anything else is decided.",
        Closed,
        None,
        |app, text| set(&mut app.whitelist, networks(text))
    ),
    annotation!(
        "connectTimeout",
        "time",
        "`30s`",
        "Time to open a connection to an endpoint; 504 when it is over.",
        Default,
        None,
        |app, text| set(&mut app.connect_timeout, time(text))
    ),
    annotation!(
        "tcpTimeout",
        "time",
        "the router's `defaultTimeout`",
        "Time between two reads from, or two writes to, an endpoint; 504 when it is over.",
        Default,
        None,
        |app, text| set(&mut app.tcp_timeout, time(text))
    ),
    annotation!(
        "ssl.enforce",
        "boolean",
        "`false`",
        "Sends plain-text requests to https with status 301.",
        Redirected,
        None,
        |app, text| set(&mut app.ssl_enforce, boolean(text))
    ),
    annotation!(
        "maintenance",
        "boolean",
        "`false`",
        "Answers every request that the whitelist lets in with 503 and a page that says so.",
        Default,
        None,
        |app, text| set(&mut app.maintenance, boolean(text))
    ),
    annotation!(
        "disableRequestStartHeader",
        "boolean",
        "`false`",
        "`true` leaves out `X-Request-Start`, where the router sends it.",
        Default,
        None,
        |app, text| set(&mut app.no_request_start, boolean(text))
    ),
    annotation!(
        "referrerPolicy",
        "a referrer policy, or `none`",
        "the router's",
        "The same in place of the router's; `none` for no header.",
        Default,
        None,
        |app, text| set(&mut app.referrer_policy, referrer_policy(text))
    ),
    annotation!(
        "proxyDomain",
        "a domain of another application, as listed there",
        "none",
        "The application on whose hosts `proxyLocations` are: one in the same namespace, with all its domains.",
        Default,
        None,
        |app, text| set(&mut app.proxy_domain, Ok(text.to_owned()))
    ),
    annotation!(
        "proxyLocations",
        "comma-separated paths",
        "none",
        "Paths of those hosts that this application serves: every path that starts with these characters. `= /x` is that path alone, `~ x` an expression, `~* x` one without case. The whitelist is that of the host; all other settings are this application's.",
        Default,
        None,
        |app, text| set(&mut app.proxy_locations, Ok(text.to_owned()))
    ),
    annotation!(
        "regexDomain",
        "a regular expression that contains the domain",
        "none",
        "With `enableRegexDomains` of the router: the domain stands for all names that begin with it, or with a match of this expression, followed by a dot and more labels.",
        Default,
        None,
        |app, text| set(&mut app.regex_domain, Ok(text.to_owned()))
    ),
    annotation!("nginx.proxyBuffers.enabled", "boolean", "`false`", "None.", Default, Some(BUFFERS), |_, text| {
        boolean(text).map(drop)
    }),
    annotation!("nginx.proxyBuffers.number", "whole number", "`8`", "None.", Default, Some(BUFFERS), |_, text| {
        positive(text).map(drop)
    }),
    annotation!("nginx.proxyBuffers.size", "size", "`4k`", "None.", Default, Some(BUFFERS), |_, text| size(
        text, false
    )
    .map(drop)),
    annotation!("nginx.proxyBuffers.busySize", "size", "`8k`", "None.", Default, Some(BUFFERS), |_, text| size(
        text, false
    )
    .map(drop)),
    annotation!(
        "ssl.protocols",
        "versions between spaces",
        "the router's",
        "None.",
        Default,
        Some(OF_ROUTER),
        |_, text| each_of(text, &super::deis_edge::PROTOCOLS)
    ),
    annotation!("ssl.ciphers", "text", "the router's", "None.", Default, Some(OF_ROUTER), |_, text| any(text)),
    annotation!("ssl.sessionCache", "text", "the router's", "None.", Default, Some(OF_ROUTER), |_, text| any(text)),
    annotation!("ssl.sessionTimeout", "time", "the router's", "None.", Default, Some(OF_ROUTER), |_, text| time(text)
        .map(drop)),
    annotation!("ssl.useSessionTickets", "boolean", "the router's", "None.", Default, Some(OF_ROUTER), |_, text| {
        boolean(text).map(drop)
    }),
    annotation!("ssl.bufferSize", "size", "the router's", "None.", Default, Some(OF_ROUTER), |_, text| size(
        text, false
    )
    .map(drop)),
    annotation!("ssl.hsts.enabled", "boolean", "the router's", "None.", Default, Some(OF_ROUTER), |_, text| boolean(
        text
    )
    .map(drop)),
    annotation!("ssl.hsts.maxAge", "whole number", "the router's", "None.", Default, Some(OF_ROUTER), |_, text| {
        positive(text).map(drop)
    }),
    annotation!(
        "ssl.hsts.includeSubDomains",
        "boolean",
        "the router's",
        "None.",
        Default,
        Some(OF_ROUTER),
        |_, text| boolean(text).map(drop)
    ),
    annotation!("ssl.hsts.preload", "boolean", "the router's", "None.", Default, Some(OF_ROUTER), |_, text| boolean(
        text
    )
    .map(drop)),
    annotation!(
        "ssl.earlyDataMethods",
        "methods between bars",
        "the router's",
        "None.",
        Default,
        Some(OF_ROUTER),
        |_, text| any(text)
    ),
];
