//! The maximum number of streams of an HTTP/2 client, and the maximum size of its header lists.

use std::collections::BTreeMap;

use http::Request;
use tidegate_proxy::Driver;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::bed::{Bed, Model, PATIENCE};
use super::frames::{Framed, GOAWAY, headers, status};
use super::upstream::{Reply, Upstream};

const DRIVERS: [Driver; 2] = [Driver::Both, Driver::Pingora];
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
const MAX_CONCURRENT_STREAMS: u16 = 3;
const MAX_HEADER_LIST_SIZE: u16 = 6;

/// A frame (RFC 9113 section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[tokio::test]
async fn a_stream_beyond_the_limit_is_refused_without_affecting_others() {
    // GET, `/` and http from the static table, then `:authority` (RFC 7541 appendix A).
    let block = [&[0x82, 0x84, 0x86, 1, 6][..], b"a.test"].concat();
    for driver in DRIVERS {
        let upstream = Upstream::start(|_| Reply::Silence).await;
        let set = |options: &mut tidegate_proxy::Options| {
            options.driver = driver;
            options.http2.streams_max = 3;
        };
        let bed = Bed::with(Model::to(&[upstream.address]), set).await;
        let mut stream = bed.connect().await;
        // A client that ignores the limit, so the frames are written by hand: streams 1, 3, 5 and 7.
        let mut sent = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[])].concat();
        sent.extend((0..4).flat_map(|number| frame(HEADERS, 0x5, 2 * number + 1, &block)));
        stream.write_all(&sent).await.unwrap();
        let mut settings = BTreeMap::new();
        let reset = async {
            loop {
                let mut head = [0; 9];
                stream.read_exact(&mut head).await.unwrap();
                let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
                stream.read_exact(&mut payload).await.unwrap();
                match head[3] {
                    SETTINGS => settings.extend(payload.chunks_exact(6).map(|setting| {
                        let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
                        (u16::from_be_bytes([setting[0], setting[1]]), value)
                    })),
                    RST_STREAM => return (head[8], payload),
                    kind => assert_ne!(kind, HEADERS, "{driver:?}: nobody answers"),
                }
            }
        };
        assert_eq!(timeout(PATIENCE, reset).await.unwrap(), (7, REFUSED_STREAM.to_vec()), "{driver:?}");
        assert_eq!(settings.get(&MAX_CONCURRENT_STREAMS), Some(&3), "{driver:?}");
        assert_eq!(settings.get(&MAX_HEADER_LIST_SIZE), Some(&(64 * 1024)), "{driver:?}");
        bed.until_metric("tidegate_requests_in_flight 3").await;
    }
}

#[tokio::test]
async fn a_header_list_beyond_the_limit_is_a_431_and_keeps_the_connection() {
    for driver in DRIVERS {
        let mut upstream = Upstream::echo().await;
        let bed = Bed::with(Model::to(&[upstream.address]), |options| options.driver = driver).await;
        let (mut send, connection) = h2::client::handshake(bed.connect().await).await.unwrap();
        tokio::spawn(connection);
        for (bytes, want) in [(1000, 200), (70_000, 431), (1000, 200)] {
            let request = Request::get("http://a.test/").header("x-long", "x".repeat(bytes)).body(()).unwrap();
            let (response, _) = send.send_request(request, true).unwrap();
            let response = timeout(PATIENCE, response).await.unwrap().unwrap();
            assert_eq!(response.status(), want, "{driver:?}: {bytes} bytes");
            if want == 200 {
                upstream.seen().await;
            }
        }
        assert!(upstream.is_quiet(), "{driver:?}");
    }
}

/// Sends a request, and returns the status of its answer.
async fn ask(client: &mut Framed, stream: u32, fields: &[(&str, &str)]) -> u16 {
    client.send(&headers(stream, fields, None, true)).await;
    let mut answered = None;
    loop {
        let frame = timeout(PATIENCE, client.next()).await.expect("no answer").expect("the connection is closed");
        assert_eq!((frame.stream, frame.kind == GOAWAY), (stream, false));
        if frame.kind == HEADERS && answered.is_none() {
            answered = Some(status(&frame.payload));
        }
        if frame.ends_stream() {
            return answered.unwrap();
        }
    }
}

#[tokio::test]
async fn the_number_of_malformed_requests_on_a_connection_is_limited() {
    const MAX: u32 = 31;
    const ENHANCE_YOUR_CALM: [u8; 4] = [0, 0, 0, 11];
    let get = [(":method", "GET"), (":scheme", "http"), (":path", "/")];
    for driver in DRIVERS {
        // No authority, another one in `Host`, and two of them.
        for hosts in
            [&[][..], &[(":authority", "a.test"), ("host", "b.test")], &[("host", "a.test"), ("host", "a.test")]]
        {
            let upstream = Upstream::echo().await;
            let bed = Bed::with(Model::to(&[upstream.address]), |options| options.driver = driver).await;
            let mut client = Framed::open(bed.connect().await, true).await;
            let malformed = [&get, hosts].concat();
            for number in 0..MAX {
                assert_eq!(ask(&mut client, 2 * number + 1, &malformed).await, 400, "{driver:?} {hosts:?} {number}");
            }
            let plain = [&get[..], &[(":authority", "a.test")]].concat();
            assert_eq!(ask(&mut client, 2 * MAX + 1, &plain).await, 200, "{driver:?} {hosts:?}");
            client.send(&headers(2 * MAX + 3, &malformed, None, true)).await;
            let goaway = async {
                loop {
                    let frame = client.next().await.expect("no GOAWAY before the end");
                    if frame.kind == GOAWAY {
                        return frame.payload;
                    }
                }
            };
            let goaway = timeout(PATIENCE, goaway).await.expect("no GOAWAY");
            assert_eq!(goaway.get(4..8), Some(&ENHANCE_YOUR_CALM[..]), "{driver:?} {hosts:?}");
            bed.until_metric(r#"tidegate_http2_connections_ended_total{reason="malformed-requests"} 1"#).await;
        }
    }
}
