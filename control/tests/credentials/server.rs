//! A server that accepts one token or the certificates of one authority, until it is told otherwise.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// A server that accepts this closes the connection of a request without an answer.
pub(crate) const NO_ANSWER: &str = "";

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The value of `Authorization` that is accepted.
    pub(crate) accepted: watch::Sender<Option<String>>,
    pub(crate) tls: watch::Sender<Option<Arc<ServerConfig>>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            accepted: watch::Sender::default(),
            tls: watch::Sender::default(),
        };
        let (accepted, tls) = (server.accepted.subscribe(), server.tls.subscribe());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (accepted, tls) = (accepted.clone(), tls.borrow().clone());
                tokio::spawn(async move {
                    match tls {
                        None => answer(stream, accepted).await,
                        Some(tls) => {
                            if let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await {
                                answer(stream, accepted).await;
                            }
                        }
                    }
                });
            }
        });
        server
    }

    pub(crate) fn accept(&self, authorization: &str) {
        self.accepted.send_replace(Some(authorization.to_owned()));
    }
}

/// Answers each request of a connection with its `Authorization`: 200 or 401.
async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, accepted: watch::Receiver<Option<String>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut given = None;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.strip_prefix("authorization: ") {
                given = Some(value.trim_end_matches("\r\n").to_owned());
            }
            if line == "\r\n" {
                break;
            }
        }
        if accepted.borrow().as_deref() == Some(NO_ANSWER) {
            return;
        }
        let accepted = accepted.borrow().as_ref().is_none_or(|accepted| given.as_ref() == Some(accepted));
        let (status, body) =
            if accepted { ("200 OK", given.unwrap_or_default()) } else { ("401 Unauthorized", "{}".to_owned()) };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(head.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}
