//! Secrets that are followed by name, and routes that wait for them.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_config::model::HostPattern;
use tidegate_config::object::{Kind, ObjectName};
use tidegate_control::SecretInterest;
use tidegate_control::options::{Options, Secrets};

use crate::bench::Bench;
use crate::manifests::{class, ingress};

fn options() -> Options {
    let secrets = Secrets::Referenced { refresh: Duration::from_secs(300) };
    Options { secrets, default_certificate: Some(ObjectName::new("edge", "default")), ..Options::default() }
}

/// The Ingress of these tests with TLS entries for these Secrets.
fn with_tls(secrets: &[&str]) -> Value {
    let mut ingress = ingress("old");
    let entry = |secret: &&str| json!({"hosts": ["web.example"], "secretName": secret});
    ingress["spec"]["tls"] = secrets.iter().map(entry).collect();
    ingress
}

fn text(changes: &[SecretInterest]) -> String {
    let changes = changes.iter().map(|change| match change {
        SecretInterest::Add(name) => format!("+{name}"),
        SecretInterest::Remove(name) => format!("-{name}"),
    });
    changes.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_first_model_waits_for_the_secrets_it_refers_to() {
    let mut bench = Bench::untold(options());
    bench.list(Kind::IngressClass, &[class()]);
    bench.list(Kind::Service, &[]);
    bench.list(Kind::EndpointSlice, &[]);
    assert!(bench.reconciler.reconcile(bench.now).is_none());
    bench.list(Kind::Ingress, &[with_tls(&["a", "b"])]);
    bench.reconcile();
    assert_eq!(text(&bench.secrets), "+edge/default +shop/a +shop/b");
    assert!(!bench.reconciler.running());
    bench.reconcile();
    assert_eq!(bench.secrets.len(), 3, "they are asked for once");
    bench.list_in_part(Kind::Secret);
    bench.reconcile();
    assert!(bench.published.is_some());
    assert_eq!(bench.secrets.len(), 3);
}

#[test]
fn the_first_model_waits_for_missing_secrets_no_longer_than_its_grace() {
    let mut bench = Bench::untold(options());
    for kind in [Kind::IngressClass, Kind::Service, Kind::EndpointSlice, Kind::Ingress] {
        bench.list(kind, &[]);
    }
    bench.reconcile();
    assert_eq!(text(&bench.secrets), "+edge/default");
    bench.fail(Kind::Secret);
    bench.now = bench.reconciler.wake().expect("a deadline");
    bench.reconcile();
    assert!(bench.published.is_some());
}

#[test]
fn without_classes_all_secrets_are_requested_with_the_first_model() {
    let mut bench = Bench::untold(options());
    for kind in [Kind::Service, Kind::EndpointSlice] {
        bench.list(kind, &[]);
    }
    bench.list(Kind::Ingress, &[with_tls(&["a"])]);
    bench.reconcile();
    assert_eq!(text(&bench.secrets), "", "whose the Ingresses are may yet be told");
    bench.now = bench.reconciler.wake().expect("a deadline");
    bench.reconcile();
    assert_eq!(text(&bench.secrets), "+edge/default +shop/a");
    assert!(bench.published.is_some());
}

#[test]
fn each_change_of_references_is_announced_once() {
    let mut bench = Bench::running(options());
    assert_eq!(text(&bench.secrets), "+edge/default");
    let check = |bench: &mut Bench, object: (Kind, Value), want: &str| {
        bench.secrets.clear();
        bench.apply(object.0, object.1);
        bench.reconcile();
        assert_eq!(text(&bench.secrets), want);
    };
    check(&mut bench, (Kind::Ingress, with_tls(&["a", "b"])), "+shop/a +shop/b");
    let mut second = with_tls(&["b", "c"]);
    second["metadata"]["name"] = "second".into();
    check(&mut bench, (Kind::Ingress, second.clone()), "+shop/c");
    check(&mut bench, (Kind::Ingress, with_tls(&["a"])), "");
    second["spec"]["ingressClassName"] = "others".into();
    check(&mut bench, (Kind::Ingress, second), "-shop/b -shop/c");
    let mut foreign = class();
    foreign["spec"]["controller"] = "k8s.io/ingress-nginx".into();
    check(&mut bench, (Kind::IngressClass, foreign), "-shop/a");
    check(&mut bench, (Kind::IngressClass, class()), "+shop/a");
    bench.secrets.clear();
    bench.delete(Kind::Ingress, "web");
    bench.reconcile();
    assert_eq!(text(&bench.secrets), "-shop/a");
}

/// A Secret with a certificate for `web.example`.
fn certificate(name: &str) -> Value {
    let made = rcgen::generate_simple_self_signed(["web.example".to_owned()]).unwrap();
    let bytes = |pem: String| k8s_openapi::ByteString(pem.into_bytes());
    let data = json!({"tls.crt": bytes(made.cert.pem()), "tls.key": bytes(made.signing_key.serialize_pem())});
    json!({"metadata": {"namespace": "shop", "name": name}, "type": "kubernetes.io/tls", "data": data})
}

impl Bench {
    /// Compares the number of certificates for `web.example`.
    #[track_caller]
    fn check_certificates(&self, want: usize) {
        let parts = self.published.as_ref().expect("a model");
        let routes = parts.hosts.shared().get(&HostPattern::Exact("web.example".into())).expect("the host");
        assert_eq!(routes.certificates.iter().map(|(_, all)| all.len()).sum::<usize>(), want);
    }
}

#[test]
fn a_certificate_stays_until_the_secret_of_the_next_one_arrives() {
    let mut bench = Bench::web();
    bench.apply(Kind::Secret, certificate("a"));
    bench.apply(Kind::Ingress, with_tls(&["a"]));
    bench.reconcile();
    bench.check_certificates(1);

    bench.apply(Kind::Ingress, with_tls(&["b"]));
    bench.reconcile();
    bench.check_certificates(1);
    bench.check_withheld(&[
        "host web.example: unchanged until 1970-01-01T00:01:01.000Z at the latest, waiting for Secret shop/b",
    ]);
    bench.apply(Kind::Secret, certificate("b"));
    bench.reconcile();
    bench.check_certificates(1);
    bench.check_withheld(&[]);

    // The wait is short, and there is none if no Secret is expected.
    bench.apply(Kind::Ingress, with_tls(&["c"]));
    bench.reconcile();
    bench.check_certificates(1);
    bench.now = bench.reconciler.wake().expect("a deadline");
    bench.reconcile();
    bench.check_certificates(0);
    bench.apply(Kind::Ingress, with_tls(&["b"]));
    bench.reconcile();
    bench.check_certificates(1);
    bench.delete(Kind::Secret, "b");
    bench.reconcile();
    bench.check_certificates(0);
}
