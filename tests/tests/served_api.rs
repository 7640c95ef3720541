//! The served API of a running edge, with kubectl and plain HTTP as its clients, compared with the answers of the
//! cluster itself.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

#[path = "served_api/fed.rs"]
mod fed;
#[path = "served_api/rotated.rs"]
mod rotated;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use tidegate_tests::{CacheServer, Dev, Kubectl, Link, Reader, Run, eventually, get, items, same};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};

const SHOP: &str = include_str!("manifests/shop.yaml");
/// The kinds that every edge reads, by kubectl's names.
const KINDS: [&str; 4] = ["services", "ingresses", "endpointslices", "ingressclasses"];

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_the_cluster_and_cannot_write() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(cluster) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let run = Run::start(&dev.kubeconfig, &["--https", "127.0.0.1:0", "--serve-api", "127.0.0.1:0"]).await;
    run.ready().await;
    let url = format!("http://{}", run.api.clone().unwrap());
    let served = Reader::of(&url, &[]).unwrap();
    same(&cluster, &served, &KINDS).await;

    for arguments in [
        &["get", "svc", "-n", "shop", "web", "-o", "yaml"][..],
        &["get", "svc", "-A", "--field-selector", "metadata.name=cart", "-o", "name"],
        &["get", "svc", "-A", "--field-selector", "spec.type=ClusterIP", "--chunk-size", "1", "-o", "name"],
        &["get", "endpointslices", "-A", "-l", "kubernetes.io/service-name=web", "-o", "name"],
        &["get", "ing", "-A", "--no-headers", "-o", "custom-columns=N:.metadata.name,V:.metadata.resourceVersion"],
        &["wait", "-n", "shop", "svc/web", "--for=jsonpath={.spec.type}=ClusterIP", "--timeout=20s"],
    ] {
        assert_eq!(cluster.run(arguments).await, served.run(arguments).await, "{arguments:?}");
    }
    // A table: its columns are those of the cluster, except for the age.
    let table = served.run(&["get", "svc", "-n", "shop"]).await;
    assert!(table.contains("CLUSTER-IP") && table.contains("80/TCP"), "{table}");
    assert!(served.run(&["describe", "ing", "-n", "shop", "shop-ingress"]).await.contains("shop.test"));

    for arguments in [&["delete", "svc", "-n", "shop", "web"][..], &["label", "svc", "-n", "shop", "web", "a=b"]] {
        let (code, _, err) = served.tried(arguments).await;
        assert!(code != Some(0) && err.contains("MethodNotAllowed"), "{arguments:?}: {code:?} {err}");
    }
    let (code, _, err) = served.tried(&["get", "secrets", "-A"]).await;
    assert!(code != Some(0) && err.contains("the server doesn't have a resource type"), "{err}");
    let metrics = run.metrics().await;
    for name in ["tidegate_served_objects", "tidegate_served_bytes"] {
        assert!(metrics.contains(&format!("{name}{{kind=\"Service\"}}")), "{metrics}");
    }
    // A page in a browser can make its own name resolve to this address, and gets nothing.
    let foreign = get(run.api.clone().unwrap().parse().unwrap(), "evil.example", "/api/v1/services").await.unwrap();
    assert_eq!(foreign.status, 421);
}

/// Of the kinds that routing reads beside the Gateway API nothing is served, and nothing waited for, while the cluster
/// lacks it.
#[tokio::test(flavor = "multi_thread")]
async fn undefined_kinds_are_not_served_until_they_are_defined() {
    let dev = Dev::with(&[("shop.yaml", SHOP)], &["--without-gateway-api"]).await;
    let Some(cluster) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let sources = ["--source", "ingress", "--source", "gateway"];
    let arguments = ["--https", "127.0.0.1:0", "--serve-api", "127.0.0.1:0", "--cache-kinds", "configmaps"];
    let run = Run::start(&dev.kubeconfig, &[&sources[..], &arguments].concat()).await;
    run.ready().await;
    let served = Reader::of(&format!("http://{}", run.api.clone().unwrap()), &[]).unwrap();
    same(&cluster, &served, &KINDS).await;
    for kind in ["namespaces", "gateways", "httproutes"] {
        let (code, _, err) = served.tried(&["get", kind, "-A"]).await;
        assert!(code != Some(0) && err.contains("the server doesn't have a resource type"), "{kind}: {err}");
    }
    cluster.run(&["create", "configmap", "site", "--from-literal=a=b"]).await;
    same(&cluster, &served, &["configmaps"]).await;
    let definitions = concat!(env!("CARGO_MANIFEST_DIR"), "/../lite/crds/gateway-api-v1.7.0");
    cluster.run(&["apply", "-f", definitions]).await;
    // Not by name: kubectl remembers which kinds a server has.
    let raw = async |path: &str| served.tried(&["get", "--raw", path]).await;
    for path in ["/api/v1/namespaces", "/apis/gateway.networking.k8s.io/v1/gateways"] {
        eventually(path, || async {
            let (code, out, err) = raw(path).await;
            if code == Some(0) && out.contains("\"items\"") { Ok(()) } else { Err(format!("{out} {err}")) }
        })
        .await;
    }
    cluster.run(&["delete", "-f", definitions]).await;
    for path in ["/api/v1/namespaces", "/apis/gateway.networking.k8s.io/v1/gateways"] {
        eventually(path, || async {
            let (code, out, err) = raw(path).await;
            if code != Some(0) && err.contains("NotFound") { Ok(()) } else { Err(format!("{out} {err}")) }
        })
        .await;
    }
    same(&cluster, &served, &KINDS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubectl_watch_sees_every_change() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(cluster) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let run = Run::start(&dev.kubeconfig, &["--https", "127.0.0.1:0", "--serve-api", "127.0.0.1:0"]).await;
    run.ready().await;
    let served = Reader::of(&format!("http://{}", run.api.clone().unwrap()), &[]).unwrap();
    same(&cluster, &served, &KINDS).await;
    let mut command = served.kubectl.command();
    command.args(&served.arguments).args(["get", "ing", "-n", "shop", "-w", "--output-watch-events", "-o", "name"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || tokio::time::timeout(Duration::from_secs(20), lines.next_line()).await.unwrap().unwrap();
    assert!(next().await.unwrap().contains("shop-ingress"));
    let other = SHOP.split("---").find(|document| document.contains("kind: Ingress")).unwrap();
    cluster.fed(&["create", "-f", "-"], &other.replace("shop-ingress", "other")).await;
    assert!(next().await.unwrap().contains("other"));
    cluster.run(&["annotate", "ing", "-n", "shop", "other", "a=b"]).await;
    assert!(next().await.unwrap().contains("other"));
    cluster.run(&["delete", "ing", "-n", "shop", "other"]).await;
    assert!(next().await.unwrap().contains("other"));
    same(&cluster, &served, &KINDS).await;
}

/// A connection that watches Services from a version on.
async fn watching(address: &str, version: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /api/v1/services?watch=1&resourceVersion={version} HTTP/1.1\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    BufReader::new(stream)
}

/// Waits for a line with this text.
async fn line(stream: &mut BufReader<TcpStream>, text: &str) {
    let read = async {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert!(stream.read_line(&mut line).await.unwrap() > 0, "the watch ended before {text}");
        }
    };
    tokio::time::timeout(Duration::from_secs(60), read).await.unwrap_or_else(|_| panic!("no {text}"));
}

async fn version(address: &str) -> String {
    let list = get(address.parse().unwrap(), address, "/api/v1/services").await.unwrap();
    assert_eq!(list.status, 200, "{}", list.body);
    let list: Value = serde_json::from_str(&list.body).unwrap();
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_watches_get_each_event() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(cluster) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let run = Run::start(&dev.kubeconfig, &["--https", "127.0.0.1:0", "--serve-api", "127.0.0.1:0"]).await;
    run.ready().await;
    let address = run.api.clone().unwrap();
    let from = version(&address).await;
    let mut watches = Vec::new();
    for _ in 0..1000 {
        watches.push(watching(&address, &from).await);
    }
    // A watch that is never read blocks no other.
    let _deaf = watching(&address, &from).await;
    for change in ["one", "two", "three"] {
        cluster.run(&["annotate", "svc", "-n", "shop", "web", "--overwrite", &format!("seen={change}")]).await;
    }
    for watch in &mut watches {
        line(watch, "\"seen\":\"three\"").await;
    }
    let open = run.metrics().await;
    assert!(open.contains("tidegate_served_watches{kind=\"Service\"} 1001"), "{open}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_are_stale_but_never_empty_during_an_outage() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(cluster) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let mut link = Link::to(&dev.kubeconfig).await;
    let kubeconfig = link.kubeconfig(&dev.kubeconfig);
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().to_str().unwrap();
    let arguments =
        ["--https", "127.0.0.1:0", "--serve-api", "127.0.0.1:0", "--cache-dir", folder, "--cache-write-after", "50ms"];
    let mut run = Run::start(&kubeconfig, &arguments).await;
    run.ready().await;
    let served = Reader::of(&format!("http://{}", run.api.clone().unwrap()), &[]).unwrap();
    cluster
        .run(&["patch", "svc", "-n", "shop", "web", "--subresource=status", "--type=merge", "-p", r#"{"status":{"conditions":[{"type":"Seen","status":"True","reason":"Test","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#])
        .await;
    same(&cluster, &served, &KINDS).await;
    let before = version(&run.api.clone().unwrap()).await;
    let shown = served.run(&["get", "svc", "-A", "-o", "json"]).await;
    assert!(shown.contains("\"Seen\""), "{shown}");
    // In order, so that everything is on disk.
    run.signal("-TERM").await;
    run.child.wait().await.unwrap();

    link.cut();
    let run = Run::start(&kubeconfig, &arguments).await;
    run.ready().await;
    let address = run.api.clone().unwrap();
    let served = Reader::of(&format!("http://{address}"), &[]).unwrap();
    assert_eq!(version(&address).await, before, "the version is the one that was kept");
    let stale = served.run(&["get", "svc", "-A", "-o", "json"]).await;
    assert_eq!(items(&stale), items(&shown), "status and all");
    let mut watch = watching(&address, &before).await;
    cluster.run(&["annotate", "svc", "-n", "shop", "web", "meanwhile=yes"]).await;
    cluster.run(&["delete", "svc", "-n", "shop", "cart"]).await;
    assert_eq!(version(&address).await, before, "it does not pretend to know more");
    link.mend();
    line(&mut watch, "meanwhile").await;
    line(&mut watch, "DELETED").await;
    eventually("the same Services", || async {
        let arguments = ["get", "svc", "-A", "-o", "json"];
        let (want, got) = (items(&cluster.run(&arguments).await), items(&served.run(&arguments).await));
        if want == got { Ok(()) } else { Err(format!("{want:#?}\n{got:#?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_is_accessible_to_its_owner_only() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api.sock");
    let at = format!("unix:{}", path.display());
    let mut run = Run::start(&dev.kubeconfig, &["--https", "127.0.0.1:0", "--serve-api", &at, "--serve-secrets"]).await;
    run.ready().await;
    assert_eq!(run.api.as_deref(), Some(&*at));
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).await.unwrap();
    let request = b"GET /api/v1/namespaces/shop/services/web HTTP/1.1\r\nhost: api\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"name\":\"web\""), "{answer}");
    run.signal("-TERM").await;
    run.child.wait().await.unwrap();
    assert!(!path.exists(), "it goes with its process");
}

/// An authority with a certificate of a server and one of a client, as files in a folder.
fn certificates(folder: &Path) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    std::fs::write(folder.join("ca.pem"), authority_certificate.pem()).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    for (name, subject) in [("server", "127.0.0.1"), ("client", "client.example")] {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![subject.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_must_present_a_certificate_if_configured() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (ca, cert, key) = (file("ca.pem"), file("server.pem"), file("server.key"));
    let mut arguments =
        vec!["--https", "127.0.0.1:0", "--serve-api", "127.0.0.1:0", "--serve-cert", &cert, "--serve-key", &key];
    arguments.extend(["--serve-client-ca", &ca]);
    let run = Run::start(&dev.kubeconfig, &arguments).await;
    run.ready().await;
    let url = format!("https://{}", run.api.clone().unwrap());
    let (client, client_key) = (file("client.pem"), file("client.key"));
    let known = ["--certificate-authority", &ca, "--client-certificate", &client, "--client-key", &client_key];
    let Some(kubectl) = Reader::of(&url, &known) else { return };
    assert!(kubectl.run(&["get", "svc", "-n", "shop", "-o", "name"]).await.contains("service/web"));
    let unknown = Reader::of(&url, &["--certificate-authority", &ca]).unwrap();
    let (code, out, _) = unknown.tried(&["get", "svc", "-A", "-o", "name"]).await;
    assert!(code != Some(0) && !out.contains("service/"), "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_forwarded_with_the_credentials_of_the_client() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(cluster) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let link = Link::to(&dev.kubeconfig).await;
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (ca, cert, key) = (file("ca.pem"), file("server.pem"), file("server.key"));
    let arguments =
        ["--https", "127.0.0.1:0", "--serve-api", "127.0.0.1:0", "--serve-cert", &cert, "--serve-key", &key];
    let arguments: Vec<&str> = arguments.into_iter().chain(["--forward-writes"]).collect();
    let run = Run::start(&link.kubeconfig(&dev.kubeconfig), &arguments).await;
    run.ready().await;
    let url = format!("https://{}", run.api.clone().unwrap());
    let kubeconfig = std::fs::read_to_string(&dev.kubeconfig).unwrap();
    let token = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap().to_owned();
    let client = |token: &str| Reader::of(&url, &["--certificate-authority", &ca, "--token", token]).unwrap();
    let known = client(&token);
    same(&cluster, &known, &KINDS).await;

    // The process itself has the right to write; a client without credentials does not.
    let label = ["label", "svc", "-n", "shop", "web", "--overwrite", "by=client"];
    let (code, _, err) = client("somebody-else").tried(&label).await;
    assert!(code != Some(0) && err.contains("nauthorized"), "{code:?} {err}");
    // kubectl would prompt for a password.
    let (code, _, err) = Reader::of(&url, &["--certificate-authority", &ca]).unwrap().tried(&label).await;
    assert!(code != Some(0), "{err}");
    assert!(!cluster.run(&["get", "svc", "-n", "shop", "web", "--show-labels"]).await.contains("by=client"));
    known.run(&label).await;
    assert!(cluster.run(&["get", "svc", "-n", "shop", "web", "--show-labels"]).await.contains("by=client"));
    let ingress = SHOP.split("---").find(|document| document.contains("kind: Ingress")).unwrap();
    let other = ingress.replace("shop-ingress", "other").replace("shop.test", "other.test");
    let own: Vec<&str> = known.arguments.iter().map(String::as_str).chain(["create", "-f", "-"]).collect();
    known.kubectl.fed(&own, &other).await;
    run.answers("other.test", 200).await;
    known.run(&["delete", "ing", "-n", "shop", "other", "--timeout=20s"]).await;
    run.answers("other.test", 404).await;
    same(&cluster, &known, &KINDS).await;

    link.cut();
    let (code, _, err) = known.tried(&["delete", "ing", "-n", "shop", "shop-ingress"]).await;
    assert!(code != Some(0) && err.contains("the API server cannot be reached"), "{code:?} {err}");
    assert!(known.run(&["get", "ing", "-A", "-o", "name"]).await.contains("shop-ingress"), "reads go on");
    let metrics = run.metrics().await;
    assert!(metrics.contains("tidegate_served_writes_total{outcome=\"unreachable\"}"), "{metrics}");
}
