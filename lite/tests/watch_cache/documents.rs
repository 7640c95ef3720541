//! OpenAPI and discovery documents for the kinds of a watch cache, of which only the name may be known.

use super::*;

async fn document(client: &Client, path: &str) -> Value {
    client
        .request(http::Request::get(path).body(Vec::new()).unwrap())
        .await
        .unwrap_or_else(|why| panic!("{path}: {why}"))
}

#[tokio::test]
async fn openapi_includes_kinds_without_a_schema() {
    let kinds = [
        kind("", "services", "Service", true),
        kind("", "limitranges", "LimitRange", true),
        kind("gateway.networking.k8s.io", "httproutes", "HTTPRoute", true),
    ];
    let limits =
        WatchCacheLimits { bytes_max: 1 << 20, unconfirmed_removals_share: 0.5, unconfirmed_removals_count: 2 };
    let (lite, _) = Lite::watch_cache(&kinds, limits);
    let client = Client::new(lite.service(), "default");
    let index = document(&client, "/openapi/v3").await;
    let mut found = Vec::new();
    for (_, path) in index["paths"].as_object().unwrap() {
        let document = document(&client, path["serverRelativeURL"].as_str().unwrap()).await;
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            for of in schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
                let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
                found.push(format!(
                    "{} {name}{}",
                    of["kind"].as_str().unwrap(),
                    if open { ", any fields" } else { "" }
                ));
            }
        }
        let merges = document["paths"].to_string().contains("strategic-merge-patch");
        found.push(format!("strategic merge: {merges}"));
    }
    let expected = [
        "Service io.k8s.api.core.v1.Service",
        "LimitRange v1.LimitRange, any fields",
        "strategic merge: true",
        "HTTPRoute io.k8s.networking.gateway.v1.HTTPRoute, any fields",
        "strategic merge: false",
    ];
    assert_eq!(found, expected);
}
