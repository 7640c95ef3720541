//! Changes that users make to Services, Ingresses, classes, Secrets and namespaces.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::generate_simple_self_signed;
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};
use tidegate_tests::cluster::{PUBLIC, Steady};
use tidegate_tests::{certificate_of, eventually, moment};

use crate::stage::{Stage, ingress, measured, rule, service};

pub(crate) async fn a_target_port_changes(stage: &mut Stage) {
    stage.app("target").await;
    let steady = stage.steady("target.test");
    let patch = json!({"spec": {"ports": [{"name": "http", "port": 80, "targetPort": "other"}]}});
    let what = "a target port changes, the new one answers";
    stage
        .change(&service("target"), &patch, "target.test", what, |answer| {
            answer.headers.get("pod-address").is_some_and(|at| at.to_str().is_ok_and(|at| at.ends_with(":8081")))
        })
        .await;
    steady.stop().await.all();
}

pub(crate) async fn a_service_port_is_renumbered(stage: &mut Stage) {
    stage.app("port").await;
    let patch = json!({"spec": {"ports": [{"name": "http", "port": 81, "targetPort": "http"}]}});
    let what = "a Service port goes that an Ingress names, answered 503";
    stage.change(&service("port"), &patch, "port.test", what, |answer| answer.status == 503).await;
    let patch = json!({"spec": {"rules": [rule("port.test", 81)]}});
    let what = "the Ingress names the new port, answered 200";
    stage.change(&ingress("port"), &patch, "port.test", what, |answer| answer.status == 200).await;
}

/// Waits until the status of an Ingress has the address of the edge.
async fn tells_where_it_is(stage: &Stage, path: &str) {
    eventually("the Ingress tells its address", || async {
        let status = stage.cluster.api.get(path).await["status"].clone();
        let want = json!({"loadBalancer": {"ingress": [{"ip": PUBLIC}]}});
        if status == want { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// Overwrites the address of the edge with another, and waits until it is back.
pub(crate) async fn a_status_is_mended(stage: &Stage, name: &str) {
    let other = r#"{"status": {"loadBalancer": {"ingress": [{"hostname": "elsewhere.test"}]}}}"#;
    let what = ["-n", name, "patch", "ingress", "web", "--subresource=status", "--type=merge", "-p", other];
    stage.cluster.kubectl.run(&what).await;
    tells_where_it_is(stage, &ingress(name)).await;
}

/// The address is in its status, and comes back when another client overwrites it.
pub(crate) async fn an_ingress_tells_where_it_is(stage: &mut Stage) {
    stage.app("told").await;
    tells_where_it_is(stage, &ingress("told")).await;
    a_status_is_mended(stage, "told").await;
}

pub(crate) async fn an_ingress_is_edited(stage: &mut Stage) {
    stage.app("edited").await;
    let steady = stage.steady("edited.test");
    let patch = json!({"spec": {"rules": [rule("edited.test", 80), rule("added.test", 80)]}});
    let path = ingress("edited");
    stage.change(&path, &patch, "added.test", "a host is added", |answer| answer.status == 200).await;
    let patch = json!({"spec": {"rules": [rule("edited.test", 80)]}});
    stage.change(&path, &patch, "added.test", "a host is removed", |answer| answer.status == 404).await;
    steady.stop().await.all();
    let patch = json!({"spec": {"rules": [rule("renamed.test", 80)]}});
    stage.change(&path, &patch, "renamed.test", "a host is renamed", |answer| answer.status == 200).await;
    stage.until("edited.test", "it is gone", |answer| answer.status == 404).await;
}

pub(crate) async fn a_class_changes(stage: &mut Stage) {
    stage.app("classed").await;
    let path = ingress("classed");
    let class = |name: &str| json!({"spec": {"ingressClassName": name}});
    let host = "classed.test";
    stage.change(&path, &class("other"), host, "an Ingress goes to another class", |answer| answer.status == 404).await;
    stage.change(&path, &class("tidegate"), host, "an Ingress comes back", |answer| answer.status == 200).await;
    stage.change(&path, &class("late"), host, "an Ingress goes to no class", |answer| answer.status == 404).await;
    let classes = "/apis/networking.k8s.io/v1/ingressclasses";
    let late = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "late"},
        "spec": {"controller": "tidegate.io/ingress"}});
    let begun = moment();
    stage.cluster.api.create(classes, &late).await;
    stage.until(host, "its class has come", |answer| answer.status == 200).await;
    measured("the class of an Ingress is made", begun);
    let begun = moment();
    stage.cluster.api.delete(&format!("{classes}/late")).await;
    stage.until(host, "its class has gone", |answer| answer.status == 404).await;
    measured("the class of an Ingress is deleted", begun);
}

/// A certificate for a host, and the same with its key as the content of a Secret.
pub(crate) fn certificate(host: &str) -> (CertificateDer<'static>, Value) {
    let made = generate_simple_self_signed([host.to_owned()]).expect("a certificate");
    let text = |pem: String| Value::String(STANDARD.encode(pem));
    let content = json!({"tls.crt": text(made.cert.pem()), "tls.key": text(made.signing_key.serialize_pem())});
    (made.cert.der().clone(), content)
}

async fn shown(stage: &Stage, host: &str, want: &CertificateDer<'static>) {
    eventually("the certificate", || async {
        let got = certificate_of(stage.edge.https, host).await?;
        if got == *want { Ok(()) } else { Err("another".to_owned()) }
    })
    .await;
}

pub(crate) async fn a_certificate_is_rotated(stage: &mut Stage) {
    stage.app("secret").await;
    let host = "secret.test";
    let secrets = "/api/v1/namespaces/secret/secrets";
    let (first, content) = certificate(host);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web"}, "type": "kubernetes.io/tls",
        "data": content});
    stage.cluster.api.create(secrets, &secret).await;
    let begun = moment();
    let tls = json!({"spec": {"tls": [{"hosts": [host], "secretName": "web"}]}});
    stage.cluster.api.merge(&ingress("secret"), &tls).await;
    shown(stage, host, &first).await;
    measured("an Ingress names a certificate, handshakes show it", begun);

    let steady = Steady::start_tls(stage.edge.https, host, "/");
    let (second, content) = certificate(host);
    let begun = moment();
    stage.cluster.api.merge(&format!("{secrets}/web"), &json!({"data": content})).await;
    shown(stage, host, &second).await;
    measured("a certificate is rotated, handshakes show it", begun);
    steady.stop().await.all();
}

pub(crate) async fn a_namespace_goes(stage: &mut Stage) {
    stage.app("leaving").await;
    let path = "/api/v1/namespaces/leaving";
    let begun = moment();
    stage.cluster.api.delete(path).await;
    stage.until("leaving.test", "it is gone", |answer| answer.status == 404).await;
    measured("a namespace is deleted, answered 404", begun);
    eventually("the namespace is gone", || async {
        let (status, answer) = stage.cluster.api.ask(http::Method::GET, path, None).await?;
        if status == 404 { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    // Another object of that name is not a remnant of the first.
    stage.app("leaving").await;
}
