//! An endpoint that records the bytes of every request and answers with the bytes of a script.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;

use super::message::{Kind, Message};
use super::secure::acceptor;

/// One step of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    Send(Vec<u8>),
    /// A pause that is long enough for the earlier bytes to be a read of their own.
    Pause,
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    pub steps: Vec<Step>,
    /// Whether it is given before the request's body is read.
    pub early: bool,
}

impl Reply {
    /// Sends these bytes at once.
    pub fn send(bytes: impl Into<Vec<u8>>) -> Self {
        Self { steps: vec![Step::Send(bytes.into())], early: false }
    }

    /// The response to requests without a script.
    fn usual() -> Self {
        Self::send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    }
}

#[derive(Debug, Default)]
struct Script {
    replies: Vec<Reply>,
    next: AtomicUsize,
}

/// A pause that separates two writes into two reads.
pub const PAUSE: Duration = Duration::from_millis(3);

/// The timeout for the end of a connection.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Clone)]
struct State {
    script: watch::Receiver<Arc<Script>>,
    seen: UnboundedSender<Message>,
    /// Open connections, and those of them with a request in progress.
    open: watch::Sender<usize>,
    busy: watch::Sender<usize>,
    /// Counts the requests to close idle connections.
    close: watch::Receiver<usize>,
}

pub struct Recorder {
    pub address: SocketAddr,
    script: watch::Sender<Arc<Script>>,
    seen: UnboundedReceiver<Message>,
    open: watch::Sender<usize>,
    busy: watch::Sender<usize>,
    close: watch::Sender<usize>,
}

impl Recorder {
    /// Starts it in plain text, or over TLS with a self-signed certificate.
    pub async fn start(tls: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (script, told) = watch::channel(Arc::default());
        let (sender, seen) = unbounded_channel();
        let (open, busy, close) = (watch::Sender::new(0), watch::Sender::new(0), watch::Sender::new(0));
        let state =
            State { script: told, seen: sender, open: open.clone(), busy: busy.clone(), close: close.subscribe() };
        let acceptor = tls.then(acceptor);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).ok();
                let (acceptor, state) = (acceptor.clone(), state.clone());
                tokio::spawn(async move {
                    match acceptor {
                        None => connection(stream, state).await,
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => connection(stream, state).await,
                            Err(error) => panic!("the edge shakes no hands: {error}"),
                        },
                    }
                });
            }
        });
        Self { address, script, seen, open, busy, close }
    }

    /// Sets the answers from now on; after the script it answers in the usual way. `fresh` first closes idle
    /// connections.
    pub async fn play(&mut self, replies: Vec<Reply>, fresh: bool) {
        if fresh {
            self.close.send_modify(|calls| *calls += 1);
            drop(timeout(PATIENCE, self.open.subscribe().wait_for(|open| *open == 0)).await);
            // Until the edge has noticed the close.
            sleep(4 * PAUSE).await;
        }
        self.script.send_replace(Arc::new(Script { replies, next: AtomicUsize::new(0) }));
    }

    /// The received requests, once no request is in progress.
    pub async fn seen(&mut self) -> Vec<Message> {
        drop(timeout(PATIENCE, self.busy.subscribe().wait_for(|busy| *busy == 0)).await);
        let mut all = Vec::new();
        while let Ok(message) = self.seen.try_recv() {
            all.push(message);
        }
        all
    }
}

/// A stream to the edge.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {
    /// The TCP socket.
    fn socket(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Stream for TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}

async fn connection(mut stream: impl Stream, state: State) {
    state.open.send_modify(|open| *open += 1);
    requests(&mut stream, &state).await;
    drop(stream);
    state.open.send_modify(|open| *open -= 1);
}

async fn requests(stream: &mut impl Stream, state: &State) {
    let mut bytes = Vec::new();
    let mut close = state.close.clone();
    close.borrow_and_update();
    loop {
        if bytes.is_empty() {
            let read = tokio::select! {
                read = stream.read_buf(&mut bytes) => read,
                _ = close.changed() => return,
            };
            if !matches!(read, Ok(1..)) {
                return;
            }
        }
        state.busy.send_modify(|busy| *busy += 1);
        let goes_on = request(stream, &mut bytes, state).await;
        state.busy.send_modify(|busy| *busy -= 1);
        if !goes_on {
            return;
        }
    }
}

/// Reads one request and answers it; returns whether the connection continues.
async fn request(stream: &mut impl Stream, bytes: &mut Vec<u8>, state: &State) -> bool {
    let mut early = None;
    loop {
        if let Some((message, length)) = Message::read(bytes, Kind::Request, false) {
            let (reply, answered) = early.get_or_insert_with(|| {
                let script = state.script.borrow().clone();
                let reply = script.replies.get(script.next.fetch_add(1, Ordering::Relaxed)).cloned();
                (reply.unwrap_or_else(Reply::usual), false)
            });
            if !*answered && (message.whole || reply.early) {
                if message.whole {
                    state.seen.send(message.clone()).ok();
                }
                *answered = true;
                if !answer(stream, &reply.steps).await {
                    if !message.whole {
                        state.seen.send(message).ok();
                    }
                    return false;
                }
            } else if message.whole {
                state.seen.send(message.clone()).ok();
            }
            if message.whole {
                bytes.drain(..length);
                return true;
            }
        }
        if !matches!(stream.read_buf(bytes).await, Ok(1..)) {
            if let Some((message, _)) = Message::read(bytes, Kind::Request, true) {
                state.seen.send(message).ok();
            }
            return false;
        }
    }
}

async fn answer(stream: &mut impl Stream, steps: &[Step]) -> bool {
    for step in steps {
        match step {
            Step::Send(bytes) => {
                if stream.write_all(bytes).await.is_err() || stream.flush().await.is_err() {
                    return false;
                }
            }
            Step::Pause => sleep(PAUSE).await,
            Step::Close => {
                stream.shutdown().await.ok();
                // Unread bytes would turn the close into a reset.
                let mut rest = Vec::new();
                drop(timeout(PATIENCE, stream.read_to_end(&mut rest)).await);
                return false;
            }
            Step::Reset => {
                socket2::SockRef::from(stream.socket()).set_linger(Some(Duration::ZERO)).ok();
                return false;
            }
        }
    }
    true
}
