//! HTTP/2 clients that hold streams, by the `h2` crate.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use h2::SendStream;
use h2::client::{Builder, ResponseFuture, SendRequest};
use http::{Method, Request};
use tidegate_tests::moment;
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The address of one attacker.
pub(crate) const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 5));
/// The number of concurrent streams on a connection of the edge.
pub(crate) const STREAMS: usize = 128;
/// The path that an endpoint never answers.
pub(crate) const SLOW: &str = "/slow";
/// The total number of streams opened on one connection.
const OPENED_MAX: usize = 20 * STREAMS;
/// The timeout for a connection, and for a place on it.
const STEP_MAX: Duration = Duration::from_secs(5);

/// An HTTP/2 connection by prior knowledge; it ends with its handle.
#[derive(Debug)]
pub(crate) struct Streams {
    sender: SendRequest<Bytes>,
    /// The end of the connection.
    pub(crate) end: JoinHandle<Result<(), h2::Error>>,
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.end.abort();
    }
}

/// A request whose response has not been read.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) response: ResponseFuture,
    pub(crate) body: SendStream<Bytes>,
}

impl Streams {
    /// Connects from an address of loopback, with this window for response bodies.
    pub(crate) async fn connect(source: IpAddr, address: SocketAddr, window: u32) -> Result<Self, String> {
        let connect = async {
            let socket = TcpSocket::new_v4().and_then(|socket| socket.bind((source, 0).into()).map(|()| socket));
            let socket = socket.map_err(|error| error.to_string())?;
            let stream = socket.connect(address).await.map_err(|error| error.to_string())?;
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            let mut builder = Builder::new();
            let builder = builder.initial_window_size(window).initial_max_send_streams(STREAMS);
            builder.handshake::<_, Bytes>(stream).await.map_err(|error| error.to_string())
        };
        let (sender, connection) = timeout(STEP_MAX, connect).await.map_err(|_| "connecting hangs")??;
        Ok(Self { sender, end: tokio::spawn(connection) })
    }

    /// Sends the head of a request when a stream is available; a GET ends with it.
    pub(crate) async fn open(&mut self, method: &Method, path: &str) -> Result<Held, String> {
        let request = Request::builder().method(method.clone()).uri(format!("http://a.test{path}")).body(());
        self.send(request.expect("a request")).await
    }

    /// The same with a request of the caller's own.
    pub(crate) async fn send(&mut self, request: Request<()>) -> Result<Held, String> {
        let ends = *request.method() == Method::GET;
        let ready = timeout(STEP_MAX, self.sender.clone().ready()).await.map_err(|_| "no place")?;
        self.sender = ready.map_err(|error| error.to_string())?;
        let sent = self.sender.send_request(request, ends);
        let (response, body) = sent.map_err(|error| error.to_string())?;
        Ok(Held { response, body })
    }
}

/// Holds as many requests as the edge accepts, each of which continues with a byte every half second if it has a body.
/// Requests that the edge ends are started again.
pub(crate) async fn hold(source: IpAddr, address: SocketAddr, method: Method, time: Duration) {
    let until = moment() + time;
    while moment() < until {
        if let Ok(streams) = Streams::connect(source, address, 65_535).await {
            hold_on(streams, &method, until).await;
        }
        sleep(Duration::from_millis(200)).await;
    }
}

async fn hold_on(mut streams: Streams, method: &Method, until: Instant) {
    let (mut held, mut opened) = (Vec::with_capacity(STREAMS), 0);
    while moment() < until && !streams.end.is_finished() {
        while held.len() < STREAMS && opened < OPENED_MAX {
            let Ok(Ok(one)) = timeout(Duration::from_millis(100), streams.open(method, SLOW)).await else { break };
            held.push(one);
            opened += 1;
        }
        sleep(Duration::from_millis(500)).await;
        held.retain_mut(|one: &mut Held| {
            let goes_on = *method == Method::GET || one.body.send_data(Bytes::from_static(b"x"), false).is_ok();
            goes_on && (&mut one.response).now_or_never().is_none()
        });
    }
}
