//! The EndpointSlices of a Service: one for each replica that its selector matches, because the processes of one
//! machine share an address and differ in their ports, and a slice has one set of ports.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ObjectReference, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tidegate_config::object::ObjectName;

use super::workload::{Phase, Replica};

/// The label that names a slice's Service (Kubernetes documentation, "EndpointSlices").
const SERVICE: &str = "kubernetes.io/service-name";
/// The label with the manager of a slice.
pub(super) const KEEPER: &str = "endpointslice.kubernetes.io/managed-by";
/// The manager of these slices.
pub(super) const KEEPER_NAME: &str = "tidegate-dev";
/// The maximum length of an object's name.
const NAME_MAX: usize = 253;

/// The desired slices of these Services and replicas, by name.
pub(super) fn slices<'a>(
    services: impl Iterator<Item = &'a Service>,
    replicas: &[&Replica],
) -> BTreeMap<ObjectName, EndpointSlice> {
    services
        .flat_map(|service| replicas.iter().filter_map(|replica| slice(service, replica)))
        .filter_map(|slice| Some((name(&slice)?, slice)))
        .collect()
}

/// The name of a slice.
pub(super) fn name(slice: &EndpointSlice) -> Option<ObjectName> {
    Some(ObjectName::new(slice.metadata.namespace.as_deref()?, slice.metadata.name.as_deref()?))
}

/// The slice of a replica in a Service; `None` if the Service does not select it or it has no process.
fn slice(service: &Service, replica: &Replica) -> Option<EndpointSlice> {
    let (port, conditions) = match replica.phase {
        Phase::Running(port) => (port, conditions(false, false)),
        Phase::Ready(port) => (port, conditions(true, false)),
        Phase::Ending(Some(port)) => (port, conditions(true, true)),
        Phase::Down | Phase::Ending(None) => return None,
    };
    let name = service.metadata.name.as_deref()?;
    let spec = service.spec.as_ref()?;
    let near = service.metadata.namespace.as_deref() == Some(&*replica.workload.namespace);
    let selector = spec.selector.as_ref().filter(|selector| !selector.is_empty())?;
    let selected = selector.iter().all(|(key, value)| replica.labels.get(key) == Some(value));
    if !near || !selected || spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    let labels = [(SERVICE, name), (KEEPER, KEEPER_NAME)].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let full = format!("{name}-{}", replica.pod);
    Some(EndpointSlice {
        address_type: "IPv4".to_owned(),
        metadata: ObjectMeta {
            namespace: service.metadata.namespace.clone(),
            name: Some(full.chars().take(NAME_MAX).collect()),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        },
        endpoints: Some(vec![endpoint(replica, conditions)]),
        ports: Some(spec.ports.iter().flatten().map(|of| slice_port(of, port)).collect()),
    })
}

fn conditions(serving: bool, terminating: bool) -> EndpointConditions {
    EndpointConditions { ready: Some(serving && !terminating), serving: Some(serving), terminating: Some(terminating) }
}

fn endpoint(replica: &Replica, conditions: EndpointConditions) -> Endpoint {
    Endpoint {
        addresses: vec!["127.0.0.1".to_owned()],
        conditions: Some(conditions),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some(replica.workload.namespace.to_string()),
            name: Some(replica.pod.to_string()),
            uid: Some(replica.uid.to_string()),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    }
}

/// Maps every port of the Service to the one port of the process; names distinguish them.
fn slice_port(of: &ServicePort, port: u16) -> EndpointPort {
    EndpointPort {
        name: Some(of.name.clone().unwrap_or_default()),
        port: Some(port.into()),
        protocol: Some(of.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: of.app_protocol.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::tests::replica;
    use super::*;
    use serde_json::{Value, json};

    fn service(spec: Value) -> Service {
        let object = json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    #[track_caller]
    fn check(spec: Value, phase: Phase, want: &[&str]) {
        let (service, replica) = (service(spec), replica("cart-1", 1, phase));
        let slices = slices([&service].into_iter(), &[&replica]);
        let got: Vec<String> = slices
            .iter()
            .map(|(name, slice)| {
                let conditions = slice.endpoints.as_ref().unwrap()[0].conditions.as_ref().unwrap();
                let ports = slice.ports.as_ref().unwrap().iter();
                let ports: Vec<String> =
                    ports.map(|p| format!("{}:{}", p.name.as_deref().unwrap(), p.port.unwrap())).collect();
                let (ready, ending) = (conditions.ready.unwrap(), conditions.terminating.unwrap());
                format!("{name} {} ready={ready} terminating={ending}", ports.join(","))
            })
            .collect();
        assert_eq!(got, want);
    }

    #[test]
    fn selected_replicas_get_a_slice() {
        let ports = json!([{"name": "http", "port": 80, "targetPort": "web"}, {"name": "more", "port": 81}]);
        let spec = |selector: Value| json!({"selector": selector, "ports": ports});
        let cart = json!({"app": "cart"});
        let ready = Phase::Ready(4000);
        check(spec(cart.clone()), ready, &["shop/web-cart-1 http:4000,more:4000 ready=true terminating=false"]);
        check(
            spec(cart.clone()),
            Phase::Ending(Some(4000)),
            &["shop/web-cart-1 http:4000,more:4000 ready=false terminating=true"],
        );
        check(spec(cart.clone()), Phase::Down, &[]);
        check(
            spec(cart.clone()),
            Phase::Running(4000),
            &["shop/web-cart-1 http:4000,more:4000 ready=false terminating=false"],
        );
        check(spec(json!({"app": "cart", "tier": "x"})), ready, &[]);
        check(spec(json!({})), ready, &[]);
        check(json!({"ports": ports}), ready, &[]);
        check(json!({"selector": cart, "type": "ExternalName", "externalName": "x"}), ready, &[]);
        check(
            json!({"selector": cart, "ports": [{"port": 80}]}),
            ready,
            &["shop/web-cart-1 :4000 ready=true terminating=false"],
        );
    }

    #[test]
    fn a_slice_names_service_keeper_and_pod() {
        let (service, replica) = (service(json!({"selector": {"app": "cart"}})), replica("cart-1", 1, Phase::Ready(1)));
        let slice = slice(&service, &replica).unwrap();
        let labels = slice.metadata.labels.unwrap();
        assert_eq!((&*labels[SERVICE], &*labels[KEEPER]), ("web", KEEPER_NAME));
        let endpoints = slice.endpoints.unwrap();
        assert_eq!(endpoints[0].target_ref.as_ref().unwrap().uid.as_deref(), Some("uid-cart-1"));
    }
}
