//! The filter ExternalAuth: each request of a rule is authorised by a service. The definitions of the standard channel
//! lack the field, so the test adds it.

use http_body_util::Empty;
use serde_json::json;
use tidegate_tests::{Answer, eventually, request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{Bench, RESOLVED};

const ROUTE: &str = "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {namespace: shop, name: guarded}
spec:
  parentRefs: [{name: edge}]
  hostnames: [guarded.localhost]
  rules:
  - matches: [{path: {type: PathPrefix, value: /open}}]
    backendRefs: [{name: shop-v1, port: 80}]
  - filters:
    - type: ExternalAuth
      externalAuth:
        protocol: HTTP
        backendRef: {name: auth, port: 7000}
        http: {path: /check, allowedResponseHeaders: [x-user]}
    backendRefs: [{name: shop-v1, port: 80}]
";

/// A service that accepts one token, which it reports in a header; otherwise 401. A request for an unexpected path is a
/// 500.
async fn service() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    if stream.read_buf(&mut head).await.is_ok_and(|read| read == 0) {
                        return;
                    }
                }
                let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
                let said = match () {
                    () if !head.starts_with("get /check/cart?x=1 ") => "500 No\r\n",
                    () if head.contains("authorization: bearer good\r\n") => "200 OK\r\nx-user: jo\r\n",
                    () => "401 Unauthorized\r\nwww-authenticate: Bearer\r\n",
                };
                let answer = format!("HTTP/1.1 {said}content-length: 4\r\nconnection: close\r\n\r\nsaid");
                stream.write_all(answer.as_bytes()).await.ok();
            });
        }
    });
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: auth}}\nspec: {{ports: [{{name: http, port: 7000}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{namespace: shop, name: auth-1, labels: {{kubernetes.io/service-name: auth}}}}\n\
         addressType: IPv4\nports: [{{name: http, port: {port}}}]\nendpoints: [{{addresses: [127.0.0.1]}}]\n---\n"
    )
}

impl Bench {
    /// Waits until a request with a token, or with none, has this status, and returns the response.
    async fn guarded(&self, path: &str, token: Option<&str>, status: u16) -> Answer {
        let door = self.door(0, 8080);
        eventually(&format!("{status} of {path} with {token:?}"), || async move {
            let mut head = http::Request::get(path).header("host", "guarded.localhost").header("x-user", "forged");
            if let Some(token) = token {
                head = head.header("authorization", format!("Bearer {token}"));
            }
            let answer = request(door, head.body(Empty::new()).unwrap()).await?;
            if answer.status == status { Ok(answer) } else { Err(format!("{answer:?}")) }
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_asked_about_each_request_of_a_rule() {
    let Some(bench) = Bench::start(7).await else { return };
    // The schema of the experimental channel, without its validation.
    bench
        .redefine_rules(|rule| {
            let filter = rule.pointer_mut("/filters/items/properties").unwrap();
            filter["type"]["enum"].as_array_mut().unwrap().push(json!("ExternalAuth"));
            filter["externalAuth"] = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        })
        .await;
    bench.apply(ROUTE).await;

    // A missing service denies all requests, and does not affect other rules.
    bench.said("httproute/guarded", RESOLVED, "BackendNotFound").await;
    bench.guarded("/cart?x=1", Some("good"), 500).await;
    bench.guarded("/open", None, 200).await;

    bench.apply(&service().await).await;
    let yes = bench.guarded("/cart?x=1", Some("good"), 200).await;
    assert!(yes.body.to_lowercase().contains("x-user: jo") && !yes.body.contains("forged"), "{}", yes.body);
    for token in [None, Some("bad")] {
        let no = bench.guarded("/cart?x=1", token, 401).await;
        assert_eq!((no.headers["www-authenticate"].as_bytes(), &*no.body), (&b"Bearer"[..], "said"));
    }
    bench.guarded("/open", None, 200).await;

    // The service has no more endpoints.
    bench.kubectl.run(&["delete", "-n", "shop", "endpointslice", "auth-1"]).await;
    bench.guarded("/cart?x=1", Some("good"), 503).await;
    bench.guarded("/open", None, 200).await;
}
