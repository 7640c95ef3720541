//! Public addresses of Ingresses and Services, according to the cluster. Others need them (external-dns, cert-manager,
//! people); routing does not read them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::raw_object::RawObject;

/// The maximum number of addresses of one Service.
const ADDRESSES_MAX: usize = 64;

/// An entry of `status.loadBalancer.ingress`, without its ports.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PublicAddress {
    /// `ip`, as written.
    pub ip: Option<Arc<str>>,
    /// `hostname`.
    pub hostname: Option<Arc<str>>,
}

impl PublicAddress {
    /// An IP address.
    pub fn of_ip(ip: impl Into<Arc<str>>) -> Self {
        Self { ip: Some(ip.into()), hostname: None }
    }

    /// A DNS name.
    pub fn of_hostname(hostname: impl Into<Arc<str>>) -> Self {
        Self { ip: None, hostname: Some(hostname.into()) }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct StatusJson {
    load_balancer: Option<LoadBalancerJson>,
}

#[derive(Deserialize, Default)]
struct LoadBalancerJson {
    ingress: Option<Vec<EntryJson>>,
}

#[derive(Deserialize)]
struct EntryJson {
    ip: Option<Arc<str>>,
    hostname: Option<Arc<str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct SpecJson {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(rename = "clusterIP")]
    cluster_ip: Option<String>,
    #[serde(rename = "externalIPs")]
    external_ips: Option<Vec<String>>,
    external_name: Option<String>,
}

/// Addresses, each once and in order.
pub(super) fn unique<C: FromIterator<PublicAddress>>(addresses: Vec<PublicAddress>) -> C {
    addresses.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

/// The addresses in a status, as an Ingress has one.
pub(super) fn of_status(status: Option<&RawValue>) -> impl Iterator<Item = PublicAddress> {
    let status: StatusJson = lenient(status);
    let entries = status.load_balancer.unwrap_or_default().ingress.unwrap_or_default();
    let named = |text: Option<Arc<str>>| text.filter(|text| !text.is_empty());
    let addresses =
        entries.into_iter().map(move |entry| PublicAddress { ip: named(entry.ip), hostname: named(entry.hostname) });
    addresses.filter(|address| address.ip.is_some() || address.hostname.is_some())
}

/// The addresses of a Service, by the rules of ingress-nginx for `--publish-service`; of more than 64, the first.
pub(super) fn of_service(source: &RawObject<'_>) -> Vec<PublicAddress> {
    let spec: SpecJson = lenient(source.spec);
    let cluster = spec.cluster_ip.filter(|ip| !ip.is_empty() && ip != "None").map(PublicAddress::of_ip);
    let external: Vec<_> = spec.external_ips.unwrap_or_default().into_iter().map(PublicAddress::of_ip).collect();
    let mut addresses: Vec<_> = match spec.kind.as_deref() {
        Some("ExternalName") => spec.external_name.map(PublicAddress::of_hostname).into_iter().collect(),
        Some("LoadBalancer") => of_status(source.status).chain(external).collect(),
        Some("NodePort") if !external.is_empty() => external,
        Some(_) | None => cluster.into_iter().collect(),
    };
    addresses.truncate(ADDRESSES_MAX);
    addresses
}

fn lenient<'a, T: Deserialize<'a> + Default>(raw: Option<&'a RawValue>) -> T {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Kind;
    use crate::project::project;

    #[track_caller]
    fn check(kind: Kind, parts: &str, want: &[&str]) {
        let bytes = format!(r#"{{"metadata":{{"name":"a","namespace":"b","resourceVersion":"1"}},{parts}}}"#);
        let shown = |address: PublicAddress| match (address.ip, address.hostname) {
            (Some(ip), None) => ip.to_string(),
            (None, Some(name)) => format!("name {name}"),
            both => format!("{both:?}"),
        };
        let got: Vec<String> = project(kind, bytes.as_bytes()).unwrap().addresses.into_iter().map(shown).collect();
        assert_eq!(got, want, "{parts}");
    }

    #[test]
    fn addresses_of_an_ingress() {
        let status = |ingress: &str| format!(r#""status":{{"loadBalancer":{{"ingress":{ingress}}}}}"#);
        check(Kind::Ingress, r#""spec":{}"#, &[]);
        check(Kind::Ingress, r#""status":{"loadBalancer":{}}"#, &[]);
        check(Kind::Ingress, r#""status":[]"#, &[]);
        check(Kind::Ingress, &status("null"), &[]);
        check(Kind::Ingress, &status(r#"[{"ip":7}]"#), &[]);
        check(Kind::Ingress, &status(r#"[{"ip":""},{}]"#), &[]);
        check(
            Kind::Ingress,
            &status(r#"[{"hostname":"b.example"},{"ip":"2.2.2.2"},{"ip":"1.1.1.1"},{"ip":"2.2.2.2"}]"#),
            &["name b.example", "1.1.1.1", "2.2.2.2"],
        );
        check(Kind::Secret, &status(r#"[{"ip":"1.1.1.1"}]"#), &[]);
    }

    #[test]
    fn addresses_of_a_service() {
        let status = r#""status":{"loadBalancer":{"ingress":[{"hostname":"lb.example"},{"ip":"1.1.1.1","ports":[]}]}}"#;
        let check = |kind: &str, more: &str, want: &[&str]| {
            check(Kind::Service, &format!(r#""spec":{{"type":"{kind}","clusterIP":"10.0.0.1"{more}}},{status}"#), want);
        };
        let external = r#","externalIPs":["3.3.3.3","1.1.1.1"]"#;
        check("LoadBalancer", "", &["name lb.example", "1.1.1.1"]);
        check("LoadBalancer", external, &["name lb.example", "1.1.1.1", "3.3.3.3"]);
        check("NodePort", external, &["1.1.1.1", "3.3.3.3"]);
        check("NodePort", "", &["10.0.0.1"]);
        check("ClusterIP", external, &["10.0.0.1"]);
        check("", "", &["10.0.0.1"]);
        check("ExternalName", r#","externalName":"edge.example""#, &["name edge.example"]);
    }

    #[test]
    fn addresses_of_a_headless_service() {
        check(Kind::Service, r#""spec":{"clusterIP":"None"}"#, &[]);
        check(Kind::Service, r#""spec":{}"#, &[]);
    }
}
