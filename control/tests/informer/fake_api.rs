//! A scripted API server: the test determines the answer to each request. The server records requests and does not
//! interpret them.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::SinkExt;
use futures::channel::mpsc;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// The answer to one request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// No answer at all, not even headers.
    Mute,
    /// The server closes the connection.
    HangUp,
    /// A status with headers, and a body in steps.
    Is { status: u16, headers: Vec<(&'static str, String)>, body: Vec<Step> },
}

/// One step of a body. After the last one the body ends regularly.
#[derive(Debug)]
pub(crate) enum Step {
    /// Sends bytes.
    Send(String),
    /// Sends the bytes of a channel for this long.
    Relay(UnboundedReceiver<String>, Duration),
    /// Pauses.
    Pause(Duration),
    /// Sends nothing more and does not end the body.
    Hang,
    /// Breaks the connection in the middle of the body.
    Cut,
}

impl Answer {
    pub(crate) fn ok(body: impl Into<String>) -> Self {
        Self::steps(vec![Step::Send(body.into())])
    }

    pub(crate) fn steps(body: Vec<Step>) -> Self {
        Self::Is { status: 200, headers: Vec::new(), body }
    }

    pub(crate) fn status(status: u16) -> Self {
        let body = format!(r#"{{"kind":"Status","code":{status},"message":"as told"}}"#);
        Self::Is { status, headers: Vec::new(), body: vec![Step::Send(body)] }
    }

    /// Edits the body, which has one step.
    pub(crate) fn edited(mut self, edit: impl Fn(&str) -> String) -> Self {
        if let Self::Is { body, .. } = &mut self
            && let [Step::Send(text)] = body.as_mut_slice()
        {
            *text = edit(text);
        }
        self
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Self::Is { headers, .. } = &mut self {
            headers.push((name, value.to_owned()));
        }
        self
    }
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) at: tokio::time::Instant,
}

impl Seen {
    pub(crate) fn is_watch(&self) -> bool {
        self.query.contains_key("watch")
    }
}

/// Decides the answer to a request.
pub(crate) type Decide = Box<dyn FnMut(&Seen, &HeaderMap) -> Answer + Send>;

struct Script {
    decide: Decide,
    seen: Vec<Seen>,
}

/// The server; it stops when this value is dropped.
pub(crate) struct FakeApi {
    pub(crate) url: String,
    script: Arc<Mutex<Script>>,
    connections: Arc<AtomicUsize>,
    hang_up: watch::Sender<()>,
    _tasks: JoinSet<()>,
}

impl FakeApi {
    /// Each list and each watch gets the next answer. After the last one the body stays open and silent after its
    /// headers.
    pub(crate) async fn scripted(lists: Vec<Answer>, watches: Vec<Answer>) -> Self {
        let [mut lists, mut watches] = [lists, watches].map(VecDeque::from);
        let decide = move |seen: &Seen, _: &HeaderMap| {
            let next = if seen.is_watch() { watches.pop_front() } else { lists.pop_front() };
            next.unwrap_or_else(|| Answer::steps(vec![Step::Hang]))
        };
        Self::start(Box::new(decide), None).await
    }

    /// Each request gets the answer that `decide` returns; over TLS, if there is a configuration for it.
    pub(crate) async fn start(decide: Decide, tls: Option<watch::Receiver<Arc<ServerConfig>>>) -> Self {
        let script = Arc::new(Mutex::new(Script { decide, seen: Vec::new() }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let (hang_up, hung_up) = watch::channel(());
        let connections = Arc::new(AtomicUsize::new(0));
        let door = Door { listener, tls, connections: Arc::clone(&connections), hung_up };
        let mut tasks = JoinSet::new();
        tasks.spawn(door.accept(Arc::clone(&script)));
        Self { url, script, connections, hang_up, _tasks: tasks }
    }

    pub(crate) async fn seen(&self) -> Vec<Seen> {
        self.script.lock().await.seen.clone()
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Closes every connection at once.
    pub(crate) fn hang_up(&self) {
        self.hang_up.send_replace(());
    }
}

/// The listener for connections.
struct Door {
    listener: TcpListener,
    tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    connections: Arc<AtomicUsize>,
    hung_up: watch::Receiver<()>,
}

impl Door {
    async fn accept(self, script: Arc<Mutex<Script>>) {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = self.listener.accept().await.unwrap();
            // Go's servers set TCP_NODELAY. Otherwise the end of a body would wait for the acknowledgement of the bytes
            // before it.
            stream.set_nodelay(true).unwrap();
            self.connections.fetch_add(1, Ordering::Relaxed);
            let (script, mut hung_up) = (Arc::clone(&script), self.hung_up.clone());
            hung_up.mark_unchanged();
            let tls = self.tls.as_ref().map(|config| TlsAcceptor::from(Arc::clone(&config.borrow())));
            connections.spawn(async move {
                let served = async {
                    match tls {
                        None => serve(stream, script).await,
                        // A handshake that a client aborts does not fail the test.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, script).await;
                            }
                        }
                    }
                };
                tokio::select! {
                    biased;
                    _ = hung_up.changed() => {}
                    () = served => {}
                }
            });
        }
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, script: Arc<Mutex<Script>>) {
    let service = service_fn(|request| answer(request, Arc::clone(&script)));
    // A connection that the test breaks does not fail the test.
    let _broken = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.is_err();
}

type Body = BoxBody<Bytes, io::Error>;

async fn answer(request: Request<Incoming>, script: Arc<Mutex<Script>>) -> io::Result<Response<Body>> {
    let query = request.uri().query().unwrap_or_default();
    let query = query.split('&').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned()));
    let seen = Seen { path: request.uri().path().to_owned(), query: query.collect(), at: tokio::time::Instant::now() };
    let next = {
        let mut script = script.lock().await;
        let next = (script.decide)(&seen, request.headers());
        script.seen.push(seen);
        next
    };
    match next {
        Answer::Mute => std::future::pending().await,
        Answer::HangUp => Err(io::Error::other("hung up")),
        Answer::Is { status, headers, body } => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            Ok(response.body(play(body)).unwrap())
        }
    }
}

fn play(steps: Vec<Step>) -> Body {
    let (mut to, from) = mpsc::channel::<io::Result<Frame<Bytes>>>(0);
    tokio::spawn(async move {
        for step in steps {
            let sent = match step {
                Step::Send(text) => to.send(Ok(Frame::data(Bytes::from(text)))).await,
                Step::Relay(mut what, lasting) => {
                    let relayed = async {
                        while let Some(text) = what.recv().await {
                            to.send(Ok(Frame::data(Bytes::from(text)))).await?;
                        }
                        Ok(())
                    };
                    tokio::time::timeout(lasting, relayed).await.unwrap_or(Ok(()))
                }
                Step::Pause(time) => {
                    tokio::time::sleep(time).await;
                    Ok(())
                }
                // The task, and with it the body's sender, live until the client disconnects.
                Step::Hang => std::future::poll_fn(|cx| to.poll_ready(cx)).await.and(std::future::pending().await),
                Step::Cut => {
                    // Otherwise the bytes before it may never be sent.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    to.send(Err(io::Error::other("cut"))).await
                }
            };
            if sent.is_err() {
                return;
            }
        }
    });
    BodyExt::boxed(StreamBody::new(from))
}
