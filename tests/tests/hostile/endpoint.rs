//! Endpoints that send the bytes of a script, whatever HTTP allows.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// The maximum life of one connection.
const LIFE_MAX: Duration = Duration::from_secs(120);
/// The maximum size of one request head in bytes.
const HEAD_MAX: usize = 128 * 1024;
/// The maximum number of heads remembered until a test takes them.
const HEADS_MAX: usize = 4096;
/// The path that every endpoint answers properly, which shows a test that it is routed.
pub(crate) const READY: &str = "/ready";

/// One act of an endpoint.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Sends bytes in one write.
    Send(Bytes),
    /// Sends the same bytes again and again.
    Repeat { bytes: Bytes, times: u32, pause: Duration },
    /// Waits.
    Wait(Duration),
    /// Tells the test that the acts before it are done.
    Tell(Arc<Semaphore>),
    /// Reads and discards until the peer ends the connection.
    Hold,
    /// Ends the connection.
    Close,
}

/// Bytes in one write.
pub(crate) fn send(bytes: impl Into<Bytes>) -> Step {
    Step::Send(bytes.into())
}

/// A valid response.
pub(crate) fn ordinary(body: &str) -> Step {
    send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

/// A running endpoint; it ends with its handle, and so do its connections.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    heads: mpsc::Receiver<String>,
    task: AbortHandle,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Endpoint {
    /// Starts one whose script responds to the head of each request. Bodies are not told from heads.
    pub(crate) async fn start(script: impl Fn(&str) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::with(false, script).await
    }

    async fn with(reads_bodies: bool, script: impl Fn(&str) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let (sender, heads) = mpsc::channel(HEADS_MAX);
        let (count, script) = (Arc::clone(&connections), Arc::new(script));
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    sleep(Duration::from_millis(10)).await;
                    continue;
                };
                count.fetch_add(1, Relaxed);
                let (script, sender) = (Arc::clone(&script), sender.clone());
                open.spawn(async move {
                    let served = serve(stream, reads_bodies, &*script, &sender);
                    drop(timeout(LIFE_MAX, served).await);
                });
                while open.try_join_next().is_some() {}
            }
        });
        Self { address, connections, heads, task: task.abort_handle() }
    }

    /// Starts one that reads each request with its body and responds with `TENANT PATH`, on the same connection for as
    /// long as that lasts: bytes between requests are a request of their own, whose response nobody expects.
    pub(crate) async fn honest(tenant: &'static str) -> Self {
        Self::with(true, move |head| vec![ordinary(&format!("{tenant} {}", path(head)))]).await
    }

    /// The address that it listens on.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of connections that it has accepted.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// The request heads read since the last call, at most [`HEADS_MAX`].
    pub(crate) fn heads(&mut self) -> Vec<String> {
        let mut heads = Vec::new();
        while let Ok(head) = self.heads.try_recv() {
            if path(&head) != READY {
                heads.push(head);
            }
        }
        heads
    }
}

/// The target in the request line of a head.
pub(crate) fn path(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or_default()
}

/// Serves one connection to its end, or to an error.
async fn serve(
    mut stream: TcpStream,
    reads_bodies: bool,
    script: &(dyn Fn(&str) -> Vec<Step> + Sync),
    heads: &mpsc::Sender<String>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
            if buffer.len() > HEAD_MAX || stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        let head: Vec<u8> = buffer.drain(..end).collect();
        let head = String::from_utf8_lossy(&head).into_owned();
        if reads_bodies && !read_body(&mut stream, &mut buffer, &head).await? {
            return Ok(());
        }
        let steps = if path(&head) == READY { vec![ordinary("ready")] } else { script(&head) };
        // A test that does not read heads lets them fill up.
        drop(heads.try_send(head));
        for step in steps {
            if !play(&mut stream, step).await? {
                return Ok(());
            }
        }
    }
}

/// Reads the body of a request. Returns `false` if the connection ended before.
async fn read_body(stream: &mut TcpStream, buffer: &mut Vec<u8>, head: &str) -> std::io::Result<bool> {
    let value = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned()).next()
    };
    if value("transfer-encoding").is_none() {
        let length = value("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        return take(stream, buffer, length).await;
    }
    loop {
        let Some(line) = take_line(stream, buffer).await? else { return Ok(false) };
        let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        if !take(stream, buffer, size + 2).await? {
            return Ok(false);
        }
    }
    // Trailers end with an empty line.
    while let Some(line) = take_line(stream, buffer).await? {
        if line.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Takes so many bytes. Returns `false` if the connection ended before.
async fn take(stream: &mut TcpStream, buffer: &mut Vec<u8>, length: usize) -> std::io::Result<bool> {
    while buffer.len() < length {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(false);
        }
    }
    buffer.drain(..length);
    Ok(true)
}

/// Takes a line without its end. `None` if the connection ended before.
async fn take_line(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<Option<String>> {
    loop {
        if let Some(end) = buffer.windows(2).position(|bytes| bytes == b"\r\n") {
            let line = String::from_utf8_lossy(&buffer[..end]).into_owned();
            buffer.drain(..end + 2);
            return Ok(Some(line));
        }
        if buffer.len() > HEAD_MAX || stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// Plays one step; returns `true` if the connection continues.
async fn play(stream: &mut TcpStream, step: Step) -> std::io::Result<bool> {
    match step {
        Step::Send(bytes) => stream.write_all(&bytes).await?,
        Step::Repeat { bytes, times, pause } => {
            for _ in 0..times {
                stream.write_all(&bytes).await?;
                if !pause.is_zero() {
                    sleep(pause).await;
                }
            }
        }
        Step::Wait(time) => sleep(time).await,
        Step::Tell(done) => done.add_permits(1),
        Step::Hold => {
            let mut ignored = [0; 4096];
            while stream.read(&mut ignored).await? > 0 {}
            return Ok(false);
        }
        Step::Close => return Ok(false),
    }
    Ok(true)
}
