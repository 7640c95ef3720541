//! Edges that read the served API of another process.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn one_edge_feeds_another() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(cluster) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "a-token-that-nobody-guesses\n").unwrap();
    let token = token.to_str().unwrap();
    let first = Run::start(
        &dev.kubeconfig,
        &["--https", "127.0.0.1:0", "--serve-api", "127.0.0.1:0", "--serve-secrets", "--serve-token-file", token],
    )
    .await;
    first.ready().await;
    let url = format!("http://{}", first.api.clone().unwrap());
    let second = Run::fed_by(&url, &["--https", "127.0.0.1:0", "--server-token-file", token]).await;
    second.ready().await;
    second.answers("shop.test", 200).await;
    let ingress = SHOP.split("---").find(|document| document.contains("kind: Ingress")).unwrap();
    let other = ingress.replace("shop-ingress", "other").replace("shop.test", "other.test");
    cluster.fed(&["create", "-f", "-"], &other).await;
    second.answers("other.test", 200).await;
    cluster.run(&["delete", "ing", "-n", "shop", "other"]).await;
    second.answers("other.test", 404).await;
    second.answers("shop.test", 200).await;
    // Without the token every request is refused.
    let refused = get(first.api.clone().unwrap().parse().unwrap(), "localhost", "/api/v1/secrets").await.unwrap();
    assert_eq!(refused.status, 401);
}

/// The served API has no definitions: the edge that reads it finds the kinds of the Gateway API by discovery.
#[tokio::test(flavor = "multi_thread")]
async fn a_fed_edge_routes_by_the_gateway_api() {
    const FILES: [(&str, &str); 3] = [
        ("gateway.yaml", include_str!("../../../examples/gateway/gateway.yaml")),
        ("routes.yaml", include_str!("../../../examples/gateway/routes.yaml")),
        ("shop.yaml", include_str!("../../../examples/gateway/shop.yaml")),
    ];
    let id = std::process::id().to_le_bytes();
    // Four addresses for each of the three processes: all of them listen on the ports of the same Gateways.
    let address = |nth: u8| Ipv4Addr::new(127, 128 + id[1] % 64, id[0], 4 * nth + 1);
    let range = |nth: u8| format!("{}-{}", address(nth), Ipv4Addr::from_bits(address(nth).to_bits() + 3));
    let dev = Dev::with(&FILES, &["--gateway-addresses", &range(0)]).await;
    let sources = ["--https", "off", "--source", "ingress", "--source", "gateway"];
    let (of_first, of_second) = (range(1), range(2));
    let arguments = |addresses| [&sources[..], &["--gateway-addresses", addresses]].concat();
    let first = Run::start(&dev.kubeconfig, &[&*arguments(&of_first), &["--serve-api", "127.0.0.1:0"]].concat()).await;
    let second = Run::fed_by(&format!("http://{}", first.api.clone().unwrap()), &arguments(&of_second)).await;
    for nth in 0..3 {
        let door = SocketAddr::from((address(nth), 8080));
        eventually(&format!("{door} routes"), || async {
            let answer = get(door, "shop.localhost", "/").await?;
            if answer.status == 200 { Ok(()) } else { Err(answer.status.to_string()) }
        })
        .await;
    }
    second.ready().await;
}

/// The open watches of a served API, by kind.
async fn watches(admin: SocketAddr) -> BTreeMap<String, usize> {
    let metrics = get(admin, "localhost", "/metrics").await.unwrap().body;
    let of = |line: &str| {
        let (kind, count) = line.strip_prefix("tidegate_served_watches{kind=\"")?.split_once("\"} ")?;
        Some((kind.to_owned(), count.parse().unwrap()))
    };
    metrics.lines().filter_map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_edges_cause_one_upstream_watch_per_kind() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    // It reports the number of its watches, and takes the place of the API server.
    let upstream = CacheServer::start(&dev.kubeconfig, &[]).await;
    let site = CacheServer::fed_by(&upstream.url(), &[]).await;
    site.ready().await;
    let mut edges = Vec::new();
    for _ in 0..2 {
        edges.push(Run::fed_by(&site.url(), &["--https", "off"]).await);
    }
    for edge in &edges {
        edge.answers("shop.test", 200).await;
    }
    let kinds = [
        "services",
        "endpointslices.discovery.k8s.io",
        "ingresses.networking.k8s.io",
        "ingressclasses.networking.k8s.io",
    ];
    for (admin, want) in [(site.admin, 2), (upstream.admin, 1)] {
        let want: BTreeMap<String, usize> = kinds.iter().map(|kind| ((*kind).to_owned(), want)).collect();
        eventually(&format!("watches: {want:?}"), || async {
            let open = watches(admin).await;
            if open == want { Ok(()) } else { Err(format!("{open:?}")) }
        })
        .await;
    }
}
