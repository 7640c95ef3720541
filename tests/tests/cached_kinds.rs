//! Kinds that are cached and served although they make no routes, beside an edge and without one.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use tidegate_tests::{
    CacheServer, Dev, Kubectl, Link, Reader, Run, eventually, get, items, same, same_but_for_managers,
};

const SHOP: &str = include_str!("manifests/shop.yaml");
/// The kinds that an edge for Ingresses reads.
const OF_AN_EDGE: [&str; 4] = ["services", "ingresses", "endpointslices", "ingressclasses"];

async fn config_map(cluster: &Kubectl, name: &str, app: &str) {
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{namespace: shop, name: {name}, labels: {{app: {app}}}}}\ndata: {{a: b}}\n"
    );
    cluster.fed(&["apply", "-f", "-"], &text).await;
}

async fn details(admin: std::net::SocketAddr) -> String {
    get(admin, "localhost", "/readyz?verbose").await.unwrap().body
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_without_routing_feeds_an_edge() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(cluster) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let cache = CacheServer::start(&dev.kubeconfig, &[]).await;
    cache.ready().await;
    let served = Reader::of(&cache.url(), &[]).unwrap();
    same(&cluster, &served, &OF_AN_EDGE).await;
    let (code, _, err) = served.tried(&["get", "pods", "-A"]).await;
    assert!(code != Some(0) && err.contains("the server doesn't have a resource type"), "{err}");
    let (code, _, err) = served.tried(&["delete", "svc", "-n", "shop", "web"]).await;
    assert!(code != Some(0) && err.contains("MethodNotAllowed"), "{err}");

    let edge = Run::fed_by(&cache.url(), &["--https", "off"]).await;
    edge.ready().await;
    edge.answers("shop.test", 200).await;
    let ingress = SHOP.split("---").find(|document| document.contains("kind: Ingress")).unwrap();
    let other = ingress.replace("shop-ingress", "other").replace("shop.test", "other.test");
    cluster.fed(&["create", "-f", "-"], &other).await;
    edge.answers("other.test", 200).await;
    cluster.run(&["delete", "ing", "-n", "shop", "other"]).await;
    edge.answers("other.test", 404).await;
    same(&cluster, &served, &OF_AN_EDGE).await;
    let metrics = get(cache.admin, "localhost", "/metrics").await.unwrap().body;
    assert!(metrics.contains("tidegate_served_objects{kind=\"ingresses.networking.k8s.io\"} 1"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_kinds_are_served_after_a_restart_without_the_cluster() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(cluster) = Kubectl::for_config(&dev.kubeconfig) else { return };
    for (name, app) in [("one", "shop"), ("two", "shop"), ("other", "blog")] {
        config_map(&cluster, name, app).await;
    }
    let mut link = Link::to(&dev.kubeconfig).await;
    let kubeconfig = link.kubeconfig(&dev.kubeconfig);
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--https",
        "off",
        "--serve-api",
        "127.0.0.1:0",
        "--cache-dir",
        folder.path().to_str().unwrap(),
        "--cache-write-after",
        "50ms",
        "--cache-kinds",
        "namespaces,configmaps,deployments.apps,widgets",
        "--cache-selector",
        "configmaps:app=shop",
    ];
    let mut run = Run::start(&kubeconfig, &arguments).await;
    run.ready().await;
    let reader = |run: &Run| Reader::of(&format!("http://{}", run.api.clone().unwrap()), &[]).unwrap();
    let served = reader(&run);
    same(&cluster, &served, &["namespaces", "deployments", "services"]).await;
    let names = ["get", "cm", "-A", "-o", "name"];
    assert_eq!(served.run(&names).await, "configmap/one\nconfigmap/two\n", "what the selector leaves");
    assert!(served.run(&["get", "deploy", "-n", "shop"]).await.contains("READY"), "a table as the cluster has it");
    eventually("a kind that is not there is said to be so", || async {
        let text = details(run.admin).await;
        let told = text.contains("cached widgets: absent") && text.contains("cached configmaps: current");
        if told { Ok(()) } else { Err(text) }
    })
    .await;
    let version = served.run(&["get", "cm", "-A", "-o", "jsonpath={.metadata.resourceVersion}"]).await;
    run.signal("-TERM").await;
    run.child.wait().await.unwrap();

    link.cut();
    let run = Run::start(&kubeconfig, &arguments).await;
    run.ready().await;
    let served = reader(&run);
    assert_eq!(served.run(&names).await, "configmap/one\nconfigmap/two\n", "stale, and not empty");
    assert_eq!(served.run(&["get", "cm", "-A", "-o", "jsonpath={.metadata.resourceVersion}"]).await, version);
    assert!(details(run.admin).await.contains("cached configmaps: stale, as of 2"), "{}", details(run.admin).await);
    let stale_since = "tidegate_cached_kind_stale_since_timestamp_seconds{kind=\"configmaps\"} ";
    let metrics = run.metrics().await;
    assert!(metrics.contains(&format!("{stale_since}1")), "seconds of this century: {metrics}");
    config_map(&cluster, "three", "shop").await;
    config_map(&cluster, "two", "blog").await;
    cluster.run(&["delete", "cm", "-n", "shop", "one"]).await;
    link.mend();
    eventually("what happened meanwhile", || async {
        let text = served.run(&names).await;
        if text == "configmap/three\n" { Ok(()) } else { Err(text) }
    })
    .await;
    same_but_for_managers(&cluster, &served, &["namespaces", "deployments", "services"]).await;
    eventually("all of it is current", || async {
        let text = details(run.admin).await;
        if text.contains("stale") { Err(text) } else { Ok(()) }
    })
    .await;
    assert!(run.metrics().await.contains(&format!("{stale_since}0")), "it is current");
    run.answers("shop.test", 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undefined_kind_does_not_delay_a_cache_during_an_outage() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let link = Link::to(&dev.kubeconfig).await;
    let kubeconfig = link.kubeconfig(&dev.kubeconfig);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let arguments = ["--cache-kinds", "services,widgets", "--cache-dir", folder, "--cache-write-after", "50ms"];
    let cache = CacheServer::start(&kubeconfig, &arguments).await;
    cache.ready().await;
    assert!(details(cache.admin).await.contains("cached widgets: absent"));
    cache.end().await;
    link.cut();
    let cache = CacheServer::start(&kubeconfig, &arguments).await;
    cache.ready().await;
    let text = details(cache.admin).await;
    assert!(
        text.contains("cached services: stale, as of 2") && text.contains("cached widgets: not listed yet"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_is_served_while_its_definition_exists() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(cluster) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let kind = "httproutes.gateway.networking.k8s.io";
    let route = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {namespace: shop, name: web}\n\
                 spec: {hostnames: [web.test]}\n";
    eventually("its definition is served", || async {
        let (code, _, err) = cluster.tried(&["apply", "-f", "-"], route).await;
        if code == Some(0) { Ok(()) } else { Err(err) }
    })
    .await;
    let cache = CacheServer::start(&dev.kubeconfig, &["--cache-kinds", kind]).await;
    cache.ready().await;
    let served = Reader::of(&cache.url(), &[]).unwrap();
    same(&cluster, &served, &[kind]).await;
    let definition = cluster.run(&["get", "crd", kind, "-o", "json"]).await;
    cluster.run(&["delete", "crd", kind]).await;
    eventually("the kind is not served", || async {
        let (code, out, err) = served.tried(&["get", kind, "-A", "-o", "name"]).await;
        if code != Some(0) && err.contains("the server doesn't have a resource type") {
            Ok(())
        } else {
            Err(out + &err)
        }
    })
    .await;
    let mut definition: serde_json::Value = serde_json::from_str(&definition).unwrap();
    definition["metadata"].as_object_mut().unwrap().retain(|name, _| ["name", "annotations"].contains(&name.as_str()));
    definition.as_object_mut().unwrap().remove("status");
    cluster.fed(&["create", "-f", "-"], &definition.to_string()).await;
    eventually("the kind is there again", || async {
        let (_, _, err) = cluster.tried(&["apply", "-f", "-"], route).await;
        let (code, out, _) = served.tried(&["get", kind, "-A", "-o", "json"]).await;
        if code == Some(0) && items(&out).len() == 1 { Ok(()) } else { Err(out + &err) }
    })
    .await;
    same(&cluster, &served, &[kind]).await;
}

/// A definition of a kind, and this number of its objects.
fn custom(plural: &str, group: &str, kind: &str, objects: usize) -> (String, String) {
    let version = "{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}";
    let definition = format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {plural}.{group}}}\n\
         spec: {{group: {group}, scope: Namespaced, names: {{plural: {plural}, kind: {kind}}}, versions: [{version}]}}\n"
    );
    let object =
        |nth| format!("apiVersion: {group}/v1\nkind: {kind}\nmetadata: {{namespace: shop, name: o{nth}}}\n---\n");
    (definition, (0..objects).map(object).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_distinguish_kinds_of_one_name_by_group() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(cluster) = Kubectl::for_config(&dev.kubeconfig) else { return };
    // Two kinds with the same name and plural, and one with the name and plural of a kind that routing reads.
    let kinds = [("gadgets", "one.example", "Gadget", 1), ("gadgets", "two.example", "Gadget", 2)];
    for (plural, group, kind, objects) in kinds.into_iter().chain([("ingresses", "two.example", "Ingress", 3)]) {
        let (definition, objects) = custom(plural, group, kind, objects);
        cluster.fed(&["create", "-f", "-"], &definition).await;
        eventually("its definition is served", || async {
            let (code, _, err) = cluster.tried(&["apply", "-f", "-"], &objects).await;
            if code == Some(0) { Ok(()) } else { Err(err) }
        })
        .await;
    }
    let named = "gadgets.one.example,gadgets.two.example,ingresses.two.example,configmaps";
    let more = ["--https", "off", "--serve-api", "127.0.0.1:0", "--cache-kinds", named];
    let run = Run::start(&dev.kubeconfig, &more).await;
    run.ready().await;
    for (kind, objects) in
        [("gadgets.one.example", 1), ("gadgets.two.example", 2), ("ingresses.two.example", 3), ("Ingress", 1)]
    {
        eventually(&format!("the figures of {kind}"), || async {
            let metrics = run.metrics().await;
            let served = format!("tidegate_served_objects{{kind=\"{kind}\"}} {objects}");
            let listed = format!("tidegate_listed_objects{{kind=\"{kind}\",namespace=\"\"}} {objects}");
            if [served, listed].iter().all(|series| metrics.lines().any(|line| line == series)) {
                Ok(())
            } else {
                Err(metrics)
            }
        })
        .await;
    }
    let metrics = run.metrics().await;
    assert!(metrics.contains("tidegate_watch_connected{kind=\"configmaps\",namespace=\"\"} 1"), "{metrics}");
    assert!(!metrics.contains("kind=\"Gadget\""), "{metrics}");
}
