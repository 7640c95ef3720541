//! Settings on the Deployment of a Deis router for all connections, in the whole process: each setting applies to the
//! next connection, and none needs a restart.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Empty;
use rustls::crypto::{CryptoProvider, ring};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion};
use rustls_pki_types::ServerName;
use tidegate_tests::{
    Dev, Kubectl, annotate_router, answered, connect_by, deis, eventually, get, https, request, tls_client,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const HOST: &str = "www.blog.localhost";

/// The same by its short name, which the platform's certificate covers.
const SHORT: &str = "blog.apps.localhost";

/// The parameters that a client and the edge negotiate.
async fn agreed(
    dev: &Dev,
    provider: CryptoProvider,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Result<(ProtocolVersion, CipherSuite, Option<Vec<u8>>), String> {
    let client = Arc::new(tls_client(provider, versions, &[b"h2", b"http/1.1"])?);
    let stream = connect_by(&client, dev.https, HOST).await?;
    let session = stream.get_ref().1;
    let suite = session.negotiated_cipher_suite().unwrap().suite();
    Ok((session.protocol_version().unwrap(), suite, session.alpn_protocol().map(<[u8]>::to_vec)))
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_versions_cipher_suites_and_http2_follow_the_router_deployment() {
    let Some((dev, kubectl)) = deis(&[]).await else { return };
    let all = rustls::DEFAULT_VERSIONS;
    let (version, _, protocol) = agreed(&dev, ring::default_provider(), all).await.unwrap();
    assert_eq!((version, protocol.as_deref()), (ProtocolVersion::TLSv1_3, Some(b"h2".as_slice())));
    agreed(&dev, ring::default_provider(), &[&TLS12]).await.unwrap();

    annotate_router(&kubectl, &["ssl.protocols=TLSv1 TLSv1.2", "http2Enabled=false"]).await;
    eventually("HTTP/1.1 over TLS 1.2", || async {
        let (version, _, protocol) = agreed(&dev, ring::default_provider(), all).await?;
        let got = (version, protocol.as_deref());
        if got == (ProtocolVersion::TLSv1_2, Some(b"http/1.1")) { Ok(()) } else { Err(format!("{got:?}")) }
    })
    .await;
    agreed(&dev, ring::default_provider(), &[&TLS13]).await.unwrap_err();
    let findings = get(dev.debug, "localhost", "/debug/findings").await.unwrap().body;
    assert!(findings.contains("versions before TLSv1.2 are not supported"), "{findings}");

    // The edge's order counts: a client alone would choose AES-256.
    annotate_router(
        &kubectl,
        &["ssl.protocols=TLSv1.3", "ssl.ciphers=TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384"],
    )
    .await;
    eventually("ChaCha20 over TLS 1.3", || async {
        let (version, suite, _) = agreed(&dev, ring::default_provider(), all).await?;
        let got = (version, suite);
        let want = (ProtocolVersion::TLSv1_3, CipherSuite::TLS13_CHACHA20_POLY1305_SHA256);
        if got == want { Ok(()) } else { Err(format!("{got:?}")) }
    })
    .await;
    let mut aes128 = ring::default_provider();
    aes128.cipher_suites.retain(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
    agreed(&dev, aes128, &[&TLS13]).await.unwrap_err();

    annotate_router(&kubectl, &["ssl.protocols-", "ssl.ciphers-", "http2Enabled-"]).await;
    eventually("HTTP/2", || async {
        let (_, _, protocol) = agreed(&dev, ring::default_provider(), all).await?;
        if protocol.as_deref() == Some(b"h2") { Ok(()) } else { Err(format!("{protocol:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_sessions_resume_with_and_without_tickets() {
    let Some((dev, kubectl)) = deis(&[]).await else { return };
    // The kind of a client's second handshake, and whether the edge issued a ticket of TLS 1.2.
    let second = || async {
        let client = Arc::new(tls_client(ring::default_provider(), &[&TLS13], &[b"http/1.1"])?);
        for last in [false, true] {
            let mut stream = connect_by(&client, dev.https, HOST).await?;
            // The session tickets follow the handshake.
            stream
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                .await
                .map_err(|e| e.to_string())?;
            drop(stream.read_to_end(&mut Vec::new()).await);
            if last {
                return Ok::<_, String>(stream.get_ref().1.handshake_kind());
            }
        }
        unreachable!()
    };
    assert_eq!(second().await.unwrap(), Some(HandshakeKind::Resumed));
    annotate_router(&kubectl, &["ssl.useSessionTickets=false", "http2Enabled=false"]).await;
    eventually("no HTTP/2", || async {
        let (_, _, protocol) = agreed(&dev, ring::default_provider(), rustls::DEFAULT_VERSIONS).await?;
        if protocol.as_deref() == Some(b"http/1.1") { Ok(()) } else { Err(format!("{protocol:?}")) }
    })
    .await;
    assert_eq!(second().await.unwrap(), Some(HandshakeKind::Resumed));
}

/// The response over a connection on which this is sent.
async fn spoken(address: SocketAddr, sent: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut back = Vec::new();
    // A connection that is closed with unread data is reset.
    drop(stream.write_all(sent).await);
    drop(stream.read_to_end(&mut back).await);
    String::from_utf8_lossy(&back).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_protocol_can_be_enabled_at_run_time() {
    let Some((dev, kubectl)) = deis(&[]).await else { return };
    let plain = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    let led = format!("PROXY TCP4 192.0.2.7 127.0.0.1 5000 80\r\n{plain}");
    assert!(spoken(dev.http, plain.as_bytes()).await.starts_with("HTTP/1.1 200"));
    assert!(spoken(dev.http, led.as_bytes()).await.starts_with("HTTP/1.1 400"));

    // An existing connection keeps its parameters.
    let mut before = TcpStream::connect(dev.http).await.unwrap();
    before.write_all(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n").as_bytes()).await.unwrap();
    let mut first = [0; 15];
    before.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");

    annotate_router(&kubectl, &["useProxyProtocol=true", "proxyRealIpCidrs=127.0.0.0/8"]).await;
    eventually("the address of the header", || async {
        let back = spoken(dev.http, led.as_bytes()).await.to_lowercase();
        if back.contains("x-forwarded-for: 192.0.2.7") { Ok(()) } else { Err(back) }
    })
    .await;
    assert_eq!(spoken(dev.http, plain.as_bytes()).await, "");
    assert!(https(dev.https, HOST, "/", false).await.is_err());
    before.write_all(plain.as_bytes()).await.unwrap();
    let mut rest = String::new();
    before.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("HTTP/1.1 200 OK"), "{rest}");

    annotate_router(&kubectl, &["useProxyProtocol=false"]).await;
    answered(&dev, HOST, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn head_limits_follow_the_router_deployment() {
    let Some((dev, kubectl)) = deis(&[]).await else { return };
    let asked = |target: usize, header: usize, headers: usize| {
        let mut asked = http::Request::get(format!("/{}", "t".repeat(target))).header("host", HOST);
        for number in 0..headers {
            asked = asked.header(format!("x-{number}"), "h".repeat(header));
        }
        let address = dev.http;
        async move { request(address, asked.body(Empty::new()).unwrap()).await.map(|answer| answer.status.as_u16()) }
    };
    // The buffers of the old router: four times 32k.
    assert_eq!(asked(30_000, 30_000, 3).await, Ok(200));
    assert_eq!(asked(33_000, 10, 1).await, Ok(414));
    assert_eq!(asked(10, 33_000, 1).await, Ok(431));
    assert_eq!(asked(10, 30_000, 5).await, Ok(431));

    annotate_router(&kubectl, &["largeHeaderBuffersSize=8k", "largeHeaderBuffersCount=2"]).await;
    eventually("a refusal", || async {
        let got = asked(9_000, 10, 1).await?;
        if got == 414 { Ok(()) } else { Err(got.to_string()) }
    })
    .await;
    assert_eq!(asked(10, 9_000, 1).await, Ok(431));
    assert_eq!(asked(7_000, 7_000, 1).await, Ok(200));
}

/// Opens this number of connections, each of which begins a request; returns the number that the edge keeps.
async fn kept(dev: &Dev, count: usize) -> usize {
    let mut connections = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(dev.http).await.unwrap();
        drop(stream.write_all(b"GET / HTTP/1.1\r\n").await);
        connections.push(stream);
    }
    let closed = connections
        .iter_mut()
        .map(async |stream| tokio::time::timeout(Duration::from_secs(1), stream.read(&mut [0])).await.is_ok());
    futures::future::join_all(closed).await.into_iter().filter(|closed| !closed).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connection_limit_follows_the_router_deployment() {
    let Some((dev, kubectl)) = deis(&[]).await else { return };
    let allowed = || async {
        answered(&dev, HOST, 200).await;
        let metrics = get(dev.admin, "localhost", "/metrics").await?.body;
        let line = metrics.lines().find_map(|line| line.strip_prefix("tidegate_budget_sockets_max "));
        line.and_then(|value| value.parse::<u64>().ok()).ok_or(metrics)
    };
    let before = allowed().await.unwrap();
    assert_eq!(kept(&dev, 80).await, 80);
    annotate_router(&kubectl, &["maxWorkerConnections=64", "workerProcesses=1"]).await;
    let of_the_edge = |want: u64| async move {
        let got = allowed().await?;
        if got == want { Ok(()) } else { Err(format!("{got}")) }
    };
    eventually("64 connections", || of_the_edge(64)).await;
    // From half of them on, one client has a quarter.
    assert!((16..=32).contains(&kept(&dev, 80).await));
    annotate_router(&kubectl, &["maxWorkerConnections-", "workerProcesses-"]).await;
    eventually("as many as before", || of_the_edge(before)).await;
    assert_eq!(kept(&dev, 80).await, 80);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_format_follows_the_router_deployment() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let log_flag = log.to_str().unwrap().to_owned();
    let arguments = ["--access-log", &log_flag, "--access-log-format", "deis"];
    let Some((dev, kubectl)) = deis(&arguments).await else { return };
    let last = |mark: &'static str| {
        let (address, log) = (dev.http, log.clone());
        async move {
            let asked = http::Request::get(format!("/{mark}?a")).header("host", HOST).header("user-agent", "x \"y\"");
            request(address, asked.body(Empty::new()).unwrap()).await.unwrap();
            eventually("a line", || async {
                let text = std::fs::read_to_string(&log).map_err(|error| error.to_string())?;
                text.lines().rev().find(|line| line.contains(mark)).map(str::to_owned).ok_or(text)
            })
            .await
        }
    };
    let line = last("first").await;
    let fields: Vec<&str> = line.split(" - ").collect();
    assert_eq!(fields.len(), 14, "{line}");
    assert!(fields[0].starts_with("[20") && fields[0].ends_with("+00:00]"), "{line}");
    assert_eq!(fields[1..6], ["blog", "127.0.0.1", "-", "200", "\"GET /first?a HTTP/1.1\""], "{line}");
    assert_eq!(fields[7..10], ["\"-\"", "\"x \\x22y\\x22\"", "\"www.blog.localhost\""], "{line}");
    assert_eq!(fields[11], HOST, "{line}");
    assert!(fields[12..].iter().all(|time| time.parse::<f64>().is_ok()), "{line}");

    annotate_router(&kubectl, &["logFormat=$status of ${request_uri} by $http_user_agent"]).await;
    eventually("the new form", || async {
        let line = last("second").await;
        if line == "200 of /second?a by x \\x22y\\x22" { Ok(()) } else { Err(line) }
    })
    .await;
    annotate_router(&kubectl, &["logFormat=$nonesuch"]).await;
    eventually("the form of the flag", || async {
        let line = last("third").await;
        if line.starts_with('[') { Ok(()) } else { Err(line) }
    })
    .await;
}

/// A returning client, in steps that show the data sent before the handshake was over.
struct Returning {
    session: ClientConnection,
    stream: std::net::TcpStream,
}

impl Returning {
    /// Connects, and sends this as early data if allowed; returns whether it was allowed.
    fn connect(client: &Arc<ClientConfig>, address: SocketAddr, early: &[u8]) -> (Self, bool) {
        let name = ServerName::try_from(SHORT).unwrap();
        let mut session = ClientConnection::new(Arc::clone(client), name).unwrap();
        let may = session.early_data().map(|mut data| data.write_all(early).unwrap()).is_some();
        let stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut this = Self { session, stream };
        this.session.write_tls(&mut this.stream).unwrap();
        (this, may)
    }

    /// Reads the next response up to this mark or the end of the connection. Nothing is sent meanwhile.
    fn hear(&mut self, mark: &str) -> String {
        let mut heard = String::new();
        loop {
            let mut bytes = [0; 4096];
            match self.session.reader().read(&mut bytes) {
                Ok(0) => return heard,
                Ok(count) => heard.push_str(&String::from_utf8_lossy(&bytes[..count])),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    assert_ne!(self.session.read_tls(&mut self.stream).unwrap(), 0, "{heard}");
                    self.session.process_new_packets().unwrap();
                }
                Err(error) => panic!("{error}: {heard}"),
            }
            if heard.contains(mark) {
                return heard;
            }
        }
    }

    fn say(&mut self, text: &str) {
        self.session.writer().write_all(text.as_bytes()).unwrap();
        while self.session.wants_write() {
            self.session.write_tls(&mut self.stream).unwrap();
        }
    }
}

/// Gives the platform a certificate, and waits until the blog is served with it.
async fn certificate(dev: &Dev, kubectl: &Kubectl) {
    let made = rcgen::generate_simple_self_signed(["*.apps.localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [cert, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let [cert, key] = [("cert", cert), ("key", key)].map(|(flag, path)| format!("--{flag}={}", path.display()));
    kubectl.run(&["-n", "deis", "create", "secret", "tls", "deis-router-platform-cert", &cert, &key]).await;
    eventually("an answer over TLS", || async {
        let status = https(dev.https, SHORT, "/", false).await?.status;
        if status == 200 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn early_data_is_accepted_for_the_methods_of_the_router_deployment() {
    let Some((dev, kubectl)) = deis(&[]).await else { return };
    certificate(&dev, &kubectl).await;
    let (address, runtime) = (dev.https, tokio::runtime::Handle::current());
    let asked = |method: &str| format!("{method} /{method} HTTP/1.1\r\nHost: {SHORT}\r\nContent-Length: 0\r\n\r\n");
    let new_client = || {
        let mut client = tls_client(ring::default_provider(), &[&TLS13], &[b"http/1.1"]).unwrap();
        client.enable_early_data = true;
        Arc::new(client)
    };
    // A whole visit, after which the client can resume.
    let visit = move |client: &Arc<ClientConfig>| {
        let (mut first, early) = Returning::connect(client, address, b"");
        assert!(!early);
        while first.session.is_handshaking() {
            first.session.complete_io(&mut first.stream).unwrap();
        }
        first.say(&format!("GET /first HTTP/1.1\r\nHost: {SHORT}\r\nConnection: close\r\n\r\n"));
        assert!(first.hear("never").starts_with("HTTP/1.1 200"));
    };
    // Without the annotation early data is not offered.
    tokio::task::spawn_blocking(move || {
        let client = new_client();
        visit(&client);
        assert!(!Returning::connect(&client, address, b"GET").1);
    })
    .await
    .unwrap();

    annotate_router(&kubectl, &["ssl.earlyDataMethods=GET|HEAD", "http2Enabled=false"]).await;
    eventually("no HTTP/2", || async {
        let (_, _, protocol) = agreed(&dev, ring::default_provider(), rustls::DEFAULT_VERSIONS).await?;
        if protocol.as_deref() == Some(b"http/1.1") { Ok(()) } else { Err(format!("{protocol:?}")) }
    })
    .await;
    let tested = runtime.spawn_blocking(move || {
        let client = new_client();
        visit(&client);
        // The response comes before the client has finished its handshake.
        let (mut back, early) = Returning::connect(&client, address, asked("GET").as_bytes());
        assert!(early);
        let heard = back.hear("early-data: 1").to_lowercase();
        assert!(heard.starts_with("http/1.1 200") && heard.contains("early-data: 1"), "{heard}");
        assert!(back.session.is_early_data_accepted());
        // Data after the end of the handshake is not early data.
        back.say(&asked("POST").replace("Content-Length", "Connection: close\r\nContent-Length"));
        let heard = back.hear("never").to_lowercase();
        assert!(heard.contains("http/1.1 200") && !heard.contains("early-data"), "{heard}");

        let client = new_client();
        visit(&client);
        let (mut back, early) = Returning::connect(&client, address, asked("POST").as_bytes());
        assert!(early);
        let heard = back.hear("\r\n\r\n");
        assert!(heard.starts_with("HTTP/1.1 425"), "{heard}");
        // The client may send further requests over the same connection, once the handshake is over.
        back.say(&asked("POST").replace("Content-Length", "Connection: close\r\nContent-Length"));
        let heard = back.hear("never");
        assert!(heard.contains("HTTP/1.1 200"), "{heard}");
    });
    tested.await.unwrap();
}
