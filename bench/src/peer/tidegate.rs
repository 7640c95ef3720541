//! `tidegate dev`, changed by writes of objects to its API server, over TLS with its kubeconfig as any client would.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{Route, Target};
use crate::upstream::Upstream;

/// Writes under way at the same time.
const WRITES_MAX: usize = 32;
/// How long `tidegate dev` may take to say that it is ready.
const START_MAX: Duration = Duration::from_secs(60);

/// A running Tidegate.
#[derive(Debug)]
pub(crate) struct Peer {
    child: Child,
    /// The manifests that it serves from the start.
    _folder: TempDir,
    pub(super) address: SocketAddr,
    ingresses: Api<Ingress>,
    known: BTreeSet<String>,
}

/// Builds the binary beside our own, and returns where it is.
pub(super) fn build(cargo: &Path) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().context("the folder of this program")?;
    let target = folder.parent().context("the target folder")?;
    let mut build = std::process::Command::new(cargo);
    build.args(["build", "--release", "--package", "tidegate-app", "--bin", "tidegate", "--target-dir"]).arg(target);
    // What `cargo run` tells this program about its package is not for the build scripts of others: they would run again.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            build.env_remove(name);
        }
    }
    let status = build.status().context("cargo cannot be run")?;
    ensure!(status.success(), "tidegate cannot be built: {status}");
    Ok(target.join("release/tidegate"))
}

impl Peer {
    pub(super) async fn start(program: &Path, workers: usize, upstream: &Upstream) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("tidegate-bench-manifests-").tempdir()?;
        let manifests = manifests(upstream).iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n");
        std::fs::write(folder.path().join("upstream.yaml"), manifests)?;
        let mut child = Command::new(program)
            .arg("dev")
            .arg(folder.path())
            .args(["--api", "127.0.0.1:0", "--http", "127.0.0.1:0", "--https", "off", "--debug", "off"])
            .args(["--admin", "127.0.0.1:0", "--access-log", "off", "--log-level", "error"])
            .args(["--threads", &workers.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} cannot be run", program.display()))?;
        let (address, kubeconfig) =
            timeout(START_MAX, banner(&mut child)).await.context("tidegate dev does not start")??;
        let ingresses = Api::default_namespaced(client(&kubeconfig).await?);
        Ok(Self { child, _folder: folder, address, ingresses, known: BTreeSet::new() })
    }

    pub(super) fn process(&self) -> Option<u32> {
        self.child.id()
    }

    pub(super) async fn put(&mut self, routes: &[Route]) -> anyhow::Result<()> {
        let Self { ingresses, known, .. } = self;
        let writes = routes.iter().map(|route| write(ingresses, route, known.contains(&route.host)));
        stream::iter(writes.collect::<Vec<_>>()).buffer_unordered(WRITES_MAX).try_collect::<Vec<()>>().await?;
        known.extend(routes.iter().map(|route| route.host.clone()));
        Ok(())
    }

    pub(super) async fn remove(&mut self, host: &str) -> anyhow::Result<()> {
        self.known.remove(host);
        self.ingresses.delete(host, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// Where it serves, from what it says when it is ready.
async fn banner(child: &mut Child) -> anyhow::Result<(SocketAddr, PathBuf)> {
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    let mut address = None;
    while let Some(line) = lines.next_line().await? {
        let line = line.trim();
        if let Some(found) = line.strip_prefix("http ").and_then(|rest| rest.trim().strip_prefix("http://")) {
            address = Some(found.parse()?);
        }
        if let Some(kubeconfig) = line.strip_prefix("export KUBECONFIG=") {
            let address = address.context("it does not say where it serves HTTP")?;
            // What else it says must not fill the pipe.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok((address, kubeconfig.into()));
        }
    }
    bail!("tidegate dev ended at once")
}

async fn client(kubeconfig: &Path) -> anyhow::Result<kube::Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

async fn write(ingresses: &Api<Ingress>, route: &Route, known: bool) -> anyhow::Result<()> {
    let backend = json!({"service": {"name": route.target.name(), "port": {"number": 80}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    let object = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": route.host},
        "spec": {"ingressClassName": "tidegate", "rules": [{"host": route.host, "http": {"paths": paths}}]},
    });
    if known {
        ingresses.patch(&route.host, &PatchParams::default(), &Patch::Merge(&object)).await?;
    } else {
        ingresses.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    }
    Ok(())
}

/// The class, and a Service with an EndpointSlice for each target.
fn manifests(upstream: &Upstream) -> Vec<Value> {
    let class = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IngressClass",
        "metadata": {"name": "tidegate"},
        "spec": {"controller": "tidegate.io/ingress"},
    });
    let of_target = |target: Target| {
        let (name, address) = (target.name(), target.address(upstream));
        [
            json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"ports": [{"port": 80}]},
            }),
            json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": name, "namespace": "default",
                    "labels": {"kubernetes.io/service-name": name},
                },
                "addressType": "IPv4",
                "ports": [{"name": "", "port": address.port(), "protocol": "TCP"}],
                "endpoints": [{"addresses": [address.ip()], "conditions": {"ready": true}}],
            }),
        ]
    };
    std::iter::once(class).chain(Target::ALL.into_iter().flat_map(of_target)).collect()
}
