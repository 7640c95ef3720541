//! The endpoint of gRPC streams: sends every message back, over plain HTTP/2.

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{SendResponse, handshake};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Serves one connection. Errors are left to the client; its calls end with the connection.
pub(crate) async fn echo(stream: TcpStream) {
    let Ok(mut connection) = handshake(stream).await else { return };
    let mut calls = JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        calls.spawn(answer(request, respond));
        while calls.try_join_next().is_some() {}
    }
}

/// Refuses requests that are not gRPC or do not accept trailers, as gRPC servers do.
async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let mut head = Response::new(());
    head.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(super::CONTENT_TYPE));
    let says = |name, value: &str| request.headers().get(name).is_some_and(|it| it.as_bytes() == value.as_bytes());
    if !says(CONTENT_TYPE, super::CONTENT_TYPE) || !says(TE, "trailers") {
        head.headers_mut().extend(end("13", "this is not a gRPC request"));
        respond.send_response(head, true)?;
        return Ok(());
    }
    let mut down = respond.send_response(head, false)?;
    let mut up = request.into_body();
    while let Some(bytes) = up.data().await {
        let bytes = bytes?;
        up.flow_control().release_capacity(bytes.len())?;
        // The end of stream may come with an empty frame. Other peers take an empty frame without it for an attack.
        if !bytes.is_empty() {
            down.send_data(bytes, false)?;
        }
    }
    down.send_trailers(end("0", "all of it came back"))
}

fn end(status: &'static str, message: &'static str) -> HeaderMap {
    let field = |name, value| (http::HeaderName::from_static(name), HeaderValue::from_static(value));
    [field("grpc-status", status), field("grpc-message", message)].into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::{PATH, ended_well};
    use super::*;
    use crate::upstream::serve;

    /// Checks the result of a call without messages.
    async fn check(content_type: &str, te: Option<&str>, want: Result<(), &str>) {
        let (address, _serving) = serve(echo).await.unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut requests, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::post(format!("http://{address}{PATH}")).header(CONTENT_TYPE, content_type);
        if let Some(te) = te {
            request = request.header(TE, te);
        }
        let (answer, _) = requests.send_request(request.body(()).unwrap(), true).unwrap();
        let (head, mut body) = answer.await.unwrap().into_parts();
        let trailers = if body.is_end_stream() { head.headers } else { body.trailers().await.unwrap().unwrap() };
        assert_eq!(ended_well(&trailers).map_err(|why| why.to_string()), want.map_err(str::to_owned));
    }

    #[tokio::test]
    async fn requests_that_are_not_grpc_are_refused() {
        let refused = Err("grpc-status 13: this is not a gRPC request");
        check(super::super::CONTENT_TYPE, Some("trailers"), Ok(())).await;
        check(super::super::CONTENT_TYPE, None, refused).await;
        check("text/plain", Some("trailers"), refused).await;
    }
}
