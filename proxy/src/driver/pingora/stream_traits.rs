//! The traits that Pingora requires of an `IO` type besides reading and writing.

use std::os::fd::RawFd;
use std::sync::Arc;

use async_trait::async_trait;
use pingora::http::ResponseHeader;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest, UniqueID,
    UniqueIDType,
};
use tokio::io::AsyncWriteExt;

use crate::connection::{ClientIo, ConnectionFacts};

impl ClientIo {
    /// The facts in Pingora's digest.
    fn proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.proxy_digest.get_or_init(|| proxy_digest(self.facts()).ok()).clone()
    }

    /// The addresses in Pingora's digest.
    fn socket_digest(&self) -> Arc<SocketDigest> {
        Arc::clone(self.socket_digest.get_or_init(|| socket_digest(self.fd(), self.facts())))
    }
}

/// Stores the facts in the one field of a digest for foreign types; its response is never read.
fn proxy_digest(facts: &Arc<ConnectionFacts>) -> pingora::Result<Arc<ProxyDigest>> {
    let unused = Box::new(ResponseHeader::build_no_case(200u16, Some(0))?);
    Ok(Arc::new(ProxyDigest::new(unused, Some(Box::new(Arc::clone(facts))))))
}

/// A digest with its addresses, so that Pingora does not query the kernel.
fn socket_digest(fd: RawFd, facts: &ConnectionFacts) -> Arc<SocketDigest> {
    let digest = SocketDigest::from_raw_fd(fd);
    // A new cell takes its first value, so these cannot fail.
    digest.peer_addr.set(Some(SocketAddr::Inet(facts.peer))).ok();
    digest.local_addr.set(Some(SocketAddr::Inet(facts.local))).ok();
    Arc::new(digest)
}

#[async_trait]
impl Shutdown for ClientIo {
    async fn shutdown(&mut self) {
        // An error means that the client has disconnected.
        AsyncWriteExt::shutdown(self).await.ok();
    }
}

impl UniqueID for ClientIo {
    fn id(&self) -> UniqueIDType {
        self.fd()
    }
}

impl Ssl for ClientIo {
    fn selected_alpn_proto(&self) -> Option<ALPN> {
        Some(if self.http2 { ALPN::H2 } else { ALPN::H1 })
    }
}

impl GetTimingDigest for ClientIo {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for ClientIo {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.proxy_digest()
    }
}

impl GetSocketDigest for ClientIo {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        Some(self.socket_digest())
    }
}

/// Not used: the protocol of a connection is known before Pingora gets it.
impl Peek for ClientIo {}
