//! Manifests. A name is `namespace/name`, or the name of an object in `shop`.

use serde_json::{Value, json};

fn metadata(name: &str) -> Value {
    let (namespace, name) = name.split_once('/').unwrap_or(("shop", name));
    json!({"namespace": namespace, "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"})
}

/// The class whose Ingresses are ours.
pub(crate) fn class() -> Value {
    json!({"metadata": {"name": "tidegate"}, "spec": {"controller": "tidegate.io/ingress"}})
}

pub(crate) fn service(name: &str) -> Value {
    json!({"metadata": metadata(name), "spec": {"ports": [{"port": 80}]}})
}

pub(crate) fn external(name: &str, dns: &str) -> Value {
    let spec = json!({"type": "ExternalName", "externalName": dns, "ports": [{"port": 80}]});
    json!({"metadata": metadata(name), "spec": spec})
}

/// The endpoints of a Service, in an EndpointSlice of the same name.
pub(crate) fn slice(service: &str, addresses: &[&str]) -> Value {
    let endpoints: Vec<Value> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
    let family = if addresses.first().is_some_and(|address| address.contains(':')) { "IPv6" } else { "IPv4" };
    let mut metadata = metadata(service);
    metadata["labels"] = json!({"kubernetes.io/service-name": metadata["name"]});
    json!({"metadata": metadata, "addressType": family, "ports": [{"port": 80}], "endpoints": endpoints})
}

/// `shop/web`: `web.example` leads to the Service with all paths.
pub(crate) fn ingress(service: &str) -> Value {
    ingress_of("web", "web.example", service, &["/"])
}

/// An Ingress whose paths of a host lead to a Service of the same namespace.
pub(crate) fn ingress_of(name: &str, host: &str, service: &str, paths: &[&str]) -> Value {
    let backend = json!({"service": {"name": service, "port": {"number": 80}}});
    let path = |path: &&str| json!({"path": path, "pathType": "Prefix", "backend": backend});
    let paths: Vec<Value> = paths.iter().map(path).collect();
    let rules = json!([{"host": host, "http": {"paths": paths}}]);
    json!({"metadata": metadata(name), "spec": {"ingressClassName": "tidegate", "rules": rules}})
}
