//! The memory for one Ingress grows with the size of the object, and not with the product of two sizes. The tests count
//! the parts of an Ingress that has many hosts and as many of another part.

use std::time::SystemTime;

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tidegate_config::object::Kind;

use crate::bench::Bench;
use crate::hostile::loud;
use crate::manifests::{service, slice};

pub(crate) const HOSTS: usize = 500;
/// The maximum number of Secrets that are read for one host of an Ingress.
const SECRETS: usize = 16;
/// The limit of findings from the projection of one object, with the one about the omitted ones.
const READING: usize = 257;

fn host(number: usize) -> String {
    format!("h{number}.loud.example")
}

/// An Ingress with all hosts, each of which leads to a Service.
pub(crate) fn wide(service: impl Fn(usize) -> String, tls: &[Value]) -> Value {
    let rule = |number: usize| {
        let mut rule = loud("x", &host(number), &["/"])["spec"]["rules"][0].take();
        rule["http"]["paths"][0]["backend"]["service"]["name"] = service(number).into();
        rule
    };
    let mut ingress = loud("x", "", &[]);
    ingress["spec"]["rules"] = (0..HOSTS).map(rule).collect();
    ingress["spec"]["tls"] = tls.into();
    ingress
}

pub(crate) fn entry(hosts: &[String], secret: &str) -> Value {
    json!({"hosts": hosts, "secretName": secret})
}

/// A wildcard for all hosts.
pub(crate) fn below() -> [String; 1] {
    ["*.loud.example".to_owned()]
}

/// A Secret with a certificate for a name, or without a certificate.
fn secret(name: &str, of: Option<&str>) -> Value {
    let pem = of.map(|of| {
        let made = rcgen::generate_simple_self_signed([of.to_owned()]).unwrap();
        [made.cert.pem(), made.signing_key.serialize_pem()].map(|pem| ByteString(pem.into_bytes()))
    });
    let data = pem.map_or(json!({}), |[chain, key]| json!({"tls.crt": chain, "tls.key": key}));
    json!({"metadata": {"namespace": "loud", "name": name}, "type": "kubernetes.io/tls", "data": data})
}

/// A loop with the neighbour, and the Service of the loud tenant's Ingress.
fn bench(secrets: &[(&str, Option<&str>)]) -> Bench {
    let mut bench = Bench::quiet();
    bench.apply(Kind::Service, service("loud/x"));
    bench.apply(Kind::EndpointSlice, slice("loud/x", &["10.0.0.2"]));
    secrets.iter().for_each(|(name, of)| bench.apply(Kind::Secret, secret(name, *of)));
    bench
}

/// Compares the number of findings over all units, counted once per object, the number of certificates over all hosts,
/// and the reports.
#[track_caller]
fn check(what: &str, tls: &[Value], secrets: &[(&str, Option<&str>)], held: usize, shown: usize, told: &[&str]) {
    let mut bench = bench(secrets);
    bench.apply(Kind::Ingress, wide(|_| "x".to_owned(), tls));
    bench.settle();
    let compiled = bench.reconciler.model().compiled();
    let findings: usize = compiled.findings.by_unit().keys().map(|unit| compiled.findings.of(unit).count()).sum();
    let certificates = compiled.parts.hosts.iter().flat_map(|(_, host)| host.certificates.iter());
    assert_eq!(
        (findings, certificates.map(|(_, all)| all.len()).sum()),
        (held, shown),
        "{what}: findings, certificates"
    );
    let mut reasons: Vec<_> = compiled.all_findings().iter().map(|finding| finding.problem.reason()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    assert_eq!(reasons, told, "{what}");
}

#[test]
fn work_grows_with_hosts_plus_tls_entries_not_with_their_product() {
    let same: Vec<Value> = (0..HOSTS).map(|_| entry(&below(), "s")).collect();
    check("a Secret that is missing", &same[..1], &[], 1, 0, &["CertificateMissing"]);
    check("the same, in as many entries", &same, &[], 1, 0, &["CertificateMissing"]);
    check("a Secret that is there", &same, &[("s", Some("*.loud.example"))], 0, HOSTS, &[]);
    check("one for another name", &same, &[("s", Some("else.where"))], HOSTS, 0, &["CertificateNotForHost"]);
    check("one of nothing", &same, &[("s", None)], 1, 0, &["CertificateBroken"]);
    let named = |secret: usize| format!("s{secret}");
    let told = ["CertificateMissing", "RuleDropped"];
    let others: Vec<Value> = (0..HOSTS).map(|number| entry(&below(), &named(number))).collect();
    check("as many Secrets for one wildcard", &others, &[], SECRETS + READING, 0, &told);
    let hostless: Vec<Value> = (0..HOSTS).map(|number| entry(&[], &named(number))).collect();
    check("as many Secrets for all hosts", &hostless, &[], SECRETS * HOSTS + READING, 0, &told);
    let own: Vec<Value> = (0..HOSTS).map(|number| entry(&[host(number)], &named(number))).collect();
    check("a Secret for each host", &own, &[], HOSTS, 0, &["CertificateMissing"]);
    let all: Vec<String> = (0..HOSTS).map(host).collect();
    let both = [entry(&all, "s"), entry(&all, "t")];
    let certificates = [("s", Some("*.loud.example")), ("t", Some("*.loud.example"))];
    check("two certificates for each host", &both, &certificates, 0, 2 * HOSTS, &[]);
    check(
        "one of them for some hosts alone",
        &both,
        &[certificates[0], ("t", Some("h7.loud.example"))],
        HOSTS - 1,
        HOSTS + 1,
        &["CertificateNotForHost"],
    );
}

/// Each host gets a new backend that does not exist yet: the host waits for that one only.
#[track_caller]
fn check_awaited(service: impl Fn(usize) -> String, tls: &[Value], awaited: &str) {
    let mut bench = bench(&[("s", Some("*.loud.example"))]);
    bench.apply(Kind::Ingress, wide(|_| "x".to_owned(), &[entry(&below(), "s")]));
    bench.settle();
    bench.apply(Kind::Ingress, wide(service, tls));
    bench.reconcile();
    let waits = bench.reconciler.not_serving(bench.now, SystemTime::UNIX_EPOCH).waits;
    let awaits: Vec<Vec<String>> =
        waits.iter().map(|wait| wait.awaited.iter().map(ToString::to_string).collect()).collect();
    assert_eq!((awaits.len(), awaits.iter().map(Vec::len).sum()), (HOSTS, HOSTS), "hosts that wait, and for how much");
    assert_eq!(awaits[0], [awaited], "{}", waits[0].unit);
}

#[test]
fn a_host_waits_only_for_its_own_references() {
    check_awaited(|number| format!("y{number}"), &[entry(&below(), "s")], "Service loud/y0");
    let own: Vec<Value> = (0..HOSTS).map(|number| entry(&[host(number)], &format!("s{number}"))).collect();
    check_awaited(|_| "x".to_owned(), &own, "Secret loud/s0");
}
