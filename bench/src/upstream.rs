//! The upstream of every peer: one small nginx that responds at once, and an echo each for WebSockets and for gRPC.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::Context;
use futures::{SinkExt as _, StreamExt as _};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::cores::Share;
use crate::grpc;
use crate::identity::Identity;
use crate::nginx::{How, Nginx};
use crate::place::free_address;

/// The files that it serves, and their sizes in bytes.
const FILES: [(&str, usize); 3] = [("64k", 64 << 10), ("1m", 1 << 20), ("post", 0)];

/// The number of addresses that it listens on.
pub(crate) const PODS: usize = 3;

/// The running upstream; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// Responds to `/64k` and `/1m` with that many bytes, to `/post` when it has read the body, and to everything else
    /// at once; always with
    /// 200.
    pub(crate) http: SocketAddr,
    /// The same over plain HTTP/2.
    pub(crate) h2c: SocketAddr,
    /// The same over TLS.
    pub(crate) https: SocketAddr,
    /// Answers every WebSocket message with itself.
    pub(crate) echo: SocketAddr,
    /// Sends every message of a gRPC stream back.
    pub(crate) grpc: SocketAddr,
    _nginx: Nginx,
    _folder: TempDir,
    _echoing: [AbortOnDropHandle<()>; 2],
}

impl Upstream {
    /// Starts all of them: nginx on its cores, the echoes in this process.
    ///
    /// # Errors
    /// When one cannot be started.
    pub(crate) async fn start(share: Share) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("tidegate-bench-answers-").tempdir()?;
        for (name, bytes) in FILES {
            std::fs::write(folder.path().join(name), vec![b'x'; bytes])?;
        }
        let root = folder.path().to_str().context("the path of the folder is not valid UTF-8")?.to_owned();
        let (h2c, https) = (free_address()?, free_address()?);
        let nginx = Nginx::start("upstream", How::Workers(1), share, |address, folder| {
            Identity::new()?.write(folder)?;
            Ok(server(address, h2c, https, &root, folder))
        })
        .await?;
        let (echo, echoing) = serve(echo).await?;
        let (grpc, streaming) = serve(grpc::echo).await?;
        Ok(Self {
            http: nginx.address(),
            h2c,
            https,
            echo,
            grpc,
            _nginx: nginx,
            _folder: folder,
            _echoing: [echoing, streaming],
        })
    }
}

impl Upstream {
    /// The same upstream at several addresses, as if they were pods.
    #[must_use]
    pub(crate) fn pods(&self) -> [SocketAddr; PODS] {
        std::array::from_fn(|pod| pod_address(self.http, pod))
    }
}

fn pod_address(http: SocketAddr, pod: usize) -> SocketAddr {
    let [a, b, c, d] = Ipv4Addr::LOCALHOST.octets();
    (Ipv4Addr::new(a, b, c, d.saturating_add(u8::try_from(pod).unwrap_or(u8::MAX))), http.port()).into()
}

/// The server block. A mirrored request is one whose body has been read.
fn server(address: SocketAddr, h2c: SocketAddr, https: SocketAddr, root: &str, folder: &Path) -> String {
    let folder = folder.display();
    let listen: String = (0..PODS).map(|pod| format!("listen {} backlog=4096; ", pod_address(address, pod))).collect();
    format!(
        "    access_log off;
    sendfile on;
    tcp_nopush on;
    client_body_buffer_size 128k;
    client_max_body_size 2m;
    open_file_cache max=16;
    server {{
        {listen}
        listen {h2c} http2 backlog=4096;
        listen {https} ssl backlog=4096;
        ssl_certificate {folder}/tls.crt;
        ssl_certificate_key {folder}/tls.key;
        ssl_protocols TLSv1.3;
        root {root};
        location / {{ return 200 \"right\\n\"; }}
        location = /64k {{ }}
        location = /1m {{ }}
        location = /post {{ mirror /read; error_page 405 =200 @right; }}
        location = /read {{ internal; return 204; }}
        location @right {{ return 200 \"right\\n\"; }}
    }}
"
    )
}

/// Serves every connection; ends with its handle, and its connections with it.
pub(crate) async fn serve<F>(connection: fn(TcpStream) -> F) -> std::io::Result<(SocketAddr, AbortOnDropHandle<()>)>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let serving = async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(connection(stream));
            while connections.try_join_next().is_some() {}
        }
    };
    Ok((address, AbortOnDropHandle::new(tokio::spawn(serving))))
}

/// Serves one connection. Errors are left to the client.
async fn echo(stream: TcpStream) {
    let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
    while let Some(Ok(message)) = socket.next().await {
        if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err() {
            return;
        }
    }
}
