//! A client that sends requests all the time, to notice changes that must be invisible.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{client, moment};

/// The number of connections of a steady client, each with one request at a time.
const CONNECTIONS: usize = 4;

/// The pause of a connection between two requests.
const PAUSE: Duration = Duration::from_millis(10);

/// The failure of a client that nobody accepts.
const NO_CONNECTION: &str = "no connection";

/// Requests that go on until they are stopped.
#[derive(Debug)]
pub struct Steady {
    asking: JoinSet<Taken>,
    stop: watch::Sender<bool>,
}

/// The results of the requests.
#[derive(Debug, Default)]
#[must_use = "that nothing failed is for its asker to say"]
pub struct Taken {
    /// Responses with status 200, by body.
    pub answers: BTreeMap<String, u64>,
    /// All other results, and when they came.
    pub failures: Vec<(Instant, String)>,
}

/// A time without a server, in which requests may fail.
#[derive(Debug, Clone, Copy)]
pub struct Gap {
    /// When the server was stopped.
    pub from: Instant,
    /// When its successor served.
    pub to: Instant,
    /// `true` if the server was killed, and requests in flight may fail too. One that was stopped in order completes
    /// them, so that clients just find nobody to connect to.
    pub killed: bool,
}

impl Gap {
    fn excuses(&self, (at, failure): &(Instant, String)) -> bool {
        (self.from..=self.to).contains(at) && (self.killed || failure.starts_with(NO_CONNECTION))
    }
}

impl Taken {
    /// The number of responses, all of which must be right.
    ///
    /// # Panics
    /// When one was not.
    #[track_caller]
    pub fn all(&self) -> u64 {
        self.all_but(&[])
    }

    /// The same, but for the times in which there was no server.
    ///
    /// # Panics
    /// When a response outside of them was not right.
    #[track_caller]
    pub fn all_but(&self, gaps: &[Gap]) -> u64 {
        let excused = |failure: &&(Instant, String)| gaps.iter().any(|gap| gap.excuses(failure));
        let failures: Vec<_> = self.failures.iter().filter(|failure| !excused(failure)).collect();
        assert!(failures.is_empty(), "{} failed of {}: {failures:?}, {gaps:?}", failures.len(), self.count());
        assert!(self.count() > 0, "nothing was asked");
        self.count()
    }

    fn count(&self) -> u64 {
        self.answers.values().sum()
    }
}

impl Steady {
    /// Starts requests for this path of this host.
    #[must_use]
    pub fn start(address: SocketAddr, host: &str, path: &str) -> Self {
        Self::of(Asked { address, host: host.to_owned(), path: path.to_owned(), tls: false })
    }

    /// Like [`Steady::start`], over TLS.
    #[must_use]
    pub fn start_tls(address: SocketAddr, host: &str, path: &str) -> Self {
        Self::of(Asked { address, host: host.to_owned(), path: path.to_owned(), tls: true })
    }

    fn of(asked: Asked) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut asking = JoinSet::new();
        for _ in 0..CONNECTIONS {
            asking.spawn(ask(asked.clone(), stopped.clone()));
        }
        Self { asking, stop }
    }

    /// Finishes requests in flight, and returns the results.
    pub async fn stop(mut self) -> Taken {
        self.stop.send_replace(true);
        let mut all = Taken::default();
        while let Some(taken) = self.asking.join_next().await {
            let taken = taken.expect("a client does not panic");
            all.failures.extend(taken.failures);
            for (body, count) in taken.answers {
                *all.answers.entry(body).or_default() += count;
            }
        }
        all
    }
}

async fn ask(asked: Asked, stopped: watch::Receiver<bool>) -> Taken {
    let mut taken = Taken::default();
    let mut connection = None;
    while !*stopped.borrow() {
        match asked.one(&mut connection).await {
            Ok(body) => *taken.answers.entry(body).or_default() += 1,
            Err(what) => {
                taken.failures.push((moment(), what));
                connection = None;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    taken
}

type Connection = SendRequest<Full<Bytes>>;

/// The request.
#[derive(Debug, Clone)]
struct Asked {
    address: SocketAddr,
    host: String,
    path: String,
    tls: bool,
}

impl Asked {
    /// The body of a response with status 200. A connection that was closed in order between two requests is reopened.
    async fn one(&self, connection: &mut Option<Connection>) -> Result<String, String> {
        let kept = match connection.take() {
            Some(mut sender) => sender.ready().await.is_ok().then_some(sender),
            None => None,
        };
        let sender = match kept {
            Some(sender) => sender,
            None => self.connect().await.map_err(|error| format!("{NO_CONNECTION}: {error}"))?,
        };
        let request = Request::get(&self.path).header("host", &self.host).body(Full::default());
        let request = request.map_err(|error| error.to_string())?;
        let answer = connection.insert(sender).send_request(request).await.map_err(|error| format!("{error:?}"))?;
        let answer = client::whole(answer).await?;
        if answer.status == 200 { Ok(answer.body) } else { Err(format!("{} {}", answer.status, answer.body)) }
    }

    async fn connect(&self) -> Result<Connection, String> {
        if self.tls {
            let stream = client::connect_tls(self.address, &self.host, &[b"http/1.1"]).await?;
            client::opened(stream).await
        } else {
            client::opened(TcpStream::connect(self.address).await.map_err(|error| error.to_string())?).await
        }
    }
}
