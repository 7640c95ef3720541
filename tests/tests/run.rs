//! `tidegate run` against an API server over the network: the same routing, readiness, and going on alone.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::net::SocketAddr;
use std::process::Stdio;

use tidegate_tests::{Dev, Kubectl, binary, eventually, get};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const SHOP: &str = include_str!("manifests/shop.yaml");

struct Run {
    child: Child,
    http: SocketAddr,
    admin: SocketAddr,
}

/// A free port of loopback, for a moment.
fn free() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn run(dev: &Dev) -> Run {
    let (http, admin) = (free(), free());
    let mut command = Command::new(binary());
    command.arg("run").arg("--kubeconfig").arg(&dev.kubeconfig).arg("--allow-loopback-endpoints");
    command.args([
        "--http",
        &http.to_string(),
        "--https",
        "127.0.0.1:0",
        "--admin",
        &admin.to_string(),
        "--debug",
        "off",
    ]);
    command.args(["--access-log", "stdout", "--shutdown-delay", "0s"]);
    let child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("tidegate run");
    Run { child, http, admin }
}

async fn ready(run: &Run) {
    eventually("ready", || async {
        let answer = get(run.admin, "localhost", "/readyz").await?;
        if answer.status == 200 { Ok(()) } else { Err(answer.body) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_serves_what_the_api_server_holds_and_goes_on_without_it() {
    let mut dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let mut run = run(&dev);
    ready(&run).await;
    let answer = get(run.http, "shop.test", "/").await.unwrap();
    assert_eq!(answer.status, 200, "ready means right: {}", answer.body);

    let mut log = BufReader::new(run.child.stdout.take().unwrap()).lines();
    let line = log.next_line().await.unwrap().expect("one line a request");
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((line["status"].as_u64(), line["host"].as_str()), (Some(200), Some("shop.test")), "{line}");

    if let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) {
        kubectl.run(&["-n", "shop", "delete", "ingress", "shop-ingress"]).await;
        eventually("the route is gone", || async {
            let answer = get(run.http, "shop.test", "/").await?;
            if answer.status == 404 { Ok(()) } else { Err(answer.status.to_string()) }
        })
        .await;
    }

    dev.signal("-TERM").await;
    dev.ended().await;
    eventually("the failing watches show", || async {
        let answer = get(run.admin, "localhost", "/readyz?verbose").await?;
        if answer.status == 200 && answer.body.contains("degraded") { Ok(()) } else { Err(answer.body) }
    })
    .await;
    let answer = get(run.http, "shop.test", "/").await.unwrap();
    assert!(answer.status == 404 || answer.status == 502 || answer.status == 503, "{answer:?}");

    let term = Command::new("kill").arg(run.child.id().unwrap().to_string()).status().await.unwrap();
    assert!(term.success());
    assert_eq!(run.child.wait().await.unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_explain_tell_of_a_route() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    eventually("an answer", || async {
        let answer = get(dev.http, "shop.test", "/cart").await?;
        if answer.status == 200 { Ok(()) } else { Err(answer.status.to_string()) }
    })
    .await;
    let metrics = eventually("the request is counted", || async {
        let answer = get(dev.admin, "localhost", "/metrics").await?;
        let counted = |line: &str| line.starts_with("tidegate_requests_total") && line.contains("shop-ingress");
        if answer.body.lines().any(counted) { Ok(answer.body) } else { Err(answer.body) }
    })
    .await;
    for name in
        ["tidegate_snapshot_generation", "tidegate_change_duration_seconds_bucket", "process_resident_memory_bytes"]
    {
        assert!(metrics.contains(name), "{name}");
    }
    let mut explain = Command::new(binary());
    explain.args(["explain", "http://shop.test/cart/1", "--debug", &dev.debug.to_string()]);
    let output = explain.output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for word in ["Ingress shop/shop-ingress", "spec.rules[0].http.paths[1]", "shop/cart:80", "127.0.0.1:"] {
        assert!(text.contains(word), "{word} in {text}");
    }
}
