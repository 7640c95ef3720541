//! Every request is answered: objects and patches with parts replaced at random.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "tests")]

use bytes::Bytes;
use fastrand::Rng;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tidegate_lite::{Lite, LiteService};
use tower::Service as _;

/// The number of rounds; twenty thousand have passed once, and this many are quick enough for every run.
const ROUNDS: usize = 3_000;

fn seeds() -> Vec<(&'static str, Value)> {
    let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1}], "env": [{"name": "A"}]}]}});
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    vec![
        ("/api/v1/namespaces", json!({"metadata": {"name": "n", "labels": {"a": "b"}}})),
        (
            "/api/v1/namespaces/default/services",
            json!({"metadata": {"name": "n", "finalizers": ["a/b"]}, "spec": {"type": "NodePort", "ports": [{"port": 80, "targetPort": "x", "nodePort": 30000}], "selector": {"a": "b"}}}),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            json!({"metadata": {"name": "n"}, "data": {"a": "eA=="}, "stringData": {"b": "x"}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"metadata": {"name": "n", "ownerReferences": [{"uid": "u"}]}, "spec": {"replicas": 1, "strategy": {"type": "RollingUpdate"}, "selector": {"matchLabels": {"a": "b"}, "matchExpressions": []}, "template": pod}}),
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
            json!({"metadata": {"name": "n"}, "spec": {"defaultBackend": backend, "tls": [{"hosts": ["a.b"]}], "rules": [{"host": "a.b", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]}}),
        ),
        (
            "/apis/networking.k8s.io/v1/ingressclasses",
            json!({"metadata": {"name": "n"}, "spec": {"controller": "a.b/c"}}),
        ),
        (
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            json!({"metadata": {"name": "n"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 1}]}),
        ),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition()),
        (
            "/apis/example.com/v1/namespaces/default/ns",
            json!({"kind": "N", "metadata": {"name": "n"}, "spec": {"count": 1, "list": [{"name": "a", "port": 1}], "map": {"a": "b"}, "any": {"a": [1]}}}),
        ),
    ]
}

/// The definition of a kind that the other seeds have an object of.
fn definition() -> Value {
    let item = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "port": {"type": "integer", "default": 80}}});
    let spec = json!({"type": "object", "properties": {
        "count": {"type": "integer", "format": "int32", "minimum": 0, "default": 1},
        "list": {"type": "array", "maxItems": 4, "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        "map": {"type": "object", "additionalProperties": {"type": "string", "pattern": "^[a-z]*$"}},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
    }});
    json!({
        "metadata": {"name": "ns.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "ns", "kind": "N"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    })
}

fn junk(rng: &mut Rng) -> Value {
    match rng.u8(..12) {
        0 => Value::Null,
        1 => json!([]),
        2 => json!({}),
        3 => json!(""),
        4 => json!(-1),
        5 => json!(u64::MAX),
        6 => json!(1.5),
        7 => json!([null, {}, "x", 0]),
        8 => json!({"$patch": "delete"}),
        9 => json!({"": null, "name": {}, "key": []}),
        10 => json!("\u{0}\u{fffd}é%2f../"),
        _ => json!(true),
    }
}

/// Replaces a value somewhere below, or adds one beside.
fn spoil(value: &mut Value, rng: &mut Rng) {
    let here = rng.u8(..4) == 0;
    match value {
        Value::Object(map) if !here && !map.is_empty() => {
            if rng.u8(..8) == 0 {
                let key = [
                    "$patch",
                    "$retainKeys",
                    "$setElementOrder/ports",
                    "$deleteFromPrimitiveList/finalizers",
                    "x",
                    "status",
                    "deletionTimestamp",
                ];
                map.insert(key[rng.usize(..key.len())].to_owned(), junk(rng));
            }
            let nth = rng.usize(..map.len());
            if let Some(below) = map.values_mut().nth(nth) {
                spoil(below, rng);
            }
        }
        Value::Array(list) if !here && !list.is_empty() => {
            let nth = rng.usize(..list.len());
            spoil(&mut list[nth], rng);
        }
        other => *other = junk(rng),
    }
}

/// A JSON patch whose operations name places in an object, or near them.
fn operations(object: &Value, rng: &mut Rng) -> Value {
    let place = |rng: &mut Rng| {
        let (mut at, mut pointer) = (object, String::new());
        while rng.u8(..5) > 0 {
            let (step, below) = match at {
                Value::Object(map) if !map.is_empty() => {
                    let (key, below) = map.iter().nth(rng.usize(..map.len())).unwrap();
                    (key.replace('~', "~0").replace('/', "~1"), below)
                }
                Value::Array(list) if !list.is_empty() => {
                    let nth = rng.usize(..list.len());
                    (nth.to_string(), &list[nth])
                }
                _ => break,
            };
            pointer = format!("{pointer}/{step}");
            at = below;
        }
        match rng.u8(..10) {
            0 => format!("{pointer}/-"),
            1 => format!("{pointer}/x~2"),
            2 => pointer.trim_start_matches('/').to_owned(),
            _ => pointer,
        }
    };
    let operation = |rng: &mut Rng| {
        let names = ["add", "remove", "replace", "move", "copy", "test", "nothing"];
        let mut one =
            json!({"op": names[rng.usize(..names.len())], "path": place(rng), "from": place(rng), "value": junk(rng)});
        if rng.u8(..12) == 0 {
            spoil(&mut one, rng);
        }
        one
    };
    let count = rng.usize(..4);
    (0..count).map(|_| operation(rng)).collect()
}

async fn ask(service: &mut LiteService, method: Method, path: &str, content_type: &str, body: Vec<u8>) -> u16 {
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let response = service.call(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    // A read of a future version waits in vain.
    let early = code == 504 && answer["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge";
    assert!((code < 500 || early) && answer.is_object(), "{path}: {code} {answer}");
    code
}

#[tokio::test]
async fn nonsense_is_answered() {
    let seed = 7;
    let mut rng = Rng::with_seed(seed);
    let mut service = Lite::new().service();
    let seeds = seeds();
    // Requests for custom objects need their kind, which other requests delete.
    let definitions = seeds[seeds.len() - 2].0;
    let (mut taken, mut refused) = (0, 0);
    for round in 0..ROUNDS {
        let (path, good) = &seeds[round % seeds.len()];
        ask(&mut service, Method::POST, definitions, "application/json", definition().to_string().into_bytes()).await;
        let one = format!("{path}/{}", good["metadata"]["name"].as_str().unwrap_or_default());
        ask(&mut service, Method::POST, path, "application/json", good.to_string().into_bytes()).await;
        let mut bad = good.clone();
        (0..=rng.usize(..3)).for_each(|_| spoil(&mut bad, &mut rng));
        let (method, path, media) = match rng.u8(..9) {
            0 => (Method::POST, path.to_string(), "application/json"),
            1 => (Method::PUT, one, "application/json"),
            2 => (Method::PATCH, one, "application/merge-patch+json"),
            3 => (Method::PATCH, one, "application/strategic-merge-patch+json"),
            4 => (Method::PATCH, format!("{one}/status"), "application/merge-patch+json"),
            5 => (Method::PATCH, format!("{one}?fieldManager=one"), "application/apply-patch+yaml"),
            6 => (Method::PATCH, format!("{one}?fieldManager=two&force=true"), "application/apply-patch+yaml"),
            7 => {
                bad = operations(&bad, &mut rng);
                (Method::PATCH, one, "application/json-patch+json")
            }
            _ => (Method::DELETE, one, "application/json"),
        };
        let code = ask(&mut service, method, &path, media, bad.to_string().into_bytes()).await;
        if code < 300 { taken += 1 } else { refused += 1 }
    }
    assert!(taken > ROUNDS / 20 && refused > ROUNDS / 20, "{taken} taken, {refused} refused");
}

#[tokio::test]
async fn noise_in_place_of_protobuf_is_answered() {
    let mut rng = Rng::with_seed(11);
    let paths: Vec<&str> = seeds().into_iter().map(|(path, _)| path).collect();
    let mut service = Lite::new().service();
    for round in 0..ROUNDS {
        let path = paths[round % paths.len()];
        let mut body = b"k8s\0".to_vec();
        body.extend((0..rng.usize(..40)).map(|_| rng.u8(..32)));
        ask(&mut service, Method::POST, path, "application/vnd.kubernetes.protobuf", body).await;
    }
}

/// Parts of selectors and of other parameters, valid ones and broken ones.
const PARTS: &[&str] = &[
    "labelSelector",
    "fieldSelector",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "watch",
    "=",
    "==",
    "!=",
    "!",
    ",",
    " in ",
    " notin ",
    "(",
    ")",
    "a",
    "a.b/c",
    "metadata.name",
    "spec.type",
    "1",
    "-1",
    "99999999999999999999",
    "Exact",
    "NotOlderThan",
    "%",
    "%00",
    "%C3%28",
    "%2F",
    "&",
    "?",
    "/",
    "//",
    "..",
    "é",
    "true",
    "sendInitialEvents",
    "timeoutSeconds",
    "dryRun",
    "All",
    "fieldManager",
    "force",
    "pretty",
    "%F0%9F%A6%80",
];

#[tokio::test(start_paused = true)]
async fn nonsense_in_paths_and_queries_is_answered() {
    let mut rng = Rng::with_seed(13);
    let mut service = Lite::new().service();
    let seeds = seeds();
    for (path, good) in &seeds {
        ask(&mut service, Method::POST, path, "application/json", good.to_string().into_bytes()).await;
    }
    let (mut taken, mut refused) = (0, 0);
    for round in 0..ROUNDS {
        let part = |rng: &mut Rng| PARTS[rng.usize(..PARTS.len())];
        let (path, _) = &seeds[round % seeds.len()];
        let mut target = (*path).to_owned();
        if rng.u8(..4) == 0 {
            (0..=rng.usize(..3)).for_each(|_| target.push_str(part(&mut rng)));
        }
        target.push('?');
        let selector = ["labelSelector=", "fieldSelector=", "continue=", "resourceVersion=", ""];
        target.push_str(selector[rng.usize(..selector.len())]);
        // A watch would last for minutes.
        (0..rng.usize(..8)).for_each(|_| target.push_str(&part(&mut rng).replace("watch", "w")));
        let Ok(uri) = target.replace(' ', "%20").replace('é', "%C3%A9").parse::<http::Uri>() else { continue };
        let method = if rng.u8(..8) == 0 { Method::DELETE } else { Method::GET };
        let code = ask(&mut service, method, &uri.to_string(), "application/json", Vec::new()).await;
        if code < 300 { taken += 1 } else { refused += 1 }
    }
    assert!(taken > ROUNDS / 20 && refused > ROUNDS / 20, "{taken} taken, {refused} refused");
}
