//! The desired Services and EndpointSlices.

use super::*;
use tidegate_config::model::Transport;

const UID: &str = "6f1b4bb4-54b9-4d2e-9a38-1d3a9c6f0a11";

fn made(kind: Option<ServiceType>, addresses: &[&str], endpoints: Endpoints) -> GatewayInfrastructure {
    GatewayInfrastructure {
        service: ObjectName::new("shop", "edge-tidegate"),
        labels: [("team".into(), "shop".into())].into(),
        annotations: [(CONTROLLER_ANNOTATION.into(), "us/a".into())].into(),
        kind,
        ports: [(Transport::Tcp, 80, 20080), (Transport::Udp, 53, 20053)].into(),
        addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
        endpoints,
    }
}

fn edge() -> Endpoints {
    Endpoints::Of(ObjectName::new("tidegate", "tidegate"))
}

fn of(made: &GatewayInfrastructure) -> Value {
    service(&ObjectName::new("shop", "edge"), Uid::parse(UID).unwrap(), made)
}

/// Compares the `spec` of a Service without its ports.
#[track_caller]
fn check(kind: Option<ServiceType>, addresses: &[&str], want: &Value) {
    let mut spec = of(&made(kind, addresses, edge()))["spec"].take();
    let ports = json!([{"name": "tcp-80", "protocol": "TCP", "port": 80, "targetPort": 20080},
                       {"name": "udp-53", "protocol": "UDP", "port": 53, "targetPort": 20053}]);
    assert_eq!(spec.as_object_mut().unwrap().remove("ports"), Some(ports));
    assert_eq!(spec, *want);
}

#[test]
fn a_service_requests_the_addresses_that_its_type_allows() {
    let local = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    check(Some(ServiceType::LoadBalancer), &[], &local);
    let mut with = local;
    with["loadBalancerIP"] = json!("192.0.2.1");
    check(Some(ServiceType::LoadBalancer), &["192.0.2.1", "192.0.2.2"], &with);
    check(Some(ServiceType::ClusterIp), &["192.0.2.1", "192.0.2.2"], &json!({"type": "ClusterIP"}));
    check(Some(ServiceType::NodePort), &[], &json!({"type": "NodePort"}));
    check(None, &[], &json!({"type": "ClusterIP", "clusterIP": "None"}));
}

#[test]
fn our_objects_have_our_owner_and_controller() {
    let service = of(&made(None, &[], edge()));
    let uid = Uid::parse(UID).unwrap();
    let other = Uid::parse("6f1b4bb4-54b9-4d2e-9a38-1d3a9c6f0a12").unwrap();
    assert!(is_ours(&service, uid, "us/a"));
    assert!(!is_ours(&service, other, "us/a"));
    assert!(!is_ours(&service, uid, "them/b"));
    assert!(!is_ours(&json!({"metadata": {"name": "edge-tidegate"}}), uid, "us/a"));
}

#[test]
fn fields_of_others_do_not_differ_and_obsolete_fields_of_ours_do() {
    let desired = of(&made(Some(ServiceType::LoadBalancer), &[], edge()));
    let mut current = desired.clone();
    current["metadata"]["annotations"]["cloud"] = json!("x");
    current["spec"]["ports"][0]["nodePort"] = json!(30080);
    current["spec"]["ports"].as_array_mut().unwrap().reverse();
    assert!(!differs(&current, &desired));
    let mut fewer = made(Some(ServiceType::LoadBalancer), &[], edge());
    fewer.labels.clear();
    assert!(differs(&current, &of(&fewer)));
    current["spec"]["ports"][0]["targetPort"] = json!(1);
    assert!(differs(&current, &desired));
    assert!(must_go(&desired, &of(&made(None, &[], edge()))));
}

#[test]
fn slices_have_the_endpoints_of_the_edge_and_the_ports_of_the_gateway() {
    let endpoint =
        |address: &str, ready: bool| json!({"addresses": [address], "conditions": {"ready": ready}, "nodeName": "n1"});
    let of_edge = [
        json!({"addressType": "IPv4", "endpoints": [endpoint("10.0.0.2", false)], "ports": [{"port": 8080}]}),
        json!({"addressType": "IPv4", "endpoints": [endpoint("10.0.0.1", true)]}),
        json!({"addressType": "FQDN", "endpoints": [endpoint("x.example", true)]}),
    ];
    let slices = slices(&made(Some(ServiceType::ClusterIp), &[], edge()), UID, &of_edge);
    let [(name, slice)] = &*slices else { panic!("{slices:?}") };
    assert_eq!(name.to_string(), "shop/edge-tidegate-ipv4");
    assert_eq!(slice["endpoints"], json!([endpoint("10.0.0.1", true), endpoint("10.0.0.2", false)]));
    let ports = json!([{"name": "tcp-80", "protocol": "TCP", "port": 20080}, {"name": "udp-53", "protocol": "UDP", "port": 20053}]);
    assert_eq!(slice["ports"], ports);
    assert_eq!(
        slice["metadata"]["labels"],
        json!({"team": "shop", (SERVICE_NAME): "edge-tidegate", (MANAGED_BY.0): MANAGED_BY.1})
    );
    assert_eq!(slice["metadata"]["ownerReferences"][0]["uid"], UID);
}

#[test]
fn invalid_endpoint_addresses_are_left_out() {
    let at = |addresses: &[&str]| {
        let at = Endpoints::At(addresses.iter().map(|it| it.parse().unwrap()).collect());
        let slices = slices(&made(None, &[], at), UID, &[]);
        slices
            .into_iter()
            .map(|(name, slice)| format!("{} {}", name.name, slice["endpoints"][0]["addresses"][0]))
            .collect::<Vec<_>>()
    };
    assert_eq!(at(&["127.0.1.1", "::1", "169.254.0.1", "fe80::1"]), [""; 0]);
    let both = ["edge-tidegate-ipv4 \"192.0.2.1\"", "edge-tidegate-ipv6 \"2001:db8::1\""];
    assert_eq!(at(&["127.0.1.1", "192.0.2.1", "2001:db8::1"]), both);
}

/// Every object that is created for a Gateway.
fn written() -> Vec<(Kind, Value)> {
    let kinds = [None, Some(ServiceType::LoadBalancer), Some(ServiceType::NodePort), Some(ServiceType::ClusterIp)];
    let pods = [json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]})];
    let of_kind = |kind| {
        let made = made(kind, &["192.0.2.1"], edge());
        let slices = slices(&made, UID, &pods).into_iter().map(|(_, slice)| (Kind::EndpointSlice, slice));
        [(Kind::Service, of(&made))].into_iter().chain(slices).collect::<Vec<_>>()
    };
    kinds.into_iter().flat_map(of_kind).collect()
}

#[test]
fn no_object_of_ours_gets_a_finding() {
    let written = written();
    assert_eq!(written.len(), 8);
    for (kind, mut object) in written {
        object["metadata"]["resourceVersion"] = json!("1");
        let projected = tidegate_config::project::project(kind, object.to_string().as_bytes()).unwrap();
        assert!(projected.findings.is_empty(), "{:?} of {object}", projected.findings);
    }
}
