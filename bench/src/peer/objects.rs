//! Routes as Kubernetes objects.

use std::net::SocketAddr;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Peer, Protocol, Route, SECURE, Source, Target, is_secure};
use crate::identity::Identity;
use crate::upstream::Upstream;

/// The group of the Gateway API.
pub(super) const GATEWAY: &str = "gateway.networking.k8s.io";
/// The Secret of the hosts that are served over TLS.
const SECRET: &str = "secure";

/// The objects of an API server, and the upstream's address.
#[derive(Debug)]
pub(super) struct Objects {
    source: Source,
    routes: Api<DynamicObject>,
    gateways: Api<DynamicObject>,
    services: Api<Service>,
    slices: Api<EndpointSlice>,
    upstream: SocketAddr,
}

impl Objects {
    pub(super) fn new(client: kube::Client, source: Source, upstream: SocketAddr) -> Self {
        let (services, slices) = (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
        let resource = match source {
            Source::Ingress => ApiResource::from_gvk(&GroupVersionKind::gvk("networking.k8s.io", "v1", "Ingress")),
            Source::Gateway => ApiResource::from_gvk(&GroupVersionKind::gvk(GATEWAY, "v1", "HTTPRoute")),
        };
        let gateways = ApiResource::from_gvk(&GroupVersionKind::gvk(GATEWAY, "v1", "Gateway"));
        let gateways = Api::default_namespaced_with(client.clone(), &gateways);
        Self { source, routes: Api::default_namespaced_with(client, &resource), gateways, services, slices, upstream }
    }

    /// The HTTPRoutes, where routes are such, and the Gateways.
    pub(super) fn of_gateway_api(&self) -> (Api<DynamicObject>, Api<DynamicObject>) {
        (self.routes.clone(), self.gateways.clone())
    }

    /// The object for a route.
    fn object(&self, route: &Route) -> Value {
        match self.source {
            Source::Ingress => ingress(route),
            Source::Gateway => http_route(route),
        }
    }

    /// Creates a route with its target, or changes the target of an existing one.
    pub(super) async fn write(&self, route: &Route, known: bool) -> anyhow::Result<()> {
        let (Route { host, target }, create) = (route, PostParams::default());
        if known {
            self.routes.patch(host, &PatchParams::default(), &Patch::Merge(&self.object(route))).await?;
            return Ok(());
        }
        if *target == Target::Own {
            self.services.create(&create, &serde_json::from_value(service(target.service(host)))?).await?;
            self.slices
                .create(&create, &serde_json::from_value(slice(target.service(host), &[self.upstream]))?)
                .await?;
        }
        self.routes.create(&create, &serde_json::from_value(self.object(route))?).await?;
        Ok(())
    }

    /// Sets the endpoints of the Service that rolls.
    pub(super) async fn roll(&self, endpoints: &[SocketAddr]) -> anyhow::Result<()> {
        let name = Target::Rolled.service("");
        let change = json!({"endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>()});
        self.slices.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await?;
        Ok(())
    }

    pub(super) async fn remove(&self, host: &str) -> anyhow::Result<()> {
        self.routes.delete(host, &DeleteParams::default()).await?;
        Ok(())
    }
}

impl Peer {
    /// Its HTTPRoutes and Gateways.
    ///
    /// # Errors
    /// When it has none.
    pub(crate) fn gateway_objects(&self) -> anyhow::Result<(Api<DynamicObject>, Api<DynamicObject>)> {
        Ok(self.tidegate()?.gateway_objects())
    }
}

/// The class, the certificate, and what routes share.
pub(super) fn manifests(upstream: &Upstream, rolled: &[SocketAddr], identity: &Identity) -> Vec<Value> {
    let of_target = |target: Target| {
        let name = target.service("");
        let mut service = service(name);
        match target.protocol() {
            Protocol::Http1 => {}
            Protocol::Http2 => service["spec"]["ports"][0]["appProtocol"] = json!("kubernetes.io/h2c"),
            Protocol::Tls => service["spec"]["ports"][0]["appProtocol"] = json!("https"),
        }
        [service, slice(name, &[target.address(upstream)])]
    };
    let rolls = Target::Rolled.service("");
    let shared = Target::SHARED.into_iter().flat_map(of_target);
    [class(), secret(identity), service(rolls), slice(rolls, rolled)].into_iter().chain(shared).collect()
}

/// All objects for a route of [`SECURE`] to an address, plain and over TLS: for an HTTPRoute the ports of its Gateway
/// are given.
pub(crate) fn one_route(upstream: SocketAddr, identity: &Identity, gateway_ports: Option<[u16; 2]>) -> Vec<Value> {
    let route = Route::new(SECURE, Target::Own);
    let mut objects = vec![
        class(),
        secret(identity),
        service(Target::Own.service(SECURE)),
        slice(Target::Own.service(SECURE), &[upstream]),
        gateway_ports.map_or_else(|| ingress(&route), |_| http_route(&route)),
    ];
    if let Some(route) = objects.last_mut() {
        route["metadata"]["namespace"] = json!("default");
    }
    objects.extend(gateway_ports.into_iter().flat_map(|[http, https]| gateway(http, https, &[])));
    objects
}

/// The Service, the EndpointSlice and the route of a host, each its own.
pub(crate) fn own_route(source: Source, route: &Route, upstream: SocketAddr) -> [Value; 3] {
    let name = route.target.service(&route.host);
    let mut object = match source {
        Source::Ingress => ingress(route),
        Source::Gateway => http_route(route),
    };
    object["metadata"]["namespace"] = json!("default");
    [service(name), slice(name, &[upstream]), object]
}

fn class() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IngressClass",
        "metadata": {"name": "tidegate"},
        "spec": {"controller": "tidegate.io/ingress"},
    })
}

/// The class and the one Gateway of all HTTPRoutes, which listens on these ports for plain HTTP and for HTTPS, and on
/// more for HTTP.
pub(super) fn gateway(http: u16, https: u16, more: &[u16]) -> [Value; 2] {
    let class = json!({
        "apiVersion": format!("{GATEWAY}/v1"), "kind": "GatewayClass", "metadata": {"name": "tidegate"},
        "spec": {"controllerName": "tidegate.io/gateway"},
    });
    let tls = json!({"certificateRefs": [{"name": SECRET}]});
    let own = [
        json!({"name": "http", "port": http, "protocol": "HTTP"}),
        json!({"name": "https", "port": https, "protocol": "HTTPS", "tls": tls}),
    ];
    let more = more.iter().map(|port| json!({"name": format!("http-{port}"), "port": port, "protocol": "HTTP"}));
    let listeners: Vec<Value> = own.into_iter().chain(more).collect();
    let gateway = json!({
        "apiVersion": format!("{GATEWAY}/v1"), "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"gatewayClassName": "tidegate", "listeners": listeners},
    });
    [class, gateway]
}

fn secret(identity: &Identity) -> Value {
    let encoded = |text: &str| BASE64_STANDARD.encode(text);
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": "default"},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": encoded(&identity.certificate), "tls.key": encoded(&identity.key)},
    })
}

fn ingress(route: &Route) -> Value {
    let Route { host, target } = route;
    let backend = json!({"service": {"name": target.service(host), "port": {"number": 80}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    let mut spec = json!({"ingressClassName": "tidegate", "rules": [{"host": host, "http": {"paths": paths}}]});
    if is_secure(host) {
        spec["tls"] = json!([{"hosts": [host], "secretName": SECRET}]);
    }
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": host}, "spec": spec})
}

fn http_route(route: &Route) -> Value {
    let Route { host, target } = route;
    let backend = json!({"name": target.service(host), "port": 80});
    let rule = json!({"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [backend]});
    json!({
        "apiVersion": format!("{GATEWAY}/v1"), "kind": "HTTPRoute", "metadata": {"name": host},
        "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [host], "rules": [rule]},
    })
}

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"ports": [{"port": 80}]},
    })
}

pub(super) fn slice(service: &str, endpoints: &[SocketAddr]) -> Value {
    let port = endpoints.first().map(SocketAddr::port);
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": service, "namespace": "default", "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": port, "protocol": "TCP"}],
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

pub(super) fn endpoint(address: &SocketAddr) -> Value {
    json!({"addresses": [address.ip()], "conditions": {"ready": true}})
}
