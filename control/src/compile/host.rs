//! One host: its routes and its certificates, from the Ingresses that claim it.

use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{Certificate, HostPattern, HostRoutes, Route};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::{Ingress, TlsEntry};

use super::{class, route};
use crate::options::{HostOwnership, Options};
use crate::world::World;

/// What is compiled of a host.
#[derive(Debug)]
pub struct HostUnit {
    /// Its routes, where any rule names it.
    pub routes: Option<HostRoutes>,
    /// Its certificates, where any can be used.
    pub certificates: Option<Arc<[Arc<Certificate>]>>,
    /// What the owners of its claimants should be told.
    pub findings: Vec<Finding>,
}

/// What is compiled of the default certificate.
pub(super) struct DefaultCertificate {
    pub(super) certificate: Option<Arc<Certificate>>,
    pub(super) findings: Vec<Finding>,
}

/// Compiles a host from the Ingresses that claim it, whoever's they are and in whatever order.
pub(super) fn compile(world: &World, options: &Options, host: &HostPattern, claims: &[&Arc<Ingress>]) -> HostUnit {
    let mut ours: Vec<&Arc<Ingress>> =
        claims.iter().copied().filter(|ingress| class::is_ours(world, options, ingress)).collect();
    ours.sort_by(|a, b| a.age.cmp(&b.age));
    let mut findings = Vec::new();
    let ours = owners(options, host, ours, &mut findings);
    let routes = routes(world, host, &ours, &mut findings);
    let certificates = certificates(world, host, &ours, &mut findings);
    HostUnit { routes, certificates, findings }
}

/// Those whose claims are in effect: all, or those of the oldest one's namespace. The others are told.
fn owners<'a>(
    options: &Options,
    host: &HostPattern,
    claims: Vec<&'a Arc<Ingress>>,
    findings: &mut Vec<Finding>,
) -> Vec<&'a Arc<Ingress>> {
    let Some(oldest) = claims.iter().find(|ingress| claims_by_rule(ingress, host)).copied() else { return claims };
    let shared = options.host_ownership == HostOwnership::Shared;
    let at_home = |ingress: &&Arc<Ingress>| ingress.age.name.namespace == oldest.age.name.namespace;
    let (mut kept, strangers): (Vec<_>, Vec<_>) = claims.into_iter().partition(at_home);
    for stranger in &strangers {
        let owner = ObjectRef::new(Kind::Ingress, oldest.age.name.clone());
        let problem = Problem::HostOwned { host: host.to_string(), owner, shared };
        let field = if claims_by_rule(stranger, host) { "spec.rules" } else { "spec.tls" };
        findings.push(Finding::new(object(stranger), field, problem));
    }
    if shared {
        kept.extend(strangers);
        kept.sort_by(|a, b| a.age.cmp(&b.age));
    }
    kept
}

fn claims_by_rule(ingress: &Ingress, host: &HostPattern) -> bool {
    ingress.rules.iter().any(|rule| rule.host == *host) || catches_all(ingress) && *host == HostPattern::Any
}

/// Whether it has nothing but a default backend: that takes every host that nobody claims.
fn catches_all(ingress: &Ingress) -> bool {
    ingress.rules.is_empty() && ingress.default_backend.is_some()
}

fn object(ingress: &Ingress) -> ObjectRef {
    ObjectRef::new(Kind::Ingress, ingress.age.name.clone())
}

fn routes(
    world: &World,
    host: &HostPattern,
    claims: &[&Arc<Ingress>],
    findings: &mut Vec<Finding>,
) -> Option<HostRoutes> {
    let mut routes: Vec<Arc<Route>> = Vec::new();
    let mut fallback: Option<Arc<Route>> = None;
    let mut claimed = false;
    for ingress in claims.iter().filter(|ingress| claims_by_rule(ingress, host)) {
        claimed = true;
        // Positions count over the whole object, so that they stay what they are when another host's rule changes.
        let all = ingress.rules.iter().flat_map(|rule| rule.paths.iter().map(move |path| (&rule.host, path)));
        for (position, (_, path)) in (0u32..).zip(all).filter(|(_, (of, _))| *of == host) {
            let (route, finding) = route::compile(world, ingress, path, position);
            routes.push(Arc::new(route));
            findings.extend(finding);
        }
        match (&ingress.default_backend, &fallback) {
            (None, _) => {}
            (Some(backend), None) => {
                let (route, finding) = route::compile(world, ingress, backend, u32::MAX);
                fallback = Some(Arc::new(route));
                findings.extend(finding);
            }
            (Some(_), Some(winner)) => {
                let problem = Problem::DefaultLost { host: host.to_string(), winner: winner.origin.object.clone() };
                findings.push(Finding::new(object(ingress), "spec.defaultBackend", problem));
            }
        }
    }
    claimed.then(|| HostRoutes::new(host.clone(), settle_conflicts(host, routes, findings), fallback))
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
                let path = route.path.text().to_owned();
                let winner = winner.origin.object.clone();
                let problem = Problem::RuleLost { host: host.to_string(), path, winner };
                findings.push(Finding::new(route.origin.object.clone(), &*route.origin.field, problem));
            }
        }
    }
    kept
}

/// The usable certificates that TLS entries name for the host, the oldest object's first. Several may stand side
/// by side, such as an ECDSA and an RSA one: the handshake takes the first that the client can use.
fn certificates(
    world: &World,
    host: &HostPattern,
    claims: &[&Arc<Ingress>],
    findings: &mut Vec<Finding>,
) -> Option<Arc<[Arc<Certificate>]>> {
    let mut certificates: Vec<Arc<Certificate>> = Vec::new();
    for ingress in claims {
        for entry in ingress.tls.iter().filter(|entry| secures(ingress, entry, host)) {
            let Some(secret) = &entry.secret else { continue };
            let name = ObjectName::new(ingress.age.name.namespace.clone(), secret.clone());
            match certificate(world, &name, host) {
                Ok(certificate) if certificates.contains(&certificate) => {}
                Ok(certificate) => certificates.push(certificate),
                Err(problem) => {
                    findings.push(Finding::new(object(ingress), format!("{}.secretName", entry.field), problem));
                }
            }
        }
    }
    (!certificates.is_empty()).then(|| certificates.into())
}

/// Whether a TLS entry is for the host: it lists it, or lists none and a rule has it.
fn secures(ingress: &Ingress, entry: &TlsEntry, host: &HostPattern) -> bool {
    if entry.hosts.is_empty() {
        *host != HostPattern::Any && ingress.rules.iter().any(|rule| rule.host == *host)
    } else {
        entry.hosts.contains(host)
    }
}

fn certificate(world: &World, name: &ObjectName, host: &HostPattern) -> Result<Arc<Certificate>, Problem> {
    let secret = name.to_string();
    let Some(found) = world.secrets.get(name) else {
        return Err(Problem::CertificateMissing { secret, host: host.to_string() });
    };
    match &found.certificate {
        Err(fault) => Err(Problem::CertificateBroken { secret, why: fault.to_string() }),
        Ok(certificate) if !certificate.covers(host) => {
            Err(Problem::CertificateElsewhere { secret, host: host.to_string() })
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
