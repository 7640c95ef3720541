//! An API server that does as it is told: each list and each watch gets the next answer of its script. It understands
//! nothing of what it is asked, but remembers it.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::SinkExt;
use futures::channel::mpsc;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// What one request gets.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Nothing, ever: not even headers.
    Mute,
    /// A status with headers, and a body in steps.
    Is { status: u16, headers: Vec<(&'static str, String)>, body: Vec<Step> },
}

/// One step of a body. After the last one it ends as it should.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Sends bytes.
    Send(String),
    /// Goes on after a while.
    Pause(Duration),
    /// Sends nothing more, and does not end either.
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

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Self::Is { headers, .. } = &mut self {
            headers.push((name, value.to_owned()));
        }
        self
    }
}

/// A request that came.
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

#[derive(Default)]
struct Script {
    lists: VecDeque<Answer>,
    watches: VecDeque<Answer>,
    seen: Vec<Seen>,
}

/// The server; gone with this value.
pub(crate) struct FakeApi {
    pub(crate) url: String,
    script: Arc<Mutex<Script>>,
    _tasks: JoinSet<()>,
}

impl FakeApi {
    /// Once its script is at its end, a list or watch stays open and mute after its headers.
    pub(crate) async fn start(lists: Vec<Answer>, watches: Vec<Answer>) -> Self {
        let script = Script { lists: lists.into(), watches: watches.into(), seen: Vec::new() };
        let script = Arc::new(Mutex::new(script));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&script)));
        Self { url, script, _tasks: tasks }
    }

    pub(crate) async fn seen(&self) -> Vec<Seen> {
        self.script.lock().await.seen.clone()
    }
}

async fn accept(listener: TcpListener, script: Arc<Mutex<Script>>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let script = Arc::clone(&script);
        connections.spawn(async move {
            let service = service_fn(|request| answer(request, Arc::clone(&script)));
            // A connection that the test breaks is no failure of the test.
            let _broken = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.is_err();
        });
    }
}

type Body = BoxBody<Bytes, std::io::Error>;

async fn answer(request: Request<Incoming>, script: Arc<Mutex<Script>>) -> Result<Response<Body>, Infallible> {
    let query = request.uri().query().unwrap_or_default();
    let query = query.split('&').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned()));
    let seen = Seen { path: request.uri().path().to_owned(), query: query.collect(), at: tokio::time::Instant::now() };
    let next = {
        let mut script = script.lock().await;
        let next = if seen.is_watch() { script.watches.pop_front() } else { script.lists.pop_front() };
        script.seen.push(seen);
        next.unwrap_or_else(|| Answer::steps(vec![Step::Hang]))
    };
    match next {
        Answer::Mute => std::future::pending().await,
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
    let (mut to, from) = mpsc::channel::<Result<Frame<Bytes>, std::io::Error>>(0);
    tokio::spawn(async move {
        for step in steps {
            let sent = match step {
                Step::Send(text) => to.send(Ok(Frame::data(Bytes::from(text)))).await,
                Step::Pause(time) => {
                    tokio::time::sleep(time).await;
                    Ok(())
                }
                // The task and with it the body's sender live until the other side is gone.
                Step::Hang => std::future::poll_fn(|cx| to.poll_ready(cx)).await.and(std::future::pending().await),
                Step::Cut => {
                    // Otherwise what was sent before may never leave.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    to.send(Err(std::io::Error::other("cut"))).await
                }
            };
            if sent.is_err() {
                return;
            }
        }
    });
    BodyExt::boxed(StreamBody::new(from))
}
