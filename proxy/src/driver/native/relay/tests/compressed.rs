//! Bodies that are compressed in transit.

use std::cell::Cell;
use std::io::Read as _;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use flate2::read::MultiGzDecoder;
use tidegate_config::model::{DisabledAgents, MediaTypes, Proxied};

use super::*;

fn compression() -> Compression {
    Compression {
        level: 5,
        length_min: 1,
        types: MediaTypes::new(["text/event-stream"].into_iter()),
        http10: false,
        proxied: [Proxied::Any].into(),
        disabled: DisabledAgents::Nobody,
        vary: true,
    }
}

const ASKED: &str = "GET / HTTP/1.1\r\nHost: a.test\r\nAccept-Encoding: gzip\r\n\r\n";

/// Relays the usual request.
async fn carry_compressed(
    conn: &mut ClientIo,
    near: &mut Connection,
    look: impl Fn(&Relay<'_, ClientIo>),
) -> Result<(), Reason> {
    carry_by(ASKED, (conn, near), (Shared::sample(), Some(compression())), PATIENCE, look).await
}

/// The readable part of a compressed body, and whether it is complete.
fn read(bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut content = Vec::new();
    let whole = MultiGzDecoder::new(bytes).read_to_end(&mut content).is_ok();
    (content, whole)
}

/// The head, the content of the received chunks, and whether the last one is among them.
fn parts_of(received: &[u8]) -> (String, Vec<u8>, bool) {
    let end = memchr::memmem::find(received, b"\r\n\r\n").expect("a head") + 4;
    let body = &received[end..];
    let content = content(Framing::Chunked, body);
    (String::from_utf8_lossy(&received[..end]).to_ascii_lowercase(), content, body.ends_with(write::LAST_CHUNK))
}

/// Text that compresses well, and bytes that do not.
fn contents(count: usize) -> [Vec<u8>; 2] {
    let mut random = fastrand::Rng::with_seed(count as u64);
    let noise = (0..count).map(|_| random.u8(..)).collect();
    let text = b"<p>over and over again</p>\n".iter().copied().cycle().take(count).collect();
    [text, noise]
}

async fn check(content: &[u8], framing: Framing, pieces: usize) {
    let (mut conn, mut client, mut near, mut far) = connected().await;
    let chunk = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
    let (says, framed) = match framing {
        Framing::Length(length) => (format!("Content-Length: {length}\r\n"), content.to_vec()),
        Framing::Chunked => {
            let chunks: Vec<u8> = content.chunks(3000).flat_map(chunk).collect();
            ("Transfer-Encoding: chunked\r\n".to_owned(), [&chunks[..], b"0\r\n\r\n"].concat())
        }
        Framing::UntilClose | Framing::None => (String::new(), content.to_vec()),
    };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nAccept-Ranges: bytes\r\n{says}\r\n");
    let answer = [head.as_bytes(), &framed].concat();
    let endpoint = tokio::spawn(async move {
        far.read_buf(&mut Vec::with_capacity(1000)).await.unwrap();
        for piece in answer.chunks(pieces) {
            far.write_all(piece).await.unwrap();
        }
        if framing == Framing::UntilClose {
            far.shutdown().await.unwrap();
        }
        far
    });
    let reading = tokio::spawn(async move {
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        received
    });
    let what = format!("{} bytes, {framing:?}, in pieces of {pieces}", content.len());
    let counted = Cell::new(0);
    let look = |relay: &Relay<'_, ClientIo>| {
        assert!(relay.room.to_client.len() <= BUFFER_BYTES);
        counted.set(relay.progress.bytes_out);
    };
    carry_compressed(&mut conn, &mut near, look).await.expect(&what);
    drop(conn);
    let received = reading.await.unwrap();
    let (head, body, over) = parts_of(&received);
    assert!(over && head.contains("content-encoding: gzip\r\n") && head.contains("vary: accept-encoding"), "{head}");
    assert!(!head.contains("content-length") && !head.contains("accept-ranges"), "{head}");
    let (got, whole) = read(&body);
    assert!(whole && got == content, "{what}");
    assert_eq!(counted.get(), body.len(), "{what}: bytes that the client was sent");
    drop(endpoint.await.unwrap());
}

#[tokio::test]
async fn compressed_bodies_of_every_size_arrive_whole() {
    for count in [1, 300, BUFFER_BYTES - 1, BUFFER_BYTES, LARGE_BYTES + 1, 3 * LARGE_BYTES] {
        for content in contents(count) {
            for framing in [Framing::Length(count as u64), Framing::Chunked, Framing::UntilClose] {
                for pieces in [1 << 20, 3000] {
                    let checked = check(&content, framing, pieces);
                    tokio::time::timeout(10 * PATIENCE, checked).await.expect("it hangs");
                }
            }
        }
    }
}

/// An endpoint that sends one event after the client has read the last, and then disconnects.
async fn respond(mut far: TcpStream, framing: &str, taken: &AtomicUsize, seen: &Notify) {
    // Closed with unread bytes, it would be reset.
    far.read_buf(&mut Vec::with_capacity(1000)).await.unwrap();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{framing}\r\n");
    far.write_all(head.as_bytes()).await.unwrap();
    let large = contents(50_000)[1].escape_ascii().to_string();
    let mut sent = 0;
    for event in ["data: 1\n\n", "data: 2\n\n", &large[..50_000]] {
        let length = event.len();
        let chunk = format!("{length:x}\r\n{event}\r\n");
        let framed = if framing.contains("chunked") { &chunk } else { event };
        far.write_all(framed.as_bytes()).await.unwrap();
        sent += length;
        while taken.load(Relaxed) < sent {
            tokio::time::timeout(PATIENCE, seen.notified()).await.expect("it is held back");
        }
    }
}

#[tokio::test]
async fn bytes_before_a_pause_of_the_endpoint_can_be_read() {
    for framing in ["Transfer-Encoding: chunked\r\n", "Content-Length: 100000\r\n", ""] {
        let (mut conn, mut client, mut near, far) = connected().await;
        let (taken, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (its, notify) = (Arc::clone(&taken), Arc::clone(&seen));
        let reading = tokio::spawn(async move {
            let mut received = Vec::new();
            while client.read_buf(&mut received).await.unwrap() > 0 {
                if memchr::memmem::find(&received, b"\r\n\r\n").is_some() {
                    its.store(read(&parts_of(&received).1).0.len(), Relaxed);
                    notify.notify_one();
                }
            }
            received
        });
        let endpoint = tokio::spawn(async move { respond(far, framing, &taken, &seen).await });
        let carried = carry_compressed(&mut conn, &mut near, |_| ()).await;
        // The end of the connection is an error, unless it delimits the body.
        let ends = framing.is_empty();
        assert_eq!(carried, if ends { Ok(()) } else { Err(Reason::UpstreamBroken) }, "{framing}");
        endpoint.await.unwrap();
        drop(conn);
        let (_, body, over) = parts_of(&reading.await.unwrap());
        // An incomplete body must not look complete.
        assert_eq!((over, read(&body).1), (ends, ends), "{framing}");
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_holds_the_endpoint_back() {
    const BYTES: usize = 4 << 20;
    let (mut conn, client, mut near, mut far) = connected().await;
    let sent = Arc::new(AtomicUsize::new(0));
    let its = Arc::clone(&sent);
    let endpoint = tokio::spawn(async move {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {BYTES}\r\n\r\n");
        far.write_all(head.as_bytes()).await.unwrap();
        let noise = &contents(BYTES)[1];
        while let Ok(count @ 1..) = far.write(&noise[its.load(Relaxed)..]).await {
            its.fetch_add(count, Relaxed);
        }
    });
    let look = |relay: &Relay<'_, ClientIo>| {
        let RelayBuffers { from_endpoint, to_client, .. } = &*relay.room;
        assert!(to_client.len() <= BUFFER_BYTES && from_endpoint.capacity() <= BUFFER_BYTES);
    };
    assert_eq!(carry_compressed(&mut conn, &mut near, look).await, Err(Reason::ClientGone));
    drop((near, client));
    endpoint.await.unwrap();
    assert!(sent.load(Relaxed) < BYTES / 2, "{} bytes were taken", sent.load(Relaxed));
}

#[tokio::test]
async fn under_pressure_responses_are_not_compressed() {
    // A request and its encoder take 440 KiB, which must be less than a quarter.
    for (memory_kib, compressed) in [(1 << 20, true), (4 * 440 + 1, true), (4 * 440, false), (128, false)] {
        let mut options = Options { access_log: AccessLogSink::Off, ..Options::default() };
        options.budget.memory_kib = memory_kib;
        let shared = Shared::new(&options, &Registry::new()).unwrap();
        let (mut conn, mut client, mut near, mut far) = connected().await;
        far.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello").await.unwrap();
        let look = |relay: &Relay<'_, ClientIo>| {
            let charged = relay.forwarding.exchange().shared().budget.taken().memory_kib();
            assert_eq!(charged > 64, relay.room.gzip.is_some(), "{charged} of {memory_kib} KiB");
        };
        let routed = (Arc::clone(&shared), Some(compression()));
        carry_by(ASKED, (&mut conn, &mut near), routed, PATIENCE, look).await.unwrap();
        assert_eq!(shared.budget.taken().memory_kib(), 0);
        drop(conn);
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        let received = String::from_utf8_lossy(&received);
        assert_eq!(received.contains("Content-Length: 5"), !compressed, "of {memory_kib} KiB: {received}");
        assert!(received.contains("vary: Accept-Encoding"), "{received}");
    }
}
