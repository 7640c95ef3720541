//! nginx as an ingress controller drives it: the whole configuration is written anew and nginx reloads it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use super::{Route, Target};
use crate::nginx::Nginx;
use crate::upstream::Upstream;

/// A running nginx.
#[derive(Debug)]
pub(crate) struct Peer {
    nginx: Nginx,
    /// What stands before the hosts.
    preamble: String,
    routes: BTreeMap<String, Target>,
}

impl Peer {
    pub(super) async fn start(workers: usize, upstream: &Upstream) -> anyhow::Result<Self> {
        let mut preamble = preamble(upstream);
        let nginx = Nginx::start("nginx", workers, |address| {
            // A host that nobody claims is answered like Tidegate answers it.
            preamble += &format!("server {{ listen {address} default_server backlog=4096; return 404; }}\n");
            preamble.clone()
        })
        .await?;
        Ok(Self { nginx, preamble, routes: BTreeMap::new() })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.nginx.address()
    }

    pub(super) fn process(&self) -> Option<u32> {
        self.nginx.process()
    }

    pub(super) async fn put(&mut self, routes: &[Route]) -> anyhow::Result<()> {
        self.routes.extend(routes.iter().map(|route| (route.host.clone(), route.target)));
        let mut servers = self.preamble.clone();
        let address = self.address();
        for (host, target) in &self.routes {
            let name = target.name();
            let _ = writeln!(
                servers,
                "server {{ listen {address}; server_name {host}; location / {{ proxy_pass http://{name}; }} }}"
            );
        }
        self.nginx.reload(&servers).await
    }

    /// Gone with the next reload.
    pub(super) fn remove(&mut self, host: &str) {
        self.routes.remove(host);
    }
}

/// The upstreams, and the work that Tidegate does by default too: headers, and connections that are kept.
fn preamble(upstream: &Upstream) -> String {
    let mut text = "    server_names_hash_max_size 1048576;
    server_names_hash_bucket_size 128;
    map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
    proxy_http_version 1.1;
    proxy_set_header Host $host;
    proxy_set_header Connection $connection_upgrade;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header X-Request-Id $request_id;
    proxy_set_header X-Real-IP $remote_addr;
    proxy_set_header X-Forwarded-For $remote_addr;
    proxy_set_header X-Forwarded-Host $http_host;
    proxy_set_header X-Forwarded-Port $server_port;
    proxy_set_header X-Forwarded-Proto $scheme;
"
    .to_owned();
    for target in Target::ALL {
        let _ = writeln!(
            text,
            "upstream {} {{ server {}; keepalive 64; keepalive_requests 1000000000; }}",
            target.name(),
            target.address(upstream)
        );
    }
    text
}
