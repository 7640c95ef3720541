//! The Service of a Gateway: the contents of a Service that was created for a Gateway, read so that every replica knows
//! the ports of the edge's pods that the Gateway has, and its addresses.

use std::collections::BTreeMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::model::Transport;
use crate::object::{Kind, Uid};
use crate::project::public_address::{self, PublicAddress};
use crate::project::raw_object::RawObject;
use crate::project::service::{PORTS_MAX, port_number, transport};

/// The annotation with the controller that created a Service for a Gateway: its `controllerName`.
pub const CONTROLLER_ANNOTATION: &str = "tidegate.io/gateway-controller";

/// The annotation with a hash of an object as it was applied: it differs if a field is no longer applied.
pub const APPLIED_ANNOTATION: &str = "tidegate.io/applied";

/// The contents of a Service that a Gateway owns (`metadata.ownerReferences`, with `controller: true`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayService {
    /// The name of the Gateway, in the Service's namespace.
    pub gateway: Arc<str>,
    /// The uid of the Gateway.
    pub uid: Uid,
    /// The controller that created it; `None` if Tidegate did not create it.
    pub controller: Option<Arc<str>>,
    /// `spec.ports`: the `targetPort` of each port, where that is a number.
    pub targets: BTreeMap<(Transport, u16), u16>,
    /// Its addresses, each once and in order.
    pub addresses: Box<[PublicAddress]>,
    /// A digest of its labels, annotations and `spec`, which changes with them.
    pub digest: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerJson {
    api_version: String,
    kind: String,
    name: Arc<str>,
    uid: String,
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Deserialize, Default)]
struct SpecJson<'a> {
    #[serde(borrow)]
    ports: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortJson {
    port: i64,
    protocol: Option<String>,
    target_port: i64,
}

/// Reads the Service of a Gateway. Any author of a Service can write these fields, so they are only a request: the
/// caller checks whether the ports are free. Fields that cannot be read count as absent.
pub(in crate::project) fn of(source: &RawObject<'_>) -> Option<GatewayService> {
    let owners: Vec<&RawValue> = serde_json::from_str(source.owners?.get()).ok()?;
    let owners = owners.into_iter().filter_map(|raw| serde_json::from_str::<OwnerJson>(raw.get()).ok());
    let group = |owner: &OwnerJson| owner.api_version.split('/').next() == Some(Kind::Gateway.group());
    let is_gateway = |owner: &OwnerJson| owner.kind == Kind::Gateway.as_str() && group(owner);
    let owner = owners.into_iter().find(|owner| owner.controller == Some(true)).filter(is_gateway)?;
    let annotations = source.annotations().unwrap_or_default();
    let controller = annotations.get(CONTROLLER_ANNOTATION).and_then(|raw| serde_json::from_str(raw.get()).ok());
    let spec: SpecJson<'_> = source.spec.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let ports = spec.ports.unwrap_or_default();
    let ports = ports.into_iter().take(PORTS_MAX).filter_map(|raw| serde_json::from_str(raw.get()).ok());
    let target = |PortJson { port, protocol, target_port }: PortJson| {
        Some(((transport(protocol.as_deref())?, port_number(port)?), port_number(target_port)?))
    };
    let labels = source.labels.map(RawValue::get);
    let annotations: BTreeMap<String, &str> = annotations.into_iter().map(|(key, raw)| (key, raw.get())).collect();
    let state = foldhash::quality::FixedState::with_seed(0);
    Some(GatewayService {
        gateway: owner.name,
        uid: Uid::parse(&owner.uid)?,
        controller,
        targets: ports.filter_map(target).collect(),
        addresses: public_address::unique(public_address::of_service(source)),
        digest: state.hash_one((labels, annotations, source.spec.map(RawValue::get))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "6f1b4bb4-54b9-4d2e-9a38-1d3a9c6f0a11";

    fn read(metadata: &str, rest: &str) -> Option<GatewayService> {
        let text =
            format!(r#"{{"metadata":{{"name":"a","namespace":"shop","resourceVersion":"1",{metadata}}},{rest}}}"#);
        of(&RawObject::identify(Kind::Service, text.as_bytes()).unwrap())
    }

    fn owned_by(kind: &str, group: &str, controller: bool) -> String {
        format!(
            r#""ownerReferences":[{{"apiVersion":"{group}/v1","kind":"{kind}","name":"edge","uid":"{UID}","controller":{controller}}}]"#
        )
    }

    #[test]
    fn a_service_belongs_to_its_controlling_gateway() {
        let of_gateway = owned_by("Gateway", "gateway.networking.k8s.io", true);
        let annotated = format!(r#"{of_gateway},"annotations":{{"{CONTROLLER_ANNOTATION}":"us/a"}}"#);
        let ports = r#"{"port":80,"targetPort":20080},{"port":53,"protocol":"UDP","targetPort":20053},{"port":81,"targetPort":"http"},
            {"port":82,"protocol":"SCTP","targetPort":20082},{"port":83},{"port":84,"targetPort":70000},7"#;
        let rest = format!(
            r#""spec":{{"type":"LoadBalancer","ports":[{ports}]}},"status":{{"loadBalancer":{{"ingress":[{{"ip":"192.0.2.1"}}]}}}}"#
        );
        let got = read(&annotated, &rest).unwrap();
        assert_eq!(
            (&*got.gateway, got.uid, got.controller.as_deref()),
            ("edge", Uid::parse(UID).unwrap(), Some("us/a"))
        );
        assert_eq!(got.targets, [((Transport::Tcp, 80), 20080), ((Transport::Udp, 53), 20053)].into());
        assert_eq!(*got.addresses, [PublicAddress::of_ip("192.0.2.1")]);
        let other = read(&of_gateway, &rest).unwrap();
        assert_eq!((other.controller, other.digest != got.digest), (None, true));
    }

    #[test]
    fn a_service_with_another_owner_belongs_to_no_gateway() {
        let spec = r#""spec":{"ports":[]}"#;
        for metadata in [
            owned_by("Gateway", "gateway.networking.k8s.io", false),
            owned_by("Gateway", "networking.istio.io", true),
            owned_by("Deployment", "apps", true),
            r#""ownerReferences":7"#.to_owned(),
            r#""ownerReferences":[7]"#.to_owned(),
            r#""labels":{}"#.to_owned(),
        ] {
            assert_eq!(read(&metadata, spec), None, "{metadata}");
        }
        let unreadable = owned_by("Gateway", "gateway.networking.k8s.io", true).replace(UID, "x");
        assert_eq!(read(&unreadable, spec), None);
    }
}
