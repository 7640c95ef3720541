//! The memory for heads and trailers of an HTTP/2 endpoint that are small on the wire: each byte is a field, by a
//! reference to the table of the header compression (RFC 7541).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
#![allow(unreachable_pub, missing_docs, missing_debug_implementations, reason = "nothing outside uses a test bed")]
#![allow(dead_code, reason = "the bed is that of other tests too")]

mod anyone;
mod edge_process;
mod request {
    pub mod bed;
}

use std::net::SocketAddr;

use bytes::Bytes;
use edge_process::Edge;
use futures::future::join_all;
use h2::client::ResponseFuture;
use request::bed::PATIENCE;
use tidegate_config::model::AppProtocol;
use tidegate_proxy::Driver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// The number of requests at once.
const REQUESTS: usize = 50;

/// The fields of a head that h2 takes by itself: 16 MiB by the count of RFC 9113 section 6.5.2.
const MANY: usize = 400_000;

/// The part of a response with the fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Head,
    Trailers,
    /// So many interim responses.
    Interim(usize),
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;

/// One frame; the flags are END_STREAM (1) and END_HEADERS (4).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The frames of a header block.
fn block(stream: u32, is_end: bool, status: &[u8], fields: usize) -> Vec<u8> {
    // A name and no value, which become entry 62 of the table, and references to it.
    let block = [status, &[0x40, 1, b'x', 0], &vec![0xbe; fields]].concat();
    let pieces: Vec<_> = block.chunks(16_384).collect();
    let frames = pieces.iter().enumerate().map(|(at, piece)| {
        let kind = if at == 0 { HEADERS } else { CONTINUATION };
        let flags = if at + 1 == pieces.len() { 4 } else { 0 };
        frame(kind, flags | u8::from(at == 0 && is_end), stream, piece)
    });
    frames.collect::<Vec<_>>().concat()
}

fn response(stream: u32, part: Part, fields: usize) -> Vec<u8> {
    let (ok, plain) = ([0x88], frame(HEADERS, 4, stream, &[0x88]));
    match part {
        Part::Head => block(stream, true, &ok, fields),
        Part::Trailers => [plain, frame(DATA, 0, stream, b"body"), block(stream, true, &[], fields)].concat(),
        Part::Interim(count) => {
            let interim = block(stream, false, &[0x08, 3, b'1', b'0', b'3'], fields);
            [interim.repeat(count), frame(HEADERS, 5, stream, &ok)].concat()
        }
    }
}

/// Answers every request of a connection in the same way.
async fn answer(mut stream: TcpStream, part: Part, fields: usize) -> std::io::Result<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    let (read, mut write) = stream.split();
    let mut read = tokio::io::BufReader::new(read);
    loop {
        let mut head = [0; 9];
        read.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        read.read_exact(&mut vec![0; length as usize]).await?;
        if head[3] == HEADERS {
            let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
            write.write_all(&response(stream, part, fields)).await?;
        }
    }
}

async fn endpoint(part: Part, fields: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, part, fields));
        }
    });
    address
}

#[tokio::test]
#[ignore = "the process with the edge, which the other tests start"]
async fn edge() {
    edge_process::serve().await;
}

/// Sends requests; the client takes no body.
async fn ask(edge: &Edge, count: usize) -> Vec<ResponseFuture> {
    let stream = TcpStream::connect(edge.address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(0).initial_max_send_streams(REQUESTS);
    let (mut client, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
    tokio::spawn(connection);
    let mut answered = Vec::new();
    for _ in 0..count {
        client = client.ready().await.unwrap();
        let get = http::Request::get("http://a.test/").body(()).unwrap();
        answered.push(client.send_request(get, true).unwrap().0);
    }
    answered
}

/// Checks the statuses of the responses, and the maximum memory that is taken at any time, in KiB.
async fn check(part: Part, fields: usize, status: u16, kib_max: usize) {
    for driver in [Driver::Both, Driver::Pingora] {
        let edge = Edge::start(driver, AppProtocol::H2c, endpoint(part, fields).await);
        // The others share its connection, unless that ended with the response.
        timeout(PATIENCE, join_all(ask(&edge, 1).await)).await.expect("no response");
        let before = edge.settled().await;
        let answered = join_all(ask(&edge, REQUESTS).await);
        let responses = timeout(PATIENCE * 3, answered).await.expect("no response");
        for response in &responses {
            // The trailers of one request end the connection to the endpoint, which may be quicker than the heads of
            // those that share it.
            let got = response.as_ref().map_or(0, |response| response.status().as_u16());
            let is_ended = part == Part::Trailers && matches!(got, 0 | 502);
            assert!(got == status || is_ended, "{driver:?} {part:?} {fields}: {got}");
        }
        edge.settled().await;
        let taken = edge.peak() - before;
        println!("{driver:?} {part:?} {fields}: {taken} KiB");
        assert!(taken <= kib_max, "{driver:?} {part:?} {fields}: {taken} KiB");
    }
}

#[tokio::test]
async fn heads_of_many_references_are_502_and_take_little_memory() {
    check(Part::Head, MANY, 502, 16 << 10).await;
    check(Part::Head, 1_000, 502, 16 << 10).await;
}

#[tokio::test]
async fn trailers_of_many_references_take_little_memory() {
    check(Part::Trailers, MANY, 200, 16 << 10).await;
    check(Part::Trailers, 3_500, 200, 16 << 10).await;
}

#[tokio::test]
async fn interim_responses_of_many_references_take_little_memory() {
    check(Part::Interim(200), 3_500, 200, 16 << 10).await;
}
