//! The Ingresses of `examples/`, and the output of ingress2gateway
//! (<https://github.com/kubernetes-sigs/ingress2gateway>) for them: both respond to the same requests in the same way.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

const INGRESSES: [(&str, &str); 2] = [
    ("shop.yaml", include_str!("../../../examples/shop.yaml")),
    ("chat.yaml", include_str!("../../../examples/chat.yaml")),
];

/// The port in place of port 80, which is privileged.
const PORT: u16 = 8080;

/// The rules of one host, for which the tool creates a listener and a route.
struct Host<'i> {
    ingress: &'i str,
    paths: Vec<&'i Value>,
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn documents(texts: &[(&str, &str)]) -> Vec<Value> {
    let read = |(_, text): &(&str, &str)| -> Vec<Value> {
        serde_saphyr::from_multiple_with_options(text, serde_saphyr::Options::default()).unwrap()
    };
    texts.iter().flat_map(read).collect()
}

/// A host as a part of a name: each run of other characters is a `-`. The tool drops the star, so that `*.x` and `x`
/// have the same name and one replaces the other; users with both have to rename one, as is done here.
fn name_of(host: &str) -> String {
    let words = host
        .replace('*', "all")
        .split(|mark: char| !mark.is_ascii_alphanumeric())
        .map(ToOwned::to_owned)
        .collect::<Vec<_>>();
    words.join("-")
}

/// The output of the tool: in each namespace a Gateway named like the class, with a listener for each host of the
/// Ingresses, and a route for each of these, with a rule for each path.
fn converted(objects: &[Value]) -> Vec<Value> {
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| text(object, "/kind") == kind);
    let mut hosts: BTreeMap<(&str, &str, &str), Host<'_>> = BTreeMap::new();
    for ingress in of_kind("Ingress") {
        let (namespace, name) = (text(ingress, "/metadata/namespace"), text(ingress, "/metadata/name"));
        // Ingresses without a class have that of the edge.
        let class =
            Some(text(ingress, "/spec/ingressClassName")).filter(|class| !class.is_empty()).unwrap_or("tidegate");
        for rule in ingress["spec"]["rules"].as_array().into_iter().flatten() {
            let host = hosts.entry((namespace, class, text(rule, "/host")));
            let host = host.or_insert_with(|| Host { ingress: name, paths: Vec::new() });
            host.paths.extend(rule["http"]["paths"].as_array().into_iter().flatten());
        }
    }
    let port = |namespace: &str, service: &Value| {
        let named = text(service, "/port/name");
        let is_meant = |it: &&Value| {
            text(it, "/metadata/namespace") == namespace && text(it, "/metadata/name") == text(service, "/name")
        };
        let ports = of_kind("Service").find(is_meant).and_then(|service| service["spec"]["ports"].as_array());
        let by_name = ports.into_iter().flatten().find(|port| port["name"] == named).map(|port| port["port"].clone());
        by_name.unwrap_or_else(|| service["port"]["number"].clone())
    };
    let mut gateways: BTreeMap<(&str, &str), Vec<Value>> = BTreeMap::new();
    let mut made = Vec::new();
    for ((namespace, class, host), of_host) in &hosts {
        let listener =
            json!({"name": format!("{}-http", name_of(host)), "hostname": host, "port": PORT, "protocol": "HTTP"});
        gateways.entry((namespace, class)).or_default().push(listener);
        let rule = |path: &&Value| {
            let kind = if text(path, "/pathType") == "Exact" { "Exact" } else { "PathPrefix" };
            let service = &path["backend"]["service"];
            json!({"matches": [{"path": {"type": kind, "value": path["path"]}}],
                   "backendRefs": [{"name": service["name"], "port": port(namespace, service)}]})
        };
        let rules: Vec<Value> = of_host.paths.iter().map(rule).collect();
        let name = format!("{}-{}", of_host.ingress, name_of(host));
        made.push(object(
            "HTTPRoute",
            namespace,
            &name,
            &json!({"parentRefs": [{"name": class}], "hostnames": [host], "rules": rules}),
        ));
    }
    for ((namespace, class), listeners) in gateways {
        made.push(object("Gateway", namespace, class, &json!({"gatewayClassName": class, "listeners": listeners})));
    }
    made
}

fn object(kind: &str, namespace: &str, name: &str, spec: &Value) -> Value {
    let metadata = json!({"namespace": namespace, "name": name});
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec})
}

/// A request as seen by a client and an endpoint, without the name of the replica and the port number of the listener.
fn seen(answer: &Answer) -> (u16, String, Vec<String>) {
    let pod = answer.headers.get("x-echo-pod").map_or("", |pod| pod.to_str().unwrap());
    let deployment = pod.rsplitn(3, '-').last().unwrap_or_default().to_owned();
    let varies = |line: &&str| {
        let line = line.to_lowercase();
        ["pod:", "request:", "x-request-id:", "x-forwarded-port:"].iter().any(|name| line.starts_with(name))
    };
    let lines = answer.body.lines().filter(|line| !varies(line)).map(ToOwned::to_owned).collect();
    (answer.status.as_u16(), deployment, lines)
}

const REQUESTS: [(&str, &str, &str); 17] = [
    ("GET", "shop.localhost", "/"),
    ("GET", "shop.localhost", "/cart"),
    ("POST", "shop.localhost", "/cart/7?a=b&c"),
    ("GET", "shop.localhost", "/cart/"),
    ("GET", "shop.localhost", "/cartoon"),
    ("GET", "shop.localhost", "/CART"),
    ("GET", "shop.localhost", "//cart"),
    ("GET", "shop.localhost", "/x/../cart"),
    ("GET", "shop.localhost", "/robots.txt"),
    ("GET", "shop.localhost", "/robots.txt/x"),
    ("DELETE", "SHOP.localhost:80", "/%63art"),
    ("GET", "chat.localhost", "/ws/1"),
    ("GET", "chat.localhost", "/"),
    ("GET", "chat.localhost", "/wsx"),
    ("GET", "room.chat.localhost", "/"),
    ("PUT", "room.chat.localhost", "/any"),
    ("GET", "other.localhost", "/"),
];

async fn ask(door: SocketAddr, (method, host, path): (&str, &str, &str)) -> Result<Answer, String> {
    let asked = http::Request::builder().method(method).uri(path).header("host", host);
    request(door, asked.body(Empty::new()).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn ingresses_and_their_ingress2gateway_output_answer_alike() {
    let id = std::process::id().to_le_bytes();
    let first = Ipv4Addr::new(127, 64 + id[1] % 64, id[0], 8 * 15 + 1);
    let addresses = format!("{first}-{}", Ipv4Addr::from_bits(first.to_bits() + 1));
    let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "tidegate"},
                       "spec": {"controllerName": "tidegate.io/gateway"}});
    let made: Vec<String> = converted(&documents(&INGRESSES)).iter().chain([&class]).map(ToString::to_string).collect();
    let made = made.join("\n---\n");
    let files: Vec<(&str, &str)> = INGRESSES.into_iter().chain([("converted.yaml", &*made)]).collect();
    let dev = Dev::with(&files, &["--gateway-addresses", &addresses]).await;
    // One Gateway in each namespace: the assignment of the two addresses follows from their age.
    let doors = [0, 1].map(|nth| SocketAddr::from((Ipv4Addr::from_bits(first.to_bits() + nth), PORT)));
    let serves = |host: &'static str| async move {
        eventually(&format!("a Gateway serves {host}"), || async move {
            for door in doors {
                if get(door, host, "/ws").await.is_ok_and(|answer| answer.status == 200) {
                    return Ok(door);
                }
            }
            Err("none does".to_owned())
        })
        .await
    };
    let (shop, chat) = (serves("shop.localhost").await, serves("chat.localhost").await);
    for asked in REQUESTS {
        let by_ingress = seen(&ask(dev.http, asked).await.unwrap());
        let door = if asked.1.contains("chat") { chat } else { shop };
        let by_gateway = seen(&ask(door, asked).await.unwrap());
        assert_eq!(by_ingress, by_gateway, "{asked:?}");
        assert!(matches!(by_ingress.0, 200 | 404), "{asked:?}: {by_ingress:?}");
    }
    // The one difference is that of the two APIs: a star of an Ingress matches one label, that of a route one or more.
    let deeper = ("GET", "a.room.chat.localhost", "/");
    assert_eq!(ask(dev.http, deeper).await.unwrap().status, 404);
    assert_eq!(ask(chat, deeper).await.unwrap().status, 200);
}
