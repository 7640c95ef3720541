//! A request on its way between two sockets, polled by hand, so that a test can look in between.

use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tidegate_config::model::{AppProtocol, Head};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::access_log::AccessLogSink;
use crate::connection::{Conn, ConnectionFacts, Transport};
use crate::lean::scratch::Scratch;
use crate::metrics::Driver;
use crate::options::{ClientLimits, Options};
use crate::sample_model::{endpoints, parts, path, published, to_backend};
use crate::shared::Shared;

/// With everybody but an endpoint that has been given nothing.
const PATIENCE: Duration = Duration::from_secs(2);

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (listener.accept().await.unwrap().0, client)
}

/// An exchange that has chosen its endpoint.
fn aimed(scratch: &mut Scratch, facts: Arc<ConnectionFacts>) -> Exchange {
    let mut model = parts(vec![("a.test", vec![to_backend("web", path("/"), AppProtocol::Http)])], None);
    endpoints(&mut model, "web", &[([10, 0, 0, 1], 80).into()]);
    let options = Options { access_log: AccessLogSink::Off, ..Options::default() };
    let shared = Shared::new(&options, &Registry::new()).unwrap();
    let mut exchange = Exchange::begin(Driver::Lean, published(model).pin(), shared, clock::now());
    let view = scratch.request.view(&scratch.head);
    exchange.decide(&view, &scratch.request.line(), Some(facts), 7).unwrap();
    exchange.aim(clock::now(), 7).unwrap();
    exchange.connected(false, clock::now());
    exchange.request_edits(&view, &mut scratch.room.edits).unwrap();
    write::request(&view, &scratch.room.edits, false, scratch.room.to_endpoint.end());
    exchange
}

/// Carries a request whose head this is; `look` sees the relay after every poll.
async fn carry(
    head: &str,
    (conn, endpoint): (&mut Conn, &mut TcpStream),
    read: Duration,
    look: impl Fn(&Relay<'_, Conn>),
) -> Result<(), Reason> {
    let mut scratch = Scratch::take();
    assert!(scratch.request.read(head.as_bytes()));
    scratch.head.extend_from_slice(head.as_bytes());
    let mut exchange = aimed(&mut scratch, Arc::clone(conn.facts()));
    let Scratch { head, request, room } = &mut *scratch;
    let mut progress = Progress::new(request.framing, request.closes);
    let mut relay = Relay {
        client: conn,
        endpoint,
        exchange: &mut exchange,
        room,
        progress: &mut progress,
        patience: Patience { read, write: PATIENCE, body: PATIENCE, client: PATIENCE },
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

async fn connected() -> (Conn, TcpStream, TcpStream, TcpStream) {
    let ((server, client), (far, near)) = (pair().await, pair().await);
    let facts = Arc::new(ConnectionFacts::sample(client.local_addr().unwrap()));
    (Conn::new(Transport::Plain(server), facts, &ClientLimits::default()), client, near, far)
}

#[tokio::test]
async fn nothing_of_an_upload_is_held_but_what_fits_into_a_buffer() {
    const BYTES: usize = 16 << 20;
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
        let look = |relay: &Relay<'_, Conn>| {
            assert!(relay.client.unread().len() <= BUFFER_BYTES);
            // What is left of one write and what is added may not lie behind one another in a single buffer.
            assert!(relay.room.to_endpoint.capacity() <= 2 * BUFFER_BYTES);
        };
        carry(&head, (&mut conn, &mut near), 10 * PATIENCE, look).await.unwrap();
        sending.await.unwrap();
        slow.await.unwrap();
    }
}

#[tokio::test]
async fn a_client_that_stalls_its_body_is_not_the_endpoints_fault() {
    let (mut conn, mut client, mut near, _far) = connected().await;
    client.write_all(b"half").await.unwrap();
    let head = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 8\r\n\r\n";
    let began = tokio::time::Instant::now();
    // The endpoint's patience is over long before the client's.
    assert_eq!(carry(head, (&mut conn, &mut near), PATIENCE / 20, |_| ()).await, Err(Reason::BodyStalled));
    assert!(began.elapsed() >= PATIENCE);
}
