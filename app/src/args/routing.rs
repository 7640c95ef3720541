//! Flags of routing: which objects make routes, and what holds for all of them.

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Routing")]
pub(crate) struct RoutingArgs {
    /// Which objects make routes: `ingress`, `gateway` for those of the Gateway API, and `deis` for Services labelled
    /// router.deis.io/routable=true; several between commas [default: ingress,gateway, where a
    /// cluster that does not have the Gateway API, or does not let its definitions be read, is served without it].
    #[arg(long, value_name = "SOURCE", env = "TIDEGATE_SOURCE", value_delimiter = ',')]
    pub(crate) source: Vec<String>,
    /// `spec.controllerName` of the GatewayClasses that are ours.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_GATEWAY_CONTROLLER", default_value = "tidegate.io/gateway")]
    pub(crate) gateway_controller: String,
    /// The local addresses that Gateways are given, each to one of them: single ones and ranges such as 192.0.2.10-192.0.2.20,
    /// between commas; or `service`: each has a Service of its own, whose addresses it has. Without any, no Gateway is programmed
    /// [dev: 127.0.1.1-127.0.1.32].
    #[arg(long, value_name = "ADDR[-ADDR]", env = "TIDEGATE_GATEWAY_ADDRESSES", value_delimiter = ',')]
    pub(crate) gateway_addresses: Vec<String>,
    /// The Services that are made for Gateways: of the type `LoadBalancer`, `NodePort` or `ClusterIP` with --gateway-addresses service;
    /// with local addresses, `headless` or `off` [default: LoadBalancer with --gateway-addresses service, else off].
    #[arg(long, value_name = "TYPE", env = "TIDEGATE_GATEWAY_SERVICES")]
    pub(crate) gateway_services: Option<String>,
    /// With --gateway-addresses service, the Service whose endpoints are this edge's pods [default: that of --publish-service].
    #[arg(long, value_name = "NAMESPACE/NAME", env = "TIDEGATE_EDGE_SERVICE")]
    pub(crate) edge_service: Option<String>,
    /// With --gateway-addresses service, the ports that Gateways listen on in each pod, of which every port of a Gateway gets one.
    #[arg(long, value_name = "PORT-PORT", env = "TIDEGATE_GATEWAY_PORTS", default_value = "20000-29999")]
    pub(crate) gateway_ports: String,
    /// The Deployment of the Deis router that is stood in for: its annotations are for all applications, and the
    /// platform's certificate is in its namespace.
    #[arg(long, value_name = "NAMESPACE/NAME", env = "TIDEGATE_DEIS_ROUTER", default_value = "deis/deis-router")]
    pub(crate) deis_router: String,
    /// The Service of the builder of the same platform: with --source deis, connections to --deis-builder-address are passed on to
    /// its port 2222.
    #[arg(long, value_name = "NAMESPACE/NAME", env = "TIDEGATE_DEIS_BUILDER", default_value = "deis/deis-builder")]
    pub(crate) deis_builder: String,
    /// The name of our IngressClass, as the old annotation gives it.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_INGRESS_CLASS", default_value = "tidegate")]
    pub(crate) ingress_class: String,
    /// `spec.controller` of the IngressClasses that are ours.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_CONTROLLER_CLASS", default_value = "tidegate.io/ingress")]
    pub(crate) controller_class: String,
    /// Networks of proxies before this one, whose forwarded headers and PROXY protocol headers are believed.
    #[arg(long, value_name = "CIDR", env = "TIDEGATE_TRUSTED_PROXIES", value_delimiter = ',')]
    pub(crate) trusted_proxies: Vec<String>,
    /// The Secret with the certificate for server names that no other certificate is for.
    #[arg(long, value_name = "NAMESPACE/NAME", env = "TIDEGATE_DEFAULT_CERTIFICATE")]
    pub(crate) default_certificate: Option<String>,
    /// Whose a host is that objects of several namespaces claim: `shared` merges their rules, `namespace` gives it to
    /// the namespace of the oldest.
    #[arg(long, value_name = "RULE", env = "TIDEGATE_HOST_OWNERSHIP", default_value = "shared")]
    pub(crate) host_ownership: String,
    /// An address of this process alone (the pod's address), which no object may lead to, whatever the port; several
    /// times for several. The process's own sockets are refused on every address of its host without it.
    #[arg(long, value_name = "IP", env = "TIDEGATE_OWN_ADDRESS", value_delimiter = ',')]
    pub(crate) own_address: Vec<String>,
    /// A network that no object may lead to, besides loopback, link-local addresses, the metadata services of clouds and the
    /// API server; several times for several.
    #[arg(long, value_name = "CIDR", env = "TIDEGATE_REFUSE_ADDRESSES", value_delimiter = ',')]
    pub(crate) refuse_addresses: Vec<String>,
}
