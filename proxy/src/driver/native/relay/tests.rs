//! A request in transit between two sockets, polled by hand, so that a test can inspect it between polls.

mod compressed;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tidegate_config::model::{AppProtocol, Compression, Head, Settings};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Notify;

use super::*;
use crate::buffers::{Buffer, LARGE_BYTES, LARGE_MAX};
use crate::connection::{ClientIo, ConnectionFacts, Transport};
use crate::driver::native::agreement;
use crate::driver::native::scratch::Scratch;
use crate::observe::metrics::DriverUsed;
use crate::options::AccessLogSink;
use crate::options::Options;
use crate::request::decide::Decided;
use crate::request::exchange::Arrived;
use crate::request::phase;
use crate::sample_model::{endpoints, parts, path, published, to_backend};
use crate::shared::Shared;
use crate::upstream::connection::tests::over_tls;

/// The timeouts, except for a test of the endpoint's.
const PATIENCE: Duration = Duration::from_secs(2);

/// Two ends with small socket buffers, so that writes have to wait.
async fn pair() -> (TcpStream, TcpStream) {
    let [listening, connecting] = [(); 2].map(|()| TcpSocket::new_v4().unwrap());
    for socket in [&listening, &connecting] {
        socket.set_send_buffer_size(8 * 1024).unwrap();
    }
    listening.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let listener = listening.listen(1).unwrap();
    let client = connecting.connect(listener.local_addr().unwrap()).await.unwrap();
    let server = listener.accept().await.unwrap().0;
    for stream in [&server, &client] {
        stream.set_nodelay(true).unwrap();
    }
    (server, client)
}

/// A request that has chosen its endpoint, on a route with this compression.
fn forwarded(
    scratch: &mut Scratch,
    facts: Arc<ConnectionFacts>,
    shared: Arc<Shared>,
    compression: Option<Compression>,
) -> Forwarding {
    let mut model = parts(vec![("a.test", vec![to_backend("web", path("/"), AppProtocol::Http)])], None);
    endpoints(&mut model, "web", &[([10, 0, 0, 1], 80).into()]);
    model.defaults = Arc::new(Settings { compression: compression.map(Arc::new), ..Settings::default() });
    let snapshot = published(model).pin();
    let view = scratch.request.view(&scratch.head);
    let routed = phase::route(&snapshot, &shared, &facts, &view, &scratch.request.line());
    let decided = Arrived::new(DriverUsed::Native, snapshot, shared, clock::now()).decide(routed, &facts, &view, 7);
    let Decided::Forwards(mut forwarding) = decided else { panic!("no endpoint was chosen") };
    forwarding.attempt(clock::now(), 7).unwrap();
    forwarding.connected(false, clock::now());
    forwarding.request_edits(&view, &mut scratch.room.edits);
    write::request(&view, &scratch.room.edits, false, scratch.room.to_endpoint.end());
    forwarding
}

/// Relays a request with this head; `look` sees the relay after every poll.
async fn carry(
    head: &str,
    (conn, endpoint): (&mut ClientIo, &mut Connection),
    read: Duration,
    look: impl Fn(&Relay<'_, ClientIo>),
) -> Result<(), Reason> {
    carry_by(head, (conn, endpoint), (Shared::sample(), None), read, look).await
}

/// The same, with shared state, and on a route with this compression.
async fn carry_by(
    head: &str,
    (conn, endpoint): (&mut ClientIo, &mut Connection),
    (shared, compression): (Arc<Shared>, Option<Compression>),
    read: Duration,
    look: impl Fn(&Relay<'_, ClientIo>),
) -> Result<(), Reason> {
    let mut scratch = Scratch::take();
    assert!(scratch.request.read(head.as_bytes()));
    scratch.head.extend_from_slice(head.as_bytes());
    let mut forwarding = forwarded(&mut scratch, Arc::clone(conn.facts()), shared, compression);
    let Scratch { head, request, room } = &mut *scratch;
    let mut progress = Progress::new(request.framing, request.closes);
    let mut relay = Relay {
        client: conn,
        endpoint,
        forwarding: &mut forwarding,
        room,
        progress: &mut progress,
        timeouts: Timeouts { read, write: PATIENCE, body: PATIENCE, client: PATIENCE },
        asked_by_head: request.view(head).method() == "HEAD",
        chunked_up: request.framing == Framing::Chunked,
    };
    std::future::poll_fn(|cx| {
        let polled = relay.poll(cx);
        look(&relay);
        polled
    })
    .await
}

async fn connected() -> (ClientIo, TcpStream, Connection, TcpStream) {
    let ((server, client), (far, near)) = (pair().await, pair().await);
    let facts = Arc::new(ConnectionFacts::sample(client.local_addr().unwrap()));
    let shared = Shared::sample();
    let conn = ClientIo::new(Transport::Plain(server), facts, &shared.options.client, &shared.budget);
    (conn, client, Connection::Plain(near), far)
}

#[tokio::test]
async fn an_upload_is_buffered_only_up_to_one_large_buffer() {
    const BYTES: usize = 2 << 20;
    for (framing, body) in [
        (format!("Content-Length: {BYTES}"), vec![b'x'; BYTES]),
        (
            "Transfer-Encoding: chunked".to_owned(),
            format!("{BYTES:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(BYTES)).into_bytes(),
        ),
    ] {
        let (mut conn, mut client, mut near, mut far) = connected().await;
        let sending = tokio::spawn(async move {
            client.write_all(&body).await.unwrap();
            client
        });
        let slow = tokio::spawn(async move {
            let (mut read, mut bytes) = (0, vec![0; 64 << 10]);
            while read < BYTES {
                read += far.read(&mut bytes).await.unwrap();
                tokio::task::yield_now().await;
            }
            far.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
            far
        });
        let head = format!("POST / HTTP/1.1\r\nHost: a.test\r\n{framing}\r\n\r\n");
        let look = |relay: &Relay<'_, ClientIo>| {
            assert!(relay.client.unread().len() <= BUFFER_BYTES);
            assert!(relay.room.to_endpoint.capacity() <= LARGE_BYTES);
        };
        carry(&head, (&mut conn, &mut near), 10 * PATIENCE, look).await.unwrap();
        sending.await.unwrap();
        slow.await.unwrap();
    }
}

/// Bytes without equal ranges that a test could mistake for one another.
fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| u8::try_from((at * 31 + at / 251) % 256).unwrap()).collect()
}

/// The content of a body with this framing, as far as there is any.
fn content(framing: Framing, bytes: &[u8]) -> Vec<u8> {
    agreement::content(Body::new(framing), bytes).expect("it is well framed").0
}

/// The other end of an endpoint's connection.
trait Far: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Far for S {}

/// The header line for the framing of a body.
fn announced(framing: Framing) -> String {
    match framing {
        Framing::Length(count) => format!("Content-Length: {count}\r\n"),
        Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
        Framing::None | Framing::UntilClose => String::new(),
    }
}

async fn secured() -> (Connection, Box<dyn Far>) {
    let (near, far) = over_tls().await;
    (near, Box::new(far))
}

/// Bodies of `count` bytes are relayed completely in both directions, in pieces of this size, and the client's next
/// bytes stay unread.
async fn check_bodies(count: usize, framing: Framing, pieces: usize, tls: bool) {
    let (mut conn, mut client, near, far) = connected().await;
    let (mut near, mut far) = if tls { secured().await } else { (near, Box::new(far) as Box<dyn Far>) };
    let sent = pattern(count);
    let framed = match framing {
        Framing::Chunked => {
            let chunk = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            [sent.chunks(pieces).flat_map(chunk).collect(), b"0\r\n\r\n".to_vec()].concat()
        }
        Framing::None | Framing::Length(_) | Framing::UntilClose => sent.clone(),
    };
    let says = announced(framing);
    // A request without a header for its body has none.
    let up = if says.is_empty() { Vec::new() } else { framed.clone() };
    let request = [&up[..], b"GET /next"].concat();
    let total = up.len();
    let writing = tokio::spawn(async move {
        let mut response = Vec::new();
        let (mut from, mut to) = client.split();
        let sending = async {
            for piece in request.chunks(pieces) {
                to.write_all(piece).await.unwrap();
            }
        };
        tokio::join!(sending, from.read_to_end(&mut response)).1.unwrap();
        response
    });
    let answer = [format!("HTTP/1.1 200 OK\r\n{says}\r\n").as_bytes(), &framed].concat();
    // So that the first bytes have to wait for the endpoint.
    let mut before = 0;
    while let Connection::Plain(stream) = &near
        && let Ok(count) = stream.try_write(&[b'-'; 4096])
    {
        before += count;
    }
    let begun = Arc::new(Notify::new());
    let begin = Arc::clone(&begun);
    let endpoint = tokio::spawn(async move {
        begun.notified().await;
        far.read_exact(&mut vec![0; before]).await.unwrap();
        let (mut asked, mut over) = (Vec::new(), None);
        while over.is_none_or(|head: usize| content(framing, &asked[head..]).len() < total.min(count)) {
            far.read_buf(&mut asked).await.unwrap();
            over = memchr::memmem::find(&asked, b"\r\n\r\n").map(|at| at + 4);
        }
        for piece in answer.chunks(pieces) {
            far.write_all(piece).await.unwrap();
            far.flush().await.unwrap();
        }
        if framing == Framing::UntilClose {
            far.shutdown().await.unwrap();
        }
        // Closed with unread bytes, it would be reset.
        (content(framing, &asked[over.unwrap()..]), far)
    });
    let head = format!("POST / HTTP/1.1\r\nHost: a.test\r\n{says}\r\n");
    let what = format!("{count} bytes, {framing:?}, in pieces of {pieces}");
    if total > 0 {
        // Bytes that a connection has read along with the head.
        conn.read_ahead().await.unwrap();
    }
    carry(&head, (&mut conn, &mut near), PATIENCE, |_| begin.notify_one()).await.expect(&what);
    while conn.unread().len() < b"GET /next".len() {
        assert_ne!(conn.read_ahead().await.unwrap(), 0, "{what}");
    }
    assert_eq!(conn.unread(), b"GET /next", "{what}");
    drop(conn);
    let received = writing.await.unwrap();
    let body = memchr::memmem::find(&received, b"\r\n\r\n").expect("a head") + 4;
    let down = if framing == Framing::UntilClose { Framing::Chunked } else { framing };
    assert!(content(down, &received[body..]) == sent, "{what}: it comes down");
    let up = if total == 0 { Vec::new() } else { sent };
    assert!(endpoint.await.unwrap().0 == up, "{what}: it goes up");
}

async fn check_all_bodies() {
    let edges = [BUFFER_BYTES, LARGE_BYTES].into_iter().flat_map(|edge| [edge - 1100, edge - 1, edge, edge + 1]);
    for count in [0, 1, DIRECT_BYTES_MIN, 5 * LARGE_BYTES].into_iter().chain(edges) {
        for framing in [Framing::Length(count as u64), Framing::Chunked, Framing::UntilClose] {
            for pieces in [1 << 20, 50_000, 3000] {
                let checked = check_bodies(count, framing, pieces, false);
                tokio::time::timeout(10 * PATIENCE, checked).await.expect("it hangs");
            }
        }
    }
}

#[tokio::test]
async fn bodies_of_every_size_arrive_whole() {
    check_all_bodies().await;
}

#[tokio::test]
async fn bodies_arrive_whole_over_tls() {
    for count in [0, BUFFER_BYTES + 1, 2 * LARGE_BYTES] {
        for framing in [Framing::Length(count as u64), Framing::Chunked, Framing::UntilClose] {
            for pieces in [1 << 20, 3000] {
                let checked = check_bodies(count, framing, pieces, true);
                tokio::time::timeout(10 * PATIENCE, checked).await.expect("it hangs");
            }
        }
    }
}

#[tokio::test]
async fn bodies_of_every_size_arrive_whole_without_a_large_buffer() {
    let mut others: Vec<Buffer> = (0..LARGE_MAX).map(|_| Buffer::default()).collect();
    assert!(others.iter_mut().all(Buffer::grow));
    check_all_bodies().await;
}

/// The first bytes are parsed to see whether they are HTTP, each byte is scanned for the end of the head as it arrives,
/// and the whole head is parsed once.
#[tokio::test]
async fn a_head_in_small_pieces_is_parsed_twice_and_scanned_once() {
    const PIECE: usize = 32;
    let lines: String = (0..100).map(|number| format!("X-{number}: {}\r\n", "x".repeat(640))).collect();
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{lines}\r\n").into_bytes();
    let whole = answer.len();
    assert!((60 * 1024..HEAD_BYTES_MAX).contains(&whole), "{whole}");
    let (mut conn, mut client, mut near, mut far) = connected().await;
    let sent = Arc::new(Notify::new());
    let seen = Arc::clone(&sent);
    let endpoint = tokio::spawn(async move {
        for piece in answer.chunks(PIECE) {
            far.write_all(piece).await.unwrap();
            // The relay has polled after the piece before.
            seen.notified().await;
        }
        far
    });
    let reading = tokio::spawn(async move { client.read_to_end(&mut Vec::new()).await });
    let (arrivals, scanned, before) = (Cell::new(0), Cell::new((0, 0)), Cell::new(0));
    let look = |relay: &Relay<'_, ClientIo>| {
        arrivals.set(
            arrivals.get() + usize::from(before.replace(relay.progress.scan_offset) != relay.progress.scan_offset),
        );
        scanned.set(relay.room.response.scanned);
        sent.notify_one();
    };
    let head = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    carry(head, (&mut conn, &mut near), PATIENCE, look).await.unwrap();
    drop(conn);
    endpoint.await.unwrap();
    assert!(reading.await.unwrap().unwrap() > whole);
    let ((reads, bytes), arrivals) = (scanned.get(), arrivals.get());
    assert!(arrivals > 500, "only {arrivals} arrivals");
    assert_eq!(reads, 2);
    // A few bytes before each arrival are scanned again, once for each look at it.
    let again = 4 * HEAD_END_BYTES * arrivals;
    assert!(bytes <= 2 * whole + again, "{bytes} bytes of {whole}, in {arrivals} arrivals");
}

#[tokio::test]
async fn a_client_that_stalls_its_body_is_not_the_endpoints_fault() {
    let (mut conn, mut client, mut near, _far) = connected().await;
    client.write_all(b"half").await.unwrap();
    let head = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 8\r\n\r\n";
    let began = tokio::time::Instant::now();
    // The endpoint's timeout is much shorter than the client's.
    assert_eq!(carry(head, (&mut conn, &mut near), PATIENCE / 20, |_| ()).await, Err(Reason::BodyStalled));
    assert!(began.elapsed() >= PATIENCE);
}
