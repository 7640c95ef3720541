//! `tidegate run` on the cluster, with the rights that `deploy/` gives it and no others.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;
use tokio::process::Command;

use super::Cluster;
use super::part::Part;
use crate::{binary, eventually, get};

/// What the first one tells of where Ingresses are reached.
pub const PUBLIC: &str = "203.0.113.7";

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
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("deploy/manifests");
        for name in ["00-namespace", "10-rbac", "20-ingress-class"] {
            let file = deploy.join(format!("{name}.yaml"));
            cluster.kubectl.run(&["apply", "-f", file.to_str().expect("UTF-8")]).await;
        }
        let told = ["--publish-status-address", PUBLIC, "--lease", "tidegate/tidegate"];
        Self::start_as(cluster, "tidegate", "10.244.0.2", &told).await
    }

    /// Starts Tidegate at an address as a service account of the namespace `tidegate`, with more arguments, and waits
    /// until it is ready.
    pub async fn start_as(cluster: &Cluster, account: &str, address: &str, arguments: &[&str]) -> Self {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
        let path = format!("/api/v1/namespaces/tidegate/serviceaccounts/{account}/token");
        let answer = cluster.api.create(&path, &request).await;
        let kubeconfig = cluster.kubeconfig(account, answer["status"]["token"].as_str().expect("a token"));

        let at = |port: u16| format!("{address}:{port}");
        let mut command = Command::new(binary());
        command.arg("run").arg("--kubeconfig").arg(kubeconfig).args(["--own-address", address]).args(arguments);
        command.args(["--http", &at(80), "--https", &at(443), "--admin", &at(9180), "--debug", "off"]);
        command.args(["--access-log", "off", "--shutdown-delay", "1s", "--log-form", "text"]);
        let part = Part::start(cluster.folder(), &format!("tidegate-{account}"), &mut command);
        let place = |port| at(port).parse().expect("an address");
        let edge = Self { part, http: place(80), https: place(443), admin: place(9180) };
        edge.ready().await;
        edge
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

    /// Its resident memory, and the most that it ever was.
    #[must_use]
    pub fn memory(&self) -> String {
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
