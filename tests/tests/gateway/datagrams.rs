//! UDPRoutes: a client keeps its endpoint, and a UDP port is distinct from the TCP port with the same number.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_tests::eventually;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::{ACCEPTED, Bench, RESOLVED};

const EXAMPLE: &str = include_str!("../../../examples/gateway/datagrams.yaml");

const LISTENERS: &str = r#"{"spec":{"listeners":[
    {"name":"http","port":8080,"protocol":"HTTP"},
    {"name":"tcp","port":9000,"protocol":"TCP"},
    {"name":"udp","port":9000,"protocol":"UDP"}]}}"#;

/// A server that responds to each datagram with a name and the datagram, and its Service.
async fn server(name: &'static str) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut datagram = [0; 64];
        while let Ok((length, client)) = socket.recv_from(&mut datagram).await {
            let answer = [name.as_bytes(), b" ", &datagram[..length]].concat();
            socket.send_to(&answer, client).await.ok();
        }
    });
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: {name}}}\n\
         spec: {{ports: [{{name: talk, port: 7000, protocol: UDP}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{namespace: shop, name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}\n\
         addressType: IPv4\nports: [{{name: talk, port: {port}, protocol: UDP}}]\nendpoints: [{{addresses: [127.0.0.1]}}]\n---\n"
    )
}

fn route(name: &str, backends: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: UDPRoute\nmetadata: {{namespace: shop, name: {name}}}\nspec:\n  \
         parentRefs: [{{name: edge, sectionName: udp}}]\n  rules: [{{backendRefs: {backends}}}]\n---\n"
    )
}

/// A client with a flow of its own.
async fn client(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(to).await.unwrap();
    socket
}

/// The response to a datagram, if there is one.
async fn asked(client: &UdpSocket, text: &str) -> Result<String, String> {
    let mut answer = [0; 64];
    client.send(text.as_bytes()).await.map_err(|error| error.to_string())?;
    let received = timeout(Duration::from_millis(500), client.recv(&mut answer)).await;
    let length = received.map_err(|_| "no answer".to_owned())?.map_err(|error| error.to_string())?;
    String::from_utf8(answer[..length].to_vec()).map_err(|error| error.to_string())
}

/// Waits until new clients get responses with a name, and returns one of them.
async fn answered(to: SocketAddr, name: &str) -> UdpSocket {
    eventually(&format!("{name} at {to}"), || async move {
        let client = client(to).await;
        let said = asked(&client, "hello").await?;
        if said == format!("{name} hello") { Ok(client) } else { Err(said) }
    })
    .await
}

/// Pods of `dev` send datagrams back behind their names, and a client keeps its pod.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_works_as_described() {
    let Some(bench) = Bench::start(14).await else { return };
    let address = bench.door(2, 9000);
    bench.apply(&EXAMPLE.replace("127.0.1.3", &address.ip().to_string())).await;
    eventually("an answer", || async move { asked(&client(address).await, "hello").await }).await;
    let names = "-o=jsonpath={range .items[*]}{.metadata.name} {end}";
    let pods = bench.kubectl.run(&["get", "-n", "shop", "pods", "-l", "app=shop-v1", names]).await;
    let mut answering = BTreeSet::new();
    for _ in 0..32 {
        let client = client(address).await;
        let said = asked(&client, "hello").await.unwrap();
        let pod = said.strip_suffix(": hello").unwrap_or_else(|| panic!("{said}")).to_owned();
        assert_eq!(asked(&client, "again").await.unwrap(), format!("{pod}: again"));
        answering.insert(pod);
    }
    // The probability that one of two pods has none of 32 flows is 1 in 10 to the 9th.
    assert!(answering.iter().map(|pod| &**pod).eq(pods.split_whitespace()), "{answering:?} of {pods}");
    let pod = answering.first().unwrap();
    let log = bench.kubectl.run(&["logs", "-n", "shop", pod]).await;
    assert!(log.lines().any(|line| line.starts_with("UDP 127.") && line.ends_with(" 5")), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn datagrams_are_forwarded_by_flow() {
    let Some(bench) = Bench::start(6).await else { return };
    let address = bench.door(0, 9000);
    bench.patch("gateway/edge", LISTENERS).await;
    let backend = |name: &str| format!("[{{name: {name}, port: 7000}}]");
    let objects = server("one").await + &server("two").await + &route("talk", &backend("one"));
    bench.apply(&objects).await;
    let first = answered(address, "one").await;
    bench.said("udproute/talk", ACCEPTED, "Accepted").await;
    bench.said("udproute/talk", RESOLVED, "ResolvedRefs").await;
    bench.said("gateway/edge", "{.status.listeners[?(@.name=='udp')].attachedRoutes}", "1").await;
    // The TCP port of that number has no route, and takes no datagram.
    bench.said("gateway/edge", "{.status.listeners[?(@.name=='tcp')].attachedRoutes}", "0").await;
    let connection = TcpStream::connect(address).await;
    if let Ok(connection) = connection {
        let mut byte = [0];
        connection.readable().await.unwrap();
        assert!(matches!(connection.try_read(&mut byte), Ok(0) | Err(_)), "a TCP connection was answered");
    }

    // New clients follow the route. An existing client keeps its endpoint while that exists.
    bench.apply(&route("talk", &backend("two"))).await;
    answered(address, "two").await;
    assert_eq!(asked(&first, "again").await.unwrap(), "one again");

    // The share of a missing Service is dropped, and no other.
    bench.apply(&route("talk", "[{name: two, port: 7000}, {name: none, port: 7000}]")).await;
    bench.said("udproute/talk", RESOLVED, "BackendNotFound").await;
    let mut served = 0;
    for _ in 0..24 {
        served += usize::from(asked(&client(address).await, "x").await.is_ok_and(|said| said == "two x"));
    }
    // The probability that one of two equal shares has none of 24 is 1 in 10 to the 7th.
    assert!((1..24).contains(&served), "{served}");

    // The older one of two routes gets the port.
    bench.apply(&(route("younger", &backend("one")) + &route("talk", &backend("two")))).await;
    bench.said("udproute/younger", ACCEPTED, "Accepted").await;
    answered(address, "two").await;
    bench.kubectl.run(&["delete", "-n", "shop", "udproute", "talk"]).await;
    answered(address, "one").await;
}
