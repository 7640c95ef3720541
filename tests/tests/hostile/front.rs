//! Real proxies as processes of a test: nginx and HAProxy, on free ports of loopback, with a configuration in a folder
//! of their own. They stand in front of the edge, or in its place for comparison.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_tests::{free_addresses, skipped};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::sleep;

/// The number of attempts to start: another process may take a free port first.
const TRIES_MAX: usize = 5;

/// The proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Proxy {
    Nginx,
    Haproxy,
}

impl Proxy {
    /// The name of its program.
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
        }
    }
}

/// A running proxy; it is killed with its handle.
#[derive(Debug)]
pub(crate) struct Front {
    child: Child,
    _folder: TempDir,
    /// The address of HTTP/1.1.
    pub(crate) http1: SocketAddr,
    /// The address of HTTP/2 by prior knowledge.
    pub(crate) http2: SocketAddr,
}

impl Front {
    /// Starts one that routes hosts to addresses; hosts with one address share its connections. `None`, with one
    /// printed line, if the machine lacks the program.
    pub(crate) async fn start(proxy: Proxy, routes: &[(&str, SocketAddr)]) -> Option<Self> {
        let program = proxy.program();
        let mut version = std::process::Command::new(program);
        if version.arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            skipped(program, format_args!("there is no {program}"));
            return None;
        }
        for _ in 0..TRIES_MAX {
            if let Some(front) = Self::tried(proxy, routes).await {
                return Some(front);
            }
        }
        panic!("{program} does not start");
    }

    async fn tried(proxy: Proxy, routes: &[(&str, SocketAddr)]) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let [http1, http2] = free_addresses();
        let file = folder.path().join("proxy.conf");
        let mut command = Command::new(proxy.program());
        let text = match proxy {
            Proxy::Nginx => {
                command
                    .arg("-p")
                    .arg(folder.path())
                    .arg("-e")
                    .arg(folder.path().join("error.log"))
                    .arg("-c")
                    .arg(&file);
                nginx(folder.path(), (http1, http2), routes)
            }
            Proxy::Haproxy => {
                command.args(["-db", "-q", "-f"]).arg(&file);
                haproxy((http1, http2), routes)
            }
        };
        std::fs::write(&file, text).expect("a configuration");
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().expect("a proxy");
        for _ in 0..400 {
            if TcpStream::connect(http1).await.is_ok() && TcpStream::connect(http2).await.is_ok() {
                return Some(Self { child, _folder: folder, http1, http2 });
            }
            if child.try_wait().expect("a status").is_some() {
                return None;
            }
            sleep(Duration::from_millis(25)).await;
        }
        None
    }

    /// Its process id.
    pub(crate) fn process(&self) -> u32 {
        self.child.id().expect("it runs")
    }
}

/// The hosts by address, in order, so that an address has one pool of connections.
fn by_address<'a>(routes: &[(&'a str, SocketAddr)]) -> BTreeMap<SocketAddr, Vec<&'a str>> {
    let mut hosts: BTreeMap<SocketAddr, Vec<&str>> = BTreeMap::new();
    for (host, address) in routes {
        hosts.entry(*address).or_default().push(host);
    }
    hosts
}

fn nginx(folder: &Path, (http1, http2): (SocketAddr, SocketAddr), routes: &[(&str, SocketAddr)]) -> String {
    let folder = folder.display();
    let mut text = format!(
        "daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000;
"
    );
    for (number, (address, hosts)) in by_address(routes).iter().enumerate() {
        let _infallible = write!(
            text,
            "  upstream u{number} {{ server {address}; keepalive 16; keepalive_requests 1000000; }}
  server {{
    listen {http1}; listen {http2} http2; server_name {};
    location / {{
      proxy_pass http://u{number}; proxy_http_version 1.1;
      proxy_set_header Connection \"\"; proxy_set_header Host $http_host;
    }}
  }}
",
            hosts.join(" ")
        );
    }
    text + "}\n"
}

fn haproxy((http1, http2): (SocketAddr, SocketAddr), routes: &[(&str, SocketAddr)]) -> String {
    let mut text = format!(
        "global
  maxconn 4096
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  http-reuse always
frontend all
  bind {http1}
  bind {http2} proto h2
"
    );
    let backends = by_address(routes);
    for (number, hosts) in backends.values().enumerate() {
        for host in hosts {
            let _infallible = writeln!(text, "  use_backend u{number} if {{ hdr(host) -i {host} }}");
        }
    }
    for (number, address) in backends.keys().enumerate() {
        let _infallible = write!(text, "backend u{number}\n  server s {address}\n");
    }
    text
}
