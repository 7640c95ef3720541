//! Session persistence of rules. The definitions of the standard channel lack the field, so the test adds it.

use http_body_util::Empty;
use serde_json::json;
use tidegate_tests::{Answer, eventually, request};

use super::{ACCEPTED, Bench};

const ROUTE: &str = "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {namespace: shop, name: kept}
spec:
  parentRefs: [{name: edge}]
  hostnames: [kept.localhost]
  rules:
  - matches: [{path: {type: PathPrefix, value: /header}}]
    sessionPersistence: {type: Header, header: {name: X-Session}}
    backendRefs: [{name: shop-v1, port: 80}]
  - matches: [{path: {type: PathPrefix, value: /other}}]
    sessionPersistence: {type: Cookie, cookie: {name: sticky}}
    backendRefs: [{name: shop-v1, port: 80}]
  - sessionPersistence: {type: Cookie, cookie: {name: sticky, lifetimeType: Permanent}, absoluteTimeout: 1h}
    backendRefs: [{name: shop-v1, port: 80, weight: 1}, {name: shop-v2, port: 80, weight: 0}]
";

impl Bench {
    /// Waits until a request with a header has status 200, and returns the response.
    async fn kept(&self, path: &str, (name, value): (&str, &str)) -> Answer {
        let door = self.door(0, 8080);
        eventually(&format!("200 of {path}"), || async move {
            let get = http::Request::get(path).header("host", "kept.localhost").header(name, value);
            let answer = request(door, get.body(Empty::new()).unwrap()).await?;
            if answer.status == 200 { Ok(answer) } else { Err(format!("{answer:?}")) }
        })
        .await
    }

    async fn weights(&self, old: u32, new: u32) {
        let patch = format!(
            r#"[{{"op":"replace","path":"/spec/rules/2/backendRefs","value":[
                {{"name":"shop-v2","port":80,"weight":{new}}},{{"name":"shop-v1","port":80,"weight":{old}}}]}}]"#
        );
        self.kubectl.run(&["patch", "-n", "shop", "httproute/kept", "--type=json", "-p", &patch]).await;
    }
}

fn pod(answer: &Answer) -> &str {
    answer.body.lines().find_map(|line| line.strip_prefix("pod: ")).expect("a pod").trim()
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers.get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_survive_a_change_of_weights() {
    let Some(bench) = Bench::start(12).await else { return };
    bench.answered(bench.door(0, 8080), "shop.localhost", "/", 200).await;
    // The schema of the experimental channel, without its validation.
    let sessions = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    bench.redefine_rules(|rule| rule["sessionPersistence"] = sessions.clone()).await;
    bench.apply(ROUTE).await;
    bench.said("httproute/kept", ACCEPTED, "Accepted").await;

    let first = bench.kept("/", ("x", "y")).await;
    let cookie = header(&first, "set-cookie").expect("a cookie");
    assert!(cookie.ends_with("; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    assert!(pod(&first).starts_with("shop-v1-"), "{first:?}");
    for _ in 0..50 {
        let again = bench.kept("/x", ("cookie", cookie)).await;
        assert_eq!((pod(&again), header(&again, "set-cookie")), (pod(&first), None));
    }
    // Another rule has sessions of its own, whatever the name of its cookie.
    let other = bench.kept("/other", ("cookie", cookie)).await;
    assert!(header(&other, "set-cookie").is_some(), "{other:?}");

    bench.weights(0, 1).await;
    eventually("new clients are led to the new version", || async {
        let answer = bench.kept("/", ("x", "y")).await;
        if pod(&answer).starts_with("shop-v2-") { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    for _ in 0..20 {
        let again = bench.kept("/", ("cookie", cookie)).await;
        assert_eq!((pod(&again), header(&again, "set-cookie")), (pod(&first), None));
        assert!(pod(&bench.kept("/", ("x", "y")).await).starts_with("shop-v2-"));
    }
    // The old version and its sessions are removed together.
    bench.kubectl.run(&["scale", "-n", "shop", "deployment/shop-v1", "--replicas=0"]).await;
    eventually("the session has moved", || async {
        let answer = bench.kept("/", ("cookie", cookie)).await;
        let moved = pod(&answer).starts_with("shop-v2-") && header(&answer, "set-cookie").is_some();
        if moved { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_chooses_its_session_carrier_and_unsupported_fields_are_reported() {
    let Some(bench) = Bench::start(13).await else { return };
    bench.answered(bench.door(0, 8080), "shop.localhost", "/", 200).await;
    // The schema of the experimental channel, without its validation.
    let sessions = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    bench.redefine_rules(|rule| rule["sessionPersistence"] = sessions.clone()).await;
    bench.apply(ROUTE).await;
    let first = bench.kept("/header", ("x", "y")).await;
    let token = header(&first, "x-session").expect("a header");
    assert_eq!(header(&first, "set-cookie"), None);
    for _ in 0..50 {
        let again = bench.kept("/header", ("x-session", token)).await;
        assert_eq!((pod(&again), header(&again, "x-session")), (pod(&first), None));
    }
    let idle = r#"[{"op":"add","path":"/spec/rules/0/sessionPersistence/idleTimeout","value":"30m"}]"#;
    bench.kubectl.run(&["patch", "-n", "shop", "httproute/kept", "--type=json", "-p", idle]).await;
    eventually("sessions that cannot be kept are not begun", || async {
        let answer = bench.kept("/header", ("x", "y")).await;
        if header(&answer, "x-session").is_none() { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    bench.said("httproute/kept", ACCEPTED, "Accepted").await;
    let message = "-o=jsonpath={.status.parents[*].conditions[?(@.type=='Accepted')].message}";
    eventually("the status says why", || async {
        let said = bench.kubectl.run(&["get", "-n", "shop", "httproute/kept", message]).await;
        if said.contains("spec.rules[0].sessionPersistence.idleTimeout") { Ok(()) } else { Err(said) }
    })
    .await;
}
