//! Endpoints that fail, and requests that exceed limits.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::ask::get;
use crate::pair::Pair;
use crate::row::{check, differs, same};
use crate::world::World;

const LIMITS: &str = "a header line 431 instead of 400";

/// A bound socket that does not listen, so that it refuses connections; as long as it is kept, no other process gets
/// its port.
fn refusing() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let address = socket.local_addr().expect("an address");
    (socket, address)
}

/// A listener that accepts no more connections, because its queue is full; it has to be kept, and the connections in
/// the queue too.
async fn deaf() -> (TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let listener = socket.listen(1).expect("a listener");
    let address = listener.local_addr().expect("an address");
    let mut queue = Vec::new();
    let time = std::time::Duration::from_millis(200);
    while let Ok(Ok(stream)) = tokio::time::timeout(time, TcpStream::connect(address)).await {
        queue.push(stream);
    }
    (listener, queue)
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_endpoints() {
    let mut world = World::new(&[("platformDomain", "apps.test")]);
    let timeout = |name| [("domains", name), ("tcpTimeout", "400ms"), ("connectTimeout", "400ms")];
    // Time for an answer, also on a busy machine.
    world.app("blog", &[("domains", "blog"), ("tcpTimeout", "3s"), ("connectTimeout", "3s")]).await;
    let (_refusing, address) = refusing();
    world.app_at("refusing", "refusing", &timeout("refusing"), &[address]);
    let (listener, _queue) = deaf().await;
    world.app_at("deaf", "deaf", &timeout("deaf"), &[listener.local_addr().expect("an address")]);
    world.app("patient", &[("domains", "patient"), ("tcpTimeout", "1h"), ("connectTimeout", "10s")]).await;
    let Some(pair) = Pair::start(world, &[]).await else { return };
    let host = "blog.apps.test";
    let rows = vec![
        same("nobody listens", get("refusing.apps.test", "/"), 502, &[]),
        same("nobody listens, POST", get("refusing.apps.test", "/").body(5), 502, &[]),
        same("nobody accepts", get("deaf.apps.test", "/"), 504, &[]),
        same("the connection ends", get(host, "/end"), 502, &[]),
        same("the connection ends, POST", get(host, "/end").body(5), 502, &[]),
        differs(
            "no HTTP",
            get(host, "/garbage"),
            "a response without a status line",
            &["nginx status: none", "tidegate status: 502", "tidegate page: its own"],
        ),
        same("a NUL in a header", get(host, "/bad-header"), 502, &[]),
        same("an answer in time", get(host, "/slow/100"), 200, &[]),
        same("no answer in time", get(host, "/slow/20000"), 504, &[]),
        same("no answer in time, POST", get(host, "/slow/20000").body(5), 504, &[]),
        same("a head within the buffer", get(host, "/large-head/3000"), 200, &[]),
        differs(
            "a head larger than the buffer",
            get(host, "/large-head/5000"),
            "a response with a head of more than 4 kB is 502",
            &["nginx status: 502", "nginx page: its own", "tidegate status: 200"],
        ),
        same("a long line", get(host, &format!("/{}", "x".repeat(20_000))), 200, &[]),
        same("a line that is too long", get(host, &format!("/{}", "x".repeat(40_000))), 414, &[]),
        same("a long header", get(host, "/").header("X-Long", &"x".repeat(20_000)), 200, &[]),
        differs(
            "a header that is too long",
            get(host, "/").header("X-Long", &"x".repeat(40_000)),
            LIMITS,
            &["nginx status: 400", "tidegate status: 431"],
        ),
    ];
    check(&pair, rows).await;
}
