//! What the connections of a traffic thread have in common, as drivers and the accept loop use it.

use std::net::IpAddr;
use std::sync::Arc;

use pingora::proxy::HttpProxy;
use tidegate_config::published::Published;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::pingora::PingoraDriver;
use super::streams::Streams;
use crate::budget::Cost;
use crate::connection::clients::ClientPlace;
use crate::observe::connection_metrics::{ConnectionMetrics, Refused};
use crate::options::Options;
use crate::shared::Shared;

/// What the connections of a thread have in common.
pub(crate) struct Traffic {
    /// Pingora's driver with this thread's upstream pool.
    pub(crate) proxy: Arc<HttpProxy<PingoraDriver>>,
    /// The same for HTTP/2.
    pub(crate) streams: Arc<Streams>,
    pub(crate) tls: TlsAcceptor,
    pub(crate) published: Published,
    pub(crate) options: Arc<Options>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) metrics: Arc<ConnectionMetrics>,
    /// The beginning of the times that the connections of this thread have waited.
    pub(crate) epoch: std::time::Instant,
    /// `true` once the end of all traffic is near.
    pub(crate) leaving: watch::Receiver<bool>,
}

impl Traffic {
    /// Whether a peer is a trusted proxy.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        self.published.pin().trusted_proxies().iter().any(|net| net.contains(&peer))
    }

    /// The place of a connection among those of its client; `None` for a trusted proxy, which speaks for many.
    ///
    /// # Errors
    /// When the client holds too much already.
    pub(crate) fn client(&self, peer: IpAddr, cost: Cost) -> Result<Option<ClientPlace>, Refused> {
        let peer = peer.to_canonical();
        if self.trusts(peer) {
            return Ok(None);
        }
        self.shared.clients.enter(peer, cost).map(Some).ok_or(Refused::Client)
    }
}
