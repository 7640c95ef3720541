//! Connections to endpoints, in plain text or over TLS.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use socket2::SockRef;
use tidegate_config::model::{Endpoint, EndpointId, Target, UpstreamTls};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::unconstrained;
use tokio_rustls::client::TlsStream;

use super::{connect, tls};
use crate::reason::Reason;

/// The maximum size of the content of a TLS record (RFC 8446, 5.1).
const RECORD_MAX: usize = 1 << 14;

/// The pool key of connections: the endpoint and its TLS settings. The Service of a pod makes no difference. The
/// address is part of it, because the endpoint's identity is derived from text that tenants write.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ConnectionKey {
    address: SocketAddr,
    endpoint: EndpointId,
    tls: Option<Arc<TlsIdentity>>,
}

/// The TLS settings and the server name. Connections with different ones are not interchangeable.
#[derive(PartialEq, Eq, Hash, Debug)]
struct TlsIdentity {
    transport: UpstreamTls,
    server_name: String,
}

impl ConnectionKey {
    /// The key for an endpoint of a target; `host` returns the request's host, if TLS needs it.
    pub(crate) fn new(target: &Target, endpoint: &Endpoint, host: impl FnOnce() -> String) -> Self {
        let tls = target.protocol.is_tls().then(|| {
            let transport = target.tls.clone().unwrap_or_default();
            let server_name = tls::server_name(&transport, endpoint.address, &host());
            Arc::new(TlsIdentity { transport, server_name })
        });
        Self { address: endpoint.address, endpoint: endpoint.id, tls }
    }

    /// The address of the endpoint.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A connection to an endpoint.
pub(crate) enum Connection {
    /// In plain text.
    Plain(TcpStream),
    /// Over TLS, whose state is large.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    /// Opens a connection, with a handshake for TLS, for HTTP/1.1 or HTTP/2.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(crate) async fn open(key: &ConnectionKey, within: Duration, http2: bool) -> Result<Self, Reason> {
        match &key.tls {
            None => connect::connect(key.address, within).await.map(Self::Plain),
            // Boxed: the state of the handshake is larger than the rest of a request, and short-lived.
            Some(identity) => {
                let TlsIdentity { transport, server_name } = &**identity;
                let stream = Box::pin(tls::connect(key.address, within, transport, server_name, http2)).await?;
                Ok(Self::Tls(Box::new(stream)))
            }
        }
    }

    /// Returns `true` if written bytes may be buffered in the connection until it is flushed.
    pub(crate) const fn holds_back(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Returns `true` if nothing was received while it was idle: an endpoint that sends unasked is closing, or faulty.
    /// Without an event on the socket this makes no system call.
    pub(crate) fn lives(&mut self) -> bool {
        match self {
            Self::Plain(stream) => {
                stream.try_read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            }
            // TLS may have records without content, such as session tickets.
            Self::Tls(stream) => {
                let mut content = [0];
                let read = poll_fn(|cx| Pin::new(&mut **stream).poll_read(cx, &mut ReadBuf::new(&mut content)));
                unconstrained(read).now_or_never().is_none()
            }
        }
    }

    /// Returns `true` if the kernel has no unread bytes of it either. The reactor is notified some time after bytes
    /// have arrived, and bytes of an unexpected body would be read as the response to the next request.
    pub(crate) fn is_silent(&self) -> bool {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        };
        let peeked = SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Tls(stream) => poll_read_records(Pin::new(&mut **stream), cx, into),
        }
    }
}

/// Reads records into a buffer: the first one as far as there is room, and further ones while they fit as a whole.
/// rustls keeps the allocation of a record until its last byte is read, which would be 16 KiB for a few bytes that did
/// not fit, for as long as the client does not read.
fn poll_read_records(
    mut stream: Pin<&mut TlsStream<TcpStream>>,
    cx: &mut Context<'_>,
    into: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    let before = into.filled().len();
    loop {
        let content = match stream.as_mut().poll_fill_buf(cx) {
            Poll::Ready(Ok(content)) => content,
            // After an error, rustls returns it again, and a socket its end, which is an error without `close_notify`.
            Poll::Ready(Err(_)) | Poll::Pending if into.filled().len() > before => return Poll::Ready(Ok(())),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        };
        let count = content.len().min(into.remaining());
        into.put_slice(&content[..count]);
        stream.as_mut().consume(count);
        if count == 0 || into.remaining() < RECORD_MAX {
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashSet;

    use rustls::ServerConfig;
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::PrivateKeyDer;
    use tidegate_config::model::{AppProtocol, SubjectName, UpstreamVerification};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::sleep;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::server::TlsStream;

    use super::*;
    use crate::sample_model::backend_key;

    const MOMENT: Duration = Duration::from_millis(50);

    fn target(protocol: AppProtocol, tls: Option<UpstreamTls>) -> Target {
        Target { backend: backend_key("web"), protocol, tls, fixed: None }
    }

    fn key(target: &Target, address: SocketAddr, pod: &str, host: &str) -> ConnectionKey {
        ConnectionKey::new(target, &Endpoint::tcp(address, Some(pod.into())), || host.to_owned())
    }

    /// A connection in plain text, and the end of its endpoint.
    pub(crate) async fn plain() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Connection::Plain(client), listener.accept().await.unwrap().0)
    }

    /// A TLS connection to a server that accepts every handshake.
    pub(crate) async fn over_tls() -> (Connection, TlsStream<TcpStream>) {
        let made = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let accepted = async {
            let stream = listener.accept().await.unwrap().0;
            TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap()
        };
        let key = self::key(&target(AppProtocol::Https, None), listener.local_addr().unwrap(), "a", "a.test");
        let (opened, accepted) = tokio::join!(Connection::open(&key, Duration::from_secs(5), false), accepted);
        let Ok(Connection::Tls(opened)) = opened else { panic!("no TLS") };
        // So small that writes have to wait.
        SockRef::from(opened.get_ref().0).set_send_buffer_size(8 * 1024).unwrap();
        (Connection::Tls(opened), accepted)
    }

    #[tokio::test]
    async fn session_tickets_do_not_count_as_bytes_and_an_end_does() {
        let (mut kept, _server) = over_tls().await;
        // The tickets have arrived unread.
        sleep(MOMENT).await;
        assert!(!kept.is_silent());
        assert!(kept.lives() && kept.is_silent());
        let (mut chatty, mut server) = over_tls().await;
        server.write_all(b"x").await.unwrap();
        server.flush().await.unwrap();
        sleep(MOMENT).await;
        assert!(!chatty.lives());
        let (mut closed, mut server) = over_tls().await;
        server.shutdown().await.unwrap();
        sleep(MOMENT).await;
        assert!(!closed.lives());
    }

    #[tokio::test]
    async fn no_record_is_begun_that_does_not_fit() {
        let (mut connection, mut server) = over_tls().await;
        // (room, what the endpoint sends as records, the sizes of the reads)
        let cases: [(usize, &[usize], &[usize]); 4] = [
            (RECORD_MAX, &[60, RECORD_MAX], &[60, RECORD_MAX]),
            (4 * RECORD_MAX, &[60, RECORD_MAX, RECORD_MAX], &[60 + 2 * RECORD_MAX]),
            (2 * RECORD_MAX, &[RECORD_MAX, 1, RECORD_MAX], &[RECORD_MAX + 1, RECORD_MAX]),
            (1000, &[2500], &[1000, 1000, 500]),
        ];
        for (room, records, want) in cases {
            let sent = async {
                for &bytes in records {
                    server.write_all(&vec![b'x'; bytes]).await.unwrap();
                    server.flush().await.unwrap();
                }
            };
            let read = async {
                // All of it has arrived.
                sleep(MOMENT).await;
                let mut got = Vec::new();
                while got.iter().sum::<usize>() < records.iter().sum() {
                    got.push(connection.read(&mut vec![0; room]).await.unwrap());
                }
                got
            };
            assert_eq!(tokio::join!(sent, read).1, want, "{room} {records:?}");
        }
        drop(server);
        let broken = connection.read(&mut vec![0; 4 * RECORD_MAX]).await;
        assert!(broken.is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof));
    }

    #[test]
    fn different_identities_share_no_connections() {
        let verified = |names: &[SubjectName]| {
            let verification = UpstreamVerification { authorities: None, names: names.into() };
            UpstreamTls { verification: Some(Arc::new(verification)), ..UpstreamTls::default() }
        };
        let named = |name: &str| UpstreamTls { server_name: Some(name.into()), ..UpstreamTls::default() };
        let https = |tls: UpstreamTls| target(AppProtocol::Https, Some(tls));
        let (one, other) = (([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], 80).into());
        let plain = target(AppProtocol::Http, None);
        let keys = [
            key(&plain, one, "a", "a.test"),
            key(&plain, one, "b", "a.test"),
            key(&plain, other, "a", "a.test"),
            key(&https(UpstreamTls::default()), one, "a", "a.test"),
            key(&https(UpstreamTls::default()), one, "a", "b.test"),
            key(&https(named("c.test")), one, "a", "a.test"),
            key(&https(verified(&[])), one, "a", "a.test"),
            key(&https(verified(&[SubjectName::Uri("spiffe://a".into())])), one, "a", "a.test"),
            key(&https(verified(&[SubjectName::Uri("spiffe://b".into())])), one, "a", "a.test"),
        ];
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        let again = [
            key(&target(AppProtocol::Ws, None), one, "a", "other.test"),
            key(&target(AppProtocol::Https, None), one, "a", "a.test"),
            key(&https(named("c.test")), one, "a", "other.test"),
        ];
        assert!(again.iter().all(|key| keys.contains(key)));
    }
}
