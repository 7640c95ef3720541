//! The served API with the readers of controllers, unmodified: informers of client-go and reflectors of kube-rs, each
//! with lists and watches and with streaming lists. Each holds the objects of the cluster, object by object, whatever
//! happens in between.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
use tidegate_tests::{Dev, Informers, Kubectl, Link, Run, eventually, get, items, plain};

const SHOP: &str = include_str!("manifests/shop.yaml");
const RESOURCES: [&str; 4] = [
    "v1/services",
    "networking.k8s.io/v1/ingresses",
    "networking.k8s.io/v1/ingressclasses",
    "discovery.k8s.io/v1/endpointslices",
];

/// Every object of the cluster, in the form of the clients.
async fn objects(cluster: &Kubectl) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for resource in RESOURCES {
        let plural = resource.rsplit('/').next().unwrap();
        for object in items(&cluster.run(&["get", plural, "-A", "-o", "json", "--show-managed-fields"]).await) {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            all.insert(format!("{plural} {}/{}", text("namespace"), text("name")), plain(object));
        }
    }
    all
}

/// Waits until each client holds exactly these objects.
async fn all_hold(clients: &mut [Informers], when: &str, want: &BTreeMap<String, Value>) {
    for client in clients {
        let name = client.name;
        let client = tokio::sync::Mutex::new(client);
        let held = eventually(&format!("{name}: what the cluster holds, {when}"), || async {
            let held = client.lock().await.held().await;
            let other: Vec<_> = want.keys().chain(held.objects.keys()).collect();
            let other: Vec<_> =
                other.into_iter().filter(|key| want.get(*key) != held.objects.get(*key)).take(5).collect();
            if held.synced && other.is_empty() { Ok(held) } else { Err(format!("{other:?}: {:?}", held.events)) }
        })
        .await;
        assert_eq!(held.faults, serde_json::json!([]), "{name}, {when}: {}", held.events);
    }
}

/// Services without pods.
fn services(names: impl Iterator<Item = u32>) -> String {
    names.fold(String::new(), |mut text, number| {
        write!(text, "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: s{number}}}\nspec: {{ports: [{{port: 80}}]}}\n---\n").unwrap();
        text
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn informers_and_reflectors_hold_the_objects_of_the_cluster() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(cluster) = Kubectl::for_config(&dev.kubeconfig) else { return };
    // More than a page of client-go and of kube-rs.
    cluster.fed(&["create", "-f", "-"], &services(0..600)).await;
    let mut upstream = Link::to(&dev.kubeconfig).await;
    let kubeconfig = upstream.kubeconfig(&dev.kubeconfig);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let with_api = async |address: &str| {
        let more = ["--https", "off", "--serve-api", address, "--cache-dir", folder, "--cache-write-after", "50ms"];
        let run = Run::start(&kubeconfig, &more).await;
        run.ready().await;
        run
    };
    let mut run = with_api("127.0.0.1:0").await;
    let api: SocketAddr = run.api.clone().unwrap().parse().unwrap();
    let mut door = Link::between((Ipv6Addr::LOCALHOST, api.port()).into(), api).await;
    let server = format!("http://[::1]:{}", api.port());
    let Some(mut clients) = Informers::start_all(&server, &RESOURCES) else { return };
    all_hold(&mut clients, "at first", &objects(&cluster).await).await;

    let change = async |round: &str| {
        let annotation = format!("round={round}");
        cluster.run(&["annotate", "svc", "-n", "shop", "--overwrite", "web", "s1", "s2", &annotation]).await;
        let ingress = SHOP.split("---").find(|document| document.contains("kind: Ingress")).unwrap();
        cluster.fed(&["create", "-f", "-"], &ingress.replace("shop-ingress", round).replace("shop.test", round)).await;
        cluster.run(&["delete", "svc", "-n", "shop", &format!("s{}", round.len() + 10)]).await;
        // Deleted and created again, as another object.
        cluster.run(&["delete", "svc", "-n", "shop", "s0"]).await;
        cluster.fed(&["create", "-f", "-"], &services(0..1)).await;
    };
    change("live").await;
    all_hold(&mut clients, "after changes", &objects(&cluster).await).await;

    upstream.cut();
    change("apart").await;
    upstream.mend();
    all_hold(&mut clients, "after the cluster was away", &objects(&cluster).await).await;

    // The clients lose the server, which restarts without the cluster.
    let before = objects(&cluster).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    door.cut();
    upstream.cut();
    run.signal("-KILL").await;
    run.child.wait().await.unwrap();
    change("restarted").await;
    let mut run = with_api(&api.to_string()).await;
    door.mend();
    all_hold(&mut clients, "after a restart without the cluster", &before).await;
    upstream.mend();
    all_hold(&mut clients, "after the cluster came back", &objects(&cluster).await).await;

    // Changes that they do not see, and for which a new process has no events: their versions are too old, and they
    // list again.
    door.cut();
    change("unseen").await;
    eventually("it has the last change", || async {
        let path = "/apis/networking.k8s.io/v1/namespaces/shop/ingresses/unseen";
        let answer = get(api, &api.to_string(), path).await?;
        if answer.status == 200 { Ok(()) } else { Err(answer.status.to_string()) }
    })
    .await;
    run.signal("-TERM").await;
    run.child.wait().await.unwrap();
    let _run = with_api(&api.to_string()).await;
    door.mend();
    all_hold(&mut clients, "after changes that they did not see", &objects(&cluster).await).await;
    for client in &mut clients {
        let events = client.held().await.events;
        println!("{}: {events}", client.name);
        let lists = events["init"].as_u64();
        assert!(lists.is_none_or(|lists| lists > RESOURCES.len() as u64), "{}: no list was made again", client.name);
    }
}
