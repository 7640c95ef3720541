//! The reports about Gateways and their routes: `tidegate explain`, `tidegate topology` and the metrics, compared with
//! the traffic.

use std::process::Output;

use serde_json::Value;
use tidegate_tests::binary;
use tokio::process::Command;

use super::*;

const HOST: &str = "shop.localhost";

/// The example, with addresses of this test alone; no kubectl is needed.
async fn example(test: u8) -> (Dev, SocketAddr) {
    let id = std::process::id().to_le_bytes();
    let first = Ipv4Addr::new(127, 64 + id[1] % 64, id[0], test * 8 + 1);
    let files = [("gateway.yaml", GATEWAY), ("routes.yaml", ROUTES), ("shop.yaml", SHOP)];
    let dev = Dev::with(&files, &["--gateway-addresses", &first.to_string()]).await;
    let door = SocketAddr::from((first, 8080));
    eventually("an answer", || async move {
        let answer = get(door, HOST, "/").await?;
        if answer.status == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    (dev, door)
}

pub(super) async fn ask(dev: &Dev, words: &[&str]) -> Output {
    let debug = dev.debug.to_string();
    Command::new(binary()).args(words).args(["--debug", &debug]).output().await.unwrap()
}

/// The Services that a request may go to according to its explanation, or the status of the edge's own response.
fn expected(explained: &Value) -> (Vec<String>, Option<u64>) {
    let targets = explained["route"]["targets"].as_array().into_iter().flatten();
    let service = |target: &Value| target["backend"].as_str().unwrap().split([':', '/']).nth(1).unwrap().to_owned();
    (targets.map(service).collect(), explained["answer"].as_u64())
}

/// Method, path and headers of a request, and the rule in its explanation.
type Case = (&'static str, &'static str, &'static [(&'static str, &'static str)], Option<&'static str>);

const CASES: [Case; 7] = [
    ("GET", "/checkout", &[], Some("shop")),
    ("GET", "/checkout", &[("X-Tester", "yes")], Some("new-checkout")),
    ("POST", "/checkout/1?a=b", &[("x-tester", "yes"), ("x-tester", "no")], Some("new-checkout")),
    ("GET", "/checkout", &[("X-Tester", "no"), ("X-Tester", "yes")], Some("shop")),
    ("DELETE", "/old/cart", &[], Some("old-paths")),
    ("GET", "/oldest", &[], Some("shop")),
    ("PUT", "/", &[("Host", "other.localhost")], None),
];

#[tokio::test(flavor = "multi_thread")]
async fn explain_matches_the_behaviour_of_the_process() {
    let (dev, door) = example(12).await;
    for (method, path, headers, rule) in CASES {
        let case = format!("{method} {path} {headers:?}");
        let mut real = http::Request::builder().method(method).uri(path);
        let mut words = vec!["explain".to_owned(), format!("http://{door}{path}"), "--json".to_owned()];
        words.extend(["--method".to_owned(), method.to_owned()]);
        let host = headers.iter().find(|(name, _)| *name == "Host").is_none().then_some(("Host", HOST));
        for (name, value) in host.iter().chain(headers) {
            real = real.header(*name, *value);
            words.extend(["-H".to_owned(), format!("{name}: {value}")]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = ask(&dev, &words).await;
        let explained: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{case}: {output:?}"));
        assert_eq!(explained["route"]["rule"].as_str(), rule, "{case}: {explained:#}");
        assert_eq!(explained["gateway"]["gateway"], "Gateway shop/edge", "{case}: {explained:#}");
        assert_eq!(output.status.code(), Some(i32::from(rule.is_none())), "{case}");

        let (services, answer) = expected(&explained);
        let real = request(door, real.body(Empty::new()).unwrap()).await.unwrap();
        assert_eq!(u64::from(real.status.as_u16()), answer.unwrap_or(200), "{case}: {real:?}");
        if answer.is_none() {
            let pod = real.headers["x-echo-pod"].to_str().unwrap();
            assert!(
                services.iter().any(|service| pod.starts_with(&format!("{service}-"))),
                "{case}: {pod} {services:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn topology_shows_the_attached_routes() {
    let (dev, door) = example(13).await;
    let told = ask(&dev, &["topology", "--of-name", "edge"]).await;
    let text = String::from_utf8(told.stdout).unwrap();
    let lines = [
        "GatewayClass tidegate".to_owned(),
        format!("  Gateway shop/edge ({})", door.ip()),
        format!("    listener http: HTTP 8080 for * on {door}"),
        "      HTTPRoute shop/shop".to_owned(),
        "        shop.localhost".to_owned(),
        "          spec.rules[0] (new-checkout): prefix /checkout, header x-tester".to_owned(),
        "            -> shop/shop-v2:80 (weight 1, 1 endpoint)".to_owned(),
        "          spec.rules[1] (old-paths): prefix /old".to_owned(),
        "            -> redirect 301".to_owned(),
    ];
    assert!(text.starts_with(&(lines.join("\n") + "\n")), "{text}");
    for (namespace, want) in [("shop", Some(&*text)), ("other", None)] {
        let told = ask(&dev, &["topology", "--of-name", "edge", "--of-namespace", namespace]).await;
        assert_eq!(told.status.code(), Some(if want.is_some() { 0 } else { 1 }), "{namespace}");
        let said = String::from_utf8(told.stdout).unwrap();
        assert!(want.is_none_or(|want| want == said), "{namespace}: {said}");
    }
    let page = get(dev.debug, "localhost", "/debug/topology?namespace=shop&limit=1").await.unwrap();
    let page: Value = serde_json::from_str(&page.body).unwrap();
    // The Gateway comes before its route, which is on the next page.
    assert_eq!(page["classes"][0]["gateways"][0]["listeners"][0]["routes"], serde_json::json!([]), "{page:#}");
    let next = format!("/debug/topology?namespace=shop&after={}", page["next"].as_str().unwrap());
    let page: Value = serde_json::from_str(&get(dev.debug, "localhost", &next).await.unwrap().body).unwrap();
    let listener = &page["classes"][0]["gateways"][0]["listeners"][0];
    assert_eq!(listener["routes"][0]["hosts"][0]["rules"][0]["name"], "new-checkout", "{page:#}");
    for (query, status) in
        [("name=none", 404), ("limit=x", 400), ("format=xml", 400), ("after=shop", 400), ("format=edges", 200)]
    {
        let answer = get(dev.debug, "localhost", &format!("/debug/topology?{query}")).await.unwrap();
        assert_eq!(answer.status, status, "{query}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_by_route() {
    let (dev, door) = example(14).await;
    for _ in 0..3 {
        assert_eq!(get(door, HOST, "/old").await.unwrap().status, 301);
    }
    let labels = r#"kind="HTTPRoute",name="shop",namespace="shop",object="HTTPRoute shop/shop""#;
    let moved = format!(r#"tidegate_requests_total{{class="3xx",{labels}}} 3"#);
    let timed = format!("tidegate_request_duration_seconds_count{{{labels}}} ");
    eventually("the requests are counted", || async {
        let metrics = get(dev.admin, "localhost", "/metrics").await?.body;
        let has = |line: &str| metrics.lines().any(|own| own.starts_with(line));
        if has(&moved) && has(&timed) { Ok(()) } else { Err(metrics) }
    })
    .await;
    // The series are removed with the route.
    std::fs::remove_file(dev.folder().join("routes.yaml")).unwrap();
    eventually("the series are gone", || async {
        let metrics = get(dev.admin, "localhost", "/metrics").await?.body;
        if metrics.contains(labels) { Err(metrics) } else { Ok(()) }
    })
    .await;
}
