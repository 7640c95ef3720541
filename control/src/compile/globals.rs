//! Settings for every route and every handshake, unless a narrower scope overrides them.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};
use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{Certificate, EdgeSettings, Settings, SnapshotParts};
use tidegate_config::object::{Kind as Object, ObjectRef};

use super::unit::{Kind, Unit};
use super::{Compiled, Inputs, Pass};
use crate::options::{Deis, Options};

/// The parts of a snapshot that are global.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Globals {
    /// The certificate for server names without another one.
    default_certificate: Option<Arc<Certificate>>,
    /// The settings of routes that set none.
    defaults: Arc<Settings>,
    /// Peers whose forwarded headers are trusted.
    trusted_proxies: Arc<[IpNet]>,
    /// Settings of all clients and all connections.
    edge: Arc<EdgeSettings>,
}

/// The peers that the Deis router trusts if its Deployment names none.
static DEIS_PROXIES: [IpNet; 1] = [IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8))];

/// The compiled form.
pub(super) struct Made {
    globals: Globals,
    findings: Vec<Finding>,
}

/// The global part of a snapshot: one unit.
pub(super) struct GlobalSettings;

impl Kind for GlobalSettings {
    type Key = ();
    type Made = Made;
    const LABEL: &'static str = "globals";
    const ROUTING: bool = true;

    fn after(last: Option<&()>, _: Inputs<'_>, _: &Compiled) -> Option<()> {
        last.is_none().then_some(())
    }

    fn made_of(inputs: Inputs<'_>, (): &()) -> Vec<ObjectRef> {
        reads(inputs.options).collect()
    }

    fn make(inputs: Inputs<'_>, _: &Compiled, (): &()) -> Made {
        let mut findings = Vec::new();
        let globals = Globals {
            default_certificate: default_certificate(inputs, &mut findings),
            defaults: Arc::clone(&inputs.options.defaults),
            trusted_proxies: trusted_proxies(inputs),
            edge: edge(inputs),
        };
        Made { globals, findings }
    }

    fn put(compiled: &mut Compiled, (): &(), Made { globals, findings }: Made, _: &mut Pass<'_>) -> bool {
        compiled.findings.put(Unit::Globals(()), findings);
        let differ = of(&compiled.parts) != globals;
        if differ {
            let Globals { default_certificate, defaults, trusted_proxies, edge } = globals;
            let parts = &mut compiled.parts;
            (parts.default_certificate, parts.defaults) = (default_certificate, defaults);
            (parts.trusted_proxies, parts.edge) = (trusted_proxies, edge);
        }
        differ
    }

    fn serves((): &(), compiled: &Compiled, serving: &SnapshotParts) -> bool {
        of(serving) == of(&compiled.parts)
    }

    fn only_in(_: &SnapshotParts, _: &SnapshotParts) -> Vec<()> {
        Vec::new()
    }

    fn unlike(one: &SnapshotParts, other: &SnapshotParts) -> Vec<()> {
        if of(one) == of(other) { Vec::new() } else { vec![()] }
    }

    fn describe((): &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the global settings")
    }
}

/// The objects that the unit depends on.
pub(crate) fn reads(options: &Options) -> impl Iterator<Item = ObjectRef> {
    let certificate = options.default_certificate.iter();
    let certificate = certificate.map(|secret| ObjectRef::new(Object::Secret, secret.clone()));
    let deis = options.sources.deis.iter().flat_map(|deis| {
        let platform = Deis::platform_certificate(&deis.router);
        [ObjectRef::new(Object::Deployment, deis.router.clone()), ObjectRef::new(Object::Secret, platform)]
    });
    certificate.chain(deis)
}

/// The peers that the operator names, and those of the Deis router, if there is one.
fn trusted_proxies(inputs: Inputs<'_>) -> Arc<[IpNet]> {
    let named = &inputs.options.trusted_proxies;
    let Some(deis) = &inputs.options.sources.deis else { return Arc::clone(named) };
    let router = inputs.world.deployments.get(&deis.router).and_then(|it| it.router.trusted_proxies.as_deref());
    let mut all: Vec<IpNet> = named.iter().chain(router.unwrap_or(&DEIS_PROXIES)).copied().collect();
    all.sort_unstable();
    all.dedup();
    all.into()
}

/// The operator's settings, overridden or extended by those of the Deis router's Deployment.
fn edge(Inputs { world, options, .. }: Inputs<'_>) -> Arc<EdgeSettings> {
    let router = options.sources.deis.as_ref().and_then(|deis| world.deployments.get(&deis.router));
    let Some(deis) = router.map(|deployment| &deployment.router.edge) else { return Arc::clone(&options.edge) };
    let own = &options.edge;
    Arc::new(EdgeSettings {
        proxy_protocol: own.proxy_protocol || deis.proxy_protocol,
        log_format: deis.log_format.clone().or_else(|| own.log_format.clone()),
        ..deis.clone()
    })
}

fn default_certificate(inputs: Inputs<'_>, findings: &mut Vec<Finding>) -> Option<Arc<Certificate>> {
    let Some(name) = inputs.options.default_certificate.as_ref() else {
        // That of a Deis platform is the fallback; it need not exist.
        let platform = Deis::platform_certificate(&inputs.options.sources.deis.as_ref()?.router);
        return inputs.world.secrets.get(&platform)?.certificate.as_ref().ok().cloned();
    };
    let problem = match inputs.world.secrets.get(name).map(|secret| &secret.certificate) {
        Some(Ok(certificate)) => return Some(Arc::clone(certificate)),
        None => Problem::CertificateMissing { secret: name.to_string(), host: "every other host".to_owned() },
        Some(Err(fault)) => Problem::CertificateBroken { secret: name.to_string(), why: fault.to_string() },
    };
    findings.push(Finding::new(ObjectRef::new(Object::Secret, name.clone()), "data", problem));
    None
}

fn of(parts: &SnapshotParts) -> Globals {
    Globals {
        default_certificate: parts.default_certificate.clone(),
        defaults: Arc::clone(&parts.defaults),
        trusted_proxies: Arc::clone(&parts.trusted_proxies),
        edge: Arc::clone(&parts.edge),
    }
}
