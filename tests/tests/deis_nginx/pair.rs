//! The two sides, on loopback: nginx configured as by the Deis router, and Tidegate.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_tests::{Dev, eventually, free_addresses, get, skipped};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::router::{Places, Router};
use crate::world::World;

/// The number of attempts to start nginx: another process may take a free port first.
const TRIES_MAX: usize = 5;

/// A running nginx with a configuration of the Deis router. It is killed with its handle.
#[derive(Debug)]
pub(crate) struct Nginx {
    child: Child,
    _folder: TempDir,
    http: SocketAddr,
    https: SocketAddr,
}

impl Nginx {
    /// Returns `true` if the machine has nginx; otherwise prints that.
    pub(crate) fn is_there() -> bool {
        let mut version = std::process::Command::new("nginx");
        let there = version.arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
        if !there {
            skipped("nginx", "there is no nginx to compare with");
        }
        there
    }

    async fn start(world: &World) -> Self {
        for _ in 0..TRIES_MAX {
            if let Some(nginx) = Self::tried(world).await {
                return nginx;
            }
        }
        panic!("nginx does not start");
    }

    async fn tried(world: &World) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let [http, https] = free_addresses();
        let text = Router::configuration(&world.objects, &Places { folder: folder.path(), http, https });
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, &text).expect("a configuration");
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder.path()).arg("-e").arg(folder.path().join("error.log")).arg("-c").arg(&file);
        // A single process, so that its end is the end of all of it.
        command.args(["-g", "master_process off;"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true).spawn().expect("nginx");
        // nginx writes it once it listens; another process could answer on its ports before.
        let listens = folder.path().join("nginx.pid");
        for _ in 0..400 {
            if listens.exists() && TcpStream::connect(http).await.is_ok() && TcpStream::connect(https).await.is_ok() {
                return Some(Self { child, _folder: folder, http, https });
            }
            if child.try_wait().expect("a status").is_some() {
                let log = std::fs::read_to_string(folder.path().join("error.log")).unwrap_or_default();
                assert!(log.contains("Address already in use"), "nginx refuses its configuration: {log}\n{text}");
                return None;
            }
            sleep(Duration::from_millis(25)).await;
        }
        None
    }
}

/// The addresses of a side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
}

/// Both sides of one world.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) world: World,
    nginx: Nginx,
    dev: Dev,
}

impl Pair {
    /// Starts both, and waits until both serve all applications. `None`, with one printed line, if there is no nginx.
    pub(crate) async fn start(world: World, arguments: &[&str]) -> Option<Self> {
        if !Nginx::is_there() {
            return None;
        }
        let nginx = Nginx::start(&world).await;
        let arguments = [&["--source", "deis"], arguments].concat();
        let dev = Dev::with(&[("world.yaml", &world.manifest())], &arguments).await;
        let routed = world.routed();
        let mut before = String::new();
        let page = async || get(dev.debug, "localhost", "/debug/routes").await.map(|answer| answer.body);
        // The page lists each application; when it is the same twice, the last of their Secrets and endpoints are
        // present.
        loop {
            let now = eventually("all applications are routed", || async {
                let page = page().await?;
                let missing = routed.iter().find(|name| !page.contains(&format!("\"Service {name}\"")));
                missing.map_or(Ok(page.clone()), |name| Err(format!("{name} is not in {page}")))
            })
            .await;
            if now == before {
                break;
            }
            before = now;
            sleep(Duration::from_millis(300)).await;
        }
        Some(Self { world, nginx, dev })
    }

    /// The addresses of nginx.
    pub(crate) fn nginx(&self) -> Side {
        assert!(self.nginx.child.id().is_some(), "nginx runs");
        Side { http: self.nginx.http, https: self.nginx.https }
    }

    /// The addresses of Tidegate.
    pub(crate) const fn tidegate(&self) -> Side {
        Side { http: self.dev.http, https: self.dev.https }
    }
}
