//! Where messages end: each end of a body is one end on the other side, for every pair of protocols and in both
//! drivers, and a response without content ends with its head, whatever its endpoint sends after it.

use tidegate_config::model::AppProtocol;
use tidegate_proxy::Driver;

use super::bed::{Bed, Model, route};
use super::strict::{Answer, Content, End, Endpoint, Framing};
use super::strict_clients::{Http1Client, Http2Client, Received};

/// A data plane, with one client and one endpoint.
pub struct Side {
    pub name: String,
    /// Whether the endpoint speaks HTTP/2.
    pub is_http2: bool,
    bed: Bed,
    endpoint: Endpoint,
    http1: Option<Http1Client>,
    http2: Option<Http2Client>,
}

/// A request, without its content.
#[derive(Clone, Debug)]
pub struct Head {
    pub method: &'static str,
    pub is_http2: bool,
    pub fields: Vec<(&'static str, &'static str)>,
    /// Whether its target is in absolute form, and so for the Pingora driver, in HTTP/1.1.
    pub is_absolute: bool,
}

impl Head {
    fn of(method: &'static str, is_http2: bool, fields: &[(&'static str, &'static str)]) -> Self {
        Self { method, is_http2, fields: fields.to_vec(), is_absolute: false }
    }
}

impl Side {
    pub async fn start(driver: Driver, is_http2: bool) -> Self {
        let endpoint = Endpoint::start(is_http2).await;
        let protocol = if is_http2 { AppProtocol::H2c } else { AppProtocol::Http };
        let model = Model::default().route("a.test", route("web", protocol)).backend("web", &[endpoint.address]);
        let bed = Bed::with(model, |options| options.driver = driver).await;
        let name = format!("{driver:?}, endpoint in HTTP/{}", if is_http2 { "2" } else { "1.1" });
        Self { name, is_http2, bed, endpoint, http1: None, http2: None }
    }

    /// One side for each driver and protocol of endpoints.
    pub async fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for driver in [Driver::Both, Driver::Pingora] {
            for is_http2 in [false, true] {
                all.push(Self::start(driver, is_http2).await);
            }
        }
        all
    }

    /// The bodies that the endpoint has read since the last call.
    pub fn seen(&mut self) -> Result<Vec<Vec<u8>>, String> {
        self.endpoint.seen()
    }

    /// Sends a request, which is answered so, and returns what the client has read.
    pub async fn ask(&mut self, head: &Head, content: &Content, answer: &Answer) -> Result<Received, String> {
        self.endpoint.answers(answer.clone());
        if head.is_http2 {
            let client = match self.http2.take() {
                Some(client) => client,
                None => Http2Client::connect(self.bed.address).await,
            };
            let client = self.http2.insert(client);
            let mut fields =
                vec![(":method", head.method), (":path", "/"), (":scheme", "http"), (":authority", "a.test")];
            fields.extend(&head.fields);
            let received = client.ask(&fields, content).await?;
            if client.is_closing {
                self.http2 = None;
            }
            Ok(received)
        } else {
            let client = match self.http1.take() {
                Some(client) => client,
                None => Http1Client::connect(self.bed.address).await,
            };
            let client = self.http1.insert(client);
            let target = if head.is_absolute { "http://a.test/" } else { "/" };
            let lines: String = head.fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let text = format!("{} {target} HTTP/1.1\r\nHost: a.test\r\n{lines}{}\r\n", head.method, content.lines());
            let received = client.ask(&text, content, head.method == "HEAD").await?;
            if client.is_closing {
                self.http1.take().unwrap().end().await?;
            }
            Ok(received)
        }
    }

    /// The same, and both have to read what the other has sent.
    pub async fn check(&mut self, head: &Head, content: &Content, answer: &Answer) {
        let what = format!("{}: {head:?}, {content:?}, {answer:?}", self.name);
        let received = self.ask(head, content, answer).await;
        let bodies = self.seen().unwrap_or_else(|fault| panic!("{what}: {fault}"));
        let is_bodiless = head.method == "HEAD" || matches!(answer.status, 204 | 304);
        let body = if is_bodiless { Vec::new() } else { answer.content.whole() };
        assert_eq!(received, Ok(Received { status: answer.status, body }), "{what}");
        assert_eq!(bodies, [content.whole()], "{what}");
    }

    /// Forgets the connections of clients.
    pub fn drop_clients(&mut self) {
        (self.http1, self.http2) = (None, None);
    }

    /// Ends the connections of clients, on which nothing more may come. h2 ends one by itself after 100 empty frames.
    pub async fn end_clients(&mut self) -> Result<(), String> {
        if let Some(client) = self.http1.take() {
            client.end().await?;
        }
        if let Some(client) = self.http2.take() {
            client.end().await?;
        }
        Ok(())
    }

    /// Ends all connections, on which nothing more may come.
    pub async fn end(mut self) -> Result<(), String> {
        self.end_clients().await?;
        let Self { bed, mut endpoint, .. } = self;
        // The net below Pingora had nothing to catch.
        assert!(bed.metrics().contains("tidegate_upstream_overruns_total 0\n"), "{}", bed.metrics());
        bed.drain().await;
        endpoint.ended().await;
        let rest = endpoint.seen()?;
        if rest.is_empty() { Ok(()) } else { Err(format!("further requests: {rest:?}")) }
    }
}

/// Heads of requests with content, for either driver.
fn uploads() -> Vec<Head> {
    let mut heads = Vec::new();
    for is_http2 in [false, true] {
        heads.push(Head::of("POST", is_http2, &[]));
        heads.push(Head::of("POST", is_http2, &[("expect", "100-continue")]));
        heads.push(Head::of("PUT", is_http2, &[("content-type", "application/grpc"), ("te", "trailers")]));
    }
    heads.push(Head { is_absolute: true, ..Head::of("POST", false, &[]) });
    heads
}

/// All ends of content: by each piece, an empty one, several of them, or trailers.
fn ends() -> Vec<Content> {
    let (some, more, much) = (vec![b'a'; 10], vec![b'b'; 20], vec![b'c'; 9000]);
    let nothing = Vec::new;
    let mut all = Vec::new();
    for pieces in [
        vec![],
        vec![nothing()],
        vec![nothing(), nothing()],
        vec![some.clone()],
        vec![some.clone(), nothing()],
        vec![nothing(), some.clone(), nothing(), nothing(), nothing()],
        vec![some.clone(), more, nothing()],
        vec![much, nothing()],
    ] {
        for end in [End::Last, End::Trailers] {
            for framing in [Framing::Length, Framing::Chunked] {
                for (padding, pause) in [(None, false), (Some(7), true)] {
                    all.push(Content { pieces: pieces.clone(), framing, end, padding, pause });
                }
            }
        }
    }
    all
}

#[tokio::test]
async fn each_end_of_a_request_is_one_end() {
    let answer = Answer::of(200, Content { pieces: vec![b"ok".to_vec()], framing: Framing::Length, ..Content::NONE });
    for mut side in Side::all().await {
        for head in uploads() {
            for content in ends() {
                side.check(&head, &content, &answer).await;
            }
            side.end_clients().await.unwrap();
        }
        let name = side.name.clone();
        side.end().await.unwrap_or_else(|fault| panic!("{name}: {fault}"));
    }
}

/// Content that an endpoint sends after the head of a response that has none.
fn stray() -> Vec<Content> {
    let (some, nothing) = (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), Vec::new());
    let mut all = vec![Content::NONE];
    for pieces in [vec![], vec![nothing.clone()], vec![some.clone()], vec![some, nothing]] {
        for framing in [Framing::None, Framing::Length, Framing::Chunked, Framing::Close] {
            for end in [End::Last, End::Trailers, End::Never] {
                all.push(Content { pieces: pieces.clone(), framing, end, ..Content::NONE });
            }
        }
    }
    all
}

#[tokio::test]
async fn a_response_without_content_ends_with_its_head() {
    let usual = Answer::of(200, Content { pieces: vec![b"ok".to_vec()], framing: Framing::Length, ..Content::NONE });
    for mut side in Side::all().await {
        for is_http2 in [false, true] {
            let get = Head::of("GET", is_http2, &[]);
            for (method, status) in [("GET", 204), ("GET", 304), ("HEAD", 200), ("HEAD", 204), ("HEAD", 404)] {
                for fields in [&[][..], &[("content-type", "application/grpc")]] {
                    let head = Head::of(method, is_http2, fields);
                    for (interim, content) in stray().into_iter().enumerate() {
                        let answer = Answer { interim: interim % 3, ..Answer::of(status, content) };
                        side.check(&head, &Content::NONE, &answer).await;
                        side.check(&get, &Content::NONE, &usual).await;
                    }
                }
            }
        }
        let name = side.name.clone();
        side.end().await.unwrap_or_else(|fault| panic!("{name}: {fault}"));
    }
}
