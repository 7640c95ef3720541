//! Accepts the connections of one bind on one thread, and ends them when the bind is removed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_config::model::{BindKey, BindProtocol};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::budget::Cost;
use crate::clock;
use crate::connection::Shutdown;
use crate::connection::bind_end::{Ending, wait};
use crate::connection::clients::ClientPermit;
use crate::connection::idle::{self, Activity};
use crate::driver::Traffic;
use crate::driver::{Accepted, ConnectionState, serve};
use crate::listen::sockets::BACKLOG;
use crate::observe::connection_metrics::RefusalReason;
use crate::stream;

/// The shortest and longest pause after a failure to accept.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// Serves a bind until it ends, then waits for its connections until the deadline and aborts the rest. While the
/// process drains, it signals that to its connections. Returns the number of aborted connections.
pub(crate) async fn accept(
    listener: Arc<TcpListener>,
    bind: BindKey,
    traffic: Arc<Traffic>,
    mut ending: Ending,
) -> usize {
    let ((drains, draining), (closes, closed)) = (watch::channel(false), watch::channel(false));
    // Only clones of it are read, so that an earlier value is new to each connection.
    let shutdown = Shutdown { draining, closed };
    let mut leaving = traffic.leaving.clone();
    let mut near = false;
    let mut connections = JoinSet::new();
    let mut pause = PAUSE.0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = connections.join_next() => {
                note(&ended, &traffic);
                continue;
            }
            Ok(_) = leaving.wait_for(|leaving| *leaving), if !near => {
                near = true;
                drains.send_replace(true);
                continue;
            }
            // A lost sender means that no end can be signalled any more.
            _ = ending.wait_for(Option::is_some) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                pause = PAUSE.0;
                start(
                    &mut connections,
                    Accepted { stream, peer, bind, proxy_header: traffic.wants_proxy_header(), at: clock::now() },
                    &traffic,
                    &shutdown,
                );
            }
            // The client left while it was in the queue; the queue is one shorter, so this cannot spin.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                traffic.metrics.accept_errors.inc();
                tracing::warn!(bind = %bind.address, %error, ?pause, "cannot accept connections");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }
    // The only reference: an audit holds another only for a moment.
    for (stream, peer) in Arc::into_inner(listener).map(queued).unwrap_or_default() {
        start(
            &mut connections,
            Accepted { stream, peer, bind, proxy_header: traffic.wants_proxy_header(), at: clock::now() },
            &traffic,
            &shutdown,
        );
    }
    drains.send_replace(true);
    closes.send_replace(true);
    drain(connections, &traffic, ending).await
}

/// Closes a socket and returns the connections that the kernel has completed already, which would be reset with it. It
/// accepts directly, because the runtime may not be notified yet, and limits the number of accepts per poll.
fn queued(listener: TcpListener) -> Vec<(TcpStream, SocketAddr)> {
    let Ok(listener) = listener.into_std() else { return Vec::new() };
    let accepted = (0..BACKLOG).map_while(|_| match listener.accept() {
        Ok(accepted) => Some(Some(accepted)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Some(None),
        Err(_) => None,
    });
    let opened = accepted.flatten().filter_map(|(stream, peer)| {
        stream.set_nonblocking(true).ok()?;
        Some((TcpStream::from_std(stream).ok()?, peer))
    });
    opened.collect()
}

fn start(connections: &mut JoinSet<()>, accepted: Accepted, traffic: &Arc<Traffic>, shutdown: &Shutdown) {
    let cost = Cost::of_connection(accepted.bind.protocol);
    let client = match admit(&accepted, traffic, cost) {
        Ok(client) => client,
        Err(refused) => return traffic.metrics.refused(refused),
    };
    let active = traffic.metrics.accepted(accepted.bind.protocol);
    let activity = Activity::new(traffic.epoch, accepted.at);
    let entry = idle::Entry::new(idle::ChargedTo::Connection(Arc::clone(&traffic.shared.budget)));
    let (place, bind) = (entry.place(), accepted.bind);
    let (traffic, shutdown) = (Arc::clone(traffic), shutdown.clone());
    let own = ConnectionState { client, activity: Arc::clone(&activity) };
    let task = connections.spawn(async move {
        match accepted.bind.protocol {
            BindProtocol::Http | BindProtocol::Https => {
                let at = accepted.at;
                if let Some(bytes) = serve(accepted, own, &traffic, shutdown).await {
                    stream::serve_tls((bind, at), *bytes, &traffic).await;
                }
            }
            BindProtocol::Tcp => stream::serve(accepted, own, traffic, shutdown).await,
            // UDP has no connections.
            BindProtocol::Udp => {}
        }
        drop((active, entry));
    });
    idle::register(place, activity, task, cost);
}

/// Charges a connection. Returns its place among those of its client.
fn admit(accepted: &Accepted, traffic: &Traffic, cost: Cost) -> Result<Option<ClientPermit>, RefusalReason> {
    // With the PROXY protocol the client is not known yet.
    let client = match accepted.proxy_header {
        true => None,
        false => traffic.client(accepted.peer.ip(), cost)?,
    };
    traffic.allow_connections();
    // A client that exceeds its share is refused before other connections have to give way.
    if traffic.shared.charge(cost) { Ok(client) } else { Err(RefusalReason::Full) }
}

async fn drain(mut connections: JoinSet<()>, traffic: &Traffic, mut ending: Ending) -> usize {
    loop {
        let until = *ending.borrow_and_update();
        tokio::select! {
            ended = connections.join_next() => match ended {
                Some(ended) => note(&ended, traffic),
                None => return 0,
            },
            () = wait(until) => break,
            changed = ending.changed() => if changed.is_err() { break },
        }
    }
    let cut = connections.len();
    traffic.metrics.cut.inc_by(cut as u64);
    connections.shutdown().await;
    cut
}

fn note(ended: &Result<(), JoinError>, traffic: &Traffic) {
    if ended.as_ref().is_err_and(JoinError::is_panic) {
        traffic.metrics.panicked();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_completed_connection_is_lost_with_its_socket() {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let listener = socket.listen(BACKLOG.unsigned_abs()).unwrap();
        let address = listener.local_addr().unwrap();
        // More than the runtime accepts per poll, and without its notifications.
        let clients: Vec<_> = (0..300).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        assert_eq!(queued(listener).len(), clients.len());
    }
}
