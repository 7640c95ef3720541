//! The endpoint of a flow, and the socket to it.

use std::io;
use std::net::IpAddr;

use tidegate_config::model::{Balance, EndpointId, Snapshot, StreamRoute};
use tokio::net::UdpSocket;

use super::socket;
use crate::clock;
use crate::observe::datagram_metrics::Dropped;
use crate::reason::Reason;
use crate::shared::Shared;
use crate::stream;
use crate::upstream::attempt::{Attempts, OwnAddresses};
use crate::upstream::balance::Random;
use crate::upstream::connect;

/// The maximum number of endpoints tried for one flow. Without a datagram, only the route to the endpoint can be
/// checked.
const TRIES_MAX: usize = 3;

/// The chosen endpoint of a flow.
pub(super) struct ChosenEndpoint {
    pub(super) endpoint: EndpointId,
    pub(super) socket: UdpSocket,
    /// The flow counts as in flight at the endpoint until these are dropped.
    pub(super) attempts: Attempts,
}

/// Chooses an endpoint for a flow that came to an address.
///
/// # Errors
/// The reason why there is none.
pub(super) fn choose(
    route: &StreamRoute,
    snapshot: &Snapshot,
    local: IpAddr,
    shared: &Shared,
) -> Result<ChosenEndpoint, Dropped> {
    let mut draw = Random::new(fastrand::u64(..));
    let share = stream::share(route, &mut draw).ok_or(Dropped::NoEndpoint)?;
    let target = share.to.as_ref().ok_or(Dropped::InvalidBackend)?;
    let backend = snapshot.backend(&target.backend).ok_or(Dropped::NoEndpoint)?;
    let here = OwnAddresses { listening: &shared.listening_udp, local: Some(local) };
    let mut attempts = Attempts::default();
    while attempts.count() < TRIES_MAX {
        let now = clock::now();
        let random = (now, &mut draw);
        let Some(chosen) = attempts.next(backend, Balance::PowerOfTwo, here, &shared.endpoints, random) else {
            break;
        };
        match socket::connected(chosen.address) {
            Ok(socket) => return Ok(ChosenEndpoint { endpoint: chosen.id, socket, attempts }),
            Err(error) if is_ours(&error) => return Err(Dropped::Full),
            Err(_) => attempts.refused(now, Some(shared.endpoints.moment(now))),
        }
    }
    Err(Dropped::NoEndpoint)
}

/// Returns `true` if the edge lacks a resource: files, memory, or ports.
fn is_ours(error: &io::Error) -> bool {
    connect::failure(error) == Reason::OutOfResources || error.kind() == io::ErrorKind::WouldBlock
}
