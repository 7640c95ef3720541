//! Compressed responses in the whole process, for clients of HTTP/1.1 and of HTTP/2 over TLS: their conditions, their
//! integrity, and that the router's Deployment turns them off at run time.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::io::Read as _;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::{HeaderMap, Method, Request, StatusCode, Version};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_tests::{Dev, Kubectl, annotate_router, connect_tls, eventually, get};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const ROUTER: &str = include_str!("../../examples/deis/router.yaml");
const HOST: &str = "pages.apps.localhost";
const PATIENCE: Duration = Duration::from_secs(20);

/// A page worth compressing.
fn page() -> String {
    "<p>a line of a page that says the same as the others</p>\n".repeat(2000)
}

/// An endpoint with pages of every kind. The counter drives the events of `/events`.
async fn endpoint(events: watch::Receiver<usize>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, events.clone()));
        }
    });
    port
}

async fn serve(mut stream: TcpStream, mut events: watch::Receiver<usize>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while stream.read_buf(&mut head).await? > 0 {
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        let (method, path) =
            text.split_once(' ').map(|(method, rest)| (method, rest.split(' ').next().unwrap())).unwrap();
        let page = page();
        let length = page.len();
        let html = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n";
        let answer = match path {
            "/page" | "/" => format!("{html}ETag: \"1\"\r\nContent-Length: {length}\r\n\r\n"),
            "/forbidden" => format!("{html}Cache-Control: no-transform\r\nContent-Length: {length}\r\n\r\n"),
            "/chunked" => format!("{html}Transfer-Encoding: chunked\r\n\r\n"),
            "/events" => {
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n".into()
            }
            _ => panic!("{path}"),
        };
        let mut told = *events.borrow_and_update();
        stream.write_all(answer.as_bytes()).await?;
        match path {
            _ if method == "HEAD" => {}
            "/chunked" => {
                for part in page.as_bytes().chunks(7000) {
                    let framed = [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
                    stream.write_all(&framed).await?;
                }
                stream.write_all(b"0\r\n\r\n").await?;
            }
            "/events" => loop {
                let Ok(count) = events.wait_for(|count| *count > told).await.map(|count| *count) else { break };
                for _ in std::mem::replace(&mut told, count)..count {
                    stream.write_all(b"9\r\ndata: 1\n\n\r\n").await?;
                }
            },
            _ => stream.write_all(page.as_bytes()).await?,
        }
        head.clear();
    }
    Ok(())
}

/// An application with this endpoint, and the platform's certificate.
fn manifest(port: u16) -> String {
    let made = rcgen::generate_simple_self_signed(["*.apps.localhost".to_owned()]).unwrap();
    let indent = |pem: String| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let (chain, key) = (indent(made.cert.pem()), indent(made.signing_key.serialize_pem()));
    format!(
        "apiVersion: v1
kind: Namespace
metadata: {{name: pages}}
---
apiVersion: v1
kind: Service
metadata:
  namespace: pages
  name: pages
  labels: {{router.deis.io/routable: \"true\"}}
  annotations: {{router.deis.io/domains: pages}}
spec: {{ports: [{{port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{namespace: pages, name: pages, labels: {{kubernetes.io/service-name: pages}}}}
addressType: IPv4
ports: [{{port: {port}}}]
endpoints: [{{addresses: [127.0.0.1]}}]
---
apiVersion: v1
kind: Secret
metadata: {{namespace: deis, name: deis-router-platform-cert}}
stringData:
  tls.crt: |
{chain}  tls.key: |
{key}"
    )
}

async fn started(driver: &str) -> (Dev, watch::Sender<usize>) {
    let (events, told) = watch::channel(0);
    let manifest = manifest(endpoint(told).await);
    // Streams of events are not among the usual types.
    let domain = "router.deis.io/nginx.platformDomain";
    let router = ROUTER.replace(domain, &format!("router.deis.io/nginx.gzip.types: text/event-stream\n    {domain}"));
    let files = [("router.yaml", router.as_str()), ("pages.yaml", manifest.as_str())];
    let dev = Dev::with(&files, &["--source", "deis", "--driver", driver]).await;
    eventually("the application", || async {
        let answer = get(dev.http, HOST, "/page").await?;
        if answer.status == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    (dev, events)
}

/// The protocol of a client.
#[derive(Clone, Copy, Debug)]
enum Over {
    Http1,
    Http2,
}

/// The head of a response, and its pending body.
async fn opened(dev: &Dev, over: Over, method: Method, path: &str, codings: Option<&str>) -> http::Response<Incoming> {
    let mut request = Request::builder().method(method);
    if let Some(codings) = codings {
        request = request.header("accept-encoding", codings);
    }
    match over {
        Over::Http1 => {
            let stream = TcpStream::connect(dev.http).await.unwrap();
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            let request = request.uri(path).header("host", HOST).body(Empty::<Bytes>::new()).unwrap();
            sender.send_request(request).await.unwrap()
        }
        Over::Http2 => {
            let stream = connect_tls(dev.https, HOST, &[b"h2"]).await.unwrap();
            let executor = TokioExecutor::new();
            let handshake = hyper::client::conn::http2::handshake(executor, TokioIo::new(stream)).await;
            let (mut sender, connection) = handshake.unwrap();
            tokio::spawn(connection);
            let request = request.uri(format!("https://{HOST}{path}")).body(Empty::<Bytes>::new()).unwrap();
            let response = sender.send_request(request).await.unwrap();
            // The connection lives for as long as its sender.
            tokio::spawn(async move {
                tokio::time::sleep(PATIENCE).await;
                drop(sender);
            });
            response
        }
    }
}

/// A whole response: its headers and its body as it was sent.
async fn asked(dev: &Dev, over: Over, method: Method, path: &str, codings: Option<&str>) -> (HeaderMap, Bytes) {
    let (head, body) = opened(dev, over, method, path, codings).await.into_parts();
    assert_eq!(head.status, StatusCode::OK);
    assert_eq!(head.version, if matches!(over, Over::Http1) { Version::HTTP_11 } else { Version::HTTP_2 });
    (head.headers, body.collect().await.unwrap().to_bytes())
}

fn decoded(bytes: &[u8]) -> String {
    let mut text = String::new();
    MultiGzDecoder::new(bytes).read_to_string(&mut text).unwrap();
    text
}

fn says(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| value.to_str().unwrap().to_owned())
}

async fn check(driver: &str) {
    let (dev, events) = started(driver).await;
    for over in [Over::Http1, Over::Http2] {
        for path in ["/page", "/chunked"] {
            let (headers, body) = asked(&dev, over, Method::GET, path, Some("br, gzip")).await;
            assert_eq!(says(&headers, "content-encoding").as_deref(), Some("gzip"), "{over:?} {path}: {headers:?}");
            assert_eq!(says(&headers, "vary").as_deref(), Some("Accept-Encoding"));
            assert_eq!(says(&headers, "content-length"), None);
            assert!(decoded(&body) == page() && body.len() * 10 < page().len(), "{over:?} {path}: {}", body.len());
            let (headers, body) = asked(&dev, over, Method::GET, path, Some("gzip;q=0")).await;
            assert_eq!(says(&headers, "content-encoding"), None);
            assert_eq!(says(&headers, "vary").as_deref(), Some("Accept-Encoding"));
            assert!(*body == *page().as_bytes());
        }
        let (headers, _) = asked(&dev, over, Method::GET, "/page", Some("gzip")).await;
        assert_eq!(says(&headers, "etag").as_deref(), Some("W/\"1\""));
        let (headers, body) = asked(&dev, over, Method::GET, "/forbidden", Some("gzip")).await;
        assert_eq!((says(&headers, "content-encoding"), says(&headers, "vary")), (None, None));
        assert!(*body == *page().as_bytes());
        let (headers, body) = asked(&dev, over, Method::HEAD, "/page", Some("gzip")).await;
        assert_eq!((says(&headers, "content-encoding").as_deref(), body.len()), (Some("gzip"), 0));
        // Only the length of the compressed body may be given (RFC 9110 section 8.6).
        assert_eq!((says(&headers, "content-length"), says(&headers, "etag")), (None, Some("W/\"1\"".to_owned())));
        let (headers, _) = asked(&dev, over, Method::HEAD, "/page", None).await;
        assert_eq!((says(&headers, "content-encoding"), says(&headers, "etag")), (None, Some("\"1\"".to_owned())));
        assert_eq!(says(&headers, "content-length"), Some(page().len().to_string()));
        told_one_by_one(&dev, over, &events).await;
    }
}

/// Checks that each event can be read before the next one is sent.
async fn told_one_by_one(dev: &Dev, over: Over, events: &watch::Sender<usize>) {
    let response = opened(dev, over, Method::GET, "/events", Some("gzip")).await;
    assert_eq!(says(response.headers(), "content-encoding").as_deref(), Some("gzip"));
    let (mut body, mut received) = (response.into_body(), Vec::new());
    for count in 1..=3 {
        events.send_modify(|count| *count += 1);
        let want = "data: 1\n\n".repeat(count);
        let mut read = vec![0; want.len()];
        while MultiGzDecoder::new(&received[..]).read_exact(&mut read).is_err() {
            let frame = tokio::time::timeout(PATIENCE, body.frame()).await.expect("it is held back");
            received.extend_from_slice(frame.unwrap().unwrap().data_ref().unwrap());
        }
        assert_eq!(String::from_utf8_lossy(&read), want);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_accept_it_get_compressed_responses() {
    check("both").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_accept_it_get_compressed_responses_from_the_pingora_driver() {
    check("pingora").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compression_can_be_toggled_at_run_time() {
    let (dev, _) = started("both").await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    for (said, want) in [("false", None), ("true", Some("gzip"))] {
        annotate_router(&kubectl, &[&format!("gzip.enabled={said}")]).await;
        eventually(&format!("compression is {want:?}"), || async {
            let (headers, body) = asked(&dev, Over::Http1, Method::GET, "/page", Some("gzip")).await;
            let coding = says(&headers, "content-encoding");
            assert!(if coding.is_some() { decoded(&body) == page() } else { *body == *page().as_bytes() });
            if coding.as_deref() == want { Ok(()) } else { Err(format!("{headers:?}")) }
        })
        .await;
    }
}
