//! The connection that Pingora gets, from both of its sides.

use std::future::Future;

use tidegate_config::model::{AppProtocol, Endpoint, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::body_rates::BodyRates;
use super::*;
use crate::budget::{Budget, BudgetLimits};
use crate::options::RateLimits;
use crate::sample_model::backend_key;

/// A whole request.
const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A socket as Pingora gets one, and the endpoint's side of it.
struct Pair {
    link: Arc<Link>,
    socket: Stream,
    listener: TcpListener,
    endpoint: TcpStream,
}

async fn connect(listener: &TcpListener) -> (Arc<Link>, Stream) {
    connect_for(listener, false).await
}

/// The same, for a HEAD request if `to_head`.
async fn connect_for(listener: &TcpListener, to_head: bool) -> (Arc<Link>, Stream) {
    let (link, mut socket) = connect_unused(listener, to_head).await;
    // The request comes first.
    socket.write_all(HEAD).await.unwrap();
    socket.flush().await.unwrap();
    (link, socket)
}

/// The same, before the request is sent.
async fn connect_unused(listener: &TcpListener, to_head: bool) -> (Arc<Link>, Stream) {
    let address = listener.local_addr().unwrap();
    let target = Target { backend: backend_key("web"), protocol: AppProtocol::Http, tls: None, fixed: None };
    let key = ConnectionKey::new(&target, &Endpoint::tcp(address, None), String::new);
    let overruns = IntCounter::new("overruns", "Overruns.").unwrap();
    let link = Arc::new(Link::new(key, 9, to_head, None, overruns));
    let opened = OpenedConnector::of(Arc::clone(&link), Duration::from_secs(20)).await;
    (link, opened.connect(&address.into()).await.unwrap())
}

async fn pair() -> Pair {
    pair_for(false).await
}

async fn pair_for(to_head: bool) -> Pair {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (link, socket) = connect_for(&listener, to_head).await;
    let mut endpoint = listener.accept().await.unwrap().0;
    endpoint.set_nodelay(true).unwrap();
    // Unread bytes would turn its close into a reset.
    endpoint.read_exact(&mut [0; HEAD.len()]).await.unwrap();
    Pair { link, socket, listener, endpoint }
}

/// Reads with the room that Pingora has for a head, until the socket ends or fails. Returns all bytes and the number
/// of reads.
async fn drain(socket: &mut Stream) -> io::Result<(Vec<u8>, usize)> {
    let (mut all, mut reads) = (Vec::new(), 0);
    loop {
        let mut room = [0; 4096];
        match socket.read(&mut room).await? {
            0 => return Ok((all, reads)),
            count => all.extend_from_slice(&room[..count]),
        }
        reads += 1;
    }
}

/// The endpoint sends the text in pieces of `step` bytes, and closes.
async fn sent(text: &[u8], step: usize) -> io::Result<(Vec<u8>, usize)> {
    let Pair { mut socket, mut endpoint, .. } = pair().await;
    let endpoint = async move {
        for piece in text.chunks(step) {
            // The edge may have closed the connection.
            if endpoint.write_all(piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(endpoint, drain(&mut socket)).1
}

#[tokio::test]
async fn a_head_that_trickles_is_read_in_few_pieces() {
    let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(16 * 1024));
    let (all, reads) = sent(head.as_bytes(), 1).await.unwrap();
    assert_eq!(all, head.as_bytes());
    // Pingora parses each piece with everything before it.
    assert!(reads <= 2 + head.len() / 4096 + 1, "{reads} reads");
}

#[tokio::test]
async fn all_bytes_arrive_for_every_split() {
    let text = "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody\r\n\r\nb";
    for step in 1..text.len() {
        assert_eq!(sent(text.as_bytes(), step).await.unwrap().0, text.as_bytes(), "in steps of {step}");
    }
    // Also bytes that are not HTTP, and incomplete heads.
    for text in ["", "SSH-2.0-OpenSSH\r\n", "HTTP/1.1 200 OK\r\nX: y"] {
        assert_eq!(sent(text.as_bytes(), 2).await.unwrap().0, text.as_bytes());
    }
}

#[tokio::test]
async fn bytes_beyond_the_limit_of_a_head_are_an_error() {
    let large = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(128 * 1024));
    for text in [large.as_bytes(), b"\r\n\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"] {
        let error = sent(text, 1000).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}

/// Sends a response, reads it, and ends it as Pingora does. Returns `true` if the pool has the connection.
async fn released(mut pair: Pair, text: &[u8], is_over: bool) -> bool {
    pair.endpoint.write_all(text).await.unwrap();
    let mut room = vec![0; text.len()];
    pair.socket.read_exact(&mut room).await.unwrap();
    if is_over {
        pair.link.over();
    }
    let looked = tokio::task::unconstrained(pair.socket.read(&mut room[..1]));
    let mut looked = std::pin::pin!(looked);
    let looked = std::future::poll_fn(|cx| Poll::Ready(looked.as_mut().poll(cx).is_ready())).await;
    assert_eq!(looked, is_over, "Pingora does not keep it");
    drop(pair.socket);
    let again = connect(&pair.listener).await.0.is_reused();
    pool::clear();
    again
}

#[tokio::test]
async fn chunks_are_checked_wherever_the_pieces_end() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let sound = format!("{HEAD}5\r\nhello\r\n0\r\nA: b\r\n\r\n");
    let broken = format!("{HEAD}5\r\nhelloX\r\n0\r\n\r\n");
    for step in [1, 3, HEAD.len(), HEAD.len() + 4, broken.len()] {
        assert_eq!(sent(sound.as_bytes(), step).await.unwrap().0, sound.as_bytes(), "in steps of {step}");
        // Pingora gets the bytes before the violation, and then the error.
        let Pair { mut socket, mut endpoint, .. } = pair().await;
        for piece in broken.as_bytes().chunks(step) {
            endpoint.write_all(piece).await.unwrap();
        }
        let mut all = Vec::new();
        let error = socket.read_to_end(&mut all).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "in steps of {step}");
        assert!(all.starts_with(HEAD.as_bytes()) && broken.as_bytes().starts_with(&all), "in steps of {step}: {all:?}");
        assert!(all.len() < HEAD.len() + "5\r\nhelloX".len(), "in steps of {step}: {all:?}");
    }
}

#[tokio::test]
async fn a_connection_with_chunks_goes_back_to_the_pool_only_after_their_end() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (body, want) in [("2\r\nok\r\n0\r\n\r\n", true), ("2\r\nok\r\n0\r\n", false), ("0\r\n\r\nmore", false)] {
        assert_eq!(released(pair().await, format!("{HEAD}{body}").as_bytes(), true).await, want, "{body:?}");
    }
    assert!(released(pair_for(true).await, HEAD.as_bytes(), true).await, "a response to HEAD has no body");
}

#[tokio::test]
async fn a_connection_goes_back_to_the_pool_once_its_response_is_over() {
    let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    assert!(released(pair().await, whole, true).await);
    assert!(!released(pair().await, whole, false).await, "it was not marked as complete");
    assert!(!released(pair().await, b"HTTP/1.1 100 Continue\r\n\r\n", true).await, "a response is to come");
    let Pair { socket, listener, endpoint: _endpoint, .. } = pair().await;
    drop(socket);
    assert!(!connect(&listener).await.0.is_reused(), "it was given up");
}

/// Writes as Pingora does, in pieces. Returns whether all was taken, what the endpoint has read, and the link.
async fn written(pieces: &[&str]) -> (bool, String, Arc<Link>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (link, mut socket) = connect_unused(&listener, false).await;
    let mut is_taken = true;
    for piece in pieces {
        is_taken &= socket.write_all(piece.as_bytes()).await.is_ok() && socket.flush().await.is_ok();
    }
    let mut endpoint = listener.accept().await.unwrap().0;
    let mut read = String::new();
    if is_taken {
        drop(socket);
        endpoint.read_to_string(&mut read).await.unwrap();
    } else {
        // The connection is closed, although Pingora has the socket.
        endpoint.read_to_string(&mut read).await.unwrap();
        drop(socket);
    }
    assert!(!connect_unused(&listener, false).await.0.is_reused(), "nobody has kept it");
    (is_taken, read, link)
}

#[tokio::test]
async fn no_byte_follows_the_end_of_a_request() {
    const POST: &str = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    const PUT: &str = "PUT / HTTP/1.1\r\nContent-Length: 5\r\n\r\n";
    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let check = async |pieces: &[&str], want: &str| {
        let (is_taken, read, link) = written(pieces).await;
        let is_whole = pieces.concat() == want;
        assert_eq!(
            (is_taken, read.as_str(), link.overruns.get()),
            (is_whole, want, u64::from(!is_whole)),
            "{pieces:?}"
        );
    };
    check(&[POST, "2\r\nok\r\n", "0\r\n\r\n"], &format!("{POST}2\r\nok\r\n0\r\n\r\n")).await;
    check(&[PUT, "hello"], &format!("{PUT}hello")).await;
    check(&[GET], GET).await;
    // The fault of Pingora: an empty piece, and then the end.
    check(&[POST, "2\r\nok\r\n", "0\r\n\r\n", "0\r\n\r\n"], &format!("{POST}2\r\nok\r\n0\r\n\r\n")).await;
    check(&[POST, "0\r\n\r\n0\r\n\r\n"], &format!("{POST}0\r\n\r\n")).await;
    check(&[PUT, "hello", "!"], &format!("{PUT}hello")).await;
    check(&[PUT, "hello!"], &format!("{PUT}hello")).await;
    check(&[GET, "0\r\n\r\n"], GET).await;
    check(&[GET, GET], GET).await;
    check(&[POST, "2\r\nok!!"], &format!("{POST}2\r\nok")).await;
}

#[tokio::test]
async fn a_connection_whose_request_is_incomplete_is_not_kept() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for (request, want) in [("hello", true), ("hell", false)] {
        let (link, mut socket) = connect_unused(&listener, false).await;
        let mut endpoint = listener.accept().await.unwrap().0;
        socket.write_all(format!("PUT / HTTP/1.1\r\nContent-Length: 5\r\n\r\n{request}").as_bytes()).await.unwrap();
        socket.flush().await.unwrap();
        endpoint.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        let mut room = [0; 38];
        socket.read_exact(&mut room).await.unwrap();
        link.over();
        assert_eq!(socket.read(&mut room).await.unwrap(), 0);
        drop(socket);
        assert_eq!(connect_unused(&listener, false).await.0.is_reused(), want, "{request}");
        pool::clear();
    }
}

/// The sizes of `count` reads of a long body, with the room that Pingora has for it, while nothing passes.
async fn read_ahead(pair: &mut Pair, count: usize) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut room = vec![0; 64 * 1024];
    for _ in 0..count {
        sizes.push(pair.socket.read(&mut room).await.unwrap());
    }
    sizes
}

/// A pair whose endpoint has sent a head, which was read, and the beginning of a long body.
async fn long_response(head: &str) -> Pair {
    let mut pair = pair().await;
    pair.endpoint.write_all(head.as_bytes()).await.unwrap();
    pair.socket.read_exact(&mut vec![0; head.len()]).await.unwrap();
    pair.endpoint.write_all(&[b'x'; 64 * 1024]).await.unwrap();
    pair
}

#[tokio::test]
async fn little_is_read_ahead_until_earlier_bytes_pass() {
    let mut pair = long_response("HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n").await;
    let stalled = [AHEAD_BYTES_MAX, PIECE_BYTES_MIN, PIECE_BYTES_MIN, PIECE_BYTES_MIN];
    assert_eq!(read_ahead(&mut pair, 4).await, stalled);
    // HTTP/1 clients: a piece that passes is the client's.
    pair.link.passed(None);
    assert_eq!(read_ahead(&mut pair, 4).await, stalled);
    // HTTP/2 clients: it counts until it is sent.
    let mut rates = BodyRates::default();
    let mut piece = Some(bytes::Bytes::from(vec![b'x'; 3000]));
    let budget = Budget::new(&BudgetLimits::default());
    rates.given(&mut piece, (&RateLimits::default(), &budget), clock::now()).unwrap();
    pair.link.passed(rates.response());
    assert_eq!(read_ahead(&mut pair, 2).await, [AHEAD_BYTES_MAX - 3000, PIECE_BYTES_MIN]);
    drop(piece);
    pair.link.passed(rates.response());
    assert_eq!(read_ahead(&mut pair, 2).await, [AHEAD_BYTES_MAX, PIECE_BYTES_MIN]);
}

#[tokio::test]
async fn the_bytes_of_another_protocol_pass_unseen() {
    let mut pair = long_response("HTTP/1.1 101 Switching Protocols\r\n\r\n").await;
    pair.link.becomes_tunnel();
    assert_eq!(read_ahead(&mut pair, 3).await, [AHEAD_BYTES_MAX; 3]);
}
