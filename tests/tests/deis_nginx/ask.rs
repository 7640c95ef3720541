//! A request, and its transport: the client's address, the bytes, the protocol.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::CertificateDer;
use tidegate_tests::tls_over;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use crate::answer::{Answer, read};
use crate::pair::Side;

/// A client whose forwarded headers are not trusted.
pub(crate) const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
/// A load balancer: a peer of `proxyRealIpCidrs`.
pub(crate) const TRUSTED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// A client in whitelists.
pub(crate) const OFFICE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 5);
/// A client in whitelists of other applications.
pub(crate) const BRANCH: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);

/// The timeout of one response.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// The bytes sent through a tunnel.
const SAID: &[u8] = b"hello";

/// The placeholder for a connection that ends without a response.
pub(crate) const NO_ANSWER: &str = "the connection ends without an answer";

/// The transport.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Over {
    Plain,
    /// TLS with this server name; an address is not sent as one.
    Tls(&'static str),
    /// HTTP/2 over TLS with this server name.
    Http2(&'static str),
    /// Plain HTTP on a TLS port.
    PlainToTls,
}

/// A request. Its methods change it and return it.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    over: Over,
    from: Ipv4Addr,
    preamble: Vec<u8>,
    method: &'static str,
    host: Option<&'static str>,
    target: String,
    version: &'static str,
    headers: Vec<(String, String)>,
    /// Bytes after the head, in parts with pauses between them.
    parts: Vec<Vec<u8>>,
}

/// A GET over plain HTTP/1.1, from an untrusted client.
pub(crate) fn get(host: &'static str, target: &str) -> Ask {
    Ask {
        over: Over::Plain,
        from: STRANGER,
        preamble: Vec::new(),
        method: "GET",
        host: Some(host),
        target: target.to_owned(),
        version: "HTTP/1.1",
        headers: Vec::new(),
        parts: Vec::new(),
    }
}

/// A request to upgrade the connection to another protocol.
pub(crate) fn upgrade(host: &'static str, protocol: &str) -> Ask {
    get(host, "/socket").header("Connection", "Upgrade").header("Upgrade", protocol)
}

impl Ask {
    pub(crate) fn method(self, method: &'static str) -> Self {
        Self { method, ..self }
    }

    pub(crate) fn from(self, from: Ipv4Addr) -> Self {
        Self { from, ..self }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn http_1_0(self) -> Self {
        Self { version: "HTTP/1.0", ..self }
    }

    pub(crate) fn without_host(self) -> Self {
        Self { host: None, ..self }
    }

    pub(crate) fn tls(self, server_name: &'static str) -> Self {
        Self { over: Over::Tls(server_name), ..self }
    }

    pub(crate) fn h2(self, server_name: &'static str) -> Self {
        Self { over: Over::Http2(server_name), ..self }
    }

    pub(crate) fn plain_to_tls(self) -> Self {
        Self { over: Over::PlainToTls, ..self }
    }

    /// A POST with a body of this size and its length in the head.
    pub(crate) fn body(self, size: usize) -> Self {
        let post = self.method("POST").header("Content-Length", &size.to_string());
        Self { parts: vec![vec![b'b'; size]], ..post }
    }

    /// A POST that announces a body and does not send it.
    pub(crate) fn announced(self, size: usize) -> Self {
        self.method("POST").header("Content-Length", &size.to_string())
    }

    /// A POST with a body in chunks of these sizes, with a pause before each.
    pub(crate) fn chunked(self, sizes: &[usize]) -> Self {
        let post = self.method("POST").header("Transfer-Encoding", "chunked");
        let chunk = |size: &usize| [format!("{size:x}\r\n").as_bytes(), &vec![b'b'; *size], b"\r\n"].concat();
        let mut parts: Vec<Vec<u8>> = sizes.iter().map(chunk).collect();
        parts.push(b"0\r\n\r\n".to_vec());
        Self { parts, ..post }
    }

    /// Adds a PROXY protocol header of version 1 before everything else.
    pub(crate) fn proxy_v1(self, client: &str) -> Self {
        Self { preamble: format!("PROXY TCP4 {client} 127.0.0.1 40000 80\r\n").into_bytes(), ..self }
    }

    /// The same in version 2.
    pub(crate) fn proxy_v2(self, client: Ipv4Addr) -> Self {
        let mut preamble = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        preamble.extend(client.octets());
        preamble.extend([127, 0, 0, 1, 0x9c, 0x40, 0, 80]);
        Self { preamble, ..self }
    }

    /// Adds any bytes before everything else.
    pub(crate) fn after(self, preamble: &[u8]) -> Self {
        Self { preamble: preamble.to_vec(), ..self }
    }

    /// Returns `true` if the client itself sends this header.
    pub(crate) fn sends(&self, name: &str) -> bool {
        self.headers.iter().any(|(is, _)| is.eq_ignore_ascii_case(name))
    }

    fn upgrades(&self) -> bool {
        self.sends("upgrade")
    }

    fn head(&self) -> Vec<u8> {
        let mut head = format!("{} {} {}\r\n", self.method, self.target, self.version);
        let host = self.host.map(|host| ("Host".to_owned(), host.to_owned()));
        for (name, value) in host.iter().chain(&self.headers) {
            head += &format!("{name}: {value}\r\n");
        }
        (head + "\r\n").into_bytes()
    }

    /// Sends the request to one side.
    pub(crate) async fn of(&self, side: Side) -> Result<Answer, String> {
        timeout(ANSWER_MAX, self.asked(side)).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
    }

    async fn asked(&self, side: Side) -> Result<Answer, String> {
        let address = if self.over == Over::Plain { side.http } else { side.https };
        let mut stream = self.connect(address).await.map_err(|error| error.to_string())?;
        stream.write_all(&self.preamble).await.map_err(|error| error.to_string())?;
        match self.over {
            Over::Plain | Over::PlainToTls => self.exchange(stream).await,
            Over::Tls(name) => {
                let stream = tls_over(stream, name, &[b"http/1.1"]).await.map_err(|_| NO_ANSWER)?;
                let certificate = shown(&stream);
                Ok(Answer { certificate, ..self.exchange(stream).await? })
            }
            Over::Http2(name) => {
                let stream = tls_over(stream, name, &[b"h2", b"http/1.1"]).await.map_err(|_| NO_ANSWER)?;
                if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                    return Err("HTTP/2 is not agreed on".to_owned());
                }
                let certificate = shown(&stream);
                Ok(Answer { certificate, ..self.h2_exchange(stream).await? })
            }
        }
    }

    async fn connect(&self, address: SocketAddr) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.from, 0).into())?;
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) -> Result<Answer, String> {
        // A server may respond before it has read everything, and then close the connection: a failed write is not an
        // error.
        let mut sent = stream.write_all(&self.head()).await;
        for part in &self.parts {
            if sent.is_ok() {
                sleep(Duration::from_millis(if self.parts.len() > 1 { 50 } else { 0 })).await;
                sent = stream.write_all(part).await;
            }
        }
        let through = if self.upgrades() { SAID } else { b"" };
        let answer = read(&mut stream, self.method == "HEAD", through).await;
        drop(sent);
        answer
    }

    async fn h2_exchange<S>(&self, stream: S) -> Result<Answer, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        let uri = format!("https://{}{}", self.host.unwrap_or_default(), self.target);
        let mut request = http::Request::builder().method(self.method).uri(uri);
        for (name, value) in self.headers.iter().filter(|(name, _)| name != "Content-Length") {
            request = request.header(name, value);
        }
        let body = Full::new(Bytes::from(self.parts.concat()));
        let request = request.body(body).map_err(|error| error.to_string())?;
        let (head, body) = sender.send_request(request).await.map_err(|error| error.to_string())?.into_parts();
        let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let mut answer = Answer { status: head.status.as_u16(), headers, ..Answer::default() };
        answer.says(&body)?;
        Ok(answer)
    }
}

/// The presented certificate.
fn shown<S>(stream: &tokio_rustls::client::TlsStream<S>) -> Option<CertificateDer<'static>> {
    let chain = stream.get_ref().1.peer_certificates();
    chain.and_then(|chain| chain.first()).map(|certificate| certificate.clone().into_owned())
}
