//! What the connections of a traffic thread have in common, as drivers and the accept loop use it.

use std::net::IpAddr;
use std::sync::Arc;

use pingora::proxy::HttpProxy;
use tidegate_config::model::BindKey;
use tidegate_config::published::Published;
use tokio::sync::watch;

use super::pingora::PingoraDriver;
use super::streams::Streams;
use crate::budget::Cost;
use crate::connection::clients::{ClientPlace, FlowPlace};
use crate::connection::idle::{self, List};
use crate::connection::tls::Tls;
use crate::observe::connection_metrics::{ConnectionMetrics, Refused};
use crate::observe::datagram_metrics::Dropped;
use crate::options::Options;
use crate::shared::Shared;

/// What the connections of a thread have in common.
pub(crate) struct Traffic {
    /// Pingora's driver with this thread's upstream pool.
    pub(crate) proxy: Arc<HttpProxy<PingoraDriver>>,
    /// The same for HTTP/2.
    pub(crate) streams: Arc<Streams>,
    /// TLS with clients.
    pub(crate) tls: Arc<Tls>,
    pub(crate) published: Published,
    pub(crate) options: Arc<Options>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) metrics: Arc<ConnectionMetrics>,
    /// The beginning of the times that the connections of this thread have waited.
    pub(crate) epoch: std::time::Instant,
    /// `true` once the end of all traffic is near.
    pub(crate) leaving: watch::Receiver<bool>,
}

/// How large the head of a request may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadBounds {
    /// Bytes, from the request line to the empty line.
    pub(crate) bytes_max: usize,
    /// Header lines.
    pub(crate) lines_max: usize,
}

impl Traffic {
    /// How large the head of a request that begins now may be.
    pub(crate) fn head_bounds(&self) -> HeadBounds {
        let limits = &self.options.client;
        let asked = self.published.pin().edge().request_head.bytes_max;
        HeadBounds { bytes_max: asked.unwrap_or(limits.head_bytes_max), lines_max: limits.head_lines_max }
    }

    /// Holds what is charged from now on against the number of connections that the configuration allows.
    pub(crate) fn allow_connections(&self) {
        let max = self.published.pin().edge().connections_max;
        self.shared.budget.allow_files(max.map(|max| max.in_all(self.options.threads)));
    }

    /// Whether a connection that is accepted now has to begin with a header of the PROXY protocol.
    pub(crate) fn wants_proxy_header(&self) -> bool {
        self.options.client.proxy_header || self.published.pin().edge().proxy_protocol
    }

    /// Whether a peer is a trusted proxy.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        self.published.pin().trusted_proxies().iter().any(|net| net.contains(&peer))
    }

    /// The port that clients of a bind connect to, where that is not the port of its socket.
    pub(crate) fn port_of(&self, bind: &BindKey) -> Option<u16> {
        self.published.pin().bind(bind)?.listeners.iter().find_map(|listener| listener.port)
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

    /// The same for a flow of datagrams.
    ///
    /// # Errors
    /// When the client holds too much already.
    pub(crate) fn flow_client(&self, peer: IpAddr) -> Result<Option<FlowPlace>, Dropped> {
        let peer = peer.to_canonical();
        if self.trusts(peer) {
            return Ok(None);
        }
        let may = |flows| self.shared.flow_budget.is_fair(flows);
        self.shared.clients.enter_flow(peer, may).map(Some).ok_or(Dropped::Client)
    }

    /// Charges a flow of datagrams. When there is no room for it, those of this thread give way that were silent for longest;
    /// whether there is room.
    pub(crate) fn flow_room(&self) -> bool {
        self.allow_connections();
        let mut must_give_way = self.shared.budget.is_exhausted();
        while must_give_way || !self.shared.flow_budget.charge() {
            must_give_way = false;
            if idle::give_way(List::Flows).is_none() {
                return false;
            }
            self.metrics.datagrams.evicted.inc();
            self.shared.flow_budget.release();
        }
        true
    }
}
