//! `tidegate run` on the cluster, with exactly the rights of `deploy/`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokio::process::Command;

use super::account::Account;
use super::part::{Memory, Part};
use super::{Api, Cluster};
use crate::{binary, eventually, get};

/// The address in the status of Ingresses.
pub const PUBLIC: &str = "203.0.113.7";

/// A file of `deploy/manifests`, by its name.
#[must_use]
pub fn manifest(name: &str) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    workspace.join("deploy/manifests").join(format!("{name}.yaml"))
}

/// The environment variables of Tidegate in the Deployment of `deploy/`, except for those that differ in each pod.
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

/// `tidegate run` with the arguments that all edges here share.
fn run(address: &str) -> Command {
    let at = |port: u16| format!("{address}:{port}");
    let mut command = Command::new(binary());
    // As in the Deployment of `deploy/`, whose role is for Ingresses alone.
    command.args(["run", "--own-address", address]).env("TIDEGATE_SOURCE", "ingress");
    command.args(["--http", &at(80), "--https", &at(443), "--admin", &at(9180), "--debug", "off"]);
    command.args(["--access-log", "off", "--shutdown-delay", "1s", "--log-form", "text"]);
    command
}

/// A running `tidegate run`, on an address of its own like that of a pod.
#[derive(Debug)]
pub struct Edge {
    part: Part,
    /// The files of its pod's service account; `None` if it has a kubeconfig.
    account: Option<Account>,
    /// The address of plain HTTP.
    pub http: SocketAddr,
    /// The address of HTTPS.
    pub https: SocketAddr,
    /// The address of health and metrics.
    pub admin: SocketAddr,
}

impl Edge {
    /// Applies the rights and the class of `deploy/`, and starts Tidegate at 10.244.0.2 as a pod is started: it finds
    /// the API server, its service account and its namespace by itself.
    pub async fn start(cluster: &Cluster) -> Self {
        Self::start_with(cluster, &["--publish-status-address", PUBLIC]).await
    }

    /// The same with other arguments.
    pub async fn start_with(cluster: &Cluster, arguments: &[&str]) -> Self {
        for name in ["00-namespace", "10-rbac", "20-ingress-class"] {
            cluster.kubectl.run(&["apply", "-f", manifest(name).to_str().expect("UTF-8")]).await;
        }
        let account = Account::project(cluster, "tidegate").await;
        let mut command = run("10.244.0.2");
        command.args(arguments).envs(Account::environment());
        let mut edge = Self::of(cluster, "tidegate", "10.244.0.2", &mut command);
        edge.account = Some(account);
        edge.ready().await;
        edge
    }

    /// Starts Tidegate at an address with a kubeconfig of a service account of the namespace `tidegate`, with more
    /// arguments, and waits until it is ready.
    pub async fn start_as(cluster: &Cluster, account: &str, address: &str, arguments: &[&str]) -> Self {
        let edge = Self::launch(cluster, account, address, arguments, &[]).await;
        edge.ready().await;
        edge
    }

    /// The same with environment variables, and without waiting for it.
    pub async fn launch(
        cluster: &Cluster,
        account: &str,
        address: &str,
        arguments: &[&str],
        environment: &[(String, String)],
    ) -> Self {
        let kubeconfig = cluster.kubeconfig(account, &cluster.token(account, &Value::Null).await);
        let mut command = run(address);
        command.arg("--kubeconfig").arg(kubeconfig).args(arguments).envs(environment.iter().cloned());
        Self::of(cluster, account, address, &mut command)
    }

    /// Starts Tidegate at an address with a given kubeconfig, without waiting for it.
    #[must_use]
    pub fn with_kubeconfig(
        cluster: &Cluster,
        name: &str,
        kubeconfig: &Path,
        address: &str,
        arguments: &[&str],
    ) -> Self {
        let mut command = run(address);
        command.arg("--kubeconfig").arg(kubeconfig).args(arguments);
        Self::of(cluster, name, address, &mut command)
    }

    fn of(cluster: &Cluster, account: &str, address: &str, command: &mut Command) -> Self {
        let part = Part::start(cluster.folder(), &format!("tidegate-{account}"), command);
        let place = |port: u16| format!("{address}:{port}").parse().expect("an address");
        Self { part, account: None, http: place(80), https: place(443), admin: place(9180) }
    }

    /// Replaces the token in the files of its service account, revokes the previous one, and returns a user that still
    /// has the latter.
    ///
    /// # Panics
    /// When it has been started with a kubeconfig.
    pub async fn rotate_token(&mut self, cluster: &Cluster) -> Api {
        self.account.as_mut().expect("it runs as in a pod").rotate(cluster).await
    }

    /// Ends it as Kubernetes would, and waits until it has ended.
    pub async fn end(mut self) {
        self.part.signal("-TERM").await;
        assert_eq!(self.part.ended().await, Some(0), "{}", self.part.last_words());
    }

    /// Kills it, and waits until it has ended.
    pub async fn kill(mut self) {
        self.part.signal("-KILL").await;
        assert_eq!(self.part.ended().await, None, "{}", self.part.last_words());
    }

    /// Waits until it is ready and not degraded.
    pub async fn ready(&self) {
        eventually("ready and whole", || async {
            let answer = get(self.admin, "localhost", "/readyz?verbose").await?;
            let whole = answer.status == 200 && answer.body.contains("degraded: false");
            if whole { Ok(()) } else { Err(answer.body) }
        })
        .await;
    }

    /// The sum of a metric's series whose labels contain this text.
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
