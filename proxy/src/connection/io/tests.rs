//! A connection on a real socket: which bytes its reads and writes leave.

use futures::FutureExt as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::budget::{Budget, BudgetLimits};
use crate::connection::ConnectionFacts;
use crate::options::{ClientLimits, Options};

const MOMENT: Duration = Duration::from_millis(200);

/// A connection and the client's end of it.
async fn pair() -> (ClientIo, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, peer) = listener.accept().await.unwrap();
    let facts = Arc::new(ConnectionFacts::sample(peer));
    let limits = ClientLimits { write_stall: MOMENT, ..Options::default().client };
    (ClientIo::new(Transport::Plain(stream), facts, &limits, &Arc::new(Budget::new(&BudgetLimits::default()))), client)
}

async fn read(conn: &mut ClientIo) -> String {
    let mut bytes = [0; 64];
    let count = conn.read(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

#[tokio::test]
async fn a_driver_reads_one_request_and_the_next_driver_the_next() {
    let (mut conn, mut client) = pair().await;
    client.write_all(b"onetwo").await.unwrap();
    conn.read_ahead().await.unwrap();
    conn.pass_only(3);
    assert_eq!(read(&mut conn).await, "one");
    assert!(conn.is_between_requests());
    // Later bytes are held back, and the driver continues to wait.
    client.write_all(b"three").await.unwrap();
    tokio::time::timeout(Duration::from_millis(50), conn.read_u8()).await.unwrap_err();
    conn.pass_all();
    assert_eq!(read(&mut conn).await, "twothree");
}

#[tokio::test]
async fn the_bytes_behind_a_request_are_read_once_it_becomes_a_tunnel() {
    let (mut conn, mut client) = pair().await;
    client.write_all(b"onetwo").await.unwrap();
    conn.read_ahead().await.unwrap();
    conn.pass_only(3);
    assert_eq!(read(&mut conn).await, "one");
    assert!(conn.read_u8().now_or_never().is_none());
    conn.facts().becomes_tunnel();
    assert_eq!(read(&mut conn).await, "two");
    client.write_all(b"three").await.unwrap();
    assert_eq!(read(&mut conn).await, "three");
}

/// A driver reads the bytes of a request, however they arrive, and the next driver the rest.
#[track_caller]
fn check_own(pass: impl Fn(&mut ClientIo), own: &'static str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for ahead in 1..own.len() + 4 {
            let (mut conn, mut client) = pair().await;
            let bytes = [own, "next"].concat();
            client.write_all(&bytes.as_bytes()[..ahead]).await.unwrap();
            conn.read_ahead().await.unwrap();
            pass(&mut conn);
            client.write_all(&bytes.as_bytes()[ahead..]).await.unwrap();
            let mut seen = String::new();
            while seen.len() < own.len() {
                assert!(!conn.is_between_requests(), "{ahead}: after {seen:?}");
                seen += &read(&mut conn).await;
            }
            assert_eq!(seen, own, "{ahead}");
            assert!(conn.is_between_requests(), "{ahead}");
            tokio::time::timeout(Duration::from_millis(5), conn.read_u8()).await.unwrap_err();
            conn.pass_all();
            let mut next = [0; 4];
            conn.read_exact(&mut next).await.unwrap();
            assert_eq!(&next, b"next", "{ahead}");
        }
    });
}

#[test]
fn a_driver_reads_a_body_and_nothing_behind_it() {
    check_own(|conn| conn.pass_only(9), "head body");
    check_own(|conn| conn.pass_body(Chunks::behind(4)), "head4\r\nbody\r\n0\r\nT: v\r\n\r\n");
}

#[tokio::test]
async fn the_end_of_the_stream_is_seen_though_nothing_may_be_read() {
    let (mut conn, client) = pair().await;
    conn.pass_only(0);
    drop(client);
    assert_eq!(read(&mut conn).await, "");
}

#[tokio::test]
async fn bytes_that_are_held_back_are_limited() {
    let (mut conn, mut client) = pair().await;
    conn.pass_only(0);
    let flood = tokio::spawn(async move { client.write_all(&vec![b'x'; 8 << 20]).await.is_ok() });
    tokio::time::timeout(Duration::from_millis(100), conn.read_u8()).await.unwrap_err();
    assert!((HELD_BYTES_MAX..HELD_BYTES_MAX + crate::buffers::BUFFER_BYTES).contains(&conn.unread().len()));
    flood.abort();
}

#[tokio::test]
async fn small_writes_leave_together_and_large_ones_at_once() {
    let (mut conn, mut client) = pair().await;
    conn.write_all(b"head").await.unwrap();
    conn.write_all(b"body").await.unwrap();
    let mut bytes = [0; 8];
    client.try_read(&mut bytes).expect_err("nothing was flushed yet");
    conn.flush().await.unwrap();
    client.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"headbody");
    conn.write_all(b"head").await.unwrap();
    conn.write_all(&[b'x'; WRITE_BUFFER_BYTES]).await.unwrap();
    let mut large = [0; 4 + WRITE_BUFFER_BYTES];
    client.read_exact(&mut large).await.unwrap();
    assert!(large.starts_with(b"headx") && large.ends_with(b"x"));
}

#[tokio::test]
async fn pending_writes_are_flushed_when_the_driver_waits_for_its_client() {
    let (mut conn, mut client) = pair().await;
    conn.write_all(b"head").await.unwrap();
    tokio::time::timeout(Duration::from_millis(50), conn.read_u8()).await.unwrap_err();
    let mut bytes = [0; 4];
    client.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"head");
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_disconnected() {
    let (mut conn, _client) = pair().await;
    let stuff = async {
        loop {
            conn.write_all(&[b'x'; 1000]).await?;
            conn.flush().await?;
        }
    };
    let stuffed: io::Result<()> = tokio::time::timeout(20 * MOMENT, stuff).await.expect("it waits for ever");
    assert_eq!(stuffed.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(conn.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn a_read_after_the_deadline_of_the_response_fails() {
    let (mut conn, mut client) = pair().await;
    let due = conn.due().clone();
    due.set(crate::clock::now() + MOMENT);
    let error = tokio::time::timeout(20 * MOMENT, conn.read_u8()).await.expect("it waits for ever").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    // Existing bytes are still read, and without a deadline a read may wait.
    client.write_all(b"a").await.unwrap();
    due.clear();
    tokio::time::timeout(20 * MOMENT, conn.read_u8()).await.unwrap().unwrap();
    tokio::time::timeout(2 * MOMENT, conn.read_u8()).await.unwrap_err();
}
