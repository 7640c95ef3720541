//! The desired Service of a Gateway, and its EndpointSlices. Pure.
//!
//! A selector only selects Pods of the Service's namespace, and a Gateway can be in any: so the Service has no
//! selector, and EndpointSlices with the endpoints of the edge's own Service and the ports of this one.

use std::net::IpAddr;

use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, Preconditions};
use kube::core::Request;
use serde_json::{Map, Value, json};
use tidegate_config::object::{Kind, ObjectName, Uid};
use tidegate_config::project::gateway::{APPLIED_ANNOTATION, CONTROLLER_ANNOTATION};

use super::FIELD_MANAGER;
use super::send::Prepared;
use crate::attachment::{Endpoints, GatewayInfrastructure};
use crate::cluster::informer::Resource;
use crate::options::ServiceType;

/// The label of EndpointSlices with the name of their Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The manager of our slices, so that the controllers of Kubernetes ignore them.
const MANAGED_BY: (&str, &str) = ("endpointslice.kubernetes.io/managed-by", "tidegate.io");
/// The API's limit of endpoints in one slice.
const ENDPOINTS_MAX: usize = 1000;
/// The address types of slices.
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

fn path(kind: Kind, namespace: &str) -> Request {
    Request::new(Resource::of(kind).path(Some(namespace)))
}

/// Reads an object.
pub(super) fn get(kind: Kind, name: &ObjectName) -> Prepared {
    path(kind, &name.namespace).get(&name.name, &GetParams::default())
}

/// Reads the EndpointSlices of a Service.
pub(super) fn slices_of(service: &ObjectName) -> Prepared {
    let selector = ListParams::default().labels(&format!("{SERVICE_NAME}={}", service.name));
    path(Kind::EndpointSlice, &service.namespace).list(&selector)
}

/// Applies an object. An existing one must have this uid; without a uid, an existing object of another owner gives a
/// conflict.
pub(super) fn apply(kind: Kind, name: &ObjectName, mut object: Value, uid: Option<&str>) -> Prepared {
    if let Some(uid) = uid {
        object["metadata"]["uid"] = json!(uid);
    }
    let params =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), force: uid.is_some(), ..PatchParams::default() };
    path(kind, &name.namespace).patch(&name.name, &params, &Patch::Apply(object))
}

/// Deletes an object, if it still has this uid.
pub(super) fn delete(kind: Kind, name: &ObjectName, uid: &str) -> Prepared {
    let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    path(kind, &name.namespace).delete(&name.name, &DeleteParams { preconditions, ..DeleteParams::default() })
}

/// The uid of an object as it was read.
pub(super) fn uid_of(object: &Value) -> Option<&str> {
    object["metadata"]["uid"].as_str()
}

/// Whether we created a Service for the Gateway with this uid.
pub(super) fn is_ours(service: &Value, owner: Uid, controller: &str) -> bool {
    let owners = service["metadata"]["ownerReferences"].as_array();
    let owned = owners.into_iter().flatten().any(|it| it["uid"] == owner.to_string() && it["controller"] == true);
    owned && service["metadata"]["annotations"][CONTROLLER_ANNOTATION] == controller
}

/// Whether a Service must be created again: a Service cannot become headless, or the other way round.
pub(super) fn must_go(current: &Value, desired: &Value) -> bool {
    let headless = |service: &Value| service["spec"]["clusterIP"] == "None";
    headless(current) != headless(desired)
}

/// Whether any desired field differs. Other fields belong to other writers.
pub(super) fn differs(current: &Value, desired: &Value) -> bool {
    match (current, desired) {
        (Value::Object(current), Value::Object(desired)) => {
            desired.iter().any(|(field, desired)| current.get(field).is_none_or(|current| differs(current, desired)))
        }
        (Value::Array(current), Value::Array(desired)) => {
            let there = |desired: &Value| current.iter().any(|current| !differs(current, desired));
            current.len() != desired.len() || !desired.iter().all(there)
        }
        (current, desired) => current != desired,
    }
}

/// The desired Service for the Gateway with this name and uid.
pub(super) fn service(gateway: &ObjectName, uid: Uid, made: &GatewayInfrastructure) -> Value {
    let port = |(transport, port, target): &(_, u16, u16)| json!({"name": port_name(*transport, *port), "protocol": format!("{transport}"), "port": port, "targetPort": target});
    let ports: Vec<Value> = made.ports.iter().map(port).collect();
    let mut spec = json!({"ports": ports});
    match made.kind {
        None => {
            spec["type"] = json!("ClusterIP");
            spec["clusterIP"] = json!("None");
        }
        Some(kind) => spec["type"] = json!(kind.as_str()),
    }
    match made.kind {
        Some(ServiceType::LoadBalancer) => {
            // As for the edge's own Service: preserves client addresses, and sends nothing to nodes without a pod.
            spec["externalTrafficPolicy"] = json!("Local");
            if let Some(address) = made.addresses.first() {
                spec["loadBalancerIP"] = json!(address);
            }
        }
        // No `externalIPs`: a user who may write a Gateway could take over the traffic of any address (CVE-2020-8554).
        Some(ServiceType::NodePort | ServiceType::ClusterIp) | None => {}
    }
    let owner = json!([{"apiVersion": "gateway.networking.k8s.io/v1", "kind": Kind::Gateway.as_str(), "name": gateway.name,
                        "uid": uid.to_string(), "controller": true}]);
    let metadata = json!({"name": made.service.name, "namespace": made.service.namespace, "labels": made.labels,
                          "annotations": made.annotations, "ownerReferences": owner});
    stamped(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}))
}

/// The name of a port, which connects the ports of the Service and of a slice.
fn port_name(transport: impl std::fmt::Display, port: u16) -> String {
    format!("{transport}-{port}").to_ascii_lowercase()
}

/// Adds the hash of the applied object.
fn stamped(mut object: Value) -> Value {
    let digest = ring::digest::digest(&ring::digest::SHA256, object.to_string().as_bytes());
    let hex: String = digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    object["metadata"]["annotations"][APPLIED_ANNOTATION] = json!(hex);
    object
}

/// The desired EndpointSlices of a Service with this uid, one for each address family with endpoints, in the order of
/// the families. `edge` are the slices of the edge's own Service, if the endpoints are those of its pods.
pub(super) fn slices(made: &GatewayInfrastructure, uid: &str, edge: &[Value]) -> Vec<(ObjectName, Value)> {
    let of = |family: &&str| {
        let endpoints = match &made.endpoints {
            Endpoints::Of(_) => of_edge(edge, family),
            Endpoints::At(addresses) => at(addresses, family),
        };
        (!endpoints.is_empty()).then(|| slice(made, uid, family, endpoints))
    };
    FAMILIES.iter().filter_map(of).collect()
}

/// Every endpoint of the edge, ready or not, unchanged.
fn of_edge(edge: &[Value], family: &str) -> Vec<Value> {
    let slices = edge.iter().filter(|slice| slice["addressType"] == family);
    let mut endpoints: Vec<Value> =
        slices.flat_map(|slice| slice["endpoints"].as_array()).flatten().take(ENDPOINTS_MAX).cloned().collect();
    // The order of slices and of their endpoints is irrelevant.
    endpoints.sort_by_cached_key(|endpoint| endpoint["addresses"].to_string());
    endpoints
}

/// The addresses that are allowed for endpoints.
fn at(addresses: &[IpAddr], family: &str) -> Vec<Value> {
    let fits = |address: &&IpAddr| {
        let local = match address {
            IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
        };
        !local && !address.is_unspecified() && !address.is_multicast() && (family == "IPv4") == address.is_ipv4()
    };
    addresses.iter().filter(fits).map(|it| json!({"addresses": [it], "conditions": {"ready": true}})).collect()
}

fn slice(made: &GatewayInfrastructure, uid: &str, family: &str, endpoints: Vec<Value>) -> (ObjectName, Value) {
    let service = &made.service;
    let name = service.beside(format!("{}-{}", service.name, family.to_ascii_lowercase()));
    let port = |(transport, port, target): &(_, u16, u16)| json!({"name": port_name(*transport, *port), "protocol": format!("{transport}"), "port": target});
    let ports: Vec<Value> = made.ports.iter().map(port).collect();
    let mut labels: Map<String, Value> =
        made.labels.iter().map(|(key, value)| (key.to_string(), json!(value))).collect();
    labels.insert(SERVICE_NAME.to_owned(), json!(service.name));
    labels.insert(MANAGED_BY.0.to_owned(), json!(MANAGED_BY.1));
    // Headless Services have this label.
    if made.kind.is_none() {
        labels.insert("service.kubernetes.io/headless".to_owned(), json!(""));
    }
    let owner = json!([{"apiVersion": "v1", "kind": "Service", "name": service.name, "uid": uid, "controller": true}]);
    let metadata = json!({"name": name.name, "namespace": name.namespace, "labels": labels, "ownerReferences": owner});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
                       "addressType": family, "endpoints": endpoints, "ports": ports});
    (name, stamped(slice))
}

/// Whether we wrote a slice of the Service.
pub(super) fn is_our_slice(slice: &Value) -> bool {
    slice["metadata"]["labels"][MANAGED_BY.0] == MANAGED_BY.1
}

#[cfg(test)]
mod tests;
