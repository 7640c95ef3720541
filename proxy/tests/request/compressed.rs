//! Compressed responses of endpoints in HTTP/2, whose bodies may end with their last bytes, behind them, or with trailers.

use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::{HeaderMap, HeaderValue, Response};
use tidegate_config::model::{AppProtocol, Compression, DisabledAgents, MediaTypes, Proxied, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::bed::{Bed, Model, PATIENCE, route};
use super::streams;

/// Ends its bodies as the path says.
async fn endpoint() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(serve(request.uri().path().to_owned(), respond));
                }
            });
        }
    });
    address
}

async fn serve(path: String, mut respond: h2::server::SendResponse<Bytes>) {
    let head = Response::builder().header("content-type", "text/html").body(()).unwrap();
    let mut body = respond.send_response(head, false).unwrap();
    body.send_data("hello, ".into(), false).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    body.send_data("world".into(), path == "/data").unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    match path.as_str() {
        "/empty-data" => body.send_data(Bytes::new(), true).unwrap(),
        "/trailers" => {
            let trailers = [(http::HeaderName::from_static("x-sum"), HeaderValue::from_static("1"))];
            body.send_trailers(HeaderMap::from_iter(trailers)).unwrap();
        }
        _ => {}
    }
}

async fn bed() -> Bed {
    let endpoint = endpoint().await;
    let compression = Compression {
        level: 5,
        length_min: 1,
        types: MediaTypes::new(std::iter::empty()),
        http10: false,
        proxied: [Proxied::Any].into(),
        disabled: DisabledAgents::Nobody,
        vary: true,
    };
    let mut route = route("web", AppProtocol::H2c);
    route.settings = Arc::new(Settings { compression: Some(Arc::new(compression)), ..Settings::default() });
    Bed::start(Model::default().route("a.test", route).backend("web", &[endpoint])).await
}

fn decoded(bytes: &[u8]) -> String {
    let mut text = String::new();
    MultiGzDecoder::new(bytes).read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn they_end_however_the_endpoint_ends_them() {
    let bed = bed().await;
    for path in ["/data", "/empty-data", "/trailers"] {
        let mut client = streams::client(&bed, 65_535).await;
        let mut request = streams::get(path);
        request.headers_mut().insert("accept-encoding", HeaderValue::from_static("gzip"));
        let (answered, _) = client.send_request(request, true).unwrap();
        let response = streams::response(answered).await;
        assert_eq!(response.headers()["content-encoding"], "gzip", "{path}");
        let (mut body, mut bytes) = (response.into_body(), Vec::new());
        while let Some(piece) = timeout(PATIENCE, body.data()).await.expect("it goes on") {
            let piece = piece.unwrap();
            body.flow_control().release_capacity(piece.len()).unwrap();
            bytes.extend_from_slice(&piece);
        }
        assert_eq!(decoded(&bytes), "hello, world", "{path} over HTTP/2");

        let mut stream = bed.connect().await;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut received = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut received)).await.expect("it goes on").unwrap();
        let end = received.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        assert!(received.ends_with(b"\r\n0\r\n\r\n"), "{path} over HTTP/1.1");
        assert_eq!(decoded(&unchunked(&received[end..])), "hello, world", "{path} over HTTP/1.1");
    }
    bed.drain().await;
}

/// The content of chunks.
fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        content.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 4 + size..];
    }
    content
}
