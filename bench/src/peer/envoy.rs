//! Envoy by its file-based discovery: routes, clusters and endpoints have a file each, which is replaced by renaming.
//! Its controllers send the same over gRPC, and as differences; this is the way without a controller.

mod resources;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::Context;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use super::{Change, Route, Setting, Target, appended, error_file, log_file};
use crate::clock::now;
use crate::cores::Share;
use crate::identity::Identity;
use crate::place::free_address;
use crate::process::Group;

/// A running Envoy.
#[derive(Debug)]
pub(crate) struct Peer {
    group: Group,
    folder: TempDir,
    program: PathBuf,
    workers: usize,
    share: Share,
    address: SocketAddr,
    secure: SocketAddr,
    /// Its work on every request.
    work: super::Work,
    /// The addresses of the shared targets.
    shared: Vec<(Target, SocketAddr)>,
    upstream: SocketAddr,
    routes: BTreeMap<String, Target>,
}

/// The path of bench/setup's binary, or that of the machine.
pub(super) fn program() -> PathBuf {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/envoy");
    if installed.exists() { installed } else { "envoy".into() }
}

impl Peer {
    pub(super) fn start(program: &Path, setting: &Setting<'_>, routes: &[Route]) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("tidegate-bench-envoy-").tempdir()?;
        let (address, secure) = (free_address()?, free_address()?);
        let sockets = resources::Sockets { plain: address, secure, admin: free_address()? };
        let (identity, limits) = (Identity::new()?, setting.limits);
        let bootstrap = resources::bootstrap(folder.path(), sockets, &identity, setting.work, limits);
        let shared = Target::SHARED.map(|target| (target, target.address(setting.upstream))).to_vec();
        let routes: BTreeMap<_, _> = routes.iter().map(|route| (route.host.clone(), route.target)).collect();
        let (work, upstream) = (setting.work, setting.upstream.http);
        std::fs::write(folder.path().join("bootstrap.json"), serde_json::to_vec(&bootstrap)?)?;
        for name in resources::FILES {
            std::fs::create_dir(folder.path().join(name))?;
        }
        replace(folder.path(), resources::ENDPOINTS, &resources::endpoints(setting.endpoints))?;
        replace(folder.path(), resources::CLUSTERS, &resources::clusters(folder.path(), &shared, &routes, upstream))?;
        replace(folder.path(), resources::ROUTES, &resources::routes(&routes, work))?;
        let (program, workers, share) = (program.to_owned(), setting.workers, setting.share);
        let group = spawn(&program, folder.path(), workers, share)?;
        Ok(Self { group, folder, program, workers, share, address, secure, work, shared, upstream, routes })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) const fn secure(&self) -> SocketAddr {
        self.secure
    }

    pub(super) fn process(&self) -> Option<u32> {
        self.group.child.id()
    }

    pub(super) fn log(&self) -> PathBuf {
        log_file(self.folder.path())
    }

    pub(super) fn change(&mut self, change: &Change<'_>) -> anyhow::Result<()> {
        let folder = self.folder.path();
        if let Some(endpoints) = change.endpoints {
            replace(folder, resources::ENDPOINTS, &resources::endpoints(endpoints))?;
        }
        if change.routes.is_empty() {
            return Ok(());
        }
        let before = self.routes.values().filter(|target| **target == Target::Own).count();
        self.routes.extend(change.routes.iter().map(|route| (route.host.clone(), route.target)));
        if self.routes.values().filter(|target| **target == Target::Own).count() != before {
            let clusters = resources::clusters(folder, &self.shared, &self.routes, self.upstream);
            replace(folder, resources::CLUSTERS, &clusters)?;
        }
        replace(folder, resources::ROUTES, &resources::routes(&self.routes, self.work))
    }

    /// Removes a host with the next change, which would otherwise wait behind this one.
    pub(super) fn remove(&mut self, host: &str) {
        self.routes.remove(host);
    }

    pub(super) fn restart(&mut self) -> anyhow::Result<Instant> {
        self.group.end();
        let begun = now();
        self.group = spawn(&self.program, self.folder.path(), self.workers, self.share)?;
        Ok(begun)
    }
}

fn spawn(program: &Path, folder: &Path, workers: usize, share: Share) -> anyhow::Result<Group> {
    let mut command = Command::new(program);
    command.arg("-c").arg(folder.join("bootstrap.json"));
    command.args(["--concurrency", &workers.to_string(), "--disable-hot-restart", "--log-level", "error"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(appended(&error_file(folder))?);
    Group::spawn(&mut command, share).context("bench/setup installs it")
}

/// Envoy watches for files that are renamed into a folder. Each file has a folder of its own: Envoy would read every
/// other file there again.
fn replace(folder: &Path, name: &str, value: &Value) -> anyhow::Result<()> {
    let file = resources::file(folder, name);
    let next = folder.join("next.json");
    std::fs::write(&next, serde_json::to_vec(value)?)?;
    std::fs::rename(next, file)?;
    Ok(())
}
