//! The shared state of the connections of a traffic thread, for drivers and the accept loop.

use std::net::IpAddr;
use std::sync::Arc;

use pingora::proxy::HttpProxy;
use tidegate_config::model::BindKey;
use tidegate_config::published::Published;
use tokio::sync::watch;

use super::pingora::PingoraDriver;
use super::streams::Streams;
use crate::budget::Cost;
use crate::connection::clients::{ClientPermit, FlowPermit};
use crate::connection::idle::{self, List};
use crate::connection::tls::Tls;
use crate::observe::connection_metrics::{ConnectionMetrics, RefusalReason};
use crate::observe::datagram_metrics::Dropped;
use crate::options::Options;
use crate::shared::{ChargedCost, Shared};

/// The shared state of the connections of a thread.
pub(crate) struct Traffic {
    /// Pingora's driver with this thread's upstream pool.
    pub(crate) proxy: Arc<HttpProxy<PingoraDriver>>,
    /// The server of HTTP/2 streams.
    pub(crate) streams: Arc<Streams>,
    /// TLS with clients.
    pub(crate) tls: Arc<Tls>,
    pub(crate) published: Published,
    pub(crate) options: Arc<Options>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) metrics: Arc<ConnectionMetrics>,
    /// The epoch of the idle times of this thread's connections.
    pub(crate) epoch: std::time::Instant,
    /// `true` when the process drains.
    pub(crate) leaving: watch::Receiver<bool>,
}

/// The size limits of a request head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadBounds {
    /// The maximum size in bytes, from the request line to the empty line.
    pub(crate) bytes_max: usize,
    /// The maximum number of header lines.
    pub(crate) lines_max: usize,
}

impl Traffic {
    /// The size limits of a new request's head.
    pub(crate) fn head_bounds(&self) -> HeadBounds {
        let limits = &self.options.client;
        let asked = self.published.pin().edge().request_head.bytes_max;
        HeadBounds { bytes_max: asked.unwrap_or(limits.head_bytes_max), lines_max: limits.head_lines_max }
    }

    /// Applies the configured number of connections to later charges.
    pub(crate) fn allow_connections(&self) {
        let max = self.published.pin().edge().connections_max;
        self.shared.budget.allow_files(max.map(|max| max.in_all(self.options.threads)));
    }

    /// Returns `true` if a new connection must begin with a PROXY protocol header.
    pub(crate) fn wants_proxy_header(&self) -> bool {
        self.options.client.proxy_header || self.published.pin().edge().proxy_protocol
    }

    /// Returns `true` if a peer is a trusted proxy.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        self.published.pin().trusted_proxies().iter().any(|net| net.contains(&peer))
    }

    /// The port that clients of a bind connect to, if one of its listeners names it.
    pub(crate) fn port_of(&self, bind: &BindKey) -> Option<u16> {
        self.published.pin().bind(bind)?.listeners.iter().find_map(|listener| listener.named_port(bind.address.port()))
    }

    /// The place of a connection among those of its client; `None` for a trusted proxy, which acts for many.
    ///
    /// # Errors
    /// If the client holds too much already.
    pub(crate) fn client(&self, peer: IpAddr, cost: Cost) -> Result<Option<ClientPermit>, RefusalReason> {
        let peer = peer.to_canonical();
        if self.trusts(peer) {
            return Ok(None);
        }
        self.shared.clients.enter(peer, cost).map(Some).ok_or(RefusalReason::Client)
    }

    /// Charges a further cost of a connection to the process and its client, until the returned value is dropped.
    /// `None` if one of them has no room: the connection is counted as refused.
    pub(crate) fn room_for(&self, client: Option<&ClientPermit>, cost: Cost) -> Option<ChargedCost> {
        self.shared.room_for(client, cost).inspect_err(|refused| self.metrics.refused(*refused)).ok()
    }

    /// The place of a flow of datagrams among those of its client; `None` for a trusted proxy.
    ///
    /// # Errors
    /// If the client holds too much already.
    pub(crate) fn flow_client(&self, peer: IpAddr) -> Result<Option<FlowPermit>, Dropped> {
        let peer = peer.to_canonical();
        if self.trusts(peer) {
            return Ok(None);
        }
        let may = |flows| self.shared.flow_budget.is_fair(flows);
        self.shared.clients.enter_flow(peer, may).map(Some).ok_or(Dropped::Client)
    }

    /// Charges a flow of datagrams. If there is no room, the longest idle flows of this thread are closed. Returns
    /// `true` if the flow was charged.
    pub(crate) fn flow_room(&self) -> bool {
        self.allow_connections();
        let mut must_give_way = self.shared.budget.is_exhausted();
        while must_give_way || !self.shared.flow_budget.charge() {
            must_give_way = false;
            if idle::evict(List::Flows).is_none() {
                return false;
            }
            self.metrics.datagrams.evicted.inc();
            self.shared.flow_budget.release();
        }
        true
    }
}
