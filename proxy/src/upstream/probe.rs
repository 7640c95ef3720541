//! The return of ejected endpoints. Once an ejection is over, a connection without a request finds out whether the
//! endpoint accepts connections again: a client whose request did that would wait for an address that never answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::clock;
use crate::upstream::endpoint_state::{EndpointState, MomentClock};

/// The maximum wait for the connection.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Connects to an endpoint, beside the request that has passed it over.
pub(crate) fn probe(state: Arc<EndpointState>, address: SocketAddr, moments: MomentClock) {
    let Ok(runtime) = Handle::try_current() else { return };
    runtime.spawn(async move {
        match timeout(CONNECT_MAX, TcpStream::connect(address)).await {
            Ok(Ok(_accepted)) => state.accepts(),
            Ok(Err(_)) | Err(_) => state.refused(moments.at(clock::now())),
        }
    });
}
