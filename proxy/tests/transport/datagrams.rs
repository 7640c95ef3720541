//! Flows of UDP datagrams.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tidegate_config::model::{BindKey, BindProtocol, HostPattern, StreamRoute, WeightedBackend};
use tidegate_proxy::Options;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::bed::{Bed, PATIENCE};
use super::streams;

const BIND: BindKey = BindKey {
    address: SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0),
    protocol: BindProtocol::Udp,
};

/// A server that answers a datagram with its name, the source port of the datagram, and the datagram. It returns a
/// datagram that is empty or longer than 1,000 bytes unchanged.
async fn server(name: &'static str) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut bytes = vec![0; 1 << 16];
        while let Ok((len, from)) = socket.recv_from(&mut bytes).await {
            let told = &bytes[..len];
            let answer = match len {
                1..1000 => [format!("{name} {} ", from.port()).as_bytes(), told].concat(),
                _ => told.to_vec(),
            };
            socket.send_to(&answer, from).await.ok();
        }
    });
    address
}

/// An address without a listener.
async fn closed_port() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// Flows of the bind go to these endpoints from now on.
fn lead(bed: &mut Bed, endpoints: &[SocketAddr], change: impl FnOnce(&mut StreamRoute)) {
    let mut route = streams::route(bed, "dns", endpoints);
    change(&mut route);
    bed.parts.streams.insert(&HostPattern::Any.into(), Arc::new(route));
    bed.publish();
}

async fn bed(endpoints: &[SocketAddr], set: impl FnOnce(&mut Options)) -> (Bed, SocketAddr) {
    let mut bed = Bed::with(&[BIND], set).await;
    lead(&mut bed, endpoints, |_| ());
    let address = bed.address(BIND).await;
    (bed, address)
}

/// One thread with this maximum number of flows.
async fn small_bed(flows: u32, client_share: u8) -> (Bed, SocketAddr) {
    let mut bed = Bed::with(&[BIND], |options| {
        options.threads = 1;
        // Flows may use a quarter of the files.
        (options.budget.files, options.budget.client_share) = (4 * flows, client_share);
    })
    .await;
    lead(&mut bed, &[server("a").await], |_| ());
    let bound = bed.bound(|bound| bound.get(&BIND).is_some_and(|bind| bind.threads() == 1)).await;
    let address = bound.get(&BIND).unwrap().address().unwrap();
    (bed, address)
}

/// A socket that shares an address with the edge, as one of its threads does.
fn one_more(address: SocketAddr) -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.bind(&address.into()).unwrap();
    UdpSocket::from_std(socket.into()).unwrap()
}

struct Client(UdpSocket);

impl Client {
    async fn of(edge: SocketAddr) -> Self {
        Self::at("127.0.0.1:0", edge).await
    }

    /// A client with an address of its own.
    async fn at(own: &str, edge: SocketAddr) -> Self {
        let socket = UdpSocket::bind(own).await.unwrap();
        socket.connect(edge).await.unwrap();
        Self(socket)
    }

    /// The answer to a datagram.
    async fn ask(&self, datagram: &[u8]) -> Vec<u8> {
        self.0.send(datagram).await.unwrap();
        timeout(PATIENCE, self.answer()).await.expect("no answer")
    }

    async fn answer(&self) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 16];
        let len = self.0.recv(&mut bytes).await.unwrap();
        bytes.truncate(len);
        bytes
    }

    /// The answering endpoint, and the source port, which differs between flows.
    async fn flow(&self) -> String {
        let answer = String::from_utf8(self.ask(b"?").await).unwrap();
        answer.strip_suffix(" ?").expect("an answer to the question").to_owned()
    }

    /// The same where datagrams may be lost: repeats until there is an answer.
    async fn flow_in_the_end(&self) -> String {
        let asking = async {
            loop {
                self.0.send(b"?").await.unwrap();
                let answer = timeout(Duration::from_millis(50), self.answer()).await;
                if let Ok(answer) = answer {
                    return String::from_utf8(answer).unwrap().strip_suffix(" ?").unwrap().to_owned();
                }
            }
        };
        timeout(PATIENCE, asking).await.expect("no answer in the end")
    }

    async fn say(&self, datagram: &[u8]) {
        self.0.send(datagram).await.unwrap();
    }
}

#[tokio::test]
async fn datagrams_of_every_size_pass_both_ways() {
    let (bed, address) = bed(&[server("a").await], |_| ()).await;
    let client = Client::of(address).await;
    for size in [0, 1000, 1472, 9000, 65_507] {
        let datagram: Vec<u8> = (0..size).map(|at| at as u8).collect();
        assert_eq!(client.ask(&datagram).await, datagram, "{size} bytes");
    }
    for direction in ["up", "down"] {
        bed.until_metric("tidegate_udp_datagrams_total", Some(direction), 5.0).await;
        bed.until_metric("tidegate_udp_bytes_total", Some(direction), 76_979.0).await;
    }
    assert_eq!(bed.metric("tidegate_udp_datagrams_total", Some("Service deis/dns")), 10.0);
    assert_eq!(bed.metric("tidegate_udp_flows_active", None), 1.0);
}

#[tokio::test]
async fn a_flow_keeps_its_endpoint_and_flows_are_spread() {
    let (mut bed, address) = bed(&[server("a").await, server("b").await], |_| ()).await;
    let mut seen = BTreeSet::new();
    for _ in 0..16 {
        let client = Client::of(address).await;
        let first = client.flow().await;
        for _ in 0..4 {
            assert_eq!(client.flow().await, first);
        }
        seen.insert(first[..1].to_owned());
    }
    assert_eq!(seen.len(), 2);
    // A change of the route's backend does not affect an existing flow.
    let client = Client::of(address).await;
    let before = client.flow().await;
    lead(&mut bed, &[server("c").await], |_| ());
    assert!(Client::of(address).await.flow().await.starts_with('c'));
    assert_eq!(client.flow().await, before);
}

#[tokio::test]
async fn a_wildcard_bind_answers_from_the_destination_address() {
    let any = BindKey { address: ([0, 0, 0, 0], 0).into(), ..BIND };
    let mut bed = Bed::start(&[any]).await;
    lead(&mut bed, &[server("a").await], |_| ());
    let port = bed.address(any).await.port();
    let [one, other] = [[127, 0, 0, 5], [127, 0, 0, 6]].map(|ip| SocketAddr::from((ip, port)));
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut answers = BTreeSet::new();
    for address in [one, other] {
        socket.send_to(b"?", address).await.unwrap();
        let mut bytes = [0; 64];
        let (len, from) = timeout(PATIENCE, socket.recv_from(&mut bytes)).await.expect("no answer").unwrap();
        assert_eq!(from, address);
        answers.insert(bytes[..len].to_vec());
    }
    assert_eq!(answers.len(), 2, "each address has a flow of its own");
}

#[tokio::test]
async fn a_silent_flow_ends_and_a_slow_one_does_not() {
    let (mut bed, address) = bed(&[server("a").await], |_| ()).await;
    let idle = Duration::from_millis(600);
    lead(&mut bed, &[server("a").await], |route| route.idle_timeout = idle);
    let client = Client::of(address).await;
    let first = client.flow().await;
    for _ in 0..8 {
        tokio::time::sleep(idle / 6).await;
        assert_eq!(client.flow().await, first);
    }
    bed.until_metric("tidegate_udp_flows_total", Some("idle"), 1.0).await;
    assert_eq!(bed.metric("tidegate_udp_flows_active", None), 0.0);
    assert_ne!(client.flow().await, first);
}

/// A flow of a client that sends one datagram and then receives for twice the idle time. Returns `false` if it ends,
/// which a pause of a busy machine may cause.
async fn receives_all(address: SocketAddr, endpoint: &UdpSocket, idle: Duration) -> bool {
    let client = Client::of(address).await;
    client.say(b"?").await;
    let (_, flow) = timeout(PATIENCE, endpoint.recv_from(&mut [0; 8])).await.expect("no datagram").unwrap();
    for number in 0..20_u8 {
        tokio::time::sleep(idle / 10).await;
        endpoint.send_to(&[number], flow).await.ok();
        if timeout(idle, client.answer()).await != Ok(vec![number]) {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn a_flow_whose_client_only_receives_does_not_end() {
    let endpoint = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (mut bed, address) = bed(&[], |_| ()).await;
    let idle = Duration::from_millis(500);
    lead(&mut bed, &[endpoint.local_addr().unwrap()], |route| route.idle_timeout = idle);
    let received = async { while !receives_all(address, &endpoint, idle).await {} };
    timeout(PATIENCE, received).await.expect("every such flow ends");
}

#[tokio::test]
async fn a_flow_moves_from_an_endpoint_that_refuses() {
    let (bed, address) = bed(&[closed_port().await, server("b").await], |_| ()).await;
    for _ in 0..8 {
        assert!(Client::of(address).await.flow_in_the_end().await.starts_with('b'));
    }
    let refused = bed.metric("tidegate_udp_flows_total", Some("refused"));
    assert!(refused <= 8.0, "one that refused is ejected: {refused}");
}

#[tokio::test]
async fn datagrams_without_an_endpoint_are_dropped_and_counted() {
    let (mut bed, address) = bed(&[], |_| ()).await;
    let client = Client::of(address).await;
    client.say(b"x").await;
    bed.until_metric("tidegate_udp_datagrams_dropped_total", Some("no-endpoint"), 1.0).await;
    lead(&mut bed, &[server("a").await], |route| route.backends[0].weight = 0);
    client.say(b"x").await;
    bed.until_metric("tidegate_udp_datagrams_dropped_total", Some("no-endpoint"), 2.0).await;
    bed.parts.streams.remove(&HostPattern::Any.into());
    bed.publish();
    client.say(b"x").await;
    bed.until_metric("tidegate_udp_datagrams_dropped_total", Some("no-route"), 1.0).await;
    assert_eq!(bed.metric("tidegate_udp_flows_active", None), 0.0);
}

#[tokio::test]
async fn the_share_of_an_invalid_backend_is_dropped() {
    let (mut bed, address) = bed(&[], |_| ()).await;
    lead(&mut bed, &[server("a").await], |route| {
        route.backends = [route.backends[0].clone(), WeightedBackend { to: None, weight: 1 }].into();
    });
    let dropped = || bed.metric("tidegate_udp_datagrams_dropped_total", Some("invalid-backend"));
    let flows = || bed.metric("tidegate_udp_flows_active", None) + bed.metric("tidegate_udp_flows_total", None);
    // One after the other, so that no datagram overflows a buffer, and all stay, so that no port has a second client.
    let mut clients = Vec::new();
    for sent in 1..=64_u8 {
        clients.push(Client::of(address).await);
        clients[usize::from(sent) - 1].say(b"x").await;
        let taken = async {
            while flows() + dropped() < f64::from(sent) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, taken).await.unwrap_or_else(|_| panic!("datagram {sent}: {} and {}", flows(), dropped()));
    }
    assert!((12.0..=52.0).contains(&dropped()), "{}", dropped());
}

#[tokio::test]
async fn a_flow_leaves_a_removed_endpoint_after_the_grace_period() {
    let grace = Duration::from_millis(300);
    let (mut bed, address) = bed(&[server("a").await], |options| options.drain.endpoint_grace = grace).await;
    let client = Client::of(address).await;
    let before = client.flow().await;
    lead(&mut bed, &[server("b").await], |_| ());
    assert_eq!(client.flow().await, before);
    bed.until_metric("tidegate_udp_flows_total", Some("endpoint-left"), 1.0).await;
    assert!(client.flow().await.starts_with('b'));
}

#[tokio::test]
async fn the_longest_idle_flow_is_evicted() {
    let (bed, address) = small_bed(2, 100).await;
    let [first, second, third] = [Client::of(address).await, Client::of(address).await, Client::of(address).await];
    let before = first.flow().await;
    second.flow().await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(first.flow().await, before);
    third.flow().await;
    bed.until_metric("tidegate_udp_flows_total", Some("evicted"), 1.0).await;
    assert_eq!(bed.metric("tidegate_udp_flows_evicted_total", None), 1.0);
    assert_eq!(first.flow().await, before);
    assert_eq!(bed.metric("tidegate_udp_flows_active", None), 2.0);
}

#[tokio::test]
async fn flows_per_client_are_limited() {
    let (bed, address) = small_bed(8, 50).await;
    let mut greedy = Vec::new();
    for _ in 0..4 {
        let client = Client::at("127.0.0.2:0", address).await;
        client.flow().await;
        greedy.push(client);
    }
    Client::at("127.0.0.2:0", address).await.say(b"x").await;
    bed.until_metric("tidegate_udp_datagrams_dropped_total", Some("client"), 1.0).await;
    Client::at("127.0.0.3:0", address).await.flow().await;
    assert_eq!(bed.metric("tidegate_udp_flows_evicted_total", None), 0.0);
}

#[tokio::test]
async fn adding_and_removing_sockets_breaks_no_flow() {
    let (bed, address) = bed(&[server("a").await], |_| ()).await;
    let mut clients = Vec::new();
    for _ in 0..64 {
        let client = Client::of(address).await;
        let flow = client.flow().await;
        clients.push((client, flow));
    }
    assert_eq!(bed.metric("tidegate_udp_flows_active", None), 64.0);
    // From now on, the kernel delivers some clients' datagrams to the other thread, and some to a socket that does not
    // answer.
    let socket = one_more(address);
    let mut lost = 0;
    for (client, flow) in &clients {
        client.say(b"?").await;
        match timeout(Duration::from_millis(500), client.answer()).await {
            Ok(answer) => assert_eq!(String::from_utf8(answer).unwrap(), format!("{flow} ?")),
            Err(_) => lost += 1,
        }
        if lost == 8 {
            break;
        }
    }
    assert!(lost > 0, "the third socket had no part");
    drop(socket);
    for (client, flow) in &clients {
        assert_eq!(&client.flow().await, flow);
    }
    assert_eq!(bed.metric("tidegate_udp_flows_active", None), 64.0);
}

#[tokio::test]
async fn datagrams_from_our_own_addresses_are_dropped() {
    let any = BindKey { address: ([0, 0, 0, 0], 0).into(), ..BIND };
    let mut bed = Bed::start(&[any]).await;
    lead(&mut bed, &[server("a").await], |_| ());
    let port = bed.address(any).await.port();
    // From one of the edge's own addresses, but not from one of its sockets.
    let forged = one_more(([127, 0, 0, 9], port).into());
    forged.send_to(b"x", SocketAddr::from(([127, 0, 0, 1], port))).await.unwrap();
    bed.until_metric("tidegate_udp_datagrams_dropped_total", Some("source"), 1.0).await;
    assert_eq!(bed.metric("tidegate_udp_flows_active", None), 0.0);
}

#[tokio::test]
async fn tcp_and_udp_binds_may_share_a_port_number() {
    // Nothing else uses this address, so the port that is free in UDP is free in TCP.
    let udp = BindKey { address: ([127, 0, 0, 53], 0).into(), ..BIND };
    let mut bed = Bed::with(&[udp], |_| ()).await;
    lead(&mut bed, &[server("a").await], |_| ());
    let address = bed.address(udp).await;
    let tcp = BindKey { address, protocol: BindProtocol::Tcp };
    bed.listen_on(&[udp, tcp]);
    assert_eq!(bed.address(tcp).await, address);
    drop(tokio::net::TcpStream::connect(address).await.unwrap());
    assert!(Client::of(address).await.flow().await.starts_with('a'));
}

#[tokio::test]
async fn a_removed_bind_keeps_its_flows_and_continues_them_if_restored() {
    let (mut bed, address) = bed(&[server("a").await], |_| ()).await;
    let client = Client::of(address).await;
    let flow = client.flow().await;
    bed.listen_on(&[]);
    bed.bound(|bound| bound.get(&BIND).is_none()).await;
    // Datagrams in the socket of the other thread are lost with it.
    assert_eq!(client.flow_in_the_end().await, flow);
    let late = Client::of(address).await;
    let dropped = async {
        // A thread without flows has closed its socket already, and the other one starts none.
        while bed.metric("tidegate_udp_datagrams_dropped_total", Some("draining")) < 1.0 {
            late.0.send(b"x").await.ok();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, dropped).await.expect("a flow began");
    assert_eq!(bed.metric("tidegate_udp_flows_active", None), 1.0);
    bed.listen_on(&[BIND]);
    bed.bound(|bound| bound.get(&BIND).is_some_and(|bind| bind.threads() > 0)).await;
    assert_eq!(client.flow_in_the_end().await, flow);
}

#[tokio::test]
async fn a_drain_ends_idle_flows_and_finally_cuts_the_others() {
    let silence = Duration::from_millis(300);
    let (bed, address) = bed(&[server("a").await], |options| options.drain.flow_silence = silence).await;
    let talking = Client::of(address).await;
    let (flow, _) = (talking.flow().await, Client::of(address).await.flow().await);
    let registry = bed.registry.clone();
    let ended = |outcome| super::bed::metric(&registry, "tidegate_udp_flows_total", Some(outcome));
    let drained = tokio::spawn(bed.drain(Duration::from_secs(2)));
    let mut answers = 0;
    while !drained.is_finished() {
        let mut bytes = [0; 64];
        let asked = async {
            talking.0.send(b"?").await?;
            talking.0.recv(&mut bytes).await
        };
        match timeout(silence / 3, asked).await {
            Ok(Ok(len)) => {
                assert_eq!(bytes[..len], *format!("{flow} ?").as_bytes());
                answers += 1;
                tokio::time::sleep(silence / 6).await;
            }
            // The socket is closed at the end of the drain.
            Ok(Err(error)) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused),
            Err(_) => {}
        }
    }
    assert!(answers > 1);
    assert_eq!(drained.await.unwrap(), 1);
    assert_eq!((ended("idle"), ended("cut")), (1.0, 1.0));
}
