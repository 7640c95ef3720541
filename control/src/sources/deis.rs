//! The Deis router: each Service with the label `router.deis.io/routable=true` is an application, which claims its
//! domains. The annotations of the router's own Deployment are the defaults for all applications.

mod builder;
mod reader;
mod router;
mod service;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::header::{REFERRER_POLICY, STRICT_TRANSPORT_SECURITY};
use http::{HeaderName, HeaderValue};
use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{
    Action, Certificate, DirectResponse, Filter, ForwardedFor, Guard, HeaderEdits, HostPattern, ListenerName, Origin,
    PathMatch, RequestIds, ResponseEdits, ResponseScope, Route, ScopeId, Settings, VirtualHost, WeightedTarget,
};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::gateway::Unreadable;
use tidegate_config::project::{BackendRef, DeisApp, DeisDomain, DeisLocations, DeisRouter, PortRef, Whitelist};

pub(super) use router::attach_router;
pub(super) use service::attach_service;

use super::reader::Reader;
use super::spec::SourceSpec;
use crate::attachment::{Attachment, Claim, ClaimTerms, Report, Verdict};
use crate::options::{Deis, Options};

/// Services as applications, and the Deployment of their router. Every application depends on that one.
pub(super) const SPEC: SourceSpec = SourceSpec {
    enabled: |options| options.sources.deis.is_some(),
    kinds: &[Kind::Deployment],
    required: &[],
    beside: None,
    by_name: &[Kind::Deployment],
    class: Some((Kind::Service, Kind::Deployment)),
    anywhere,
    attached_if_missing: |options| {
        Some(ObjectRef::new(Kind::Deployment, options.sources.deis.as_ref()?.router.clone()))
    },
    service_label: Some("router.deis.io/routable=true"),
};

/// The builder, and the certificate of the platform.
#[allow(clippy::wildcard_enum_match_arm, reason = "it names objects of few kinds")]
fn anywhere(kind: Kind, options: &Options) -> Vec<ObjectName> {
    let Some(Deis { router, builder }) = &options.sources.deis else { return Vec::new() };
    match kind {
        Kind::Secret => vec![Deis::platform_certificate(router)],
        Kind::Service | Kind::EndpointSlice => builder.iter().map(|(builder, _)| builder.clone()).collect(),
        _ => Vec::new(),
    }
}

/// The port of an application's Service.
const PORT: u16 = 80;

/// The status of the redirect to https.
const TLS_REDIRECT_STATUS: u16 = 301;

/// The statuses of responses with a `Referrer-Policy`: those that nginx adds headers to.
const REFERRER_STATUSES: [u16; 10] = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308];

/// The response of an application in maintenance.
static MAINTENANCE: LazyLock<Arc<DirectResponse>> = LazyLock::new(|| {
    let page = "<!DOCTYPE html>\n<title>Site Maintenance</title>\n<h1>This site is down for maintenance.</h1>\n";
    Arc::new(DirectResponse {
        status: 503,
        headers: Box::default(),
        content_type: Some(HeaderValue::from_static("text/html; charset=utf-8")),
        body: page.as_bytes().into(),
    })
});

const DOMAINS: &str = "metadata.annotations[router.deis.io/domains]";
/// The limit of an application's paths on all hosts of another one together.
const LOCATIONS_MAX: usize = 4096;

const REGEX_DOMAIN: &str = "metadata.annotations[router.deis.io/regexDomain]";
const PROXY_DOMAIN: &str = "metadata.annotations[router.deis.io/proxyDomain]";
const CERTIFICATES: &str = "metadata.annotations[router.deis.io/certificates]";
const LOCATIONS: &str = "metadata.annotations[router.deis.io/proxyLocations]";

/// The scope of all applications.
fn scope() -> ScopeId {
    ScopeId("deis".into())
}

/// The default settings of applications.
fn shared(router: &DeisRouter) -> Settings {
    let settings = Settings {
        body_bytes_max: Some(router.body_bytes_max),
        request_ids: router.request_ids.then_some(RequestIds::Correlated),
        request_start: router.request_start.then_some(true),
        // The Deis router passed a single address on to applications, that of the client.
        forwarded_for: Some(ForwardedFor::Replace),
        compression: router.compression.clone(),
        ..Settings::default()
    };
    between_bytes(router.default_timeout, settings)
}

/// The single timeout of the Deis router applies to reads, writes and upgraded connections.
fn between_bytes(timeout: Duration, settings: Settings) -> Settings {
    let timeout = Some(timeout);
    Settings { read_timeout: timeout, write_timeout: timeout, tunnel_idle_timeout: timeout, ..settings }
}

/// Attaches an application. `router` is the Deployment of the Deis router.
fn attach(reader: &mut Reader<'_>, object: &ObjectRef, app: &DeisApp, router: &ObjectName) -> Attachment {
    let found = reader.deis_router(router);
    let is_there = found.is_some();
    let settings = found.cloned().unwrap_or_default();
    let findings = reader.world().findings_of(object).iter().chain(&app.findings).cloned().collect();
    let mut claims = Claims { reader, object, app, router, settings: &settings, is_there, findings };
    if !is_there {
        let problem = Problem::RouterMissing { router: router.to_string() };
        claims.findings.push(Finding::new(object.clone(), "", problem));
    }
    if app.expression.is_some() && !settings.regex_domains {
        let why = "the router's Deployment does not have enableRegexDomains".to_owned();
        let problem = Problem::WithoutEffect { value: "regexDomain".to_owned(), why };
        claims.findings.push(Finding::new(object.clone(), REGEX_DOMAIN, problem));
    }
    let action = claims.action();
    let route = claims.route(app, &action);
    let mut all: BTreeMap<VirtualHost, Claim> = BTreeMap::new();
    for domain in &app.domains {
        let claim = claims.of(domain, &route);
        // A short name may resolve to a domain that is also listed; the one with a certificate serves both HTTP and
        // HTTPS.
        let has_certificate = !claim.certificates.is_empty();
        match all.entry(claim.host.clone()) {
            Entry::Vacant(entry) => drop(entry.insert(claim)),
            Entry::Occupied(mut entry) if has_certificate => drop(entry.insert(claim)),
            Entry::Occupied(_) => {}
        }
    }
    if let Some(locations) = app.locations.as_ref().filter(|_| !all.is_empty()) {
        for claim in claims.on_other_hosts(locations, &action).into_values() {
            match all.entry(claim.host.clone()) {
                Entry::Vacant(entry) => drop(entry.insert(claim)),
                Entry::Occupied(mut entry) => {
                    let own = entry.get_mut();
                    let routes = [&*own.routes, &*claim.routes].concat().into();
                    own.terms = Arc::new(ClaimTerms { routes, ..ClaimTerms::clone(&own.terms) });
                }
            }
        }
    }
    let parent = (!all.is_empty()).then(|| router.to_string().into());
    let report = Report { verdict: Some(parent.map_or(Verdict::Others, Verdict::Served)), findings: claims.findings };
    let claims = all.into_values().collect();
    let mut attachment = Attachment { claims, report: report.unless_empty(), ..Attachment::default() };
    if let Some(Ok(policy)) = &app.policy {
        reader.add_named_policies(object, policy, &mut attachment);
    }
    attachment
}

/// State for making the claims of one application.
struct Claims<'a, 'w> {
    reader: &'a mut Reader<'w>,
    object: &'a ObjectRef,
    app: &'a DeisApp,
    router: &'a ObjectName,
    /// The settings of the router's Deployment, or the defaults of the router.
    settings: &'a DeisRouter,
    /// Whether that Deployment, and so the scope, exists.
    is_there: bool,
    findings: Vec<Finding>,
}

impl Claims<'_, '_> {
    /// A domain without a certificate is served over plain HTTP only, as by the Deis router: a request over TLS must
    /// not get another tenant's certificate.
    fn of(&mut self, domain: &DeisDomain, route: &Route) -> Claim {
        let host = host(self.app, domain, self.settings);
        let HostCertificate { certificate, over_tls, missing } = self.certificate(self.app, domain, &host);
        let route = Route { guards: guards(over_tls, &route.guards), ..route.clone() };
        let terms = ClaimTerms {
            object: self.object.clone(),
            age: self.app.age.clone(),
            field: DOMAINS,
            routes: [Arc::new(route)].into(),
            fallback: None,
            last_resort: false,
            guest: false,
            certificates: certificate.into_iter().map(|certificate| (host.clone(), certificate)).collect(),
            missing: missing.into_iter().collect(),
        };
        Claim::new(host, terms)
    }

    /// The claims to the hosts of another application in the namespace: `domain` is one of its domains, and the paths
    /// apply to all of them.
    fn on_other_hosts(&mut self, locations: &DeisLocations, action: &Action) -> BTreeMap<VirtualHost, Claim> {
        let DeisLocations { domain, paths } = locations;
        let mut all = BTreeMap::new();
        let Some(other) = self.reader.deis_app(&self.app.age.name.namespace, domain) else {
            let why = "no application of this namespace lists that domain".to_owned();
            let problem = Problem::WithoutEffect { value: domain.to_string(), why };
            self.findings.push(Finding::new(self.object.clone(), PROXY_DOMAIN, problem));
            return all;
        };
        // The given domain first, in case there are too many.
        let domains = std::iter::once(domain).chain(other.domains.iter().filter(|other| *other != domain));
        let most = (LOCATIONS_MAX / paths.len().max(1)).max(1);
        if let Some(left_out) = domains.clone().nth(most) {
            let why =
                format!("with {} paths on each domain, more than {LOCATIONS_MAX} in all are not taken", paths.len());
            let problem = Problem::RuleDropped { value: left_out.to_string(), why };
            self.findings.push(Finding::new(self.object.clone(), PROXY_DOMAIN, problem));
        }
        let mut made: [Option<Box<[Arc<Route>]>>; 2] = [None, None];
        for domain in domains.take(most) {
            let pattern = host(other, domain, self.settings);
            let HostCertificate { over_tls, missing, .. } = self.certificate(other, domain, &pattern);
            let host = VirtualHost::from(pattern);
            let made = &mut made[usize::from(over_tls)];
            let routes = made.get_or_insert_with(|| self.routes_of(other, over_tls, paths, action)).clone();
            let terms = ClaimTerms {
                object: self.object.clone(),
                age: self.app.age.clone(),
                field: PROXY_DOMAIN,
                routes,
                fallback: None,
                last_resort: false,
                guest: true,
                certificates: Box::default(),
                missing: missing.into_iter().collect(),
            };
            let claim = Claim::new(host.clone(), terms);
            // As among the application's own domains: a claim over TLS wins.
            match all.entry(host) {
                Entry::Vacant(entry) => drop(entry.insert(claim)),
                Entry::Occupied(mut entry) if over_tls => drop(entry.insert(claim)),
                Entry::Occupied(_) => {}
            }
        }
        all
    }

    /// The routes of the paths on a host of another application, over TLS or not. The owner of the host decides on
    /// allowed clients and response headers, the owner of this application on the rest.
    fn routes_of(&self, other: &DeisApp, over_tls: bool, paths: &[PathMatch], action: &Action) -> Box<[Arc<Route>]> {
        let route = self.route(other, action);
        let guards = guards(over_tls, &route.guards);
        let routes = (1..).zip(paths).map(|(position, path)| {
            let origin = Origin { field: LOCATIONS.into(), position, ..(*route.origin).clone() };
            let (origin, path, guards) = (Arc::new(origin), path.clone(), Arc::clone(&guards));
            Arc::new(Route { origin, path, guards, ..route.clone() })
        });
        routes.collect()
    }

    /// The action for requests: forward them to the application, or the maintenance page.
    fn action(&mut self) -> Action {
        if self.app.maintenance {
            return Action::Respond(Arc::clone(&MAINTENANCE));
        }
        let backend = BackendRef { service: self.app.age.name.clone(), port: PortRef::Number(PORT) };
        let targets = match self.reader.target(&backend) {
            Ok(target) => vec![WeightedTarget::new(Arc::new(target), 1)],
            Err(problem) => {
                self.findings.push(Finding::new(self.object.clone(), "spec.ports", problem));
                Vec::new()
            }
        };
        Action::Forward(targets.into())
    }

    /// A route for all paths of a host, which is this application's own or another's.
    fn route(&self, of_host: &DeisApp, action: &Action) -> Route {
        let mut settings = if self.is_there { Settings::default() } else { shared(self.settings) };
        if let Some(timeout) = self.app.tcp_timeout {
            settings = between_bytes(timeout, settings);
        }
        settings.connect_timeout = Some(self.app.connect_timeout);
        if of_host.no_request_start {
            settings.request_start = Some(false);
        }
        let field = DOMAINS.into();
        let origin = Origin { object: self.object.clone(), age: self.app.age.clone(), field, position: 0 };
        Route {
            log_name: Some(Arc::clone(&of_host.log_name)),
            guards: self.guards(&of_host.whitelist),
            filters: self.filters(of_host),
            settings: Arc::new(settings),
            scopes: [scope()].into(),
            ..Route::new(origin, PathMatch::Prefix("".into()), action.clone())
        }
    }

    /// The guards of a host; the allowed clients come first.
    fn guards(&self, own: &Whitelist) -> Arc<[Guard]> {
        let whitelist = match self.settings.whitelist(own) {
            // Without the Deployment the allowed clients are unknown, and without the name of a policy its limits.
            _ if !self.is_there || matches!(self.app.policy, Some(Err(Unreadable))) => Some(Guard::DenyAll),
            Whitelist::None => None,
            Whitelist::Networks(networks) => Some(Guard::AllowSources(networks.iter().copied().collect())),
            Whitelist::Closed => Some(Guard::DenyAll),
        };
        // The maintenance page is served over plain HTTP as well.
        let enforce = (self.app.ssl_enforce || self.settings.ssl_enforce) && !self.app.maintenance;
        // No redirect without endpoints.
        let redirect = [Guard::RequireEndpoints, Guard::RequireTls { status: TLS_REDIRECT_STATUS }];
        whitelist.into_iter().chain(redirect.into_iter().filter(|_| enforce)).collect()
    }

    /// Headers added to responses of a host from the application.
    fn filters(&self, of_host: &DeisApp) -> Arc<[Filter]> {
        let added = |name: HeaderName, value: &str| {
            let value = HeaderValue::from_str(value).ok()?;
            Some(HeaderEdits { add: [(name, value)].into(), ..HeaderEdits::default() })
        };
        let scope = ResponseScope::Backed;
        let policy = of_host.referrer_policy.or(self.settings.referrer_policy).filter(|policy| *policy != "none");
        let policy = policy.and_then(|policy| added(REFERRER_POLICY, policy));
        let policy =
            policy.map(|edits| ResponseEdits { edits, scope, statuses: REFERRER_STATUSES.into(), secure_only: false });
        let hsts = self.settings.hsts.as_deref().and_then(|hsts| added(STRICT_TRANSPORT_SECURITY, hsts));
        let hsts = hsts.map(|edits| ResponseEdits { edits, scope, statuses: Box::default(), secure_only: true });
        policy.into_iter().chain(hsts).map(Filter::ResponseHeaders).collect()
    }

    /// The certificate for a domain of an application: the mapped one, if it exists; otherwise that of the platform,
    /// for short names only.
    fn certificate(&mut self, app: &DeisApp, domain: &DeisDomain, host: &HostPattern) -> HostCertificate {
        let listed = domain.to_string();
        let mapped = app.certificates.binary_search_by(|(of, _)| (**of).cmp(&*listed)).ok();
        let mapped = mapped.and_then(|index| app.certificates.get(index)).map(|(_, secret)| secret);
        let (mut missing, mut broken) = (None, false);
        if let Some(secret) = mapped {
            match self.reader.secret(secret) {
                Some(Ok(certificate)) => {
                    return HostCertificate {
                        certificate: Some(Arc::clone(certificate)),
                        over_tls: true,
                        missing: None,
                    };
                }
                Some(Err(fault)) => {
                    broken = true;
                    // The owner of the other application gets this finding.
                    if app == self.app {
                        let problem = Problem::CertificateBroken { secret: secret.to_string(), why: fault.to_string() };
                        self.findings.push(Finding::new(self.object.clone(), CERTIFICATES, problem));
                    }
                }
                // The platform leaves mappings behind to Secrets that it has deleted.
                None => missing = Some(ObjectRef::new(Kind::Secret, secret.clone())),
            }
        }
        let short = matches!(domain, DeisDomain::Short(_)) && !matches!(host, HostPattern::FirstLabel(_));
        let platform = Deis::platform_certificate(self.router);
        let platform = if short { self.reader.secret(&platform).and_then(|it| it.as_ref().ok()) } else { None };
        // If the mapped one is unusable, clients get the default certificate: the host stays available over TLS.
        HostCertificate { certificate: platform.cloned(), over_tls: platform.is_some() || broken, missing }
    }
}

/// The result of the search for a host's certificate.
struct HostCertificate {
    certificate: Option<Arc<Certificate>>,
    /// Whether the host is served over TLS.
    over_tls: bool,
    /// The missing Secret that the domain is mapped to.
    missing: Option<ObjectRef>,
}

/// The host of a domain of an application. A short name is a subdomain of the platform's domain; without one, it stands
/// for every host whose first label it is.
fn host(app: &DeisApp, domain: &DeisDomain, router: &DeisRouter) -> HostPattern {
    let expression = app.expression.as_ref().filter(|it| router.regex_domains && it.domains.contains(domain));
    if let Some(expression) = expression {
        return HostPattern::Expression(expression.host.clone());
    }
    match (domain, &router.platform_domain) {
        (DeisDomain::Full(pattern), _) => pattern.clone(),
        (DeisDomain::Short(name), Some(platform)) => HostPattern::Exact(format!("{name}.{platform}").into()),
        (DeisDomain::Short(name), None) => HostPattern::FirstLabel(Arc::clone(name)),
    }
}

/// The guards of a route on a host with or without TLS. Without, a request over TLS is not served by another route
/// either.
fn guards(over_tls: bool, guards: &Arc<[Guard]>) -> Arc<[Guard]> {
    if over_tls {
        return Arc::clone(guards);
    }
    let plain = Guard::Listeners([ListenerName("http".into())].into());
    std::iter::once(plain).chain(guards.iter().cloned()).collect()
}
