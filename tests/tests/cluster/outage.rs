//! An edge that loses its control plane: it continues to serve over a restart and a crash, and catches up when the
//! control plane is back.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};
use tidegate_tests::cluster::{Edge, Gap, Steady};
use tidegate_tests::{Link, certificate_of, eventually, get, moment};

use crate::objects::certificate;
use crate::stage::{Stage, ingress, measured, rule};

/// The address of the API server for the edge while nothing is cut. No other process of the cluster uses it.
const LINK: &str = "127.0.0.2:6443";
const API_SERVER: &str = "127.0.0.1:6443";
const ADDRESS: &str = "10.244.0.9";
const HOST: &str = "outage.test";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/outage/ingresses";

/// The edge of a site, with a cache, behind a link of its own.
struct Site {
    folder: PathBuf,
    kubeconfig: PathBuf,
}

impl Site {
    /// A site with the rights of `deploy/`.
    async fn new(stage: &Stage) -> Self {
        let cluster = &stage.cluster;
        let folder = cluster.folder().join("outage");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("key"), [7; 32]).expect("a key");
        let kubeconfig = folder.join("kubeconfig");
        stage.write_kubeconfig("outage", LINK, &folder.join("authority.crt"), &kubeconfig).await;
        let site = Self { folder, kubeconfig };
        site.trusts(&std::fs::read_to_string(cluster.folder().join("authority.crt")).expect("an authority"));
        site
    }

    fn start(&self, stage: &Stage) -> Edge {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let (cache, key) = (file("."), file("key"));
        let arguments =
            ["--cache-dir", &cache, "--cache-key-file", &key, "--cache-write-after", "50ms", "--status", "off"];
        Edge::with_kubeconfig(&stage.cluster, "outage", &self.kubeconfig, ADDRESS, &arguments)
    }

    /// Replaces the authority in the edge's kubeconfig, by which it verifies the API server.
    fn trusts(&self, authority: &str) {
        std::fs::write(self.folder.join("authority.crt"), authority).expect("a file");
    }
}

/// An authority that has issued no certificate here.
fn foreign() -> String {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").pem()
}

async fn ready(edge: &Edge) -> String {
    eventually("ready", || async {
        let answer = get(edge.admin, "localhost", "/readyz?verbose").await?;
        if answer.status == 200 { Ok(answer.body) } else { Err(answer.body) }
    })
    .await
}

async fn answers(edge: SocketAddr, host: &str, status: u16) {
    eventually(&format!("{host} answers {status}"), || async {
        let answer = get(edge, host, "/").await?;
        if answer.status == status { Ok(()) } else { Err(answer.status.to_string()) }
    })
    .await;
}

/// Clients of both protocols.
fn clients(edge: &Edge) -> [Steady; 2] {
    [Steady::start(edge.http, HOST, "/"), Steady::start_tls(edge.https, HOST, "/")]
}

/// Checks that none of their requests failed, but while there was no process.
async fn unharmed(clients: [Steady; 2], gaps: &[Gap]) {
    for client in clients {
        client.stop().await.all_but(gaps);
    }
}

fn route(name: &str) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name},
        "spec": {"ingressClassName": "tidegate", "rules": [rule(&format!("{name}.test"), 80)]}})
}

/// Checks that the host is served with the given certificate of its Secret.
async fn shows(edge: &Edge, certificate: &CertificateDer<'static>) {
    eventually("its certificate", || async {
        let shown = certificate_of(edge.https, HOST).await?;
        if shown == *certificate { Ok(()) } else { Err("another one".to_owned()) }
    })
    .await;
}

async fn kept(folder: &Path, edge: &Edge) {
    eventually("all is on disk", || async {
        let (listed, pending) =
            (edge.metric("tidegate_listed_objects", "").await, edge.metric("tidegate_cache_pending_values", "").await);
        let written = edge.metric("tidegate_cache_values_total", "").await;
        let there = folder.join("cluster-cache/objects.redb").exists();
        if there && listed > 0.0 && written >= listed && pending < 1.0 {
            Ok(())
        } else {
            Err(format!("{written} of {listed}"))
        }
    })
    .await;
}

/// Ten changes: three routes are deleted, three created, three moved, and the certificate is replaced.
async fn ten_changes(stage: &Stage) -> CertificateDer<'static> {
    let api = &stage.cluster.api;
    for nth in 0..3 {
        api.delete(&format!("{INGRESSES}/going-{nth}")).await;
        api.create(INGRESSES, &route(&format!("coming-{nth}"))).await;
        let moved = json!({"spec": {"rules": [rule(&format!("moved-{nth}.test"), 80)]}});
        api.merge(&format!("{INGRESSES}/moving-{nth}"), &moved).await;
    }
    let (renewed, content) = certificate(HOST);
    api.merge("/api/v1/namespaces/outage/secrets/web", &json!({"data": content})).await;
    renewed
}

pub(crate) async fn an_edge_goes_on_alone(stage: &mut Stage) {
    stage.app("outage").await;
    let api = &stage.cluster.api;
    let (first, content) = certificate(HOST);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web"}, "type": "kubernetes.io/tls",
        "data": content});
    api.create("/api/v1/namespaces/outage/secrets", &secret).await;
    let tls = json!({"spec": {"tls": [{"hosts": [HOST], "secretName": "web"}]}});
    api.merge(&ingress("outage"), &tls).await;
    for nth in 0..3 {
        api.create(INGRESSES, &route(&format!("going-{nth}"))).await;
        api.create(INGRESSES, &route(&format!("moving-{nth}"))).await;
    }
    let mut link = Link::between(LINK.parse().expect("an address"), API_SERVER.parse().expect("an address")).await;
    let site = Site::new(stage).await;
    let edge = site.start(stage);
    edge.ready().await;
    shows(&edge, &first).await;
    for nth in 0..3 {
        answers(edge.http, &format!("going-{nth}.test"), 200).await;
    }
    kept(&site.folder, &edge).await;

    // The same clients all along: each process has the address of the one before.
    let asking = clients(&edge);
    link.cut();
    let authority = std::fs::read_to_string(site.folder.join("authority.crt")).expect("a file");
    site.trusts(&foreign());
    eventually("the API server is missed", || async {
        let answer = get(edge.admin, "localhost", "/readyz?verbose").await?;
        let missed = answer.status == 200 && answer.body.contains("failing");
        if missed { Ok(()) } else { Err(answer.body) }
    })
    .await;
    let stopped = moment();
    edge.end().await;

    let begun = moment();
    let edge = site.start(stage);
    assert!(ready(&edge).await.contains("stale: serving the state kept on disk"), "it says that it is stale");
    shows(&edge, &first).await;
    measured("restarted without the API server, ready and right", begun);
    let stop = Gap { from: stopped, to: moment(), killed: false };
    let renewed = ten_changes(stage).await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    let killed = moment();
    edge.kill().await;
    let begun = moment();
    let edge = site.start(stage);
    ready(&edge).await;
    shows(&edge, &first).await;
    measured("killed and started again without the API server, ready and right", begun);
    let kill = Gap { from: killed, to: moment(), killed: true };
    for (host, status) in [("going-0", 200), ("moving-0", 200), ("coming-0", 404), ("moved-0", 404)] {
        answers(edge.http, &format!("{host}.test"), status).await;
    }

    site.trusts(&authority);
    let begun = moment();
    link.mend();
    for nth in 0..3 {
        for (host, status) in [("going", 404), ("coming", 200), ("moving", 404), ("moved", 200)] {
            answers(edge.http, &format!("{host}-{nth}.test"), status).await;
        }
    }
    shows(&edge, &renewed).await;
    measured("the API server is back, and ten changes act", begun);
    edge.ready().await;
    let text = get(edge.admin, "localhost", "/readyz?verbose").await.expect("an answer").body;
    assert!(!text.contains("stale:"), "{text}");
    assert!(edge.metric("tidegate_lists_total", "reason=\"start\"").await < 1.0, "watches went on from what was kept");
    unharmed(asking, &[stop, kill]).await;
    edge.end().await;
}
