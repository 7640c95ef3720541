//! Helm, unmodified, against the API server of `tidegate dev`: its rendered manifests are applied, and its releases are
//! installed, upgraded, rolled back and uninstalled, with `--wait` for each.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::{Path, PathBuf};

use tidegate_tests::{Dev, Kubectl, eventually, get, skipped};
use tokio::process::Command;

const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: apps}\n";
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/manifests/chart");

struct Helm {
    binary: PathBuf,
    home: tempfile::TempDir,
    dev: Dev,
    kubectl: Kubectl,
}

impl Helm {
    /// `None`, with one printed line, if Helm or kubectl is missing.
    async fn start() -> Option<Self> {
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/build");
        let built = std::process::Command::new(build).args(["helm", "--path"]).output().unwrap();
        if !built.status.success() {
            skipped("helm", "Helm is not built (tests/tools/build helm)");
            return None;
        }
        let binary = PathBuf::from(String::from_utf8(built.stdout).unwrap().trim());
        let dev = Dev::with(&[("namespace.yaml", NAMESPACE)], &[]).await;
        let kubectl = Kubectl::for_config(&dev.kubeconfig)?;
        Some(Self { binary, home: tempfile::tempdir().unwrap(), dev, kubectl })
    }

    /// Runs a command in the namespace, and returns its output.
    async fn run(&self, words: &str) -> String {
        let mut command = Command::new(&self.binary);
        command.args(words.split(' ').map(|word| if word == "CHART" { CHART } else { word })).args(["-n", "apps"]);
        command.env("KUBECONFIG", &self.dev.kubeconfig).env("HOME", self.home.path()).kill_on_drop(true);
        let (code, out, err) = Kubectl::ended(command, "").await;
        assert_eq!(code, Some(0), "helm {words}: {out}{err}");
        out
    }

    async fn kubectl(&self, words: &str, input: &str) -> String {
        let words = [&["-n", "apps"], &*words.split(' ').collect::<Vec<_>>()].concat();
        self.kubectl.fed(&words, input).await.trim_end().to_owned()
    }

    async fn answers(&self, host: &str, status: u16) {
        eventually(&format!("{host} is answered by {status}"), || async {
            let answer = get(self.dev.http, host, "/").await?;
            if answer.status == status { Ok(()) } else { Err(answer.status.to_string()) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rendered_manifests_apply_client_side_and_server_side() {
    let Some(helm) = Helm::start().await else { return };
    let manifests = helm.run("template one CHART --set host=one.test").await;
    let applied = helm.kubectl("apply -f -", &manifests).await;
    assert!(
        applied.contains("deployment.apps/one created") && applied.contains("ingress.networking.k8s.io/one created")
    );
    helm.answers("one.test", 200).await;
    let applied = helm.kubectl("apply --server-side --force-conflicts -f -", &manifests).await;
    assert!(applied.contains("service/one serverside-applied"), "{applied}");
    assert_eq!(helm.kubectl("diff -f -", &manifests).await, "");
    helm.kubectl("delete -f -", &manifests).await;
    helm.answers("one.test", 404).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_installed_upgraded_rolled_back_and_uninstalled() {
    let Some(helm) = Helm::start().await else { return };
    helm.run("install two CHART --set host=two.test --wait --timeout 120s").await;
    helm.answers("two.test", 200).await;
    helm.run("upgrade two CHART --set host=other.test,replicas=3 --wait --timeout 120s").await;
    assert_eq!(helm.kubectl("get deployment two -o jsonpath={.status.readyReplicas}", "").await, "3");
    helm.answers("other.test", 200).await;
    helm.answers("two.test", 404).await;
    helm.run("rollback two 1 --wait --timeout 120s").await;
    helm.answers("two.test", 200).await;
    let history = helm.run("history two -o json").await;
    let history: serde_json::Value = serde_json::from_str(&history).unwrap();
    let states: Vec<_> = history.as_array().unwrap().iter().map(|one| one["status"].as_str().unwrap()).collect();
    assert_eq!(states, ["superseded", "superseded", "deployed"]);
    helm.run("uninstall two --wait --timeout 120s").await;
    helm.answers("two.test", 404).await;
    assert_eq!(helm.kubectl("get deployments,services,ingresses,secrets -o name", "").await, "");
}
