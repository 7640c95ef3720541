//! What HTTP/2 streams take of the edge's memory whose clients take nothing of long responses. The edge and its endpoint run in a
//! process of their own, so that nothing of the clients is counted.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
#![allow(unreachable_pub, missing_docs, missing_debug_implementations, reason = "nothing outside uses a test bed")]
#![allow(dead_code, reason = "the bed is that of other tests too")]

mod request {
    pub mod bed;
}

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use request::bed::{Bed, Model, PATIENCE};
use tidegate_proxy::Driver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// Streams of a connection, and connections.
const STREAMS: usize = 125;
const CONNECTIONS: usize = 4;

/// Bytes of a response.
const MUCH: usize = 8 << 20;

/// The process with the edge.
struct Edge {
    child: Child,
    address: SocketAddr,
}

impl Edge {
    fn start(driver: Driver) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "edge", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "{driver:?}").unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = said.find_map(|line| line.split_once("edge at ")?.1.parse().ok()).expect("no edge");
        // What it says later is for nobody, and must not make it wait.
        std::thread::spawn(move || said.for_each(drop));
        Self { child, address }
    }

    /// Resident memory in KiB.
    fn resident(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse().unwrap()
    }

    /// The same once it has not grown for a second.
    async fn settled(&self) -> usize {
        let mut resident = self.resident();
        loop {
            sleep(Duration::from_secs(1)).await;
            let now = self.resident();
            if now <= resident {
                return now;
            }
            resident = now;
        }
    }

    async fn client(&self) -> SendRequest<Bytes> {
        let mut builder = Builder::new();
        builder.initial_window_size(0);
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (send, connection) = builder.handshake(stream).await.unwrap();
        tokio::spawn(connection);
        send.ready().await.unwrap()
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[tokio::test]
#[ignore = "the process with the edge, which the other test starts"]
async fn edge() {
    let mut driver = String::new();
    std::io::stdin().read_line(&mut driver).unwrap();
    let driver = if driver.trim() == "Full" { Driver::Full } else { Driver::Both };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bed = Bed::with(Model::to(&[listener.local_addr().unwrap()]), |options| options.driver = driver).await;
    println!("edge at {}", bed.address);
    loop {
        let (endpoint, _) = listener.accept().await.unwrap();
        tokio::spawn(answer(endpoint));
    }
}

/// Answers one request with more than anybody holds.
async fn answer(mut endpoint: TcpStream) {
    let mut head = [0; 2048];
    let count = endpoint.read(&mut head).await.unwrap();
    let chunked = head[..count].windows(8).any(|window| window == b"/chunked");
    let framing = if chunked { "Transfer-Encoding: chunked".to_owned() } else { format!("Content-Length: {MUCH}") };
    static MANY: [u8; 1 << 16] = [b'x'; 1 << 16];
    endpoint.write_all(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n").as_bytes()).await.unwrap();
    if chunked {
        endpoint.write_all(format!("{MUCH:x}\r\n").as_bytes()).await.unwrap();
    }
    for _ in 0..MUCH / MANY.len() {
        if endpoint.write_all(&MANY).await.is_err() {
            return;
        }
    }
}

/// How many KiB a stream takes whose client takes nothing of it, at most.
async fn check(driver: Driver, path: &str, kib_max: usize) {
    let edge = Edge::start(driver);
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(edge.client().await);
    }
    let before = edge.settled().await;
    let mut streams = Vec::new();
    for connection in &mut connections {
        for _ in 0..STREAMS {
            let get = http::Request::get(format!("http://a.test{path}")).body(()).unwrap();
            streams.push(connection.clone().ready().await.unwrap().send_request(get, true).unwrap().0);
        }
    }
    let mut responses = Vec::new();
    for stream in streams {
        responses.push(timeout(PATIENCE, stream).await.expect("no response").unwrap());
    }
    let each = (edge.settled().await - before) / responses.len();
    println!("{driver:?} {path}: {each} KiB a stream");
    assert!(each <= kib_max, "{driver:?} {path}: {each} KiB a stream");
}

#[tokio::test]
async fn a_stream_whose_client_takes_nothing_is_small() {
    for path in ["/", "/chunked"] {
        check(Driver::Both, path, 64).await;
        check(Driver::Full, path, 640).await;
    }
}
