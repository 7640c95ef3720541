//! What the operator decides about the control loop, and every limit of it in one place.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tidegate_config::model::{Bind, EdgeSettings, Settings};
use tidegate_config::object::ObjectName;
use tidegate_config::project::PublicAddress;

pub use crate::addresses::AddressPolicy;
use crate::order::Order;
use crate::queue::Share;

/// What compiling depends on besides the objects.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which objects make routes.
    pub sources: Sources,
    /// The name of our IngressClass: what the old annotation is compared with, and what counts as ours while IngressClasses cannot be read.
    pub class: Arc<str>,
    /// `spec.controller` of the IngressClasses that are ours.
    pub controller: Arc<str>,
    /// The Secret of the certificate for server names that no other certificate is for.
    pub default_certificate: Option<ObjectName>,
    /// What happens to a host that objects of several namespaces claim.
    pub host_ownership: HostOwnership,
    /// Which addresses objects may name.
    pub addresses: AddressPolicy,
    /// The sockets to listen on.
    pub binds: Arc<[Bind]>,
    /// Settings of every route that sets no others.
    pub defaults: Arc<Settings>,
    /// Peers whose forwarded headers, and whose headers of the PROXY protocol, are believed.
    pub trusted_proxies: Arc<[IpNet]>,
    /// What holds for every client and every connection, where no source says otherwise.
    pub edge: Arc<EdgeSettings>,
    /// What the status of Ingresses says of where they are reached.
    pub publish: Publish,
    /// How Secrets are read.
    pub secrets: Secrets,
    /// Whether findings are told to the cluster, as Events.
    pub events: bool,
    /// What of a list is compiled first.
    pub order: Order,
    /// How the loop runs.
    pub pace: Pace,
    /// How much of the past is kept.
    pub keep: Keep,
    /// A host with no more claims and routes than this is compiled whole when one of them changes: that is quicker, and nothing of it
    /// is kept besides.
    pub whole_host_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sources: Sources::default(),
            class: "tidegate".into(),
            controller: "tidegate.io/ingress".into(),
            default_certificate: None,
            host_ownership: HostOwnership::default(),
            addresses: AddressPolicy::default(),
            binds: Arc::default(),
            defaults: Arc::default(),
            trusted_proxies: Arc::default(),
            edge: Arc::default(),
            publish: Publish::default(),
            secrets: Secrets::default(),
            events: true,
            order: Order::default(),
            pace: Pace::default(),
            keep: Keep::default(),
            whole_host_max: 16,
        }
    }
}

/// Which objects make routes. Several sources at once are normal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sources {
    /// Ingresses.
    pub ingress: bool,
    /// Services with the label `router.deis.io/routable=true`, and the Deployment of the Deis router whose annotations are for
    /// all of them.
    pub deis: Option<Deis>,
    /// Gateways and routes of the Gateway API.
    pub gateway: Option<GatewayApi>,
}

/// How Gateways are served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayApi {
    /// `spec.controllerName` of the GatewayClasses that are ours.
    pub controller: Arc<str>,
    /// The addresses that Gateways are given, each to one of them, the first ones first. None are needed where Services lead to the
    /// edge's pods.
    pub addresses: Arc<[IpAddr]>,
    /// The Services that are made for Gateways.
    pub services: GatewayServices,
    /// Whether nobody has asked for it: where the definitions may not be read, it is gone without.
    pub optional: bool,
}

/// The Services that are made for Gateways, one for each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum GatewayServices {
    /// None.
    #[default]
    Off,
    /// Headless ones: each gives the addresses of its Gateway a DNS name.
    Headless,
    /// Ones that lead to ports of the edge's pods which the Gateway has to itself. Their addresses are those of the Gateway.
    ToPods(ToPods),
}

/// How Services lead to the edge's pods.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToPods {
    /// Their type.
    pub kind: ServiceType,
    /// The Service whose endpoints are the edge's pods.
    pub edge: ObjectName,
    /// The ports of the pods that Gateways are given, from the first to the last one.
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

    /// The word of the API.
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
    /// How they lead to the edge's pods, where they do.
    #[must_use]
    pub const fn to_pods(&self) -> Option<&ToPods> {
        match self {
            Self::ToPods(to_pods) => Some(to_pods),
            Self::Off | Self::Headless => None,
        }
    }
}

/// The Deis router that is stood in for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deis {
    /// Its Deployment.
    pub router: ObjectName,
    /// The Service of the builder, and where connections for it come in; `None` where there is none.
    pub builder: Option<(ObjectName, SocketAddr)>,
}

impl Default for Sources {
    fn default() -> Self {
        Self { ingress: true, deis: None, gateway: None }
    }
}

/// Where Ingresses are reached, as their status tells it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Publish {
    /// It says nothing.
    #[default]
    Nothing,
    /// At these addresses.
    Addresses(Vec<PublicAddress>),
    /// Where this Service is.
    Service(ObjectName),
}

/// How Secrets are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Secrets {
    /// All of them are listed and watched.
    #[default]
    Watched,
    /// Those that are referred to are asked for by name.
    Referenced {
        /// How long after an answer one is asked for again, and up to half as long again.
        refresh: Duration,
    },
}

/// Limits and deadlines of the loop.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How much one batch compiles, and how live changes share with the rest.
    pub share: Share,
    /// How long a working route waits for the Service or endpoints that it would move to.
    pub settle: Duration,
    /// How long the first publication waits for kinds that routing can do without (Secret, IngressClass) and that cannot
    /// be listed, once the others have been.
    pub optional_grace: Duration,
    /// How long it waits for them when their lists are merely slow; never less than the above.
    pub optional_slow_grace: Duration,
    /// How long it waits for them, whether they fail or not, when the state of an earlier life serves the rest.
    pub restored_grace: Duration,
    /// Share of a kind (0 to 1) that a completed list may remove without a second list that confirms it.
    pub sweep_share_max: f64,
    /// Objects that a completed list may remove without confirmation, whatever their share, as long as some are left.
    pub sweep_free: usize,
    /// How long a round of the audit takes, and up to half as long again.
    pub audit: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            share: Share {
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
            sweep_share_max: 0.5,
            sweep_free: 10,
            audit: Duration::from_secs(300),
        }
    }
}

/// How much of what was published is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep {
    /// Generations whose routes can be taken back. Below three it is the newest, the one before it and the one that was held last.
    pub generations: usize,
    /// Routes that those may hold and that do not serve any more, besides as many as the largest of them has; at about a kilobyte
    /// each. The newest, the one before it and the one that was held last do not count.
    pub routes: usize,
    /// Entries of the journal, of publications that changed routes and of those that changed endpoints alone: so many of each, and
    /// never fewer than generations.
    pub publications: usize,
}

impl Default for Keep {
    fn default() -> Self {
        Self { generations: 300, routes: 50_000, publications: 10_000 }
    }
}

/// What happens to a host that objects of several namespaces claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HostOwnership {
    /// Their rules are merged, as ingress-nginx does.
    #[default]
    Shared,
    /// It belongs to the namespace of the oldest object that claims it.
    Namespace,
}
