//! Pages of the measured processes.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The status and the body of a page. The request is HTTP/1.0, over a connection of its own that ends with the
/// response.
///
/// # Errors
/// When there is no complete response in time.
pub(crate) async fn get(address: SocketAddr, path: &str, patience: Duration) -> anyhow::Result<(u16, Vec<u8>)> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = timeout(patience, exchange).await.context("no answer in time")??;
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(&answer)? else { bail!("half an answer") };
    Ok((head.code.unwrap_or_default(), answer.get(length..).unwrap_or_default().to_vec()))
}
