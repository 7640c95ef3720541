//! kubectl against the processes that `tidegate dev` runs for Deployments.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::process::Stdio;

use tidegate_tests::{Dev, Kubectl, eventually, get};
use tokio::io::{AsyncBufReadExt as _, BufReader};

const SHOP: &str = include_str!("manifests/shop.yaml");

/// kubectl with the namespace of the shop.
struct Shop {
    dev: Dev,
    kubectl: Kubectl,
}

impl Shop {
    async fn with(manifest: &str, arguments: &[&str]) -> Option<Self> {
        let dev = Dev::with(&[("shop.yaml", manifest)], arguments).await;
        let kubectl = Kubectl::for_config(&dev.kubeconfig)?;
        Some(Self { dev, kubectl })
    }

    async fn run(&self, words: &str) -> String {
        let words = [&["-n", "shop"], &*words.split(' ').collect::<Vec<_>>()].concat();
        self.kubectl.run(&words).await.trim_end().to_owned()
    }

    /// What a command that is refused complains of.
    async fn refused(&self, words: &str) -> String {
        let words = [&["-n", "shop"], &*words.split(' ').collect::<Vec<_>>()].concat();
        let (code, out, complaint) = self.kubectl.tried(&words, "").await;
        assert_ne!(code, Some(0), "{out}");
        complaint
    }

    /// The name of a Pod of a Deployment.
    async fn pod(&self, app: &str) -> String {
        self.run(&format!("wait --for=condition=Ready pods -l app={app} --timeout=30s")).await;
        self.run(&format!("get pods -l app={app} -o jsonpath={{.items[0].metadata.name}}")).await
    }

    async fn ask(&self, path: &str) {
        eventually(&format!("{path} is answered"), || async {
            let answer = get(self.dev.http, "shop.test", path).await?;
            if answer.status == 200 { Ok(()) } else { Err(answer.body) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_show_the_requests_of_a_pod() {
    let Some(shop) = Shop::with(SHOP, &[]).await else { return };
    let pod = shop.pod("web").await;
    shop.ask("/first").await;
    shop.ask("/second").await;
    let first = "GET /first HTTP/1.1 shop.test 200 0";
    let second = "GET /second HTTP/1.1 shop.test 200 0";
    eventually("both requests are logged", || async {
        let log = shop.run(&format!("logs {pod}")).await;
        if log.contains(first) && log.ends_with(second) { Ok(()) } else { Err(log) }
    })
    .await;
    assert_eq!(shop.run(&format!("logs {pod} --tail=1")).await, second);
    assert_eq!(shop.run("logs deploy/web --tail=1 --since=1h").await, second);
    assert_eq!(shop.run("logs -l app=web --tail=1 --prefix").await, format!("[pod/{pod}/web] {second}"));
    assert_eq!(shop.run(&format!("logs {pod} -c web --tail=1 --limit-bytes=5")).await, "GET /");
    let stamped = shop.run(&format!("logs {pod} --tail=1 --timestamps")).await;
    assert!(stamped.starts_with("20") && stamped.contains("Z GET /second"), "{stamped}");

    let why = shop.refused(&format!("logs {pod} -c other")).await;
    assert!(why.contains(&format!("container other is not valid for pod {pod}")), "{why}");
    let why = shop.refused(&format!("logs {pod} --previous")).await;
    assert!(why.contains(&format!("previous terminated container \"web\" in pod \"{pod}\" not found")), "{why}");
    let why = shop.refused("logs nowhere").await;
    assert!(why.contains("pods \"nowhere\" not found"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_log_ends_with_its_pod() {
    let Some(shop) = Shop::with(SHOP, &[]).await else { return };
    let pod = shop.pod("web").await;
    let mut follow = shop.kubectl.command();
    follow.args(["-n", "shop", "logs", "-f", &pod]).stdout(Stdio::piped());
    let mut child = follow.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for path in ["/first", "/second"] {
        shop.ask(path).await;
        while !lines.next_line().await.unwrap().expect("a line").contains(path) {}
    }
    shop.run(&format!("delete pod {pod} --timeout=30s")).await;
    while lines.next_line().await.unwrap().is_some() {}
    assert!(child.wait().await.unwrap().success());
}
