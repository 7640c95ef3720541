//! The admin pages of the edge: no endpoint leads to them, and no web page can send commands to them.

use std::process::Stdio;

use super::bed::{Dev, app, eventually, get, ingress};

/// A Service without a selector whose endpoint is written by hand, and an Ingress that leads to it.
fn slice(name: &str, address: &str, port: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{ports: [{{port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{port: {port}}}]
endpoints: [{{addresses: [{address}]}}]
---
{}",
        ingress(&format!("{name}.localhost")).replace("name: app", &format!("name: {name}"))
    )
}

/// Checks that no endpoint leads to another address with the port of health, which listens on one address.
#[track_caller]
fn check(listening: &str, endpoint: &str) {
    let files = [("app.yaml", app(1)), ("ingress.yaml", ingress("a.localhost"))];
    let dev = Dev::with(&files, &["--admin", listening], Stdio::piped());
    let admin = dev.page("health ");
    let port = admin.rsplit_once(':').unwrap().1;
    let held = std::net::TcpListener::bind((endpoint, 0)).unwrap();
    let other = held.local_addr().unwrap().port().to_string();
    dev.write("slices.yaml", &format!("{}---\n{}", slice("mine", endpoint, port), slice("other", endpoint, &other)));
    let leads_to = |name: &str, port: &str| {
        let explained = dev.explain(&format!("http://{name}.localhost/"));
        String::from_utf8(explained.stdout).unwrap().contains(&format!("{endpoint}:{port}"))
    };
    eventually("another port is led to", || leads_to("other", &other));
    eventually("the owner of the slice is told", || {
        get(&dev.page("debug "), "localhost", "/debug/findings").1.contains("it is a socket of the edge itself")
    });
    assert!(!leads_to("mine", port), "{endpoint} beside {listening}");
    assert_eq!(dev.get("mine.localhost", "/metrics").0, 503, "{endpoint} beside {listening}");
}

#[test]
fn no_endpoint_leads_to_the_admin_pages() {
    check("127.0.0.1:0", "127.0.0.1");
    check("0.0.0.0:0", "127.0.0.2");
}

#[test]
fn commands_with_an_origin_are_refused() {
    let dev = Dev::start(&[("app.yaml", app(1)), ("ingress.yaml", ingress("a.localhost"))]);
    let json = "Content-Type: application/json\r\nConnection: close\r\n";
    for origin in ["http://evil.example", "http://localhost:9181", "null", ""] {
        let answer = dev.post("/debug/freeze", &format!("{json}Origin: {origin}\r\n"));
        assert!(answer.starts_with("HTTP/1.1 403"), "{origin:?}: {answer}");
        assert!(
            answer.contains("\r\ncontent-type: text/plain") && answer.contains("without an Origin header"),
            "{answer}"
        );
        assert!(!dev.says(&["history"], 0).contains("Held by an operator"), "{origin:?}");
    }
    let answer = dev.post("/debug/freeze", json);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
