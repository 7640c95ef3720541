//! Tidegate, changed by writes of objects to an API server, over TLS with its kubeconfig as any client would. It is
//! `tidegate dev`, which contains that API server, or `tidegate run` against the API server of a separate `dev`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::deis::{self, Apps};
use super::objects::{Objects, gateway, manifests};
use super::policies::{Policies, of_gateway};
use super::{Change, Setting, Source, log_file};
use crate::clock::now;
use crate::cores::Share;
use crate::identity::Identity;
use crate::metrics::value;
use crate::place::free_address;
use crate::process::Group;

/// The maximum number of concurrent writes.
const WRITES_MAX: usize = 32;
/// The maximum time for `tidegate dev` to report that it is ready.
const START_MAX: Duration = Duration::from_secs(60);

/// A running Tidegate.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The process that is measured.
    group: Group,
    share: Share,
    program: PathBuf,
    arguments: Vec<String>,
    /// `true` if it has a cluster cache.
    cached: bool,
    /// The process of the API server, if that is not the measured process.
    api: Option<Group>,
    /// The initial manifests, and its output.
    folder: TempDir,
    address: SocketAddr,
    secure: SocketAddr,
    /// The address of its metrics.
    admin: SocketAddr,
    objects: Objects,
    policies: Policies,
    apps: Arc<Apps>,
    known: BTreeSet<String>,
}

/// Builds the binary beside this one, and returns its path.
pub(super) fn build(cargo: &Path) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().context("the folder of this program")?;
    let target = folder.parent().context("the target folder")?;
    let mut build = std::process::Command::new(cargo);
    build
        .args(["build", "--locked", "--release", "--package", "tidegate-app", "--bin", "tidegate", "--target-dir"])
        .arg(target);
    // The variables that `cargo run` sets for this program's package must not reach other build scripts: they would run
    // again.
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
    pub(super) async fn start(program: &Path, setting: &Setting<'_>) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("tidegate-bench-tidegate-").tempdir()?;
        let (address, secure, admin) = (free_address()?, free_address()?, free_address()?);
        let manifests = first_manifests(setting, [address.port(), secure.port()])?;
        let given = folder.path().join("manifests");
        std::fs::create_dir(&given)?;
        std::fs::write(given.join("upstream.yaml"), manifests)?;
        let log = if setting.work.is_same() { log_file(folder.path()).display().to_string() } else { "off".to_owned() };
        let mut dev = vec!["dev".to_owned(), given.display().to_string()];
        dev.extend(["--api", "127.0.0.1:0"].map(str::to_owned));
        let (threads, share) = (setting.workers.to_string(), setting.share);
        let served = |address: &str, secure: &str, admin: &str, log: &str| {
            [
                ["--http", address, "--https", secure, "--debug", "off", "--admin", admin],
                ["--access-log", log, "--log-level", "error", "--threads", &threads, "--grace", "1s"],
            ]
            .concat()
            .into_iter()
            // All of the load comes from one address.
            .chain(["--client-share-max", "100"])
            .chain(setting.apps.into_iter().flat_map(|_| ["--source", "deis", "--deis-builder-address", "off"]))
            .map(str::to_owned)
            .collect::<Vec<_>>()
        };
        let edge = match setting.source {
            Source::Ingress => served(&address.to_string(), &secure.to_string(), &admin.to_string(), &log),
            Source::Gateway => {
                let addresses = ["--gateway-addresses".to_owned(), address.ip().to_string()];
                [&*served("off", "off", &admin.to_string(), &log), &addresses].concat()
            }
        };
        let (group, api, kubeconfig, arguments);
        if setting.apart {
            dev.extend(served("127.0.0.1:0", "off", "127.0.0.1:0", "off"));
            if setting.source == Source::Gateway {
                // It would claim the Gateway.
                dev.extend(["--source", "ingress"].map(str::to_owned));
            }
            let mut first = spawn(program, &dev, folder.path(), Stdio::piped(), Share::ANY)?;
            kubeconfig = until_ready(&mut first).await?;
            let run = run_arguments(&kubeconfig, setting, folder.path())?;
            arguments = [run, edge].concat();
            group = spawn(program, &arguments, folder.path(), Stdio::null(), share)?;
            api = Some(first);
        } else {
            arguments = [dev, edge].concat();
            let mut first = spawn(program, &arguments, folder.path(), Stdio::piped(), share)?;
            kubeconfig = until_ready(&mut first).await?;
            (group, api) = (first, None);
        }
        let (client, upstream) = (client(&kubeconfig).await?, setting.upstream.http);
        let (objects, policies) =
            (Objects::new(client.clone(), setting.source, upstream), Policies::new(client.clone()));
        let apps = Arc::new(Apps::new(client, upstream));
        let (program, known, cached) = (program.to_owned(), BTreeSet::new(), setting.cached);
        Ok(Self {
            group,
            share,
            program,
            arguments,
            cached,
            api,
            folder,
            address,
            secure,
            admin,
            objects,
            policies,
            apps,
            known,
        })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) const fn secure(&self) -> SocketAddr {
        self.secure
    }

    /// Its HTTPRoutes and Gateways.
    pub(crate) fn gateway_objects(&self) -> (Api<DynamicObject>, Api<DynamicObject>) {
        self.objects.of_gateway_api()
    }

    /// The policies of its Gateway and HTTPRoutes.
    pub(super) fn policies(&self) -> Policies {
        self.policies.clone()
    }

    /// The objects of applications, which it serves where it was started with some.
    pub(super) const fn apps(&self) -> &Arc<Apps> {
        &self.apps
    }

    pub(super) const fn admin(&self) -> SocketAddr {
        self.admin
    }

    pub(super) fn process(&self) -> Option<u32> {
        self.group.child.id()
    }

    pub(super) fn log(&self) -> PathBuf {
        log_file(self.folder.path())
    }

    pub(super) async fn change(&mut self, change: &Change<'_>) -> anyhow::Result<()> {
        let (Self { objects, known, .. }, routes) = (self, change.routes);
        if let Some(endpoints) = change.endpoints {
            objects.roll(endpoints).await?;
        }
        let writes = routes.iter().map(|route| objects.write(route, known.contains(&route.host)));
        stream::iter(writes.collect::<Vec<_>>()).buffer_unordered(WRITES_MAX).try_collect::<Vec<()>>().await?;
        known.extend(routes.iter().map(|route| route.host.clone()));
        Ok(())
    }

    pub(super) async fn remove(&mut self, host: &str) -> anyhow::Result<()> {
        self.known.remove(host);
        self.objects.remove(host).await
    }

    /// Ends the API server once the cache holds the objects of this number of routes.
    pub(super) async fn cut_off(&mut self, routes: usize) -> anyhow::Result<()> {
        let holds = async {
            loop {
                let values = value(self.admin, "tidegate_cache_values_total").await?;
                let pending = value(self.admin, "tidegate_cache_pending_values").await?;
                #[allow(clippy::cast_precision_loss, reason = "a count of objects")]
                if values > (routes * 3) as f64 && pending < 1.0 {
                    return anyhow::Ok(());
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(START_MAX, holds).await.context("its cache does not hold all")??;
        self.api = None;
        Ok(())
    }

    /// Ends its process by a signal, after which the next one need not wait for its Lease, and leaves its API server.
    pub(super) async fn pause(&mut self) -> anyhow::Result<()> {
        ensure!(self.api.is_some(), "the API server would end with it");
        self.group.terminate().await
    }

    pub(super) fn restart(&mut self) -> anyhow::Result<Instant> {
        ensure!(self.api.is_some() || self.cached, "the API server would end with it");
        self.group.end();
        let begun = now();
        self.group = spawn(&self.program, &self.arguments, self.folder.path(), Stdio::null(), self.share)?;
        Ok(begun)
    }
}

/// The manifests that are there from the start; a Gateway listens on these ports.
fn first_manifests(setting: &Setting<'_>, [http, https]: [u16; 2]) -> anyhow::Result<String> {
    let mut manifests = manifests(setting.upstream, setting.endpoints, &Identity::new()?);
    manifests.extend(setting.apps.into_iter().flat_map(|apps| deis::manifests(apps, setting.upstream.http)));
    if setting.source == Source::Gateway {
        let more = (2..setting.listeners).map(|_| Ok(free_address()?.port())).collect::<anyhow::Result<Vec<u16>>>()?;
        manifests.extend(gateway(http, https, &more));
        manifests.extend((!setting.limits.is_none()).then(|| of_gateway(setting.limits)));
    }
    Ok(manifests.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n"))
}

/// The arguments with which `tidegate run` serves the objects of another process.
fn run_arguments(kubeconfig: &Path, setting: &Setting<'_>, folder: &Path) -> std::io::Result<Vec<String>> {
    let mut run = vec!["run".to_owned(), "--kubeconfig".to_owned(), kubeconfig.display().to_string()];
    run.extend(["--allow-loopback-endpoints", "--shutdown-delay", "0s"].map(str::to_owned));
    if setting.source == Source::Gateway {
        // The other process has the usual one, and would write no status of Gateways.
        run.extend(["--lease", "measured"].map(str::to_owned));
    }
    if setting.cached {
        let (cache, key) = (folder.join("cache"), folder.join("key"));
        std::fs::write(&key, [7; 32])?;
        run.extend(["--cache-dir".to_owned(), cache.display().to_string()]);
        run.extend(["--cache-key-file".to_owned(), key.display().to_string()]);
        run.extend(["--cache-write-budget", "100000"].map(str::to_owned));
    }
    Ok(run)
}

/// Its further output goes to the folder too.
fn spawn(program: &Path, arguments: &[String], folder: &Path, stdout: Stdio, share: Share) -> anyhow::Result<Group> {
    Group::spawn(Command::new(program).args(arguments).env("TMPDIR", folder).stdin(Stdio::null()).stdout(stdout), share)
}

/// The kubeconfig of a `dev`, once it reports that it is ready.
async fn until_ready(dev: &mut Group) -> anyhow::Result<PathBuf> {
    timeout(START_MAX, banner(dev)).await.context("tidegate dev does not start")?
}

async fn banner(dev: &mut Group) -> anyhow::Result<PathBuf> {
    let mut lines = BufReader::new(dev.child.stdout.take().context("its output")?).lines();
    while let Some(line) = lines.next_line().await? {
        if let Some(kubeconfig) = line.trim().strip_prefix("export KUBECONFIG=") {
            // Further output must not fill the pipe.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(kubeconfig.into());
        }
    }
    bail!("tidegate dev ended at once")
}

async fn client(kubeconfig: &Path) -> anyhow::Result<kube::Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}
