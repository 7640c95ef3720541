//! The routing of a connection that is passed on as bytes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{
    Bind, BindProtocol, Endpoint, Listener, ProxyHeader, Snapshot, StreamRoute, TlsMode, WeightedBackend,
};

use crate::compile::Unit;
use crate::not_serving::Wait;

/// The routing of a connection that is passed on as bytes.
#[derive(Debug, Serialize)]
pub struct Connections {
    /// Whether they are flows of datagrams.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub datagrams: bool,
    /// The TLS mode; `None` if the listener has no TLS.
    pub tls: Option<TlsMode>,
    /// The route. `None`: connections are closed, or their handshake is refused.
    pub route: Option<ConnectionRoute>,
}

/// The route of connections.
#[derive(Debug, Serialize)]
pub struct ConnectionRoute {
    /// Its object.
    pub object: String,
    /// The field of its rule.
    pub field: String,
    /// The name of its rule, if the object has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Arc<str>>,
    /// The timeout for connecting to an endpoint.
    pub connect_timeout: Duration,
    /// The time without a byte after which a connection is closed.
    pub idle_timeout: Duration,
    /// The backends, by weight.
    pub shares: Vec<ConnectionShare>,
}

/// A weighted backend of connections.
#[derive(Debug, Serialize)]
pub struct ConnectionShare {
    /// The Service port; `None` if the connections are closed.
    pub backend: Option<String>,
    /// The weight, relative to the sum of all.
    pub weight: u32,
    /// The server name for TLS to the endpoints, if they use TLS.
    pub over_tls: Option<Arc<str>>,
    /// The PROXY protocol header for endpoints, if they get one.
    pub proxy_header: Option<ProxyHeader>,
    /// The usable endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// The listener and route for a host on a socket.
pub(super) struct Passthrough<'s> {
    pub(super) listener: &'s Listener,
    pub(super) route: Option<&'s Arc<StreamRoute>>,
}

impl<'s> Passthrough<'s> {
    /// The listener and route for connections to a host on a socket, if they are passed on as bytes.
    pub(super) fn on(snapshot: &'s Snapshot, bind: &'s Bind, host: &str) -> Option<Self> {
        if matches!(bind.key.protocol, BindProtocol::Tcp | BindProtocol::Udp) {
            return Some(Self { listener: bind.listeners.first()?, route: snapshot.stream(&bind.key) });
        }
        let listener = bind.listener(host)?;
        mode(listener)?;
        Some(Self { listener, route: snapshot.tls_stream(listener, host) })
    }

    /// The form for the answer.
    pub(super) fn view(&self, snapshot: &Snapshot, datagrams: bool) -> Connections {
        let carried = |route: &Arc<StreamRoute>| ConnectionRoute {
            object: route.origin.object.to_string(),
            field: route.origin.field.to_string(),
            rule: route.rule.clone(),
            connect_timeout: route.connect_timeout,
            idle_timeout: route.idle_timeout,
            shares: route.backends.iter().map(|it| share(snapshot, it)).collect(),
        };
        Connections { datagrams, tls: mode(self.listener), route: self.route.map(carried) }
    }

    /// Whether the wait is one of the route that has the connections now.
    pub(super) fn waits(&self, wait: &Wait, snapshot: &Snapshot) -> bool {
        let Unit::Stream(host) = &wait.unit else { return false };
        let route = snapshot.parts().streams.get(host).filter(|_| host.table == self.listener.table);
        route.zip(self.route).is_some_and(|(of, serving)| Arc::ptr_eq(of, serving))
    }

    /// The findings about other routes that want the connections, and those about the object that has them.
    pub(super) fn concerned(&self, findings: &[Finding]) -> (Vec<Finding>, Vec<Finding>) {
        let Some(winner) = self.route.map(|route| &route.origin.object) else { return Default::default() };
        let table = format!(" of {}", self.listener.name);
        let lost = |finding: &&Finding| matches!(&finding.problem, Problem::ConnectionsLost { host, winner: of } if of == winner && host.ends_with(&table));
        let of_winner = |finding: &&Finding| finding.object == *winner && !lost(finding);
        [&lost as &dyn Fn(&&Finding) -> bool, &of_winner].map(|of| findings.iter().filter(of).cloned().collect()).into()
    }
}

/// The end of TLS, for a listener whose connections are passed on as bytes.
fn mode(listener: &Listener) -> Option<TlsMode> {
    listener.tls.as_ref().map(|tls| tls.mode).filter(|mode| *mode != TlsMode::Http)
}

fn share(snapshot: &Snapshot, share: &WeightedBackend) -> ConnectionShare {
    let target = share.to.as_ref();
    let backend = target.and_then(|target| snapshot.backend(&target.backend));
    ConnectionShare {
        backend: target.map(|target| target.backend.to_string()),
        weight: share.weight,
        over_tls: target.and_then(|target| target.tls.as_ref()?.server_name.clone()),
        proxy_header: target.and_then(|target| target.proxy_header),
        endpoints: backend.map_or(Vec::new(), |backend| backend.endpoints.to_vec()),
    }
}

impl fmt::Display for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tls {
            Some(TlsMode::Passthrough) => writeln!(f, "  tls      passthrough")?,
            Some(TlsMode::Terminate) => writeln!(f, "  tls      terminated at the edge")?,
            Some(TlsMode::Http) | None => {}
        }
        let (word, fate) =
            if self.datagrams { ("dropped", "datagrams are dropped") } else { ("closed", "connections are closed") };
        let Some(route) = &self.route else { return writeln!(f, "  route    none, so {fate}") };
        writeln!(f, "  object   {}, {}", route.object, route.field)?;
        if let Some(rule) = &route.rule {
            writeln!(f, "  rule     {rule}")?;
        }
        for share in &route.shares {
            let Some(backend) = &share.backend else {
                writeln!(f, "  {word:8} (weight {})", share.weight)?;
                continue;
            };
            let tls = share.over_tls.as_ref().map(|name| format!(", over TLS to {name}")).unwrap_or_default();
            let header = share.proxy_header.map_or("", |_| ", with a PROXY header");
            writeln!(f, "  backend  {backend} (weight {}){tls}{header}", share.weight)?;
            super::text::write_endpoints(f, &share.endpoints)?;
        }
        Ok(())
    }
}
