//! The header that an endpoint gets, and endpoints that cannot be reached.

use std::sync::Arc;

use tidegate_config::model::{Endpoint as ModelEndpoint, EndpointId, SnapshotParts};
use tidegate_config::published::Published;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::timeout;

use super::*;
use crate::sample_model::{backend_key, endpoints, path, published, route};

#[track_caller]
fn check_header(version: ProxyHeader, [from, to]: [&str; 2], want: &[u8]) {
    assert_eq!(proxy_header(version, from.parse().unwrap(), to.parse().unwrap()).unwrap(), want);
}

/// The bytes of the examples in sections 2.1 and 2.2 of the protocol's document.
#[test]
fn headers_name_the_client() {
    let v4 = ["192.0.2.1:56324", "192.0.2.9:443"];
    check_header(ProxyHeader::V1, v4, b"PROXY TCP4 192.0.2.1 192.0.2.9 56324 443\r\n");
    let v6 = ["[2001:db8::1]:56324", "[2001:db8::9]:443"];
    check_header(ProxyHeader::V1, v6, b"PROXY TCP6 2001:db8::1 2001:db8::9 56324 443\r\n");
    let binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc0\x00\x02\x09\xdc\x04\x01\xbb";
    check_header(ProxyHeader::V2, v4, binary);
}

fn id(address: SocketAddr) -> EndpointId {
    ModelEndpoint::tcp(address, None).id
}

/// A model with these endpoints of one Service.
fn model_of(addresses: &[SocketAddr]) -> Published {
    let mut model = SnapshotParts::default();
    endpoints(&mut model, "git", addresses);
    published(model)
}

/// The route to that Service.
fn route_to_git(connect_timeout: Duration) -> StreamRoute {
    let backends = [WeightedBackend { to: Some(backend_key("git").into()), weight: 1 }].into();
    let origin = Arc::clone(&route("git", path("/")).origin);
    StreamRoute { origin, rule: None, backends, connect_timeout, idle_timeout: connect_timeout }
}

/// A client of another host.
fn origin() -> ConnectionOrigin {
    let (peer, local) = (([192, 0, 2, 1], 5000).into(), ([127, 0, 0, 1], 22).into());
    ConnectionOrigin { peer, local, destination: local, named_port: None, forwards: false, client: None }
}

/// Opens connections to two endpoints, each with new states of endpoints, until one has tried the first endpoint before
/// it reached the second, all in less than the connect timeout. Returns the states.
async fn tried_first([first, second]: [SocketAddr; 2], connect_timeout: Duration) -> Arc<Shared> {
    let snapshot = model_of(&[first, second]).pin();
    let (route, from) = (route_to_git(connect_timeout), origin());
    let mut late = 0;
    // Each begins with one of the two at random.
    for _ in 0..64 {
        let (shared, began) = (Shared::sample(), clock::now());
        let connected = connect(&route, &snapshot, &from, &shared).await;
        let is_late = clock::now() >= began + connect_timeout;
        let is_tried = shared.endpoints.peek(id(first), |_| ()).is_some();
        match connected {
            Ok((Endpoint::Plain(stream), _)) if is_tried && !is_late => {
                assert_eq!(stream.peer_addr().unwrap(), second);
                return shared;
            }
            // A busy machine may be late once.
            _ if is_tried => late += 1,
            _ => {}
        }
        assert!(late < 3, "the second endpoint is reached too late");
    }
    panic!("the first endpoint is never tried");
}

#[tokio::test]
async fn an_endpoint_that_refuses_a_connection_is_ejected() {
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addresses = [closed.local_addr().unwrap(), open.local_addr().unwrap()];
    let shared = tried_first(addresses, Duration::from_secs(20)).await;
    let now = shared.endpoints.moment(clock::now());
    assert_eq!(shared.endpoints.peek(id(addresses[0]), |state| state.is_ejected(now)), Some(true));
}

#[tokio::test]
async fn three_endpoints_are_tried() {
    let closed = [(); 6].map(|()| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        socket
    });
    let addresses = closed.each_ref().map(|socket| socket.local_addr().unwrap());
    let (route, snapshot, shared) =
        (route_to_git(Duration::from_secs(20)), model_of(&addresses).pin(), Shared::sample());
    assert!(connect(&route, &snapshot, &origin(), &shared).await.is_err());
    let tried = addresses.iter().filter(|address| shared.endpoints.peek(id(**address), |_| ()).is_some());
    assert_eq!(tried.count(), 3);
}

#[tokio::test]
async fn a_silent_endpoint_leaves_time_for_others() {
    // A listener that accepts nothing and whose backlog is full, so that no further connection completes.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let silent = socket.listen(1).unwrap();
    let address = silent.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = timeout(Duration::from_secs(1), TcpStream::connect(address)).await {
        waiting.push(stream.unwrap());
        assert!(waiting.len() < 10, "the backlog is never full");
    }
    let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
    tried_first([address, open.local_addr().unwrap()], Duration::from_secs(3)).await;
}
