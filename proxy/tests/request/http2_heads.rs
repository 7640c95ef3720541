//! Heads and trailers of endpoints in HTTP/2: what is beyond the limits reaches no client, and nobody else at the same
//! endpoint notices.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tidegate_config::model::AppProtocol;
use tidegate_proxy::Driver;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::bed::{Bed, Model, PATIENCE, route};

/// An endpoint that answers `/PART/COUNT/LENGTH` with as many fields, each with a value of this length, in the head or
/// in the trailers. It reports its connections.
async fn endpoint() -> (std::net::SocketAddr, UnboundedReceiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, connections) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tell.send(()).ok();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    answer(request.uri().path(), respond);
                }
            });
        }
    });
    (address, connections)
}

fn answer(path: &str, mut respond: h2::server::SendResponse<Bytes>) {
    let [part, count, length] = path.split('/').skip(1).collect::<Vec<_>>().try_into().unwrap();
    let value = HeaderValue::from_maybe_shared(Bytes::from(vec![b'v'; length.parse().unwrap()])).unwrap();
    let name = |number: usize| HeaderName::try_from(format!("x-{number}")).unwrap();
    let fields: HeaderMap = (0..count.parse().unwrap()).map(|number| (name(number), value.clone())).collect();
    let mut response = Response::new(());
    if part == "head" {
        *response.headers_mut() = fields.clone();
    }
    let mut body = respond.send_response(response, false).unwrap();
    body.send_data(Bytes::from_static(b"body"), part == "head").unwrap();
    if part != "head" {
        body.send_trailers(fields).unwrap();
    }
}

/// The status of a response and the number of fields of its trailers; `None` after a reset.
async fn ask(client: &mut h2::client::SendRequest<Bytes>, path: &str) -> Option<(u16, usize)> {
    let get = Request::get(format!("http://a.test{path}")).body(()).unwrap();
    let answered = client.send_request(get, true).unwrap().0;
    let mut response = timeout(PATIENCE, answered).await.expect("no response").ok()?;
    let body = response.body_mut();
    while let Some(piece) = timeout(PATIENCE, body.data()).await.expect("no end") {
        body.flow_control().release_capacity(piece.ok()?.len()).unwrap();
    }
    let trailers = timeout(PATIENCE, body.trailers()).await.expect("no end").ok()?;
    Some((response.status().as_u16(), trailers.map_or(0, |trailers| trailers.len())))
}

#[tokio::test]
async fn invalid_heads_and_trailers_of_endpoints_reach_no_client() {
    for driver in [Driver::Both, Driver::Pingora] {
        let (address, mut connections) = endpoint().await;
        let model = Model::default().route("a.test", route("web", AppProtocol::H2c)).backend("web", &[address]);
        let bed = Bed::with(model, |options| options.driver = driver).await;
        let stream = TcpStream::connect(bed.address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        for (path, want) in [
            ("/head/100/10", Some((200, 0))),
            ("/head/129/10", Some((502, 0))),
            ("/head/4000/1", Some((502, 0))),
            ("/head/1/60000", Some((200, 0))),
            ("/head/1/70000", Some((502, 0))),
            ("/head/3/1000000", Some((502, 0))),
            ("/trailers/100/10", Some((200, 100))),
            ("/trailers/129/10", None),
            ("/trailers/4000/1", None),
            ("/trailers/1/60000", Some((200, 1))),
            ("/trailers/1/70000", None),
            ("/trailers/3/1000000", None),
        ] {
            assert_eq!(ask(&mut client, path).await, want, "{driver:?} {path}");
            assert_eq!(ask(&mut client, "/head/1/1").await, Some((200, 0)), "{driver:?} after {path}");
        }
        let opened = std::iter::from_fn(|| connections.try_recv().ok()).count();
        assert_eq!(opened, 3, "{driver:?}: h2 ends the connection of what is several times as large, and only that");
    }
}
