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
    /// The server name, in lower case.
    pub(super) server_name: Option<String>,
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
                let server_name = accepted.client_hello().server_name().map(str::to_ascii_lowercase);
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
