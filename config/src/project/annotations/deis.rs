//! The annotations of the Deis router: those of an application's Service, and those of the router's own Deployment.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ipnet::IpNet;

use super::deis_app::{APP, App, BUILDER, Builder};
use super::deis_edge::{DefaultService, Edge};
pub use super::deis_expression::DeisExpression;
pub(in crate::project) use super::deis_expression::REGEX_DOMAIN;
use super::deis_expression::expression;
use super::deis_gzip::Gzip;
use super::deis_nginx::NGINX_ONLY;
use super::deis_router::ROUTER;
pub use super::deis_value::DeisDomain;
use super::deis_value::{certificate, domain, entries, location};
use super::{Annotation, Dialect, read};
use crate::finding::Finding;
use crate::model::{Compression, EdgeSettings, Expression, PathMatch};
use crate::object::{Age, ObjectName};
use crate::project::expressions::{Compiling, Expressions};
use crate::project::field::FindingList;
use crate::project::gateway::Unreadable;
use crate::project::raw_object::{Annotations, annotation_field};

pub(super) const OF_APP: Dialect = Dialect { prefix: "router.deis.io/", name: "Deis application" };
pub(super) const OF_BUILDER: Dialect = Dialect { prefix: "router.deis.io/nginx.", name: "Deis builder" };
pub(super) const OF_ROUTER: Dialect = Dialect { prefix: "router.deis.io/nginx.", name: "Deis router" };

/// Every annotation of the router's Deployment.
pub(super) static OF_DEPLOYMENT: LazyLock<Box<[Annotation<Router>]>> =
    LazyLock::new(|| [ROUTER, NGINX_ONLY].concat().into());

/// The key of the annotation with paths on the host of another application.
pub(in crate::project) const PROXY_LOCATIONS: &str = "router.deis.io/proxyLocations";

/// The defaults of the router.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1300);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const BODY_BYTES_MAX: u64 = 1 << 20;
const HSTS_MAX_AGE_S: u64 = 15_552_000;

/// The maximum length of a list, and the maximum number of expressions among the paths of one application.
const LIST_MAX: usize = 512;
const EXPRESSIONS_MAX: usize = 16;

/// An application: a Service with the label `router.deis.io/routable=true`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeisApp {
    /// Its name and age.
    pub age: Age,
    /// The name in logs: the label `app`, or the name of the Service; prefixed with the namespace and a slash if the
    /// two differ.
    pub log_name: Arc<str>,
    /// Its domains, in ascending order, each once.
    pub domains: Box<[DeisDomain]>,
    /// The Secrets with the certificates of domains, by domain as listed, in lower case and ascending order.
    pub certificates: Box<[(Arc<str>, ObjectName)]>,
    /// An expression that replaces some of the domains, if the router allows expressions.
    pub expression: Option<DeisExpression>,
    /// Paths that it offers on a host of another application.
    pub locations: Option<DeisLocations>,
    /// The clients that may use it.
    pub whitelist: Whitelist,
    /// The timeout for opening a connection to an endpoint.
    pub connect_timeout: Duration,
    /// The timeout between two reads or writes; `None` for the router's.
    pub tcp_timeout: Option<Duration>,
    /// Whether plain-text requests are redirected.
    pub ssl_enforce: bool,
    /// Whether it answers every request with a maintenance page.
    pub maintenance: bool,
    /// Whether `X-Request-Start` is not sent to it.
    pub no_request_start: bool,
    /// Its `Referrer-Policy`, if it names one or `none`.
    pub referrer_policy: Option<&'static str>,
    /// The name of the policies of all its routes, in its namespace: an annotation of Tidegate.
    pub policy: Option<Result<Arc<str>, Unreadable>>,
    /// The findings about it.
    pub findings: Box<[Finding]>,
}

impl DeisApp {
    /// Its expressions, for hosts and for paths.
    pub(in crate::project) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let host = self.expression.as_ref().map(|expression| expression.host.expression());
        let paths = self.locations.iter().flat_map(|locations| &locations.paths);
        host.into_iter().chain(paths.filter_map(PathMatch::expression))
    }

    /// Leaves out its expressions; `why` is a predicate. The domains that one would have replaced serve instead.
    pub(in crate::project) fn leave_out_expressions(&mut self, why: &str, findings: &mut FindingList) {
        if let Some(left_out) = self.expression.take() {
            findings.dropped(&annotation_field(REGEX_DOMAIN), left_out.host.as_str(), why);
        }
        let Some(locations) = &mut self.locations else { return };
        let paths = std::mem::take(&mut locations.paths).into_iter();
        let (left_out, literal): (Vec<PathMatch>, Vec<_>) = paths.partition(|path| path.expression().is_some());
        for path in left_out.iter().filter_map(PathMatch::expression) {
            findings.dropped(&annotation_field(PROXY_LOCATIONS), path.pattern(), why);
        }
        locations.paths = literal.into();
        if locations.paths.is_empty() {
            self.locations = None;
        }
    }
}

/// Paths that an application offers on a host of another application of its namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeisLocations {
    /// The domain of the other application, as it lists it.
    pub domain: DeisDomain,
    /// The paths, at least one.
    pub paths: Box<[PathMatch]>,
}

/// The clients that may use an application.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Whitelist {
    /// There is no list.
    #[default]
    None,
    /// Clients of these networks.
    Networks(Arc<[IpNet]>),
    /// No client: the list cannot be read.
    Closed,
}

/// The settings of the router's Deployment, for all applications.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeisRouter {
    /// The parent domain of short names.
    pub platform_domain: Option<Arc<str>>,
    /// The `tcpTimeout` of applications that set none.
    pub default_timeout: Duration,
    /// The maximum size of a request's body in bytes; 0 for no limit.
    pub body_bytes_max: u64,
    /// The clients that may use applications.
    pub default_whitelist: Whitelist,
    /// Whether an application's own list replaces the default one instead of extending it.
    pub whitelist_override: bool,
    /// Whether an application without any list is closed.
    pub enforce_whitelists: bool,
    /// Whether plain-text requests are redirected, for all applications.
    pub ssl_enforce: bool,
    /// The value of `Strict-Transport-Security`, if it is sent.
    pub hsts: Option<Arc<str>>,
    /// Whether requests get correlation ids.
    pub request_ids: bool,
    /// Whether `X-Request-Start` is sent to applications.
    pub request_start: bool,
    /// The `Referrer-Policy` of applications that name neither a policy nor `none`.
    pub referrer_policy: Option<&'static str>,
    /// The peers whose forwarded headers are trusted, if the Deployment names any.
    pub trusted_proxies: Option<Arc<[IpNet]>>,
    /// The destination of plain HTTP requests for unknown hosts: an address, and its name in logs and reports.
    pub default_service: Option<(IpAddr, Arc<str>)>,
    /// Whether the expressions of applications are used for hosts.
    pub regex_domains: bool,
    /// Settings of all connections.
    pub edge: EdgeSettings,
    /// The compression of responses, unless it is disabled.
    pub compression: Option<Arc<Compression>>,
}

impl Default for DeisRouter {
    fn default() -> Self {
        Self {
            platform_domain: None,
            default_timeout: DEFAULT_TIMEOUT,
            body_bytes_max: BODY_BYTES_MAX,
            default_whitelist: Whitelist::None,
            whitelist_override: false,
            enforce_whitelists: false,
            ssl_enforce: false,
            hsts: None,
            request_ids: false,
            request_start: false,
            referrer_policy: None,
            trusted_proxies: None,
            default_service: None,
            regex_domains: false,
            edge: EdgeSettings::default(),
            compression: Gzip::default().compression(),
        }
    }
}

/// The settings of the builder's Service; connections of git clients are passed on to it unread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeisBuilder {
    /// The timeout for opening a connection to it.
    pub connect_timeout: Duration,
    /// Time without a byte in either direction after which a connection is closed.
    pub tcp_timeout: Duration,
    /// The findings about it.
    pub findings: Box<[Finding]>,
}

impl Default for DeisBuilder {
    fn default() -> Self {
        let (connect_timeout, tcp_timeout) = (Duration::from_secs(10), Duration::from_secs(1200));
        Self { connect_timeout, tcp_timeout, findings: Box::default() }
    }
}

/// Reads the annotations of a builder; `None` if there are none.
pub(in crate::project) fn of_builder(annotations: &Annotations<'_>, findings: &mut FindingList) -> Option<DeisBuilder> {
    let mut builder = Builder::default();
    read(OF_BUILDER, BUILDER, &mut builder, annotations, findings);
    let usual = DeisBuilder::default();
    let is_there = builder != Builder::default() || !findings.is_empty();
    is_there.then(|| DeisBuilder {
        connect_timeout: builder.connect_timeout.unwrap_or(usual.connect_timeout),
        tcp_timeout: builder.tcp_timeout.unwrap_or(usual.tcp_timeout),
        findings: Box::default(),
    })
}

/// Reads the annotations of an application.
pub(in crate::project) fn of_app(
    age: Age,
    label: Option<&str>,
    annotations: &Annotations<'_>,
    compiling: Compiling<'_>,
    findings: &mut FindingList,
) -> DeisApp {
    let name = label.unwrap_or(&age.name.name);
    let namespace = &age.name.namespace;
    let log_name = if *name == **namespace { name.into() } else { format!("{namespace}/{name}").into() };
    let mut app = App::default();
    let fallbacks = read(OF_APP, APP, &mut app, annotations, findings);
    let whitelist = app.whitelist.map_or(Whitelist::None, |networks| Whitelist::Networks(networks.into()));
    let domains = domains(app.domains.as_deref(), findings);
    let expression = expression(age.created_s, &domains, app.regex_domain.as_deref(), compiling, findings);
    let certificates = certificates(app.certificates.as_deref().unwrap_or_default(), &age.name, findings);
    let locations = locations(app.proxy_domain.as_deref(), app.proxy_locations.as_deref(), compiling, findings);
    DeisApp {
        age,
        log_name,
        domains,
        expression,
        certificates,
        locations,
        whitelist: if fallbacks.closed { Whitelist::Closed } else { whitelist },
        connect_timeout: app.connect_timeout.unwrap_or(CONNECT_TIMEOUT),
        tcp_timeout: app.tcp_timeout,
        ssl_enforce: app.ssl_enforce.unwrap_or_default() || fallbacks.redirected,
        maintenance: app.maintenance.unwrap_or_default(),
        no_request_start: app.no_request_start.unwrap_or_default(),
        referrer_policy: app.referrer_policy,
        policy: None,
        findings: Box::default(),
    }
}

/// The entries of a comma-separated list; a list that is too long is cut, with a finding.
fn bounded<'l>(list: &'l str, field: &str, findings: &mut FindingList) -> Vec<&'l str> {
    let mut all: Vec<&str> = entries(list).collect();
    if let Some(entry) = all.get(LIST_MAX) {
        findings.dropped(field, entry, format_args!("exceeds the limit of {LIST_MAX} entries"));
    }
    all.truncate(LIST_MAX);
    all
}

/// The domains that can be read, each once. An invalid domain does not affect the others.
fn domains(list: Option<&str>, findings: &mut FindingList) -> Box<[DeisDomain]> {
    let field = annotation_field("router.deis.io/domains");
    let Some(list) = list else {
        findings.no_host(&field, "is missing, although the Service is labelled routable");
        return Box::default();
    };
    let mut domains = BTreeSet::new();
    for entry in bounded(list, &field, findings) {
        match domain(entry) {
            Ok(domain) => drop(domains.insert(domain)),
            Err(why) => findings.dropped(&field, entry, why),
        }
    }
    if domains.is_empty() {
        findings.no_host(&field, "names no valid domain");
    }
    domains.into_iter().collect()
}

fn certificates(list: &str, app: &ObjectName, findings: &mut FindingList) -> Box<[(Arc<str>, ObjectName)]> {
    let field = annotation_field("router.deis.io/certificates");
    let mut certificates = BTreeMap::new();
    for entry in bounded(list, &field, findings) {
        match certificate(entry) {
            // The first of two entries for one domain counts.
            Ok((domain, name)) => {
                certificates.entry(domain).or_insert_with(|| app.beside(format!("{name}-cert")));
            }
            Err(why) => findings.dropped(&field, entry, why),
        }
    }
    certificates.into_iter().collect()
}

/// Paths on another application's host. An invalid path does not affect the others.
fn locations(
    other: Option<&str>,
    paths: Option<&str>,
    compiling: Compiling<'_>,
    findings: &mut FindingList,
) -> Option<DeisLocations> {
    let [of_domain, of_paths] = ["router.deis.io/proxyDomain", PROXY_LOCATIONS].map(annotation_field);
    let (other, list) = match (other, paths) {
        (Some(other), Some(paths)) => (other, paths),
        (Some(other), None) => {
            findings.without_effect(&of_domain, other, "there are no proxyLocations");
            return None;
        }
        (None, Some(paths)) => {
            findings.without_effect(&of_paths, paths, "there is no proxyDomain");
            return None;
        }
        (None, None) => return None,
    };
    let domain = domain(other).map_err(|why| findings.dropped(&of_domain, other, why)).ok()?;
    let mut paths: Vec<PathMatch> = Vec::new();
    let mut expressions = Expressions::new(EXPRESSIONS_MAX, compiling);
    for entry in bounded(list, &of_paths, findings) {
        match location(entry, &mut expressions) {
            Ok(path) if paths.contains(&path) => {}
            Ok(path) => paths.push(path),
            Err(why) => findings.dropped(&of_paths, entry, why),
        }
    }
    (!paths.is_empty()).then(|| DeisLocations { domain, paths: paths.into() })
}

/// The values of the router's annotations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Router {
    pub(super) platform_domain: Option<Arc<str>>,
    pub(super) default_timeout: Option<Duration>,
    pub(super) body_size: Option<u64>,
    pub(super) default_whitelist: Option<Box<[IpNet]>>,
    pub(super) whitelist_override: Option<bool>,
    pub(super) enforce_whitelists: Option<bool>,
    pub(super) ssl_enforce: Option<bool>,
    pub(super) hsts: Option<bool>,
    pub(super) hsts_max_age_s: Option<u64>,
    pub(super) hsts_subdomains: Option<bool>,
    pub(super) hsts_preload: Option<bool>,
    pub(super) request_ids: Option<bool>,
    pub(super) request_start: Option<bool>,
    pub(super) referrer_policy: Option<&'static str>,
    pub(super) trusted_proxies: Option<Box<[IpNet]>>,
    pub(super) default_service: DefaultService,
    pub(super) regex_domains: Option<bool>,
    pub(super) edge: Edge,
    pub(super) gzip: Gzip,
}

/// Reads the annotations of the router's Deployment.
pub(in crate::project) fn of_router(annotations: &Annotations<'_>, findings: &mut FindingList) -> DeisRouter {
    let mut router = Router::default();
    let fallbacks = read(OF_ROUTER, &OF_DEPLOYMENT, &mut router, annotations, findings);
    let dropped = |key: &str| fallbacks.dropped.iter().any(|it| it == key);
    let hsts = hsts(&router);
    let whitelist = router.default_whitelist.map_or(Whitelist::None, |networks| Whitelist::Networks(networks.into()));
    DeisRouter {
        platform_domain: router.platform_domain,
        default_timeout: router.default_timeout.unwrap_or(DEFAULT_TIMEOUT),
        body_bytes_max: router.body_size.unwrap_or(BODY_BYTES_MAX),
        default_whitelist: if fallbacks.closed { Whitelist::Closed } else { whitelist },
        // If the mode cannot be read, the default list does not extend an application's own.
        whitelist_override: router.whitelist_override.unwrap_or(dropped("whitelistMode")),
        enforce_whitelists: router.enforce_whitelists.unwrap_or_default() || fallbacks.enforced,
        ssl_enforce: router.ssl_enforce.unwrap_or_default() || router.hsts.unwrap_or_default() || fallbacks.redirected,
        hsts,
        request_ids: router.request_ids.unwrap_or_default(),
        request_start: router.request_start.unwrap_or_default(),
        referrer_policy: router.referrer_policy,
        // A list that cannot be read trusts no peer.
        trusted_proxies: router
            .trusted_proxies
            .or_else(|| dropped("proxyRealIpCidrs").then(Box::default))
            .map(Into::into),
        default_service: router.default_service.settings(findings),
        regex_domains: router.regex_domains.unwrap_or_default(),
        edge: router.edge.settings(findings),
        compression: router.gzip.compression(),
    }
}

/// The value of `Strict-Transport-Security` (RFC 6797, section 6.1), if it is sent.
fn hsts(router: &Router) -> Option<Arc<str>> {
    let on = |flag: Option<bool>, text| if flag == Some(true) { text } else { "" };
    let max_age = router.hsts_max_age_s.unwrap_or(HSTS_MAX_AGE_S);
    let [subdomains, preload] =
        [on(router.hsts_subdomains, "; includeSubDomains"), on(router.hsts_preload, "; preload")];
    (router.hsts == Some(true)).then(|| format!("max-age={max_age}{subdomains}{preload}").into())
}

impl DeisRouter {
    /// The clients that may use an application with a list of its own: all, if neither has one and none is required.
    #[must_use]
    pub fn whitelist(&self, own: &Whitelist) -> Whitelist {
        match (own, &self.default_whitelist) {
            (Whitelist::Closed, _) => Whitelist::Closed,
            (Whitelist::None, Whitelist::None) if self.enforce_whitelists => Whitelist::Closed,
            (Whitelist::None, default) => default.clone(),
            (own, Whitelist::None) => own.clone(),
            (own, _) if self.whitelist_override => own.clone(),
            // The default list, which would extend this one, cannot be read: the application's own list holds.
            (own, Whitelist::Closed) => own.clone(),
            (Whitelist::Networks(own), Whitelist::Networks(default)) => {
                Whitelist::Networks(default.iter().chain(own.iter()).copied().collect())
            }
        }
    }
}
