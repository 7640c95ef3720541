//! The first message of a TLS client (ClientHello, RFC 8446 section 4.1.2), which is read before the configuration of
//! the handshake is known: the server name in the message selects the listener.

use std::io;

use rustls::server::{Accepted, Acceptor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::tls::HandshakeFailure;

/// The maximum size of the ClientHello in bytes, with all its records. That of a browser has about 2,000.
const BYTES_MAX: usize = 32 * 1024;

/// The number of bytes read at a time: no more than rustls takes at once.
const PIECE: usize = 4096;

/// The alert `unrecognized_name` (RFC 6066 section 3) as a record.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// A ClientHello.
pub(super) struct Hello {
    /// The message as parsed by rustls, which has taken all bytes that were read.
    pub(super) accepted: Accepted,
    /// The same bytes as received.
    pub(super) bytes: Vec<u8>,
    /// The server name; see [`compared`].
    pub(super) server_name: Option<String>,
}

/// A server name in the form in which names are compared: in lower case and without a trailing dot, as the host of a
/// request. RFC 6066 section 3 allows no such dot, but clients send it for a URL with one.
pub(super) fn compared(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Reads the ClientHello. A client with an invalid one gets an alert.
///
/// # Errors
/// The reason why there is none.
pub(super) async fn read(stream: &mut TcpStream) -> Result<Hello, HandshakeFailure> {
    let mut acceptor = Acceptor::default();
    let (mut piece, mut bytes) = ([0; PIECE], Vec::new());
    loop {
        let count = stream.read(&mut piece).await.map_err(|_| HandshakeFailure::Closed)?;
        if count == 0 {
            return Err(HandshakeFailure::Closed);
        }
        bytes.extend_from_slice(&piece[..count]);
        if bytes.len() > BYTES_MAX {
            return Err(HandshakeFailure::Malformed);
        }
        take(&mut acceptor, &piece[..count]).map_err(|_| HandshakeFailure::Malformed)?;
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let server_name = accepted.client_hello().server_name().map(compared);
                return Ok(Hello { accepted, bytes, server_name });
            }
            Err((error, mut alert)) => {
                let mut bytes = Vec::new();
                if alert.write_all(&mut bytes).is_ok() {
                    send_alert(stream, &bytes).await;
                }
                return Err(HandshakeFailure::of_tls(&error));
            }
        }
    }
}

/// Sends the alert that no listener has the server name.
pub(super) async fn refuse_name(stream: &mut TcpStream) {
    send_alert(stream, &UNRECOGNIZED_NAME).await;
}

/// Sends an alert. A new connection has room for it; an error is ignored, because the client may be gone.
async fn send_alert(stream: &mut TcpStream, alert: &[u8]) {
    if stream.write_all(alert).await.is_ok() {
        stream.shutdown().await.ok();
    }
}

/// Passes bytes to rustls, which may take them in parts.
fn take(acceptor: &mut Acceptor, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        if acceptor.read_tls(&mut bytes)? == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use tokio::net::TcpListener;

    use super::*;

    /// The first message of a client that sends this text as the server name, which may not be a valid one: it replaces
    /// one of the same length.
    fn hello(name: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
        let valid = "x".repeat(name.len());
        let mut client = ClientConnection::new(config, ServerName::try_from(valid.clone()).unwrap()).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        let place = bytes.windows(valid.len()).position(|window| window == valid.as_bytes()).unwrap();
        bytes[place..place + name.len()].copy_from_slice(name.as_bytes());
        bytes
    }

    async fn check(sent: &str, want: Option<&str>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(&hello(sent)).await.unwrap();
        let mut server = listener.accept().await.unwrap().0;
        let read = read(&mut server).await.ok().and_then(|hello| hello.server_name);
        assert_eq!(read.as_deref(), want, "{sent}");
    }

    #[tokio::test]
    async fn names_are_compared_without_case_and_trailing_dot() {
        check("shop.example", Some("shop.example")).await;
        check("Shop.EXAMPLE.", Some("shop.example")).await;
        check("shop.example..", None).await;
        check("192.0.2.100", None).await;
    }
}
