//! One host: its routes and its certificates, from the Ingresses that claim it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{Certificate, HostPattern, HostRoutes, Route, ServerCertificates};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::Ingress;

use super::route;
use crate::options::{HostOwnership, Options};
use crate::world::World;

/// What is compiled of a host.
#[derive(Debug)]
pub struct HostUnit {
    /// Its routes and certificates, where anybody claims it.
    pub routes: Option<HostRoutes>,
    /// What the owners of its claimants should be told.
    pub findings: Vec<Finding>,
}

/// What is compiled of the default certificate.
pub(super) struct DefaultCertificate {
    pub(super) certificate: Option<Arc<Certificate>>,
    pub(super) findings: Vec<Finding>,
}

/// Compiles a host from the Ingresses of ours that claim it, in whatever order.
pub(super) fn compile(world: &World, options: &Options, host: &HostPattern, claims: &[&Arc<Ingress>]) -> HostUnit {
    let mut findings = Vec::new();
    let mut claims = claims.to_vec();
    claims.sort_by(|a, b| a.age.cmp(&b.age));
    let Some(oldest) = claims.first().map(|ingress| ingress.age.name.clone()) else {
        return HostUnit { routes: None, findings };
    };
    let shared = options.host_ownership == HostOwnership::Shared;
    claims.retain(|ingress| {
        let at_home = ingress.age.name.namespace == oldest.namespace;
        if !at_home {
            let owner = ObjectRef::new(Kind::Ingress, oldest.clone());
            let problem = Problem::HostOwned { host: host.to_string(), owner, shared };
            let by_rule = ingress.rules.of(host);
            let field = by_rule.map_or("spec.defaultBackend", |_| "spec.rules");
            findings.push(Finding::new(object(ingress), field, problem));
        }
        at_home || shared
    });
    let paths = paths(world, host, &claims, &mut findings);
    let (fallback, last_resort) = defaults(world, host, &claims, &mut findings);
    let mut routes = HostRoutes::new(host.clone(), settle_conflicts(host, paths, &mut findings), fallback);
    routes.last_resort = last_resort;
    routes.owner = (!shared).then(|| Arc::clone(&oldest.namespace));
    routes.certificates = certificates(world, host, &claims, &mut findings);
    HostUnit { routes: Some(routes), findings }
}

fn object(ingress: &Ingress) -> ObjectRef {
    ObjectRef::new(Kind::Ingress, ingress.age.name.clone())
}

fn paths(world: &World, host: &HostPattern, claims: &[&Arc<Ingress>], findings: &mut Vec<Finding>) -> Vec<Arc<Route>> {
    let mut routes = Vec::new();
    for ingress in claims {
        // Positions count among the paths of the host, so that they stay what they are when another host's rule changes.
        for (position, path) in (0u32..).zip(ingress.rules.of(host).into_iter().flat_map(|rule| &rule.paths)) {
            let (route, finding) = route::of_path(world, ingress, path, position);
            routes.push(Arc::new(route));
            findings.extend(finding);
        }
    }
    routes
}

/// Where requests go that no path takes: to the oldest default backend for the host itself; and for hosts of others
/// that have none, to the oldest one that stands alone in its object.
fn defaults(
    world: &World,
    host: &HostPattern,
    claims: &[&Arc<Ingress>],
    findings: &mut Vec<Finding>,
) -> (Option<Arc<Route>>, Option<Arc<Route>>) {
    let mut fallback: Option<Arc<Route>> = None;
    let mut last_resort: Option<Arc<Route>> = None;
    for ingress in claims {
        let Some(default) = &ingress.default_backend else { continue };
        if let Some(winner) = &fallback {
            let problem = Problem::DefaultLost { host: host.to_string(), winner: winner.origin.object.clone() };
            findings.push(Finding::new(object(ingress), "spec.defaultBackend", problem));
        }
        let last = default.alone && last_resort.is_none();
        if last || fallback.is_none() {
            let (route, finding) = route::of_default(world, ingress, default);
            let route = Arc::new(route);
            findings.extend(finding);
            last_resort = last_resort.or_else(|| last.then(|| Arc::clone(&route)));
            fallback.get_or_insert(route);
        }
    }
    (fallback, last_resort)
}

/// Of routes that take the same requests, the first in order of precedence stays: the oldest object's.
fn settle_conflicts(host: &HostPattern, mut routes: Vec<Arc<Route>>, findings: &mut Vec<Finding>) -> Vec<Arc<Route>> {
    routes.sort_by(|a, b| a.precedence().cmp(&b.precedence()));
    let mut kept: Vec<Arc<Route>> = Vec::with_capacity(routes.len());
    for route in routes {
        let rivals = kept.iter().rev().take_while(|rival| rival.path == route.path);
        match rivals.into_iter().find(|rival| rival.same_match(&route)) {
            None => kept.push(route),
            Some(winner) => {
                let path = route.path.to_string();
                let winner = winner.origin.object.clone();
                let problem = Problem::RuleLost { host: host.to_string(), path, winner };
                findings.push(Finding::new(route.origin.object.clone(), &*route.origin.field, problem));
            }
        }
    }
    kept
}

/// The usable certificates of the claimants, the oldest one's first, for the names that both a TLS entry and the host
/// stand for. Several may stand side by side, such as an ECDSA and an RSA one: the handshake takes the first that the
/// client can use.
fn certificates(
    world: &World,
    host: &HostPattern,
    claims: &[&Arc<Ingress>],
    findings: &mut Vec<Finding>,
) -> ServerCertificates {
    let mut by_name: BTreeMap<HostPattern, Vec<Arc<Certificate>>> = BTreeMap::new();
    for ingress in claims {
        for it in ingress.tls.of(host) {
            // Without a host it is for those of the rules.
            let asked = it.host.as_ref().unwrap_or(host);
            let Some(name) = asked.meet(host) else { continue };
            match certificate(world, &it.secret, asked, &name) {
                Ok(certificate) => {
                    let all = by_name.entry(name).or_default();
                    if !all.contains(&certificate) {
                        all.push(certificate);
                    }
                }
                Err(problem) => {
                    let finding = Finding::new(object(ingress), format!("{}.secretName", it.field()), problem);
                    // A broken Secret is so for each of the names below a wildcard.
                    if findings.last() != Some(&finding) {
                        findings.push(finding);
                    }
                }
            }
        }
    }
    ServerCertificates::new(by_name)
}

/// The certificate of a Secret for a name, which is that of a TLS entry or one below it.
fn certificate(
    world: &World,
    secret: &ObjectName,
    asked: &HostPattern,
    name: &HostPattern,
) -> Result<Arc<Certificate>, Problem> {
    let Some(found) = world.secrets.get(secret) else {
        return Err(Problem::CertificateMissing { secret: secret.to_string(), host: asked.to_string() });
    };
    match &found.certificate {
        Err(fault) => Err(Problem::CertificateBroken { secret: secret.to_string(), why: fault.to_string() }),
        Ok(certificate) if !certificate.covers(name) => {
            Err(Problem::CertificateElsewhere { secret: secret.to_string(), host: name.to_string() })
        }
        Ok(certificate) => Ok(Arc::clone(certificate)),
    }
}

/// The certificate that the operator named for all other server names.
pub(super) fn default_certificate(world: &World, options: &Options) -> DefaultCertificate {
    let Some(name) = &options.default_certificate else {
        return DefaultCertificate { certificate: None, findings: Vec::new() };
    };
    let problem = match world.secrets.get(name).map(|secret| &secret.certificate) {
        Some(Ok(certificate)) => {
            return DefaultCertificate { certificate: Some(Arc::clone(certificate)), findings: Vec::new() };
        }
        None => Problem::CertificateMissing { secret: name.to_string(), host: "every other host".to_owned() },
        Some(Err(fault)) => Problem::CertificateBroken { secret: name.to_string(), why: fault.to_string() },
    };
    let object = ObjectRef::new(Kind::Secret, name.clone());
    DefaultCertificate { certificate: None, findings: vec![Finding::new(object, "data", problem)] }
}
