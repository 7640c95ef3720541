//! The operator's options of the control loop, and all its limits.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tidegate_config::model::{Binds, CaBundle, EdgeSettings, Settings, Transport};
use tidegate_config::object::{Kind, ObjectName};
use tidegate_config::project::PublicAddress;

pub use crate::addresses::AddressPolicy;
use crate::queue::LaneShares;
pub use crate::url_hosts::UrlHosts;

/// The options of the compiler.
#[derive(Clone, Debug)]
pub struct Options {
    /// The sources of routes.
    pub sources: Sources,
    /// The Secret of the certificate for server names without another one.
    pub default_certificate: Option<ObjectName>,
    /// The owner of a host that objects of several namespaces claim.
    pub host_ownership: HostOwnership,
    /// The addresses that objects may use.
    pub addresses: AddressPolicy,
    /// The certificate authorities that are trusted for URLs in policies, besides those of the system.
    pub policy_authorities: Option<CaBundle>,
    /// The hosts that URLs in policies may lead to.
    pub policy_url_hosts: UrlHosts,
    /// The sockets to listen on.
    pub binds: Binds,
    /// The settings of routes that set none.
    pub defaults: Arc<Settings>,
    /// The peers whose forwarded headers and PROXY headers are trusted.
    pub trusted_proxies: Arc<[IpNet]>,
    /// Settings of all clients and all connections, unless a source overrides them.
    pub edge: Arc<EdgeSettings>,
    /// The addresses for the status of Ingresses.
    pub publish: Publish,
    /// The way of reading Secrets.
    pub secrets: Secrets,
    /// Whether findings are written to the cluster as Events.
    pub events: bool,
    /// The pace of the loop.
    pub pace: Pace,
    /// The limits of the history.
    pub keep: Keep,
    /// A host with at most this number of claims and routes is compiled whole when one of them changes: that is faster,
    /// and needs no index.
    pub whole_host_max: usize,
}

impl Options {
    /// The sockets that the operator has chosen, which no object may have: the listeners', and the Deis builder's.
    pub(crate) fn own_sockets(&self) -> impl Iterator<Item = (SocketAddr, Transport)> {
        let builder = self.sources.deis.as_ref().and_then(|deis| deis.builder.as_ref());
        let listeners = self.binds.iter().map(|bind| (bind.key.address, bind.key.transport()));
        listeners.chain(builder.map(|(_, address)| (*address, Transport::Tcp)))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sources: Sources::default(),
            default_certificate: None,
            host_ownership: HostOwnership::default(),
            addresses: AddressPolicy::default(),
            policy_authorities: None,
            policy_url_hosts: UrlHosts::default(),
            binds: Binds::default(),
            defaults: Arc::default(),
            trusted_proxies: Arc::default(),
            edge: Arc::default(),
            publish: Publish::default(),
            secrets: Secrets::default(),
            events: true,
            pace: Pace::default(),
            keep: Keep::default(),
            whole_host_max: 16,
        }
    }
}

/// The sources of routes. Several at once are normal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sources {
    /// Ingresses of our classes.
    pub ingress: Option<Ingresses>,
    /// Services with the label `router.deis.io/routable=true`, and the Deployment of the Deis router, whose annotations
    /// apply to all of them.
    pub deis: Option<Deis>,
    /// Gateways and routes of the Gateway API.
    pub gateway: Option<GatewayApi>,
    /// Kuadrant's policies for them.
    pub kuadrant: Option<Kuadrant>,
}

/// The options of Kuadrant's policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kuadrant {
    /// Whether the source is enabled by default only: if the definitions may not be read, nothing waits for its kinds.
    pub optional: bool,
}

/// The options of Ingresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ingresses {
    /// The name of our IngressClass: compared with the old annotation, and used while IngressClasses cannot be read.
    pub class: Arc<str>,
    /// `spec.controller` of the IngressClasses that are ours.
    pub controller: Arc<str>,
}

impl Default for Ingresses {
    fn default() -> Self {
        Self { class: "tidegate".into(), controller: "tidegate.io/ingress".into() }
    }
}

/// The options of the Gateway API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayApi {
    /// `spec.controllerName` of the GatewayClasses that are ours.
    pub controller: Arc<str>,
    /// The addresses for Gateways, one for each, the first ones first. None are needed if Services lead to the edge's
    /// pods.
    pub addresses: Arc<[IpAddr]>,
    /// The Services that are created for Gateways.
    pub services: GatewayServices,
    /// Whether the source is enabled by default only: if the definitions may not be read, it is disabled.
    pub optional: bool,
}

/// The Services that are created for Gateways, one for each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum GatewayServices {
    /// None.
    #[default]
    Off,
    /// Headless ones, which give the addresses of a Gateway a DNS name.
    Headless,
    /// Services that lead to ports of the edge's pods, which belong to the Gateway alone. Their addresses are those of
    /// the Gateway.
    ToPods(ToPods),
}

/// The Services that lead to the edge's pods.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToPods {
    /// Their type.
    pub kind: ServiceType,
    /// The Service whose endpoints are the edge's pods.
    pub edge: ObjectName,
    /// The first and the last port of the pods for Gateways.
    pub ports: (u16, u16),
}

/// The type of the Service of a Gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceType {
    /// `LoadBalancer`.
    LoadBalancer,
    /// `NodePort`.
    NodePort,
    /// `ClusterIP`.
    ClusterIp,
}

impl ServiceType {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::LoadBalancer, Self::NodePort, Self::ClusterIp];

    /// The value in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LoadBalancer => "LoadBalancer",
            Self::NodePort => "NodePort",
            Self::ClusterIp => "ClusterIP",
        }
    }
}

impl GatewayServices {
    /// The options of Services that lead to the edge's pods, if there are any.
    #[must_use]
    pub const fn to_pods(&self) -> Option<&ToPods> {
        match self {
            Self::ToPods(to_pods) => Some(to_pods),
            Self::Off | Self::Headless => None,
        }
    }
}

/// The Deis router that Tidegate replaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deis {
    /// Its Deployment.
    pub router: ObjectName,
    /// The Service of the builder, and the address of its listener; `None` if there is no builder.
    pub builder: Option<(ObjectName, SocketAddr)>,
}

impl Deis {
    /// The Secret with the certificate of the platform, in the namespace of its router.
    pub(crate) fn platform_certificate(router: &ObjectName) -> ObjectName {
        router.beside("deis-router-platform-cert")
    }
}

impl Sources {
    /// Returns `true` if a kind that a definition defines is read by default only, and not because the operator has
    /// named its source: if the definition may not be read, the cluster is served without the kind.
    #[must_use]
    pub fn optional(&self, kind: Kind) -> bool {
        if kind.is_inherited_policy() {
            return self.kuadrant.is_some_and(|kuadrant| kuadrant.optional);
        }
        self.gateway.as_ref().is_some_and(|gateway| gateway.optional)
    }
}

impl Default for Sources {
    fn default() -> Self {
        Self { ingress: Some(Ingresses::default()), deis: None, gateway: None, kuadrant: None }
    }
}

/// The addresses for the status of Ingresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Publish {
    /// None.
    #[default]
    Nothing,
    /// These addresses.
    Addresses(Vec<PublicAddress>),
    /// The addresses of this Service.
    Service(ObjectName),
}

/// The way of reading Secrets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Secrets {
    /// All of them are listed and watched.
    #[default]
    Watched,
    /// Referenced ones are read by name.
    Referenced {
        /// The interval after which a Secret is read again, plus a random part of up to half of it.
        refresh: Duration,
    },
}

/// The objects of a collection that a complete list may remove without a second list for confirmation: those within
/// either limit.
#[derive(Clone, Copy, Debug)]
pub struct UnconfirmedRemovals {
    /// The share of the known objects, from 0 to 1.
    pub share: f64,
    /// The number of objects, whatever their share, as long as some remain.
    pub count: usize,
}

impl UnconfirmedRemovals {
    /// Whether a list that lacks `gone` of `known` objects must be confirmed by another one. A few need no confirmation
    /// unless they are all: there may be a single class, and every route depends on it.
    #[allow(clippy::cast_precision_loss, reason = "a share of counts needs no more precision")]
    pub(crate) fn needs_confirmation(self, gone: usize, known: usize) -> bool {
        gone as f64 > self.share * known as f64 && (gone > self.count || gone == known)
    }
}

impl Default for UnconfirmedRemovals {
    fn default() -> Self {
        Self { share: 0.5, count: 10 }
    }
}

/// Limits and timeouts of the loop.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The batch sizes, and the shares of the lanes.
    pub share: LaneShares,
    /// How long a working route waits for the Service or endpoints that replace its backend.
    pub settle: Duration,
    /// How long the first publication waits for optional kinds (Secret, IngressClass) that cannot be listed, after the
    /// others have been.
    pub optional_grace: Duration,
    /// The same if their lists are slow but do not fail; never less than `optional_grace`.
    pub optional_slow_grace: Duration,
    /// The same in either case, if restored state serves the rest.
    pub restored_grace: Duration,
    /// The objects that a complete list may remove without a second list for confirmation.
    pub unconfirmed_removals: UnconfirmedRemovals,
    /// The duration of a round of the audit; a random part of up to half is added.
    pub audit: Duration,
    /// The number of routes after which a turn of the audit ends: a large host is compiled whole, and changes wait
    /// meanwhile. At least one unit is audited in a turn.
    pub audit_routes_max: usize,
}

impl Pace {
    /// The maximum number of units in a turn of the audit.
    pub(crate) fn units_max(&self) -> usize {
        self.share.slow_batch_max.max(1)
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            share: LaneShares {
                batch_max: 512,
                slow_batch_max: 64,
                fast_turns_max: 8,
                slow_age_max: Duration::from_secs(1),
                aged_every: 2,
            },
            settle: Duration::from_secs(1),
            optional_grace: Duration::from_secs(15),
            optional_slow_grace: Duration::from_secs(120),
            restored_grace: Duration::from_secs(2),
            unconfirmed_removals: UnconfirmedRemovals::default(),
            audit: Duration::from_secs(300),
            audit_routes_max: 1000,
        }
    }
}

/// The limits of the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep {
    /// The number of generations whose routes can be restored. At least the newest, the one before it and the last held
    /// one are kept.
    pub generations: usize,
    /// The number of routes in them that no longer serve, in addition to the number in the largest model; about a
    /// kilobyte each. The newest model, the one before it and the last held one do not count.
    pub routes: usize,
    /// The number of journal entries, for publications with changes of routes and for those of endpoints each; never
    /// less than the number of generations.
    pub publications: usize,
}

impl Default for Keep {
    fn default() -> Self {
        Self { generations: 300, routes: 50_000, publications: 10_000 }
    }
}

/// The owner of a host that objects of several namespaces claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HostOwnership {
    /// Their rules are merged, as in ingress-nginx.
    #[default]
    Shared,
    /// It belongs to the namespace of the oldest object that claims it.
    Namespace,
}
