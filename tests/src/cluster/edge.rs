//! `tidegate run` on the cluster, with the rights that `deploy/` gives it and no others.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::process::Command;

use super::Cluster;
use super::part::{Memory, Part};
use crate::{binary, eventually, get};

/// What the first one tells of where Ingresses are reached.
pub const PUBLIC: &str = "203.0.113.7";

/// A file of `deploy/manifests`, by its name.
#[must_use]
pub fn manifest(name: &str) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    workspace.join("deploy/manifests").join(format!("{name}.yaml"))
}

/// The variables of the environment that the Deployment of `deploy/` gives to Tidegate, but for those that each pod has its own
/// value of.
#[must_use]
pub fn environment() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(manifest("30-deployment")).expect("a Deployment");
    let deployment: Value = serde_saphyr::from_str(&text).expect("YAML");
    let variables = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
    let variables = variables.as_array().expect("variables").iter();
    let pair = |variable: &Value| {
        let text = |field: &str| variable[field].as_str().map(str::to_owned);
        Some((text("name")?, text("value")?))
    };
    variables.filter_map(pair).collect()
}

/// A running `tidegate run`, on an address of its own as its pod would have.
#[derive(Debug)]
pub struct Edge {
    part: Part,
    /// Where plain HTTP is served.
    pub http: SocketAddr,
    /// Where HTTPS is served.
    pub https: SocketAddr,
    /// Where health and metrics are served.
    pub admin: SocketAddr,
}

impl Edge {
    /// Applies what `deploy/` says about rights and class, and starts Tidegate at 10.244.0.2 as that service account.
    pub async fn start(cluster: &Cluster) -> Self {
        for name in ["00-namespace", "10-rbac", "20-ingress-class"] {
            cluster.kubectl.run(&["apply", "-f", manifest(name).to_str().expect("UTF-8")]).await;
        }
        let told = ["--publish-status-address", PUBLIC, "--lease", "tidegate/tidegate"];
        Self::start_as(cluster, "tidegate", "10.244.0.2", &told).await
    }

    /// Starts Tidegate at an address as a service account of the namespace `tidegate`, with more arguments, and waits
    /// until it is ready.
    pub async fn start_as(cluster: &Cluster, account: &str, address: &str, arguments: &[&str]) -> Self {
        let edge = Self::launch(cluster, account, address, arguments, &[]).await;
        edge.ready().await;
        edge
    }

    /// The same with variables of its environment, and it is not waited for.
    pub async fn launch(
        cluster: &Cluster,
        account: &str,
        address: &str,
        arguments: &[&str],
        environment: &[(String, String)],
    ) -> Self {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
        let path = format!("/api/v1/namespaces/tidegate/serviceaccounts/{account}/token");
        let answer = cluster.api.create(&path, &request).await;
        let kubeconfig = cluster.kubeconfig(account, answer["status"]["token"].as_str().expect("a token"));

        let at = |port: u16| format!("{address}:{port}");
        let mut command = Command::new(binary());
        command.arg("run").arg("--kubeconfig").arg(kubeconfig).args(["--own-address", address]).args(arguments);
        command.args(["--http", &at(80), "--https", &at(443), "--admin", &at(9180), "--debug", "off"]);
        command.args(["--access-log", "off", "--shutdown-delay", "1s", "--log-form", "text"]);
        command.envs(environment.iter().cloned());
        let part = Part::start(cluster.folder(), &format!("tidegate-{account}"), &mut command);
        let place = |port| at(port).parse().expect("an address");
        Self { part, http: place(80), https: place(443), admin: place(9180) }
    }

    /// Ends it as Kubernetes would, and waits until it has ended.
    pub async fn end(mut self) {
        self.part.signal("-TERM").await;
        assert_eq!(self.part.ended().await, Some(0), "{}", self.part.last_words());
    }

    /// Waits until it is ready, with nothing amiss.
    pub async fn ready(&self) {
        eventually("ready and whole", || async {
            let answer = get(self.admin, "localhost", "/readyz?verbose").await?;
            let whole = answer.status == 200 && answer.body.contains("degraded: false");
            if whole { Ok(()) } else { Err(answer.body) }
        })
        .await;
    }

    /// The sum of a metric's series that have this text in their labels.
    pub async fn metric(&self, name: &str, label: &str) -> f64 {
        let text = get(self.admin, "localhost", "/metrics").await.expect("metrics").body;
        let series = text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.contains(label)));
        series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Its memory now.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.part.memory()
    }

    /// Sends it a signal, such as `-TERM`.
    pub async fn signal(&self, signal: &str) {
        self.part.signal(signal).await;
    }

    /// The end of its log.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.part.last_words()
    }
}
