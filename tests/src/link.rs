//! A link to an API server that can be cut and restored. It has the same port on another loopback address, because an
//! API server serves only its own port.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

/// The link. While it is cut, connections are refused.
#[derive(Debug)]
pub struct Link {
    at: SocketAddr,
    to: SocketAddr,
    cut: CancellationToken,
}

impl Link {
    /// A link to the API server that a kubeconfig names.
    pub async fn to(kubeconfig: &Path) -> Self {
        let to = server(kubeconfig);
        Self::between(SocketAddr::from((Ipv6Addr::LOCALHOST, to.port())), to).await
    }

    /// A link from one address to another.
    pub async fn between(at: SocketAddr, to: SocketAddr) -> Self {
        let mut link = Self { at, to, cut: CancellationToken::new() };
        link.pass(TcpListener::bind(at).await.unwrap());
        link
    }

    /// The kubeconfig with the link in place of the server, in a file beside it.
    #[must_use]
    pub fn kubeconfig(&self, kubeconfig: &Path) -> PathBuf {
        let text = std::fs::read_to_string(kubeconfig).unwrap();
        let path = kubeconfig.with_extension("link");
        std::fs::write(&path, text.replace(&server(kubeconfig).to_string(), &self.at.to_string())).unwrap();
        path
    }

    /// The address of the API server behind it.
    #[must_use]
    pub const fn server(&self) -> SocketAddr {
        self.to
    }

    /// Closes every connection, and refuses new ones.
    pub fn cut(&self) {
        self.cut.cancel();
    }

    /// Accepts connections again.
    pub fn mend(&mut self) {
        self.cut = CancellationToken::new();
        // Earlier connections may still be closing.
        let socket = if self.at.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }.unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(self.at).unwrap();
        self.pass(socket.listen(64).unwrap());
    }

    fn pass(&mut self, listener: TcpListener) {
        let (to, cut) = (self.to, self.cut.clone());
        tokio::spawn(self.cut.clone().run_until_cancelled_owned(async move {
            while let Ok((mut here, _)) = listener.accept().await {
                tokio::spawn(cut.clone().run_until_cancelled_owned(async move {
                    if let Ok(mut there) = TcpStream::connect(to).await {
                        // However it ends, both sides see it.
                        drop(copy_bidirectional(&mut here, &mut there).await);
                    }
                }));
            }
        }));
    }
}

fn server(kubeconfig: &Path) -> SocketAddr {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let (_, server) = text.split_once("server: https://").expect("where the API server is");
    server.lines().next().and_then(|line| line.trim().parse().ok()).expect("an address")
}
