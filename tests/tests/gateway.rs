//! Gateways and routes of the Gateway API in the whole process: `tidegate dev`, kubectl and HTTP.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

#[path = "gateway/auth.rs"]
mod auth;
#[path = "gateway/auth_changes.rs"]
mod auth_changes;
#[path = "gateway/calls.rs"]
mod calls;
#[path = "gateway/datagrams.rs"]
mod datagrams;
#[path = "gateway/external_auth.rs"]
mod external_auth;
#[path = "gateway/grpc_mirror.rs"]
mod grpc_mirror;
#[path = "gateway/ingress2gateway.rs"]
mod ingress2gateway;
#[path = "gateway/limits.rs"]
mod limits;
#[path = "gateway/observed.rs"]
mod observed;
#[path = "gateway/ports.rs"]
mod ports;
#[path = "gateway/sessions.rs"]
mod sessions;
#[path = "gateway/statuses.rs"]
mod statuses;
#[path = "gateway/streams.rs"]
mod streams;
#[path = "gateway/tokens.rs"]
mod tokens;

use std::net::{Ipv4Addr, SocketAddr};

use http_body_util::Empty;
use serde_json::Value;
use tidegate_tests::{Answer, Dev, Kubectl, certificate_of, eventually, get, https, request, secret};

const GATEWAY: &str = include_str!("../../examples/gateway/gateway.yaml");
const ROUTES: &str = include_str!("../../examples/gateway/routes.yaml");
const AUTH: &str = include_str!("../../examples/gateway/auth.yaml");
const LIMITS: &str = include_str!("../../examples/gateway/limits.yaml");
const SHOP: &str = include_str!("../../examples/gateway/shop.yaml");

/// The example, with addresses of this test alone.
struct Bench {
    dev: Dev,
    kubectl: Kubectl,
    first: Ipv4Addr,
}

impl Bench {
    /// `None` if there is no kubectl.
    async fn start(test: u8) -> Option<Self> {
        Self::start_with(test, &[]).await
    }

    /// The same with further files.
    async fn start_with(test: u8, more: &[(&str, &str)]) -> Option<Self> {
        Self::start_under(test, more, &[]).await
    }

    /// The same with further flags, too.
    async fn start_under(test: u8, more: &[(&str, &str)], flags: &[&str]) -> Option<Self> {
        let id = std::process::id().to_le_bytes();
        let first = Ipv4Addr::new(127, 64 + id[1] % 64, id[0], test * 8 + 1);
        let addresses = format!("{first}-{}", Ipv4Addr::from_bits(first.to_bits() + 3));
        let files = [("gateway.yaml", GATEWAY), ("routes.yaml", ROUTES), ("shop.yaml", SHOP)];
        let dev = Dev::with(&[&files, more].concat(), &[&["--gateway-addresses", &*addresses], flags].concat()).await;
        let kubectl = Kubectl::for_config(&dev.kubeconfig)?;
        Some(Self { dev, kubectl, first })
    }

    /// A port of the nth address.
    fn door(&self, nth: u32, port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::from_bits(self.first.to_bits() + nth), port))
    }

    /// Waits until a GET has this status, and returns the response.
    async fn answered(&self, door: SocketAddr, host: &str, path: &str, status: u16) -> Answer {
        eventually(&format!("{status} of {host}{path} at {door}"), || async move {
            let answer = get(door, host, path).await?;
            if answer.status == status { Ok(answer) } else { Err(format!("{answer:?}")) }
        })
        .await
    }

    /// Waits until kubectl prints this about an object.
    async fn said(&self, object: &str, jsonpath: &str, want: &str) {
        let jsonpath = format!("-o=jsonpath={jsonpath}");
        eventually(&format!("{object} {jsonpath}: {want}"), || async {
            let got = self.kubectl.run(&["get", "-n", "shop", object, &jsonpath]).await;
            if got == want { Ok(()) } else { Err(got) }
        })
        .await;
    }

    /// Changes the schema of a rule in the definition of HTTPRoute.
    async fn redefine_rules(&self, change: impl Fn(&mut Value)) {
        let definition = "httproutes.gateway.networking.k8s.io";
        let definition = self.kubectl.run(&["get", "crd", definition, "-o", "json"]).await;
        let mut definition: Value = serde_json::from_str(&definition).unwrap();
        for version in definition["spec"]["versions"].as_array_mut().unwrap() {
            let rule = "/schema/openAPIV3Schema/properties/spec/properties/rules/items/properties";
            change(version.pointer_mut(rule).unwrap());
        }
        self.kubectl.fed(&["replace", "-f", "-"], &definition.to_string()).await;
    }

    async fn apply(&self, manifest: &str) {
        self.kubectl.fed(&["apply", "-f", "-"], manifest).await;
    }

    async fn patch(&self, object: &str, patch: &str) {
        self.kubectl.run(&["patch", "-n", "shop", object, "--type=merge", "-p", patch]).await;
    }
}

const ACCEPTED: &str = "{.status.parents[*].conditions[?(@.type=='Accepted')].reason}";
const RESOLVED: &str = "{.status.parents[*].conditions[?(@.type=='ResolvedRefs')].reason}";

#[tokio::test(flavor = "multi_thread")]
async fn routes_follow_their_objects() {
    let Some(bench) = Bench::start(0).await else { return };
    let door = bench.door(0, 8080);
    bench.answered(door, "shop.localhost", "/", 200).await;
    let moved = bench.answered(door, "shop.localhost", "/old/cart?x=1", 301).await;
    assert_eq!(moved.headers["location"], "http://shop.localhost:8080/cart?x=1");
    bench.answered(door, "other.localhost", "/", 404).await;
    let tester = http::Request::get("/checkout").header("host", "shop.localhost").header("x-tester", "yes");
    let tester = request(door, tester.body(Empty::new()).unwrap()).await.unwrap();
    assert!(tester.body.contains("pod: shop-v2-"), "{}", tester.body);
    let plain = bench.answered(door, "shop.localhost", "/x", 200).await;
    assert!(plain.body.to_lowercase().contains("x-shop: edge"), "{}", plain.body);
    bench.said("httproute/shop", ACCEPTED, "Accepted").await;
    bench.said("gateway/edge", "{.status.addresses[*].value}", &bench.first.to_string()).await;
    bench.said("gateway/edge", "{.status.listeners[*].attachedRoutes}", "1").await;
    bench.said("gatewayclass/tidegate", "{.status.conditions[*].reason}", "Accepted SupportedVersion").await;

    bench.patch("httproute/shop", r#"{"spec":{"hostnames":["new.localhost"]}}"#).await;
    bench.answered(door, "new.localhost", "/", 200).await;
    bench.answered(door, "shop.localhost", "/", 404).await;
    bench.said("httproute/shop", "{.status.parents[*].conditions[*].observedGeneration}", "2 2").await;
    bench.kubectl.run(&["delete", "-n", "shop", "service", "shop-v1", "shop-v2"]).await;
    bench.answered(door, "new.localhost", "/", 500).await;
    bench.said("httproute/shop", RESOLVED, "BackendNotFound").await;
    bench.patch("httproute/shop", r#"{"spec":{"parentRefs":[{"name":"edge","sectionName":"none"}]}}"#).await;
    bench.answered(door, "new.localhost", "/", 404).await;
    bench.said("httproute/shop", ACCEPTED, "NoMatchingParent").await;
    bench.said("gateway/edge", "{.status.listeners[*].attachedRoutes}", "0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_are_added_and_removed_independently() {
    let Some(bench) = Bench::start(1).await else { return };
    bench.answered(bench.door(0, 8080), "shop.localhost", "/", 200).await;
    bench.said("gateway/edge", "{.status.addresses[*].value}", &bench.first.to_string()).await;
    let second = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {namespace: shop, name: second}\nspec:\n  \
                  gatewayClassName: tidegate\n  listeners:\n  - {name: http, port: 8080, protocol: HTTP}\n  \
                  - {name: more, port: 8081, protocol: HTTP, hostname: '*.localhost'}\n";
    bench.apply(second).await;
    bench.answered(bench.door(1, 8080), "shop.localhost", "/", 404).await;
    bench.patch("httproute/shop", r#"{"spec":{"parentRefs":[{"name":"edge"},{"name":"second"}]}}"#).await;
    for port in [8080, 8081] {
        bench.answered(bench.door(1, port), "shop.localhost", "/", 200).await;
    }
    bench.said("httproute/shop", ACCEPTED, "Accepted Accepted").await;
    bench.said("gateway/second", "{.status.listeners[*].attachedRoutes}", "1 1").await;

    // The first one is deleted, and the second keeps its address.
    bench.kubectl.run(&["delete", "-n", "shop", "gateway", "edge"]).await;
    eventually("nobody listens", || async {
        match get(bench.door(0, 8080), "shop.localhost", "/").await {
            Ok(answer) => Err(format!("{answer:?}")),
            Err(_) => Ok(()),
        }
    })
    .await;
    bench.answered(bench.door(1, 8081), "shop.localhost", "/", 200).await;
    bench.said("httproute/shop", ACCEPTED, "Accepted").await;
    bench.said("gateway/second", "{.status.addresses[*].value}", &bench.door(1, 0).ip().to_string()).await;

    // A listener that conflicts with another one invalidates both, and no third.
    let listeners = r#"{"spec":{"listeners":[
        {"name":"http","port":8080,"protocol":"HTTP"},{"name":"more","port":8081,"protocol":"HTTP"},
        {"name":"tls","port":8081,"protocol":"HTTPS","tls":{"certificateRefs":[{"name":"none"}]}}]}}"#;
    bench.patch("gateway/second", listeners).await;
    let conflicted = "{.status.listeners[*].conditions[?(@.type=='Conflicted')].status}";
    bench.said("gateway/second", conflicted, "False True True").await;
    bench.answered(bench.door(1, 8080), "shop.localhost", "/", 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_entries_of_other_controllers_are_kept() {
    let Some(bench) = Bench::start(2).await else { return };
    bench.said("httproute/shop", ACCEPTED, "Accepted").await;
    let condition = r#"{"type":"Accepted","status":"False","reason":"No","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}"#;
    let theirs = format!(
        r#"{{"parentRef":{{"name":"theirs"}},"controllerName":"example.com/other","conditions":[{condition}]}}"#
    );
    let add = format!(r#"[{{"op":"add","path":"/status/parents/-","value":{theirs}}}]"#);
    let subresource = ["patch", "-n", "shop", "httproute", "shop", "--subresource=status", "--type=json", "-p"];
    bench.kubectl.run(&[&subresource[..], &[&add]].concat()).await;
    bench.patch("httproute/shop", r#"{"spec":{"hostnames":["new.localhost"]}}"#).await;
    let ours = "{.status.parents[?(@.controllerName=='tidegate.io/gateway')].conditions[*].observedGeneration}";
    bench.said("httproute/shop", ours, "2 2").await;
    let mut names: Vec<String> = Vec::new();
    eventually("both are there", || async {
        let said = bench.kubectl.run(&[
            "get",
            "-n",
            "shop",
            "httproute/shop",
            "-o=jsonpath={.status.parents[*].controllerName}",
        ]);
        let said = said.await;
        if said.split(' ').count() == 2 { Ok(said) } else { Err(said) }
    })
    .await
    .split(' ')
    .for_each(|name| names.push(name.to_owned()));
    names.sort_unstable();
    assert_eq!(names, ["example.com/other", "tidegate.io/gateway"]);
    // A client clears the status, and it is written again.
    let remove = r#"[{"op":"replace","path":"/status/parents","value":[]}]"#;
    bench.kubectl.run(&[&subresource[..], &[remove]].concat()).await;
    bench.said("httproute/shop", ACCEPTED, "Accepted").await;
}

/// An HTTPS listener with a certificate of its own, a backend for which a policy requires TLS, and a host of another
/// listener.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_presents_its_own_certificate() {
    let Some(bench) = Bench::start(3).await else { return };
    bench.answered(bench.door(0, 8080), "shop.localhost", "/", 200).await;
    let (first, first_certificate) = secret("shop", "first", "shop.localhost");
    let (second, second_certificate) = secret("shop", "second", "other.localhost");
    bench.apply(&format!("{first}\n---\n{second}")).await;
    let listeners = r#"{"spec":{"listeners":[
        {"name":"http","port":8080,"protocol":"HTTP"},
        {"name":"shop","port":8443,"protocol":"HTTPS","hostname":"shop.localhost","tls":{"certificateRefs":[{"name":"first"}]}},
        {"name":"other","port":8443,"protocol":"HTTPS","hostname":"other.localhost","tls":{"certificateRefs":[{"name":"second"}]}},
        {"name":"broken","port":8444,"protocol":"HTTPS","tls":{"certificateRefs":[{"name":"none"}]}}]}}"#;
    bench.patch("gateway/edge", listeners).await;
    let door = bench.door(0, 8443);
    for (host, certificate) in [("shop.localhost", &first_certificate), ("other.localhost", &second_certificate)] {
        eventually(&format!("the certificate of {host}"), || async {
            let shown = certificate_of(door, host).await?;
            if shown == *certificate { Ok(()) } else { Err("another certificate".to_owned()) }
        })
        .await;
    }
    let answer = https(door, "shop.localhost", "/", true).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    bench.answered(bench.door(0, 8080), "shop.localhost", "/", 200).await;
    let programmed = "{.status.listeners[*].conditions[?(@.type=='Programmed')].status}";
    bench.said("gateway/edge", programmed, "True True True False").await;

    // A guard that cannot be read closes its own listeners, and no other.
    bench.patch(
        "gateway/edge",
        r#"{"spec":{"tls":{"frontend":{"default":{"validation":{"caCertificateRefs":[{"group":"","kind":"ConfigMap","name":"none"}]}}}}}}"#,
    )
    .await;
    bench.said("gateway/edge", programmed, "True False False False").await;
    eventually("no handshake", || async {
        match https(door, "shop.localhost", "/", false).await {
            Ok(answer) => Err(format!("{answer:?}")),
            Err(_) => Ok(()),
        }
    })
    .await;
    bench.answered(bench.door(0, 8080), "shop.localhost", "/", 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_apply_and_backend_tls_policies_are_never_bypassed() {
    let Some(bench) = Bench::start(4).await else { return };
    let door = bench.door(0, 8080);
    bench.answered(door, "shop.localhost", "/", 200).await;
    let rules = r#"{"spec":{"rules":[{
        "filters":[{"type":"CORS","cors":{"allowOrigins":["https://app.example"],"maxAge":7}}],
        "timeouts":{"request":"5s","backendRequest":"2s"},"retry":{"codes":[503],"attempts":2},
        "backendRefs":[{"name":"shop-v1","port":80}]}]}}"#;
    bench.patch("httproute/shop", rules).await;
    eventually("a preflight is answered", || async {
        let ask = http::Request::options("/").header("host", "shop.localhost").header("origin", "https://app.example");
        let ask = ask.header("access-control-request-method", "GET").body(Empty::new()).unwrap();
        let answer = request(door, ask).await?;
        let header = |name: &str| answer.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let said = (header("access-control-allow-origin"), header("access-control-max-age"));
        if said == (Some("https://app.example".to_owned()), Some("7".to_owned())) {
            Ok(())
        } else {
            Err(format!("{answer:?}"))
        }
    })
    .await;
    // The endpoints do not speak TLS: with the policy no request reaches them, not even in plain text.
    let policy = "apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {namespace: shop, name: tls}\nspec:\n  \
                  targetRefs: [{group: '', kind: Service, name: shop-v1}]\n  \
                  validation: {hostname: shop.test, wellKnownCACertificates: System}\n";
    bench.apply(policy).await;
    bench.answered(door, "shop.localhost", "/", 502).await;
    bench.kubectl.run(&["delete", "-n", "shop", "backendtlspolicy", "tls"]).await;
    bench.answered(door, "shop.localhost", "/", 200).await;
}
