//! The served API with `kubectl get --watch` and `kubectl wait`, unmodified, while the cluster restarts and has dropped
//! the history that the edge would resume from (410): their output adds up to the objects of the cluster, and none of
//! them has to begin again.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;
use tidegate_tests::{Dev, Kubectl, KubectlWait, KubectlWatch, Link, Reader, Run, eventually};

const SHOP: &str = include_str!("manifests/shop.yaml");

/// A cluster whose objects outlive it, at a fixed address.
struct Upstream {
    data: TempDir,
    api: String,
    dev: Option<Dev>,
    /// The edge's kubeconfig, with the credentials of the running process.
    kubeconfig: PathBuf,
    link: Link,
}

impl Upstream {
    async fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let dev = Dev::with(&[("shop.yaml", SHOP)], &["--data-dir", data.path().to_str().unwrap()]).await;
        let link = Link::to(&dev.kubeconfig).await;
        let api = link.server().to_string();
        let server = link.kubeconfig(&dev.kubeconfig);
        let folder = data.path();
        let cluster = json!({"server": field(&server, "server: "), "certificate-authority": folder.join("authority")});
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "dev", "clusters": [{"name": "dev", "cluster": cluster}],
            "users": [{"name": "dev", "user": {"tokenFile": folder.join("token")}}],
            "contexts": [{"name": "dev", "context": {"cluster": "dev", "user": "dev"}}],
        });
        let kubeconfig = folder.join("edge.kubeconfig");
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let upstream = Self { data, api, dev: Some(dev), kubeconfig, link };
        upstream.show_credentials();
        upstream
    }

    fn running(&self) -> &Dev {
        self.dev.as_ref().unwrap()
    }

    fn kubectl(&self) -> Option<Kubectl> {
        Kubectl::for_config(&self.running().kubeconfig)
    }

    /// Each process has an authority and a token of its own.
    fn show_credentials(&self) {
        let (kubeconfig, folder) = (&self.running().kubeconfig, self.data.path());
        let authority = decoded(&field(kubeconfig, "certificate-authority-data: "));
        std::fs::write(folder.join("authority"), authority).unwrap();
        std::fs::write(folder.join("token"), field(kubeconfig, "token: ")).unwrap();
    }

    /// Kills it as a crash would, and starts it on its kept objects.
    async fn crash_and_start(&mut self) {
        let mut dev = self.dev.take().unwrap();
        dev.signal("-KILL").await;
        dev.ended().await;
        drop(dev);
        let data = self.data.path().to_str().unwrap().to_owned();
        let arguments = ["--data-dir", &data, "--api", &self.api];
        self.dev = Some(Dev::with(&[("shop.yaml", SHOP)], &arguments).await);
        self.show_credentials();
    }
}

fn field(kubeconfig: &Path, name: &str) -> String {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    text.lines().find_map(|line| line.trim().trim_start_matches("- ").strip_prefix(name)).expect(name).to_owned()
}

fn decoded(base64: &str) -> Vec<u8> {
    base64::Engine::decode(&base64::engine::general_purpose::STANDARD, base64).unwrap()
}

/// Changes of Services and ConfigMaps of every sort, one of them a deletion and the creation of another object with
/// that name.
async fn change(cluster: &Kubectl, round: &str) {
    let map = |name: &str, round: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{namespace: shop, name: {name}}}\ndata: {{round: {round}}}\n---\n"
        )
    };
    let (_, _, _) = cluster.tried(&["delete", "cm", "-n", "shop", "replaced"], "").await;
    let maps = map("replaced", round) + &map("changed", round) + &map(&format!("new-{round}"), round);
    cluster.fed(&["apply", "-f", "-"], &maps).await;
    cluster.run(&["annotate", "svc", "-n", "shop", "--overwrite", "web", &format!("round={round}")]).await;
}

async fn lists_after_410(edge: &Run) -> f64 {
    let metrics = edge.metrics().await;
    let lists = metrics.lines().filter(|line| line.starts_with("tidegate_lists_total{") && line.contains("expired"));
    lists.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubectl_watch_continues_while_the_cluster_restarts_and_loses_its_history() {
    let mut upstream = Upstream::start().await;
    let Some(cluster) = upstream.kubectl() else { return };
    change(&cluster, "first").await;
    let edge = Run::start(
        &upstream.kubeconfig,
        &["--https", "off", "--serve-api", "127.0.0.1:0", "--cache-kinds", "configmaps"],
    )
    .await;
    edge.ready().await;
    let served = Reader::of(&format!("http://{}", edge.api.clone().unwrap()), &[]).unwrap();
    eventually("ConfigMaps are served", || async {
        let (code, out, err) = served.tried(&["get", "cm", "-n", "shop", "changed", "-o", "name"]).await;
        if code == Some(0) { Ok(()) } else { Err(out + &err) }
    })
    .await;
    let mut watches =
        ["configmaps", "services", "ingresses"].map(|kind| KubectlWatch::start(&served, &["get", kind, "-A"]));
    let mut same = async |upstream: &Upstream, when: &str| {
        let cluster = upstream.kubectl().unwrap();
        for watch in &mut watches {
            watch.prints(when, &cluster).await;
        }
    };
    same(&upstream, "at first").await;

    // From here on no watch of the edge sees the changes, and the history is gone when it comes back.
    let mut gone = KubectlWait::start(&served, &["-n", "shop", "cm/new-first", "--for=delete"]);
    let mut changed = KubectlWait::start(&served, &["-n", "shop", "cm/changed", "--for=jsonpath={.data.round}=second"]);
    upstream.link.cut();
    change(&cluster, "second").await;
    cluster.run(&["delete", "cm", "-n", "shop", "new-first"]).await;
    gone.waits();
    changed.waits();
    upstream.crash_and_start().await;
    upstream.link.mend();
    same(&upstream, "after a restart that lost the history").await;
    gone.ends().await;
    changed.ends().await;
    assert!(lists_after_410(&edge).await >= 1.0, "{}", edge.metrics().await);

    // The edge is connected as the cluster crashes, and changes follow before it is back.
    let mut changed = KubectlWait::start(&served, &["-n", "shop", "cm/changed", "--for=jsonpath={.data.round}=fourth"]);
    change(&upstream.kubectl().unwrap(), "third").await;
    changed.waits();
    upstream.crash_and_start().await;
    change(&upstream.kubectl().unwrap(), "fourth").await;
    same(&upstream, "after a crash").await;
    changed.ends().await;
}
