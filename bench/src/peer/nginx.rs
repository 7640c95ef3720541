//! nginx as an ingress controller drives it: the whole configuration is rewritten and nginx reloads it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::{Change, Protocol, Route, Setting, Target, is_secure};
use crate::identity::Identity;
use crate::nginx::{How, Nginx};
use crate::place::free_address;

/// One line of JSON per request, with the fields of Tidegate's. The variable `$request_id` would ask the generator of
/// OpenSSL, and take twice the instructions of this id, while the ids of `HAProxy` and Tidegate are not cryptographic.
const LOG: &str = r#"    map "" $edge_id { default "$pid-$msec-$connection-$connection_requests"; }
    log_format edge escape=json '{"time":"$time_iso8601","request_id":"$edge_id","client":"$remote_addr",'
        '"method":"$request_method","scheme":"$scheme","host":"$http_host","path":"$request_uri",'
        '"protocol":"$server_protocol","status":$status,"bytes_in":$request_length,"bytes_out":$body_bytes_sent,'
        '"duration_s":$request_time,"upstream":"$upstream_addr","upstream_connect_s":"$upstream_connect_time",'
        '"upstream_first_byte_s":"$upstream_header_time","object":"$server_name","tls":"$ssl_protocol",'
        '"user_agent":"$http_user_agent","referer":"$http_referer"}';
    access_log access.log edge buffer=32k flush=1s;
"#;
/// The headers that Tidegate sends to endpoints; `grpc_set_header` sends the same to gRPC endpoints.
const HEADERS: &str = "    proxy_set_header X-Request-Id $edge_id;
    proxy_set_header X-Real-IP $remote_addr;
    proxy_set_header X-Forwarded-For $remote_addr;
    proxy_set_header X-Forwarded-Host $http_host;
    proxy_set_header X-Forwarded-Port $server_port;
    proxy_set_header X-Forwarded-Proto $scheme;
";

/// The directives that its manuals recommend for long-lived streams: neither their bytes nor their time are limited.
const STREAMS: &str = "client_max_body_size 0; client_body_timeout 1h; grpc_read_timeout 1h; grpc_send_timeout 1h; ";

/// A running nginx.
#[derive(Debug)]
pub(crate) struct Peer {
    nginx: Nginx,
    sites: Sites,
}

/// The contents of its configuration.
#[derive(Debug)]
struct Sites {
    address: SocketAddr,
    /// The address of TLS.
    secure: SocketAddr,
    folder: PathBuf,
    /// The configuration before the hosts.
    preamble: String,
    /// An upstream.
    upstream: SocketAddr,
    /// The endpoints of [`Target::Rolled`].
    rolled: Vec<SocketAddr>,
    routes: BTreeMap<String, Target>,
}

impl Peer {
    pub(super) async fn start(how: How, setting: &Setting<'_>, routes: &[Route]) -> anyhow::Result<Self> {
        let mut sites = None;
        let nginx = Nginx::start("nginx", how, setting.share, |address, folder| {
            Identity::new()?.write(folder)?;
            let made = Sites::new(address, folder, setting, routes)?;
            Ok(sites.insert(made).text())
        })
        .await?;
        let Some(sites) = sites else { anyhow::bail!("nginx has no configuration") };
        Ok(Self { nginx, sites })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.nginx.address()
    }

    pub(crate) const fn secure(&self) -> SocketAddr {
        self.sites.secure
    }

    pub(super) fn process(&self) -> Option<u32> {
        self.nginx.process()
    }

    pub(super) fn log(&self) -> PathBuf {
        self.nginx.path("access.log")
    }

    pub(super) async fn change(&mut self, change: &Change<'_>) -> anyhow::Result<()> {
        self.sites.routes.extend(change.routes.iter().map(|route| (route.host.clone(), route.target)));
        if let Some(endpoints) = change.endpoints {
            self.sites.rolled = endpoints.to_vec();
        }
        self.nginx.reload(&self.sites.text()).await
    }

    /// Ends it well, so that a tool it runs under can report its counts.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        self.nginx.stop().await
    }

    pub(super) async fn restart(&mut self) -> anyhow::Result<Instant> {
        self.nginx.restart().await
    }

    /// Removes a host with the next reload.
    pub(super) fn remove(&mut self, host: &str) {
        self.sites.routes.remove(host);
    }
}

impl Sites {
    fn new(address: SocketAddr, folder: &Path, setting: &Setting<'_>, routes: &[Route]) -> anyhow::Result<Self> {
        let secure = free_address()?;
        Ok(Self {
            address,
            secure,
            preamble: preamble([address, secure, free_address()?], folder, setting),
            folder: folder.to_owned(),
            upstream: setting.upstream.http,
            rolled: setting.endpoints.to_vec(),
            routes: routes.iter().map(|route| (route.host.clone(), route.target)).collect(),
        })
    }

    fn text(&self) -> String {
        let mut servers = self.preamble.clone();
        servers += &kept(Target::Rolled.service(""), &self.rolled);
        let address = self.address;
        for (host, target) in &self.routes {
            let service = target.service(host);
            if *target == Target::Own {
                servers += &kept(service, &[self.upstream]);
            }
            let tls = if is_secure(host) { self.tls() } else { String::new() };
            let pass = match target.protocol() {
                Protocol::Http1 => "proxy_pass http".to_owned(),
                Protocol::Http2 => format!("{STREAMS}grpc_pass grpc"),
                Protocol::Tls => "proxy_pass https".to_owned(),
            };
            let _ = writeln!(
                servers,
                "server {{ listen {address}; {tls}server_name {host}; location / {{ {pass}://{service}; }} }}"
            );
        }
        servers
    }

    fn tls(&self) -> String {
        format!("listen {} ssl http2; {}", self.secure, certificate(&self.folder))
    }
}

fn certificate(folder: &Path) -> String {
    let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    format!("ssl_certificate {}; ssl_certificate_key {}; ", certificate.display(), key.display())
}

/// The static part: the work on every request, the upstreams that routes share, and the response to unknown hosts,
/// which is Tidegate's.
fn preamble([address, secure, status]: [SocketAddr; 3], folder: &Path, setting: &Setting<'_>) -> String {
    let Setting { upstream, work, .. } = setting;
    // A listening socket for each worker, frames of 16 KiB, and a window of 256 KiB for a stream's body, as in
    // Tidegate. Bodies of the bench fit into memory, and into buffers that are larger than the defaults of nginx and
    // ingress-nginx: with those, a response of 1 MiB takes twice the time, and most of it goes through a file. Without
    // the first two lines, a request's body that is in a file is held back by 40 ms, until the endpoint acknowledges
    // the head before it.
    let mut text = "    sendfile on;
    tcp_nopush on;
    client_body_buffer_size 128k;
    client_max_body_size 2m;
    proxy_buffer_size 16k;
    proxy_buffers 8 64k;
    proxy_busy_buffers_size 128k;
    proxy_max_temp_file_size 0;
    ssl_protocols TLSv1.3;
    proxy_ssl_protocols TLSv1.3;
    http2_chunk_size 16k;
    http2_body_preread_size 256k;
    server_names_hash_max_size 1048576;
    server_names_hash_bucket_size 128;
    map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
    proxy_http_version 1.1;
    proxy_set_header Host $host;
    proxy_set_header Connection $connection_upgrade;
    proxy_set_header Upgrade $http_upgrade;
    grpc_set_header Host $host;
"
    .to_owned();
    if work.is_same() {
        text += LOG;
        text += HEADERS;
        text += &HEADERS.replace("proxy_set_header", "grpc_set_header");
        text += &format!("server {{ listen {status}; location = /status {{ stub_status; access_log off; }} }}\n");
    } else {
        text += "    access_log off;\n";
    }
    for target in Target::SHARED {
        text += &kept(target.service(""), &[target.address(upstream)]);
    }
    // The options of a socket are those of the first server that names it.
    let certificate = certificate(folder);
    for (listen, tls) in [(address.to_string(), ""), (format!("{secure} ssl http2"), &*certificate)] {
        text += &format!("server {{ listen {listen} default_server reuseport backlog=4096; {tls}return 404; }}\n");
    }
    text
}

/// An upstream with keep-alive connections.
fn kept(name: &str, addresses: &[SocketAddr]) -> String {
    let servers: String = addresses.iter().map(|address| format!("server {address}; ")).collect();
    format!("upstream {name} {{ {servers}keepalive 64; keepalive_requests 1000000000; }}\n")
}
