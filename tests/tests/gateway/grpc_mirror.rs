//! A GRPCRoute with a mirror: the copy goes out over HTTP/2, as the request itself does.

use http::request::Parts;
use http_body_util::Empty;
use tidegate_tests::{eventually, h2c_request};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{ACCEPTED, Bench, RESOLVED};

const ROUTE: &str = "apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {namespace: shop, name: cart}
spec:
  parentRefs: [{name: edge}]
  hostnames: [cart.localhost]
  rules:
  - filters:
    - type: RequestMirror
      requestMirror: {backendRef: {name: copy, port: 7000}}
    backendRefs: [{name: cart, port: 7000}]
";

/// A gRPC server that answers every call with success and reports its head, and its Service.
async fn server(name: &str) -> (String, UnboundedReceiver<Parts>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, seen) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    sender.send(request.into_parts().0).ok();
                    let head = http::Response::builder().header("content-type", "application/grpc");
                    respond.send_response(head.header("grpc-status", "0").body(()).unwrap(), true).ok();
                }
            });
        }
    });
    let manifest = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: {name}}}\nspec: {{ports: [{{name: grpc, port: 7000}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{namespace: shop, name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}\n\
         addressType: IPv4\nports: [{{name: grpc, port: {port}}}]\nendpoints: [{{addresses: [127.0.0.1]}}]\n---\n"
    );
    (manifest, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_mirrored_to_a_grpc_server() {
    let Some(bench) = Bench::start(18).await else { return };
    let (cart, _seen) = server("cart").await;
    let (copy, mut copied) = server("copy").await;
    bench.apply(&format!("{cart}{copy}{ROUTE}")).await;
    bench.said("grpcroute/cart", ACCEPTED, "Accepted").await;
    bench.said("grpcroute/cart", RESOLVED, "ResolvedRefs").await;
    let door = bench.door(0, 8080);
    eventually("a copy of an answered call", || {
        let request = http::Request::post("http://cart.localhost/shop.Cart/Add");
        let request = request.header("content-type", "application/grpc").header("te", "trailers");
        let asked = h2c_request(door, request.body(Empty::new()).unwrap());
        async move {
            let answer = asked.await?;
            let ok = answer.headers.get("grpc-status").is_some_and(|status| status == "0");
            if ok { Ok(()) } else { Err(format!("{answer:?}")) }
        }
    })
    .await;
    let copy = tokio::time::timeout(std::time::Duration::from_secs(20), copied.recv()).await;
    let copy = copy.expect("no copy came").unwrap();
    assert_eq!((copy.version, copy.uri.path()), (http::Version::HTTP_2, "/shop.Cart/Add"));
    assert_eq!(copy.uri.host(), Some("cart.localhost"));
    assert_eq!(
        (&copy.headers["content-type"], &copy.headers["te"]),
        (&"application/grpc".parse().unwrap(), &"trailers".parse().unwrap())
    );
}
