//! The edge's own pages: no endpoint leads to them.

use super::bed::{Dev, app, eventually, get, ingress};

#[test]
fn no_endpoint_leads_to_the_edges_own_pages() {
    let dev = Dev::start(&[("app.yaml", app(1)), ("ingress.yaml", ingress("a.localhost"))]);
    let admin = dev.place("health ");
    let port = admin.trim_start_matches("http://").split('/').next().unwrap().rsplit_once(':').unwrap().1.to_owned();
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let other = held.local_addr().unwrap().port();
    // A Service without a selector, whose endpoints somebody writes by hand.
    let slice = |name: &str, port: &str| {
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
endpoints: [{{addresses: [127.0.0.1]}}]
---
{}",
            ingress(&format!("{name}.localhost")).replace("name: app", &format!("name: {name}"))
        )
    };
    dev.write("slices.yaml", &format!("{}---\n{}", slice("mine", &port), slice("other", &other.to_string())));
    let leads_to = |name: &str, port: &str| {
        let explained = dev.explain(&format!("http://{name}.localhost/"));
        String::from_utf8(explained.stdout).unwrap().contains(&format!("127.0.0.1:{port}"))
    };
    eventually("another port is led to", || leads_to("other", &other.to_string()));
    let debug = dev.place("debug ");
    let debug = debug.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    eventually("the owner of the slice is told", || {
        get(&debug, "localhost", "/debug/findings").1.contains("it is a socket of the edge itself")
    });
    assert!(!leads_to("mine", &port));
    assert_eq!(dev.get("mine.localhost", "/metrics").0, 503);
}
