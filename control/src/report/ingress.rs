//! Writes the addresses in the status of an Ingress.

use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde_json::{Value, json};
use tidegate_config::object::ObjectName;
use tidegate_config::project::PublicAddress;

use super::FIELD_MANAGER;
use super::send::Prepared;

/// A merge patch on the subresource `status`, which replaces the list of addresses and leaves all other fields
/// unchanged.
pub(super) fn patch(ingress: &ObjectName, addresses: &[PublicAddress]) -> Prepared {
    let collection = format!("/apis/networking.k8s.io/v1/namespaces/{}/ingresses", ingress.namespace);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    Request::new(collection).patch_subresource("status", &ingress.name, &params, &Patch::Merge(body(addresses)))
}

fn body(addresses: &[PublicAddress]) -> Value {
    let entry = |address: &PublicAddress| {
        let fields = [("ip", &address.ip), ("hostname", &address.hostname)];
        let fields = fields.into_iter().filter_map(|(key, text)| Some((key.to_owned(), json!(text.as_deref()?))));
        Value::Object(fields.collect())
    };
    json!({"status": {"loadBalancer": {"ingress": addresses.iter().map(entry).collect::<Vec<_>>()}}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_ip_or_hostname() {
        let addresses = [PublicAddress::of_ip("2001:db8::1"), PublicAddress::of_hostname("lb.example")];
        let want = json!([{"ip": "2001:db8::1"}, {"hostname": "lb.example"}]);
        assert_eq!(body(&addresses), json!({"status": {"loadBalancer": {"ingress": want}}}));
    }
}
