//! The embedded API server answers every patch, apply, selector and path, and never with 500. The first byte says what the others are.

#![no_main]

use std::cell::RefCell;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tidegate_lite::{Lite, LiteService};
use tokio::runtime::Runtime;
use tower::Service as _;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| SERVER.with_borrow_mut(|server| server.take(bytes)));

thread_local! {
    static SERVER: RefCell<Server> = RefCell::new(Server::new());
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const RULED: &str = "/apis/example.com/v1/namespaces/default/ruleds";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A server with an object of each of some kinds, which requests leave as they are (`dryRun`).
struct Server {
    service: LiteService,
    runtime: Runtime,
}

impl Server {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut server = Self { service: Lite::new().service(), runtime };
        let pod = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "echo", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "b"}]}]},
        });
        let deployment = json!({
            "metadata": {"name": "web", "labels": {"app": "web"}},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": pod},
        });
        let service = json!({
            "metadata": {"name": "web", "finalizers": ["example.com/kept"]},
            "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}]},
        });
        let ruled = json!({"apiVersion": "example.com/v1", "kind": "Ruled", "metadata": {"name": "web"}, "spec": {"ports": [{"name": "a", "port": 1}]}});
        for (path, object) in
            [(DEFINITIONS, definition()), (DEPLOYMENTS, deployment), (SERVICES, service), (RULED, ruled)]
        {
            let status = server.ask(Method::POST, path, "application/json", object.to_string().into_bytes());
            assert_eq!(status, Some(201), "{path}");
        }
        server
    }

    fn take(&mut self, bytes: &[u8]) {
        let Some((&choice, rest)) = bytes.split_first() else { return };
        let path = [DEPLOYMENTS, SERVICES, RULED][usize::from(choice / 16) % 3];
        let text = || form_urlencoded::byte_serialize(rest).collect::<String>();
        let patch = |media: &'static str, more: &str| (Method::PATCH, format!("{path}/web?dryRun=All{more}"), media);
        let (method, target, media) = match choice % 16 {
            0 => patch("application/json-patch+json", ""),
            1 => patch("application/merge-patch+json", ""),
            2 => patch("application/strategic-merge-patch+json", ""),
            3 => patch("application/apply-patch+yaml", "&fieldManager=one"),
            4 => patch("application/apply-patch+yaml", "&fieldManager=two&force=true"),
            5 => (Method::PUT, format!("{path}/web?dryRun=All"), "application/json"),
            6 => (Method::POST, format!("{path}?dryRun=All"), "application/json"),
            7 => (Method::POST, format!("{path}?dryRun=All"), "application/vnd.kubernetes.protobuf"),
            8 => (Method::POST, format!("{DEFINITIONS}?dryRun=All"), "application/json"),
            9 => (Method::GET, format!("{path}?labelSelector={}", text()), ""),
            10 => (Method::GET, format!("{path}?fieldSelector={}", text()), ""),
            11 => (Method::GET, format!("{path}?limit=1&continue={}", text()), ""),
            12 => (Method::GET, format!("{path}?{}", String::from_utf8_lossy(rest)), ""),
            _ => (Method::GET, format!("/{}", String::from_utf8_lossy(rest)), ""),
        };
        // A watch lasts, and a read of a version to come waits.
        if !target.contains("watch") && !target.contains("resourceVersion") {
            self.ask(method, &target, media, if media.is_empty() { Vec::new() } else { rest.to_vec() });
        }
    }

    /// The status of the answer; `None` for a target that HTTP does not have.
    fn ask(&mut self, method: Method, target: &str, media: &str, body: Vec<u8>) -> Option<u16> {
        let request = Request::builder().method(method).uri(target).header("content-type", media);
        let request = request.body(Full::new(Bytes::from(body))).ok()?;
        let Self { service, runtime } = self;
        let (status, body) = runtime.block_on(async {
            let response = service.call(request).await.expect("an answer");
            (response.status().as_u16(), response.into_body().collect().await.expect("a whole body").to_bytes())
        });
        assert!(status < 500, "{status} {}", String::from_utf8_lossy(&body));
        Some(status)
    }
}

/// A kind with a rule, a default, and a list that is a map.
fn definition() -> Value {
    let port = json!({
        "type": "object", "required": ["name"],
        "properties": {"name": {"type": "string", "maxLength": 20}, "port": {"type": "integer", "default": 80}},
    });
    let ports = json!({
        "type": "array", "maxItems": 10, "items": port,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "x-kubernetes-validations": [{"rule": "self.all(one, one.port > 0 && one.name.matches('^[a-z]+$'))"}],
    });
    let spec = json!({"type": "object", "properties": {"ports": ports, "any": {"x-kubernetes-preserve-unknown-fields": true}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "ruleds.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "ruleds", "singular": "ruled", "kind": "Ruled"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}
