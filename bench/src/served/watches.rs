//! Many watches of one process, read by as many tasks that count events.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The number of watches that are opened at the same time.
const AT_ONCE: usize = 16;
/// The maximum time to open one, and to wait for its next bytes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Open watches.
pub(super) struct Watches(Vec<TcpStream>);

impl Watches {
    /// Opens this number of watches of all Services from a version on.
    pub(super) async fn open(address: SocketAddr, count: usize, version: u64) -> anyhow::Result<Self> {
        let one = |_| async { timeout(PATIENCE, open(address, version)).await.context("a watch does not open")? };
        Ok(Self(stream::iter(0..count).map(one).buffer_unordered(AT_ONCE).try_collect().await?))
    }

    /// Waits until each of them has received this number of changes.
    pub(super) async fn all_told(self, changes: u64) -> anyhow::Result<()> {
        let mut reading: JoinSet<anyhow::Result<()>> = self.0.into_iter().map(|stream| told(stream, changes)).collect();
        while let Some(read) = reading.join_next().await {
            read??;
        }
        Ok(())
    }
}

async fn open(address: SocketAddr, version: u64) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let path = format!("/api/v1/services?watch=1&allowWatchBookmarks=true&resourceVersion={version}");
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    // No bytes follow the head until something changes.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(stream.read_buf(&mut head).await? > 0, "closed");
    }
    ensure!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
    Ok(stream)
}

async fn told(mut stream: TcpStream, changes: u64) -> anyhow::Result<()> {
    let (mut events, mut chunk, mut last) = (0, vec![0; 64 << 10], 0);
    while events < changes {
        let count = timeout(PATIENCE, stream.read(&mut chunk)).await.context("a watch is silent")??;
        ensure!(count > 0, "a watch was closed after {events} of {changes} events");
        let bytes = chunk.get(..count).unwrap_or_default();
        events += ends_of_events(bytes, &mut last);
    }
    Ok(())
}

/// The number of events that end in these bytes. An event is a line of JSON; the line ends of the transfer coding come
/// after a carriage return.
fn ends_of_events(bytes: &[u8], last: &mut u8) -> u64 {
    let mut ends = 0;
    for byte in bytes {
        ends += u64::from(*byte == b'\n' && *last == b'}');
        *last = *byte;
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_split_across_reads_is_counted_once() {
        let text = b"1c\r\n{\"type\":\"ADDED\",\"object\":{}}\n\r\n1f\r\n{\"type\":\"MODIFIED\",\"object\":{}}\n\r\n";
        for cut in 0..text.len() {
            let mut last = 0;
            let (before, after) = text.split_at(cut);
            assert_eq!(ends_of_events(before, &mut last) + ends_of_events(after, &mut last), 2);
        }
    }
}
