//! Sessions of an Ingress in the whole process: `tidegate dev` with its echo processes, kubectl, and clients that keep
//! a cookie.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use http_body_util::Empty;
use tidegate_tests::{Answer, Dev, Kubectl, Run, eventually, get, h2c_request, https, request};

const APP: &str = "apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: shop, name: cart}
spec:
  replicas: 3
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec: {containers: [{name: cart, image: echo, ports: [{containerPort: 8080}]}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: cart}
spec: {selector: {app: cart}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  namespace: shop
  name: cart
  annotations:
    tidegate.io/session-cookie: cart
    tidegate.io/session-cookie-max-age: 48h
spec:
  ingressClassName: tidegate
  rules:
  - host: cart.test
    http: {paths: [{path: /cart, pathType: Prefix, backend: {service: {name: cart, port: {number: 80}}}}]}
";

/// The Pod of a response.
fn pod(answer: &Answer) -> String {
    let line = answer.body.lines().find_map(|line| line.strip_prefix("pod: "));
    line.unwrap_or_else(|| panic!("{answer:?}")).trim().to_owned()
}

/// The whole cookie that it sets.
fn set(answer: &Answer) -> Option<&str> {
    answer.headers.get("set-cookie").map(|value| value.to_str().unwrap())
}

/// A request with a cookie.
async fn with(address: SocketAddr, cookie: &str) -> Answer {
    let get = http::Request::get("/cart/1").header("host", "cart.test").header("cookie", cookie);
    let answer = request(address, get.body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    answer
}

/// Sends requests without a cookie until each of this number of Pods has a session; returns their cookies by Pod.
async fn sessions(address: SocketAddr, pods: usize) -> BTreeMap<String, String> {
    let sessions = RefCell::new(BTreeMap::new());
    let found = &sessions;
    eventually(&format!("a session with each of {pods} pods"), || async move {
        let answer = get(address, "cart.test", "/cart").await?;
        if answer.status == 200 {
            let cookie = set(&answer).expect("a cookie").split(';').next().unwrap().to_owned();
            found.borrow_mut().insert(pod(&answer), cookie);
        }
        if found.borrow().len() == pods { Ok(()) } else { Err(format!("{found:?} {answer:?}")) }
    })
    .await;
    sessions.into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_stays_with_its_pod_until_it_is_deleted() {
    let dev = Dev::start(&[("app.yaml", APP)]).await;
    let before = sessions(dev.http, 3).await;
    for (pod_of_session, cookie) in &before {
        for _ in 0..50 {
            let answer = with(dev.http, cookie).await;
            assert_eq!((&pod(&answer), set(&answer)), (pod_of_session, None));
        }
        // Over HTTP/2 each cookie may be in a field of its own.
        let get = http::Request::get("http://cart.test/cart").header("cookie", "a=b").header("cookie", cookie);
        let answer = h2c_request(dev.http, get.body(Empty::new()).unwrap()).await.unwrap();
        assert_eq!((&pod(&answer), set(&answer)), (pod_of_session, None));
    }
    let plain = get(dev.http, "cart.test", "/cart").await.unwrap();
    let cookie = set(&plain).unwrap();
    assert!(cookie.ends_with("; Path=/cart; Max-Age=172800; HttpOnly; SameSite=Lax"), "{cookie}");
    for h2 in [false, true] {
        let secure = https(dev.https, "cart.test", "/cart", h2).await.unwrap();
        let cookie = set(&secure).unwrap();
        assert!(cookie.ends_with("; Path=/cart; Max-Age=172800; HttpOnly; SameSite=Lax; Secure"), "{cookie}");
    }

    // Another replica has the same sessions, although it shares no state with the first.
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let replica = Run::start(&dev.kubeconfig, &["--https", "off"]).await;
    replica.ready().await;
    for (pod_of_session, cookie) in &before {
        let answer = with(replica.http, cookie).await;
        assert_eq!((&pod(&answer), set(&answer)), (pod_of_session, None));
    }

    kubectl.run(&["scale", "-n", "shop", "deployment/cart", "--replicas=1"]).await;
    let left = eventually("one pod is left", || async {
        let words = ["get", "pods", "-n", "shop", "-l", "app=cart", "-o", "jsonpath={.items[*].metadata.name}"];
        let left = kubectl.run(&words).await;
        if left.trim().contains(' ') { Err(left) } else { Ok(left.trim().to_owned()) }
    })
    .await;
    for (pod_of_session, cookie) in &before {
        let moved = eventually("the pod that is left answers", || async {
            let answer = with(dev.http, cookie).await;
            if pod(&answer) == left { Ok(answer) } else { Err(format!("{answer:?}")) }
        })
        .await;
        assert_eq!(set(&moved).is_some(), *pod_of_session != left, "{moved:?}");
        if let Some(new) = set(&moved) {
            let answer = with(dev.http, new.split(';').next().unwrap()).await;
            assert_eq!((pod(&answer), set(&answer)), (left.clone(), None));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_token_is_replaced() {
    let dev = Dev::start(&[("app.yaml", APP)]).await;
    let before = sessions(dev.http, 3).await;
    let (own, cookie) = before.first_key_value().unwrap();
    let token = cookie.strip_prefix("cart=").unwrap();
    let cut = &token[..token.len() - 1];
    let strange = ["".to_owned(), "\"".to_owned(), "127.0.0.1:22".to_owned(), format!("{token}A"), cut.to_owned()];
    for value in strange.into_iter().chain(["A".repeat(43), "A".repeat(6000), "=;=;=".repeat(500)]) {
        let answer = with(dev.http, &format!("cart={value}")).await;
        assert!(before.contains_key(&pod(&answer)) && set(&answer).is_some(), "{value:.60} {answer:?}");
        // The valid cookie among them is found.
        let answer = with(dev.http, &format!("cart={value}; {cookie}; cart={value}")).await;
        assert_eq!((&pod(&answer), set(&answer)), (own, None), "{value:.60}");
    }
}
