//! Settings for every route and every handshake, unless a narrower scope overrides them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;
use tidegate_config::model::{Certificate, EdgeSettings, Settings, SnapshotParts};
use tidegate_config::object::ObjectRef;

use super::unit::UnitKind;
use super::{Compiled, Inputs, Pass};
use crate::attachment::Attachment;
use crate::topology::Topology;

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

/// The global part of a snapshot: one unit.
pub(super) struct GlobalSettings;

impl UnitKind for GlobalSettings {
    type Key = ();
    type Output = Globals;
    const LABEL: &'static str = "globals";
    const ROUTING: bool = true;

    fn after(last: Option<&()>, _: Inputs<'_>, _: &Compiled) -> Option<()> {
        last.is_none().then_some(())
    }

    fn owners_of(inputs: Inputs<'_>, (): &()) -> Vec<ObjectRef> {
        inputs.topology.globals().map(|(object, _)| object.clone()).collect()
    }

    fn make(inputs: Inputs<'_>, _: &Compiled, (): &()) -> Globals {
        Globals {
            default_certificate: default_certificate(inputs.topology),
            defaults: Arc::clone(&inputs.options.defaults),
            trusted_proxies: trusted_proxies(inputs),
            edge: edge(inputs),
        }
    }

    fn put(compiled: &mut Compiled, (): &(), globals: Globals, _: &mut Pass<'_>) -> bool {
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

    fn changed_between(one: &SnapshotParts, other: &SnapshotParts) -> Vec<()> {
        if of(one) == of(other) { Vec::new() } else { vec![()] }
    }

    fn differing(_: &ObjectRef, before: &Attachment, after: &Attachment) -> Vec<()> {
        if before.other_claims().globals == after.other_claims().globals { Vec::new() } else { vec![()] }
    }

    fn describe((): &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the global settings")
    }
}

/// The certificate of the first object that provides one.
fn default_certificate(topology: &Topology) -> Option<Arc<Certificate>> {
    topology.globals().find_map(|(_, claim)| claim.certificate.clone())
}

/// The peers that the operator and the objects name.
fn trusted_proxies(Inputs { options, topology, .. }: Inputs<'_>) -> Arc<[IpNet]> {
    let mut all: BTreeSet<IpNet> = topology.globals().flat_map(|(_, claim)| &claim.trusted_proxies).copied().collect();
    if all.is_empty() {
        return Arc::clone(&options.trusted_proxies);
    }
    all.extend(options.trusted_proxies.iter());
    all.into_iter().collect()
}

/// The operator's settings, overridden by those of the first object that has some.
fn edge(Inputs { options, topology, .. }: Inputs<'_>) -> Arc<EdgeSettings> {
    let own = &options.edge;
    let Some(claimed) = topology.globals().find_map(|(_, claim)| claim.edge.as_ref()) else { return Arc::clone(own) };
    Arc::new(EdgeSettings {
        proxy_protocol: own.proxy_protocol || claimed.proxy_protocol,
        log_format: claimed.log_format.clone().or_else(|| own.log_format.clone()),
        ..claimed.clone()
    })
}

fn of(parts: &SnapshotParts) -> Globals {
    Globals {
        default_certificate: parts.default_certificate.clone(),
        defaults: Arc::clone(&parts.defaults),
        trusted_proxies: Arc::clone(&parts.trusted_proxies),
        edge: Arc::clone(&parts.edge),
    }
}
