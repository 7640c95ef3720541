//! A bare Pingora: one thread, kept connections on both sides, and no work on requests.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::listeners::tls::TlsSettings;
use pingora::proxy::{ProxyHttp, Session, http_proxy_service};
use pingora::server::Server;
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;

use super::{IdentityFiles, tell};
use crate::clock::pause;
use crate::place::free_address;

/// Its parameters.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The upstream of every request.
    #[arg(long)]
    upstream: SocketAddr,
    /// The number of threads that carry traffic.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    #[command(flatten)]
    identity: IdentityFiles,
}

#[derive(Debug)]
struct Bare(SocketAddr);

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.0, false, String::new())))
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let (plain, secure) = (free_address()?, free_address()?);
    let conf = ServerConf { threads: args.threads, work_stealing: false, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&Arc::clone(&server.configuration), Bare(args.upstream));
    service.add_tcp(&plain.to_string());
    let (certificate, key) = args.identity.paths();
    let mut tls = TlsSettings::intermediate(&certificate.to_string_lossy(), &key.to_string_lossy())?;
    tls.enable_h2();
    service.add_tls_with_settings(&secure.to_string(), None, tls);
    server.add_service(service);
    std::thread::spawn(|| server.run_forever());
    for address in [plain, secure] {
        while TcpStream::connect(address).is_err() {
            pause(Duration::from_millis(5));
        }
    }
    tell(plain, secure)?;
    // Pingora's own shutdown takes its time.
    std::process::exit(0)
}
