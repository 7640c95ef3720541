//! The flags of routing: the sources of routes, and settings for all routes.

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Routing")]
pub(crate) struct RoutingArgs {
    /// The kinds that make routes: `ingress`, `gateway` for those of the Gateway API, and `deis` for Services labelled
    /// router.deis.io/routable=true; and `kuadrant` for Kuadrant's policies, on Gateways and their routes, and where
    /// `tidegate.io/policy` names them; comma-separated [default: ingress,gateway,kuadrant; a cluster that does not
    /// have the Gateway API or the policies, or denies access to their definitions, is served without them].
    #[arg(long, value_name = "SOURCE", env = "TIDEGATE_SOURCE", value_delimiter = ',')]
    pub(crate) source: Vec<String>,
    /// The value of `spec.controllerName` in GatewayClasses of this controller.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_GATEWAY_CONTROLLER", default_value = "tidegate.io/gateway")]
    pub(crate) gateway_controller: String,
    /// The pool of local addresses for Gateways, one address each: single addresses, ranges such as
    /// 192.0.2.10-192.0.2.20, and networks such as 192.0.2.16/28 without their first and last address,
    /// comma-separated; or `service`: each Gateway has a Service of its own and takes its addresses. Without a pool no
    /// Gateway is programmed [dev: 127.0.1.1-127.0.1.32].
    #[arg(long, value_name = "ADDR[-ADDR]|CIDR", env = "TIDEGATE_GATEWAY_ADDRESSES", value_delimiter = ',')]
    pub(crate) gateway_addresses: Vec<String>,
    /// The type of the Services created for Gateways: `LoadBalancer`, `NodePort` or `ClusterIP` with
    /// --gateway-addresses service; with local addresses, `headless` or `off` [default: LoadBalancer with
    /// --gateway-addresses service, else off].
    #[arg(long, value_name = "TYPE", env = "TIDEGATE_GATEWAY_SERVICES")]
    pub(crate) gateway_services: Option<String>,
    /// With --gateway-addresses service, the Service whose endpoints are the pods of this edge [default: that of
    /// --publish-service].
    #[arg(long, value_name = "NAMESPACE/NAME", env = "TIDEGATE_EDGE_SERVICE")]
    pub(crate) edge_service: Option<String>,
    /// With --gateway-addresses service, the range of ports that Gateways listen on in each pod; every port of a
    /// Gateway gets one.
    #[arg(long, value_name = "PORT-PORT", env = "TIDEGATE_GATEWAY_PORTS", default_value = "20000-29999")]
    pub(crate) gateway_ports: String,
    /// The Deployment of the Deis router that this edge replaces: its annotations apply to all applications, and the
    /// platform's certificate is in its namespace.
    #[arg(long, value_name = "NAMESPACE/NAME", env = "TIDEGATE_DEIS_ROUTER", default_value = "deis/deis-router")]
    pub(crate) deis_router: String,
    /// The Service of the builder of the same platform: with --source deis, connections to --deis-builder-address are
    /// passed on to its port 2222.
    #[arg(long, value_name = "NAMESPACE/NAME", env = "TIDEGATE_DEIS_BUILDER", default_value = "deis/deis-builder")]
    pub(crate) deis_builder: String,
    /// The IngressClass name of this controller in the annotation `kubernetes.io/ingress.class`.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_INGRESS_CLASS", default_value = "tidegate")]
    pub(crate) ingress_class: String,
    /// The value of `spec.controller` in IngressClasses of this controller.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_CONTROLLER_CLASS", default_value = "tidegate.io/ingress")]
    pub(crate) controller_class: String,
    /// Networks of proxies in front of this edge. Their forwarded headers and PROXY protocol headers are trusted.
    #[arg(long, value_name = "CIDR", env = "TIDEGATE_TRUSTED_PROXIES", value_delimiter = ',')]
    pub(crate) trusted_proxies: Vec<String>,
    /// The Secret with the certificate for server names that match no other certificate.
    #[arg(long, value_name = "NAMESPACE/NAME", env = "TIDEGATE_DEFAULT_CERTIFICATE")]
    pub(crate) default_certificate: Option<String>,
    /// The policy for a host that objects of several namespaces claim: `shared` merges their rules, `namespace` gives
    /// the host to the namespace of the oldest object.
    #[arg(long, value_name = "RULE", env = "TIDEGATE_HOST_OWNERSHIP", default_value = "shared")]
    pub(crate) host_ownership: String,
    /// An address of this process alone (the pod's address), which no object may use as an endpoint, whatever the port;
    /// repeatable. Without it, the process's own sockets are refused on every address of its host.
    #[arg(long, value_name = "IP", env = "TIDEGATE_OWN_ADDRESS", value_delimiter = ',')]
    pub(crate) own_address: Vec<String>,
    /// A network that no object may use for endpoints, in addition to loopback, link-local addresses, the metadata
    /// services of clouds and the API server; repeatable.
    #[arg(long, value_name = "CIDR", env = "TIDEGATE_REFUSE_ADDRESSES", value_delimiter = ',')]
    pub(crate) refuse_addresses: Vec<String>,
}
