//! Writes the addresses in the status of an Ingress.

use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde_json::{Value, json};
use tidegate_config::object::{ObjectName, Uid};
use tidegate_config::project::PublicAddress;

use super::send::Prepared;

/// A merge patch on the subresource `status`, which replaces the list of addresses and leaves all other fields
/// unchanged. The API server refuses it for an object with another uid. `manager` is the field
/// manager.
pub(super) fn patch(ingress: &ObjectName, uid: Option<Uid>, addresses: &[PublicAddress], manager: &str) -> Prepared {
    let collection = format!("/apis/networking.k8s.io/v1/namespaces/{}/ingresses", ingress.namespace);
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    Request::new(collection).patch_subresource("status", &ingress.name, &params, &Patch::Merge(body(uid, addresses)))
}

fn body(uid: Option<Uid>, addresses: &[PublicAddress]) -> Value {
    let entry = |address: &PublicAddress| {
        let fields = [("ip", &address.ip), ("hostname", &address.hostname)];
        let fields = fields.into_iter().filter_map(|(key, text)| Some((key.to_owned(), json!(text.as_deref()?))));
        Value::Object(fields.collect())
    };
    let metadata = uid.map_or_else(|| json!({}), |uid| json!({"uid": uid.to_string()}));
    json!({"metadata": metadata, "status": {"loadBalancer": {"ingress": addresses.iter().map(entry).collect::<Vec<_>>()}}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_ip_or_hostname() {
        let addresses = [PublicAddress::of_ip("2001:db8::1"), PublicAddress::of_hostname("lb.example")];
        let want = json!([{"ip": "2001:db8::1"}, {"hostname": "lb.example"}]);
        let uid = "6f1b4bb4-54b9-4d2e-9a38-1d3a9c6f0a11";
        for (known, metadata) in [(Uid::parse(uid), json!({"uid": uid})), (None, json!({}))] {
            let want = json!({"metadata": metadata, "status": {"loadBalancer": {"ingress": want}}});
            assert_eq!(body(known, &addresses), want);
        }
    }
}
