//! Endpoints in HTTP/2: connections that requests share, streams that break on either side, and bodies both ways at
//! once.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tidegate_config::model::{AppProtocol, Settings};
use tidegate_proxy::{Driver, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::bed::{Bed, Model, PATIENCE, route};
use super::streams::{client, get, post, push, response, rest};
use super::timeouts::{MOMENT, now};

type Asked = (Request<RecvStream>, SendResponse<Bytes>);

/// How an endpoint ends a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// With GOAWAY.
    Graceful,
    /// Without a word.
    Sudden,
}

/// A connection from the edge, whose requests the test answers.
struct Served {
    requests: UnboundedReceiver<Asked>,
    end: oneshot::Sender<End>,
    closed: oneshot::Receiver<()>,
}

impl Served {
    async fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = timeout(PATIENCE, listener.accept()).await.expect("no connection").unwrap();
        let stream = stream.into_std().unwrap();
        // Outlives the connection, to see the edge's end of it.
        let mut socket = TcpStream::from_std(stream.try_clone().unwrap()).unwrap();
        let mut connection = h2::server::handshake(TcpStream::from_std(stream).unwrap()).await.unwrap();
        let ((give, requests), (end, mut ended)) = (unbounded_channel(), oneshot::channel());
        let (close, closed) = oneshot::channel();
        tokio::spawn(async move {
            let mut is_ending = false;
            loop {
                tokio::select! {
                    asked = connection.accept() => match asked {
                        Some(Ok(asked)) => drop(give.send(asked)),
                        Some(Err(_)) | None => break,
                    },
                    end = &mut ended, if !is_ending => match end {
                        Ok(End::Graceful) => {
                            is_ending = true;
                            connection.graceful_shutdown();
                        }
                        Ok(End::Sudden) => break,
                        Err(_) => is_ending = true,
                    },
                }
            }
            drop(connection);
            socket.shutdown().await.ok();
            while matches!(socket.read(&mut [0; 4096]).await, Ok(1..)) {}
            close.send(()).ok();
        });
        Self { requests, end, closed }
    }

    /// Ends the connection. The returned future waits until the edge has closed it, too, and so uses it no longer.
    fn end(self, end: End) -> impl Future<Output = ()> {
        self.end.send(end).unwrap();
        async { timeout(PATIENCE, self.closed).await.expect("the edge does not close it").unwrap() }
    }

    async fn asked(&mut self) -> Asked {
        timeout(PATIENCE, self.requests.recv()).await.expect("no request").unwrap()
    }
}

async fn beds() -> Vec<(Driver, Bed, TcpListener)> {
    beds_with(&Settings::default(), |_| ()).await
}

/// Beds whose route has these settings.
async fn beds_with(settings: &Settings, set: impl Fn(&mut Options)) -> Vec<(Driver, Bed, TcpListener)> {
    let mut beds = Vec::new();
    for driver in [Driver::Both, Driver::Pingora] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoints = [listener.local_addr().unwrap()];
        let mut route = route("web", AppProtocol::H2c);
        route.settings = Arc::new(settings.clone());
        let model = Model::default().route("a.test", route).backend("web", &endpoints);
        let bed = Bed::with(model, |options| {
            options.driver = driver;
            set(options);
        });
        beds.push((driver, bed.await, listener));
    }
    beds
}

fn ok(mut respond: SendResponse<Bytes>) {
    respond.send_response(Response::new(()), true).unwrap();
}

#[tokio::test]
async fn requests_share_a_connection_until_the_endpoint_ends_it() {
    for (driver, bed, listener) in beds().await {
        let mut client = client(&bed, 65_535).await;
        let mut ask = async |served: &mut Served, request| {
            let answered = client.send_request(request, true).unwrap().0;
            ok(served.asked().await.1);
            assert_eq!(response(answered).await.status(), 200, "{driver:?}");
        };
        for end in [End::Graceful, End::Sudden] {
            let opened = async { Served::accept(&listener).await };
            let answered = client_get(&bed);
            let (mut served, answered) = tokio::join!(opened, answered);
            ok(served.asked().await.1);
            assert_eq!(response(answered).await.status(), 200, "{driver:?}");
            ask(&mut served, get("/")).await;
            ask(&mut served, post(None)).await;
            served.end(end).await;
        }
    }
}

/// A GET of a client of its own.
async fn client_get(bed: &Bed) -> h2::client::ResponseFuture {
    client(bed, 65_535).await.send_request(get("/"), true).unwrap().0
}

#[tokio::test]
async fn a_stream_that_the_endpoint_refuses_is_sent_again_and_no_other() {
    for (driver, bed, listener) in beds().await {
        for (reason, status) in [(Reason::REFUSED_STREAM, 200), (Reason::CANCEL, 502), (Reason::INTERNAL_ERROR, 502)] {
            let mut client = client(&bed, 65_535).await;
            let (answered, mut body) = client.send_request(post(Some(5)), false).unwrap();
            body.send_data(Bytes::from_static(b"hello"), true).unwrap();
            let mut served = Served::accept(&listener).await;
            let (request, mut respond) = served.asked().await;
            assert_eq!(rest(&mut request.into_body()).await.unwrap(), 5);
            respond.send_reset(reason);
            if status == 200 {
                let (request, respond) = served.asked().await;
                assert_eq!(rest(&mut request.into_body()).await.unwrap(), 5, "{driver:?}");
                ok(respond);
            }
            assert_eq!(response(answered).await.status(), status, "{driver:?} {reason:?}");
            served.end(End::Graceful).await;
        }
    }
}

#[tokio::test]
async fn the_received_part_of_an_upload_is_sent_again() {
    for (driver, bed, listener) in beds().await {
        let mut client = client(&bed, 65_535).await;
        let (answered, mut body) = client.send_request(post(Some(10)), false).unwrap();
        body.send_data(Bytes::from_static(b"hello"), false).unwrap();
        let mut served = Served::accept(&listener).await;
        let (request, mut respond) = served.asked().await;
        let mut sent = request.into_body();
        assert_eq!(timeout(PATIENCE, sent.data()).await.expect("no data").unwrap().unwrap(), "hello", "{driver:?}");
        respond.send_reset(Reason::REFUSED_STREAM);
        let (request, respond) = served.asked().await;
        let mut sent = request.into_body();
        assert_eq!(timeout(PATIENCE, sent.data()).await.expect("no data").unwrap().unwrap(), "hello", "{driver:?}");
        body.send_data(Bytes::from_static(b"world"), true).unwrap();
        assert_eq!(rest(&mut sent).await.unwrap(), 5, "{driver:?}");
        ok(respond);
        assert_eq!(response(answered).await.status(), 200, "{driver:?}");
    }
}

#[tokio::test]
async fn an_endpoint_that_refuses_every_stream_is_tried_a_limited_number_of_times() {
    for (driver, bed, listener) in beds().await {
        let mut client = client(&bed, 65_535).await;
        let answered = client.send_request(get("/"), true).unwrap().0;
        let refuse = async {
            let mut served = Served::accept(&listener).await;
            loop {
                served.asked().await.1.send_reset(Reason::REFUSED_STREAM);
            }
        };
        let answered = tokio::select! {
            answered = response(answered) => answered,
            () = refuse => unreachable!("it refuses without end"),
        };
        assert_eq!(answered.status(), 502, "{driver:?}");
    }
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_the_stream() {
    for (driver, bed, listener) in beds().await {
        let mut served: Option<Served> = None;
        for stage in ["head", "upload", "response"] {
            let mut client = client(&bed, 65_535).await;
            let (answered, mut body) = client.send_request(post(None), stage != "upload").unwrap();
            if served.is_none() {
                served = Some(Served::accept(&listener).await);
            }
            let (request, mut respond) = served.as_mut().unwrap().asked().await;
            let mut sent = None;
            if stage == "upload" {
                body.send_data(Bytes::from_static(b"hello"), false).unwrap();
            }
            if stage == "response" {
                sent = Some(respond.send_response(Response::new(()), false).unwrap());
                drop(response(answered).await);
            } else {
                drop(answered);
            }
            bed.until_metric("tidegate_requests_in_flight 1").await;
            body.send_reset(Reason::CANCEL);
            let reset = poll_fn(|cx| match &mut sent {
                Some(stream) => stream.poll_reset(cx),
                None => respond.poll_reset(cx),
            });
            let reason = timeout(PATIENCE, reset).await.expect("no reset").unwrap();
            assert_eq!(reason, Reason::CANCEL, "{driver:?} {stage}");
            bed.until_metric("tidegate_requests_in_flight 0").await;
            drop(request);
        }
    }
}

/// A request is in flight until its stream ends, however the endpoint ends it.
#[tokio::test]
async fn a_stream_that_its_endpoint_breaks_is_no_longer_in_flight() {
    for (driver, bed, listener) in beds().await {
        for (in_body, by_reset) in [(false, true), (false, false), (true, true), (true, false)] {
            let what = format!("{driver:?}, in the body: {in_body}, by a reset: {by_reset}");
            let mut client = client(&bed, 65_535).await;
            let answered = client.send_request(post(None), true).unwrap().0;
            let mut served = Served::accept(&listener).await;
            let (_request, mut respond) = served.asked().await;
            bed.until_metric("tidegate_requests_in_flight 1").await;
            let (mut begun, mut sent, mut answered) = (None, None, Some(answered));
            if in_body {
                let body = sent.insert(respond.send_response(Response::new(()), false).unwrap());
                body.send_data(Bytes::from_static(b"hello"), false).unwrap();
                begun = Some(response(answered.take().unwrap()).await);
            }
            match &mut sent {
                Some(body) if by_reset => body.send_reset(Reason::INTERNAL_ERROR),
                None if by_reset => respond.send_reset(Reason::INTERNAL_ERROR),
                Some(_) | None => {}
            }
            // The next request comes on a connection of its own.
            let closed = served.end(if by_reset { End::Graceful } else { End::Sudden });
            if let Some(response) = &mut begun {
                assert_eq!(response.status(), 200, "{what}");
                rest(response.body_mut()).await.expect_err(&what);
            }
            if let Some(answered) = answered {
                assert_eq!(response(answered).await.status(), 502, "{what}");
            }
            bed.until_metric("tidegate_requests_in_flight 0").await;
            closed.await;
        }
    }
}

#[tokio::test]
async fn both_sides_may_speak_at_once() {
    for (driver, bed, listener) in beds().await {
        let mut client = client(&bed, 65_535).await;
        let mut request = post(None);
        request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        let (answered, mut up) = client.send_request(request, false).unwrap();
        let mut served = Served::accept(&listener).await;
        let (request, mut respond) = served.asked().await;
        let (mut heard, mut down) = (request.into_body(), respond.send_response(Response::new(()), false).unwrap());
        let mut answer = response(answered).await;
        for round in 0..20 {
            let message = Bytes::from(format!("message {round}"));
            up.send_data(message.clone(), false).unwrap();
            let got = timeout(PATIENCE, heard.data()).await.expect("no message").unwrap().unwrap();
            assert_eq!(got, message, "{driver:?}");
            down.send_data(got, false).unwrap();
            let back = timeout(PATIENCE, answer.body_mut().data()).await.expect("no answer").unwrap().unwrap();
            assert_eq!(back, message, "{driver:?}");
        }
        // The client ends first, and the endpoint afterwards.
        up.send_data(Bytes::new(), true).unwrap();
        assert_eq!(rest(&mut heard).await.unwrap(), 0);
        let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]);
        down.send_trailers(trailers).unwrap();
        assert_eq!(rest(answer.body_mut()).await.unwrap(), 0);
        let trailers = timeout(PATIENCE, answer.body_mut().trailers()).await.expect("no trailers").unwrap();
        assert_eq!(trailers.unwrap()["grpc-status"], "0", "{driver:?}");
    }
}

#[tokio::test]
async fn an_endpoint_may_answer_before_the_end_of_an_upload() {
    for at_once in [true, false] {
        for (driver, bed, listener) in beds().await {
            let mut client = client(&bed, 65_535).await;
            let (answered, mut body) = client.send_request(post(None), false).unwrap();
            body.send_data(Bytes::from_static(b"hello"), false).unwrap();
            let mut served = Served::accept(&listener).await;
            let (request, mut respond) = served.asked().await;
            let head = Response::builder().status(413).body(()).unwrap();
            let mut sent = respond.send_response(head, false).unwrap();
            sent.send_data(Bytes::from_static(b"too much"), at_once).unwrap();
            if !at_once {
                sleep(Duration::from_millis(100)).await;
                sent.send_trailers(HeaderMap::new()).unwrap();
            }
            // h2 resets the stream with NO_ERROR (RFC 9113 section 8.1).
            drop((request, respond, sent));
            let mut answer = response(answered).await;
            let length = rest(answer.body_mut()).await.unwrap();
            assert_eq!((answer.status().as_u16(), length), (413, 8), "{driver:?}, at once: {at_once}");
            // Nor is the client expected to go on.
            let reset = timeout(PATIENCE, poll_fn(|cx| body.poll_reset(cx))).await.expect("no reset").unwrap();
            assert_eq!(reset, Reason::NO_ERROR, "{driver:?}, at once: {at_once}");
        }
    }
}

#[tokio::test]
async fn an_upload_waits_for_the_endpoint_and_holds_little() {
    const MUCH: usize = 8 << 20;
    for (driver, bed, listener) in beds().await {
        let mut client = client(&bed, 65_535).await;
        let (answered, mut body) = client.send_request(post(Some(MUCH)), false).unwrap();
        let mut served = Served::accept(&listener).await;
        let (request, respond) = served.asked().await;
        let sent = push(&mut body, MUCH).await;
        assert!(sent < 1 << 20, "{driver:?}: {sent} bytes");
        let more = tokio::spawn(async move {
            let mut all = sent;
            while all < MUCH {
                all += push(&mut body, MUCH - all).await;
            }
            body.send_data(Bytes::new(), true).ok();
        });
        assert_eq!(rest(&mut request.into_body()).await.unwrap(), MUCH, "{driver:?}");
        ok(respond);
        assert_eq!(response(answered).await.status(), 200, "{driver:?}");
        more.await.unwrap();
    }
}

#[tokio::test]
async fn a_pause_of_the_client_is_not_the_endpoints_fault() {
    // The test itself answers within this time, also on a busy machine.
    const READ: Duration = Duration::from_secs(2);
    let settings = Settings { read_timeout: Some(READ), ..Settings::default() };
    let check = async |(driver, bed, listener): (Driver, Bed, TcpListener)| {
        let mut client = client(&bed, 65_535).await;
        let (answered, mut body) = client.send_request(post(Some(10)), false).unwrap();
        body.send_data(Bytes::from_static(b"hello"), false).unwrap();
        let mut served = Served::accept(&listener).await;
        let (request, respond) = served.asked().await;
        sleep(READ * 3 / 2).await;
        body.send_data(Bytes::from_static(b"hello"), true).unwrap();
        assert_eq!(rest(&mut request.into_body()).await.unwrap(), 10, "{driver:?}");
        ok(respond);
        assert_eq!(response(answered).await.status(), 200, "{driver:?}");
    };
    join_all(beds_with(&settings, |_| ()).await.into_iter().map(check)).await;
}

#[tokio::test]
async fn an_upload_that_stalls_does_not_end_its_connection() {
    // A connection whose endpoint was silent for longer gets no further request.
    const SILENCE_MAX: Duration = Duration::from_secs(1);
    let settings = Settings { read_timeout: Some(2 * MOMENT), ..Settings::default() };
    for (driver, bed, listener) in beds_with(&settings, |options| options.client.body_read_stall = 2 * MOMENT).await {
        let mut client = client(&bed, 65_535).await;
        let began = now();
        let (answered, mut body) = client.send_request(post(Some(10)), false).unwrap();
        body.send_data(Bytes::from_static(b"hello"), false).unwrap();
        let mut served = Served::accept(&listener).await;
        let _asked = served.asked().await;
        assert_eq!(response(answered).await.status(), 408, "{driver:?}");
        bed.until_metric("tidegate_requests_by_reason_total{reason=\"body-stalled\"} 1").await;
        // A busy machine may have taken too long for the rest.
        if began.elapsed() < SILENCE_MAX {
            let _answered = client.send_request(get("/"), true).unwrap();
            served.asked().await;
        }
    }
}

#[tokio::test]
async fn an_upload_that_never_ends_after_the_response_is_given_up() {
    for (driver, bed, listener) in
        beds_with(&Settings::default(), |options| options.client.body_read_stall = MOMENT).await
    {
        let mut client = client(&bed, 65_535).await;
        let (answered, mut body) = client.send_request(post(None), false).unwrap();
        body.send_data(Bytes::from_static(b"hello"), false).unwrap();
        let mut served = Served::accept(&listener).await;
        let (_request, respond) = served.asked().await;
        bed.until_metric("tidegate_requests_in_flight 1").await;
        ok(respond);
        assert_eq!(response(answered).await.status(), 200, "{driver:?}");
        bed.until_metric("tidegate_requests_in_flight 0").await;
    }
}

#[tokio::test]
async fn a_connection_whose_endpoint_is_silent_gets_no_further_request() {
    let settings = Settings { request_timeout: Some(10 * MOMENT), ..Settings::default() };
    for (driver, bed, listener) in beds_with(&settings, |_| ()).await {
        let mut client = client(&bed, 65_535).await;
        let answered = client.send_request(get("/"), true).unwrap().0;
        let (stream, _) = timeout(PATIENCE, listener.accept()).await.expect("no connection").unwrap();
        // It is not read any more, as after the loss of a host.
        let _silent: h2::server::Connection<_, Bytes> = h2::server::handshake(stream).await.unwrap();
        assert_eq!(response(answered).await.status(), 504, "{driver:?}");
        let answered = client.send_request(get("/"), true).unwrap().0;
        ok(Served::accept(&listener).await.asked().await.1);
        assert_eq!(response(answered).await.status(), 200, "{driver:?}");
    }
}

#[tokio::test]
async fn small_frames_for_a_client_that_takes_nothing_affect_no_other_request() {
    for (driver, bed, listener) in beds().await {
        let mut stalled = client(&bed, 0).await;
        let answered = stalled.send_request(get("/"), true).unwrap().0;
        let mut served = Served::accept(&listener).await;
        let (_request, mut respond) = served.asked().await;
        let mut down = respond.send_response(Response::new(()), false).unwrap();
        let answer = response(answered).await;
        let mut sent = 0;
        // As many as the window of the stream allows.
        while sent < 16_000 {
            down.send_data(Bytes::from_static(b"."), false).unwrap();
            sent += 1;
            if sent % 100 == 0 {
                tokio::task::yield_now().await;
            }
        }
        let answered = client_get(&bed).await;
        ok(served.asked().await.1);
        assert_eq!(response(answered).await.status(), 200, "{driver:?}");
        drop(answer);
    }
}

#[tokio::test]
async fn the_edge_itself_answers_an_expectation() {
    for (driver, bed, listener) in beds().await {
        let asked =
            bed.ask("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello");
        let served = async {
            let mut served = Served::accept(&listener).await;
            let (request, respond) = served.asked().await;
            assert_eq!(request.headers().get("expect"), None, "{driver:?}");
            assert_eq!(rest(&mut request.into_body()).await.unwrap(), 5);
            ok(respond);
        };
        let (answer, ()) = tokio::join!(asked, served);
        assert!(answer.head.starts_with("http/1.1 100 "), "{driver:?}: {}", answer.head);
    }
}

#[tokio::test]
async fn requests_at_once_share_the_opening_of_a_connection() {
    for (driver, bed, listener) in beds().await {
        let mut client = client(&bed, 65_535).await;
        let asked: Vec<_> = (0..50).map(|_| client.send_request(get("/"), true).unwrap().0).collect();
        let mut served = Served::accept(&listener).await;
        for _ in &asked {
            ok(served.asked().await.1);
        }
        for answered in asked {
            assert_eq!(response(answered).await.status(), 200, "{driver:?}");
        }
        // And a failure, if there is nobody.
        drop(listener);
        served.end(End::Sudden).await;
        let asked: Vec<_> = (0..50).map(|_| client.send_request(get("/"), true).unwrap().0).collect();
        for answered in asked {
            assert_eq!(response(answered).await.status(), 502, "{driver:?}");
        }
    }
}
