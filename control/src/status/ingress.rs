//! One write of an Ingress's status: where it is reached, and nothing else of it.

use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tidegate_config::object::ObjectName;
use tidegate_config::project::PublicAddress;

use super::FIELD_MANAGER;

/// What became of a write.
#[derive(Debug)]
pub(super) enum Outcome {
    Written,
    /// The object is not there any more.
    Gone,
    /// The API server said no, and why.
    Refused(String),
    /// There was no answer that says anything.
    Failed(String),
}

impl Outcome {
    /// Every name that [`Outcome::as_str`] gives.
    pub(super) const ALL: [&'static str; 4] = ["written", "gone", "refused", "failed"];

    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Gone => "gone",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
        }
    }
}

/// Writes by a merge patch on the subresource `status`, which replaces the list of addresses and touches no other field.
pub(super) async fn write(client: &kube::Client, ingress: &ObjectName, addresses: &[PublicAddress]) -> Outcome {
    let collection = format!("/apis/networking.k8s.io/v1/namespaces/{}/ingresses", ingress.namespace);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(body(addresses));
    let request = match Request::new(collection).patch_subresource("status", &ingress.name, &params, &patch) {
        Ok(request) => request,
        Err(why) => return Outcome::Failed(why.to_string()),
    };
    // The watch brings the object as it is then; nothing of the answer is read.
    match client.request::<IgnoredAny>(request).await {
        Ok(IgnoredAny) => Outcome::Written,
        Err(kube::Error::Api(status)) if status.code == 404 => Outcome::Gone,
        Err(kube::Error::Api(status)) => Outcome::Refused(format!("{}: {}", status.code, status.message)),
        Err(why) => Outcome::Failed(why.to_string()),
    }
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
    fn an_address_is_written_by_what_it_is() {
        let addresses = [PublicAddress::of_ip("2001:db8::1"), PublicAddress::of_hostname("lb.example")];
        let want = json!([{"ip": "2001:db8::1"}, {"hostname": "lb.example"}]);
        assert_eq!(body(&addresses), json!({"status": {"loadBalancer": {"ingress": want}}}));
    }
}
