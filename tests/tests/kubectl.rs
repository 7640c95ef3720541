//! kubectl against `tidegate dev`: its changes are routed by the time it has returned.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use tidegate_tests::{Answer, Dev, Kubectl, eventually, get};

const SHOP: &str = include_str!("manifests/shop.yaml");

/// The pod that responds, or the status.
async fn pod(dev: &Dev, host: &str, path: &str) -> Result<String, String> {
    let answer = get(dev.http, host, path).await?;
    if answer.status != 200 {
        return Err(format!("{} {}", answer.status, answer.body));
    }
    served_by(&answer)
}

fn served_by(answer: &Answer) -> Result<String, String> {
    let pod = answer.headers.get("x-echo-pod").and_then(|pod| pod.to_str().ok());
    pod.map(str::to_owned).ok_or_else(|| answer.body.clone())
}

async fn leads(dev: &Dev, host: &str, path: &str, deployment: &str) {
    eventually(&format!("{host}{path} leads to {deployment}"), || async {
        let pod = pod(dev, host, path).await?;
        if pod.starts_with(deployment) { Ok(()) } else { Err(pod) }
    })
    .await;
}

async fn status(dev: &Dev, host: &str, path: &str, want: u16) {
    eventually(&format!("{host}{path} answers {want}"), || async {
        let answer = get(dev.http, host, path).await?;
        if answer.status == want { Ok(()) } else { Err(answer.status.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_verb_changes_the_routing_live() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    leads(&dev, "shop.test", "/", "web").await;
    leads(&dev, "shop.test", "/cart", "cart").await;

    let other = SHOP.replace("shop.test", "other.test").replace("name: shop-ingress", "name: other");
    let ingress = other.split("---").find(|document| document.contains("kind: Ingress")).unwrap();
    status(&dev, "other.test", "/", 404).await;
    kubectl.fed(&["create", "-f", "-"], ingress).await;
    leads(&dev, "other.test", "/", "web").await;

    let patch = r#"[{"op": "replace", "path": "/spec/rules/0/host", "value": "moved.test"}]"#;
    kubectl.run(&["-n", "shop", "patch", "ingress", "other", "--type=json", "-p", patch]).await;
    leads(&dev, "moved.test", "/", "web").await;
    status(&dev, "other.test", "/", 404).await;

    let swapped = ingress.replace("name: web, port", "name: cart, port");
    kubectl.fed(&["replace", "-f", "-"], &swapped).await;
    leads(&dev, "other.test", "/", "cart").await;
    kubectl.fed(&["apply", "-f", "-"], ingress).await;
    leads(&dev, "other.test", "/", "web").await;

    let port = r#"{"spec": {"ports": [{"port": 80, "name": "web", "targetPort": 9}]}}"#;
    kubectl.run(&["-n", "shop", "patch", "service", "cart", "-p", port]).await;
    kubectl.run(&["-n", "shop", "delete", "ingress", "other"]).await;
    status(&dev, "other.test", "/", 404).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_changes_the_endpoints() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    leads(&dev, "shop.test", "/", "web").await;
    kubectl.run(&["-n", "shop", "scale", "deployment/web", "--replicas=3"]).await;
    kubectl.run(&["-n", "shop", "rollout", "status", "deployment/web", "--timeout=30s"]).await;
    let seen = std::cell::RefCell::new(std::collections::BTreeSet::new());
    eventually("three pods answer", || async {
        let pod = pod(&dev, "shop.test", "/").await?;
        seen.borrow_mut().insert(pod);
        if seen.borrow().len() == 3 { Ok(()) } else { Err(format!("{:?}", seen.borrow())) }
    })
    .await;
    kubectl.run(&["-n", "shop", "scale", "deployment/web", "--replicas=0"]).await;
    status(&dev, "shop.test", "/", 503).await;
    kubectl.run(&["-n", "shop", "scale", "deployment/web", "--replicas=1"]).await;
    kubectl.run(&["-n", "shop", "wait", "--for=condition=Available", "deployment/web", "--timeout=30s"]).await;
    leads(&dev, "shop.test", "/", "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_very_next_request_is_usually_right() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    leads(&dev, "shop.test", "/", "web").await;
    let mut right = 0;
    let rounds = 10;
    for round in 0..rounds {
        let service = if round % 2 == 0 { "cart" } else { "web" };
        let patch = format!(
            r#"[{{"op": "replace", "path": "/spec/rules/0/http/paths/0/backend/service/name", "value": "{service}"}}]"#
        );
        kubectl.run(&["-n", "shop", "patch", "ingress", "shop-ingress", "--type=json", "-p", &patch]).await;
        if pod(&dev, "shop.test", "/").await.is_ok_and(|pod| pod.starts_with(service)) {
            right += 1;
        }
        leads(&dev, "shop.test", "/", service).await;
    }
    println!("the very next request after kubectl patch was right {right} of {rounds} times");
    // It is right nearly always; a machine that is busy with other things gets room for half.
    assert!(right * 2 >= rounds, "{right} of {rounds}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_shows_changes() {
    use tokio::io::AsyncBufReadExt;
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let mut watch = kubectl.command();
    watch.args(["-n", "shop", "get", "ingress", "-w", "-o", "name"]).stdout(std::process::Stdio::piped());
    let mut child = watch.spawn().unwrap();
    let mut lines = tokio::io::BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ingress.networking.k8s.io/shop-ingress"));
    kubectl.run(&["-n", "shop", "annotate", "ingress", "shop-ingress", "example.com/note=x"]).await;
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ingress.networking.k8s.io/shop-ingress"));
    child.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_followed_and_the_process_cleans_up() {
    let mut dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    leads(&dev, "shop.test", "/", "web").await;
    let file = dev.folder().join("shop.yaml");
    std::fs::write(&file, SHOP.replace("shop.test", "renamed.test")).unwrap();
    leads(&dev, "renamed.test", "/", "web").await;
    status(&dev, "shop.test", "/", 404).await;
    let tasks = std::fs::read_dir(format!("/proc/{}/task", dev.id())).unwrap();
    let children: Vec<String> = tasks
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert!(!children.is_empty(), "echo processes run");
    dev.signal("-INT").await;
    assert_eq!(dev.ended().await, Some(0));
    assert!(!dev.kubeconfig.exists());
    eventually("the echo processes are gone", || async {
        let left: Vec<&String> =
            children.iter().filter(|id| std::path::Path::new(&format!("/proc/{id}")).exists()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ingress_shows_its_address() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let shows = async |want: &str| {
        eventually(&format!("it shows {want}"), || async {
            let shown = kubectl.run(&["-n", "shop", "get", "ingress", "shop-ingress", "--no-headers"]).await;
            if shown.split_whitespace().any(|word| word == want) { Ok(()) } else { Err(shown) }
        })
        .await;
    };
    shows("127.0.0.1").await;
    let other = r#"{"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}"#;
    let patch = ["-n", "shop", "patch", "ingress", "shop-ingress", "--subresource=status", "--type=merge", "-p", other];
    kubectl.run(&patch).await;
    shows("192.0.2.1").await;
    shows("127.0.0.1").await;
    let holder = kubectl.run(&["get", "lease", "tidegate", "-o", "jsonpath={.spec.holderIdentity}"]).await;
    assert!(!holder.is_empty());
    dev.signal("-TERM").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn describe_shows_a_mistake() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let mistake = "tidegate.io/allow-source-range=office";
    kubectl.run(&["-n", "shop", "annotate", "ingress", "shop-ingress", mistake]).await;
    eventually("it is described", || async {
        let shown = kubectl.run(&["-n", "shop", "describe", "ingress", "shop-ingress"]).await;
        let line = shown.lines().find(|line| line.contains("FailedClosed") && line.contains("office"));
        line.map_or(Err(shown.clone()), |_| Ok(()))
    })
    .await;
    let listed = kubectl
        .run(&[
            "-n",
            "shop",
            "get",
            "events.events.k8s.io",
            "-o",
            "name",
            "--field-selector=involvedObject.kind=Ingress",
        ])
        .await;
    assert!(listed.starts_with("event.events.k8s.io/shop-ingress.") && listed.trim().lines().count() == 1, "{listed}");
    dev.signal("-TERM").await;
}

const GATEWAY: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  gatewayClassName: tidegate
  listeners: [{name: http, port: 80, protocol: HTTP}]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_restriction_of_ingress_nginx_closes_until_its_owner_gives_it_up() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    leads(&dev, "shop.test", "/", "web").await;
    let annotate = async |annotation: &str| {
        kubectl.run(&["-n", "shop", "annotate", "--overwrite", "ingress", "shop-ingress", annotation]).await;
    };
    annotate("nginx.ingress.kubernetes.io/auth-url=https://auth.shop.test/verify").await;
    status(&dev, "shop.test", "/", 403).await;
    eventually("describe names the annotation", || async {
        let shown = kubectl.run(&["-n", "shop", "describe", "ingress", "shop-ingress"]).await;
        let found = shown.contains("FailedClosed") && shown.contains("auth-url");
        if found { Ok(()) } else { Err(shown) }
    })
    .await;
    annotate("tidegate.io/ignore-nginx-annotations=auth-url").await;
    leads(&dev, "shop.test", "/", "web").await;
    annotate("nginx.ingress.kubernetes.io/whitelist-source-range=192.0.2.0/24").await;
    status(&dev, "shop.test", "/", 403).await;
    annotate("nginx.ingress.kubernetes.io/whitelist-source-range=127.0.0.0/8").await;
    leads(&dev, "shop.test", "/", "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_api_is_served() {
    let files = format!("{SHOP}\n---\n{GATEWAY}");
    let dev = Dev::start(&[("shop.yaml", &files)]).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    leads(&dev, "shop.test", "/", "web").await;
    let shown = kubectl.run(&["-n", "shop", "get", "gateway", "edge"]).await;
    assert!(shown.contains("PROGRAMMED") && shown.contains("Unknown"), "{shown}");
    let table = kubectl.run(&["api-resources", "--api-group=gateway.networking.k8s.io", "-o", "name"]).await;
    assert_eq!(table.lines().count(), 10, "{table}");
    let twice = GATEWAY.replace("protocol: HTTP}]", "protocol: HTTP}, {name: other, port: 80, protocol: HTTP}]");
    let (code, _, complaint) = kubectl.tried(&["apply", "-f", "-"], &twice).await;
    assert_ne!(code, Some(0));
    let rule = "Combination of port, protocol and hostname must be unique for each listener";
    assert!(complaint.contains(rule), "{complaint}");
    assert!(kubectl.run(&["explain", "httproute.spec.rules"]).await.contains("Rules are a list of HTTP matchers"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_api_can_be_left_out() {
    // Files with a Gateway would have the definitions created before anything else.
    let files = format!("{SHOP}\n---\n{GATEWAY}");
    let dev = Dev::with(&[("shop.yaml", &files)], &["--without-gateway-api"]).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    leads(&dev, "shop.test", "/", "web").await;
    assert_eq!(kubectl.run(&["get", "crds", "-o", "name"]).await, "");
    dev.signal("-TERM").await;
}

/// The names of the pods of a Deployment, without those being deleted.
async fn pods(kubectl: &Kubectl, app: &str) -> Vec<String> {
    let shown = kubectl.run(&["-n", "shop", "get", "pods", "--no-headers", "-l", &format!("app={app}")]).await;
    let running = shown.lines().filter(|line| line.contains("1/1") && line.contains("Running"));
    running.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn echo_processes_show_as_pods() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    kubectl.run(&["-n", "shop", "scale", "deployment/web", "--replicas=2"]).await;
    kubectl.run(&["-n", "shop", "rollout", "status", "deployment/web", "--timeout=30s"]).await;
    eventually("two pods run", || async {
        let pods = pods(&kubectl, "web").await;
        if pods.len() == 2 { Ok(()) } else { Err(format!("{pods:?}")) }
    })
    .await;
    let first = pods(&kubectl, "web").await.remove(0);
    kubectl.run(&["-n", "shop", "wait", "--for=condition=Ready", "pods", "-l", "app=web", "--timeout=30s"]).await;
    let set =
        kubectl.run(&["-n", "shop", "get", "pod", &first, "-o", "jsonpath={.metadata.ownerReferences[0].name}"]).await;
    assert!(first.starts_with(&set) && set.starts_with("web-"), "{first} {set}");
    let described = kubectl.run(&["-n", "shop", "describe", "pod", &first]).await;
    assert!(described.contains("Controlled By:") && described.contains(&set), "{described}");

    // It waits until the process has ended, and another one replaces it.
    kubectl.run(&["-n", "shop", "delete", "pod", &first, "--timeout=30s"]).await;
    eventually("another pod runs in its place", || async {
        let pods = pods(&kubectl, "web").await;
        if pods.len() == 2 && !pods.contains(&first) { Ok(()) } else { Err(format!("{pods:?}")) }
    })
    .await;
    leads(&dev, "shop.test", "/", "web").await;
    kubectl.run(&["-n", "shop", "delete", "deployment", "web", "--timeout=30s"]).await;
    kubectl.run(&["-n", "shop", "wait", "--for=delete", "pods", "-l", "app=web", "--timeout=30s"]).await;
    let left = kubectl.run(&["-n", "shop", "get", "replicasets,pods", "-l", "app=web", "-o", "name"]).await;
    assert_eq!(left, "");
    // The Deployment waits until its ReplicaSet and its Pods have gone.
    kubectl.run(&["-n", "shop", "delete", "deployment", "cart", "--cascade=foreground", "--timeout=30s"]).await;
    let left = kubectl.run(&["-n", "shop", "get", "replicasets,pods", "-l", "app=cart", "-o", "name"]).await;
    assert_eq!(left, "");
    kubectl.run(&["delete", "namespace", "shop", "--timeout=30s"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_has_a_history() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let rollout = async |words: &[&str]| {
        let mut all = vec!["-n", "shop", "rollout"];
        all.extend_from_slice(words);
        all.push("deployment/web");
        kubectl.run(&all).await
    };
    let settled = async || rollout(&["status", "--timeout=30s"]).await;
    let numbers = async || {
        let history = rollout(&["history"]).await;
        history.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect::<Vec<u32>>()
    };
    let becomes = async |want: &[u32]| {
        eventually(&format!("the history is {want:?}"), || async {
            let found = numbers().await;
            if found == want { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    };
    settled().await;
    becomes(&[1]).await;
    kubectl.run(&["-n", "shop", "set", "env", "deployment/web", "COLOUR=blue"]).await;
    settled().await;
    becomes(&[1, 2]).await;
    let cause = "kubernetes.io/change-cause=it is blue";
    kubectl.run(&["-n", "shop", "annotate", "deployment/web", cause]).await;
    eventually("the history says why", || async {
        let history = rollout(&["history"]).await;
        if history.contains("it is blue") { Ok(()) } else { Err(history) }
    })
    .await;
    rollout(&["restart"]).await;
    settled().await;
    becomes(&[1, 2, 3]).await;
    let told = rollout(&["history", "--revision=2"]).await;
    assert!(told.contains("COLOUR") && told.contains("pod-template-hash"), "{told}");
    rollout(&["undo", "--to-revision=1"]).await;
    settled().await;
    becomes(&[2, 3, 4]).await;
    let env = ["-n", "shop", "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].env}"];
    assert_eq!(kubectl.run(&env).await, "");
    let why = r"jsonpath={.metadata.annotations.kubernetes\.io/change-cause}";
    let why = ["-n", "shop", "get", "deployment", "web", "-o", why];
    assert_eq!(kubectl.run(&why).await, "");
    rollout(&["undo"]).await;
    becomes(&[2, 4, 5]).await;
    assert_eq!(kubectl.run(&why).await, "it is blue");
    assert!(kubectl.run(&env).await.contains("COLOUR"));
    rollout(&["pause"]).await;
    kubectl.run(&["-n", "shop", "set", "env", "deployment/web", "COLOUR=red"]).await;
    kubectl.run(&["-n", "shop", "scale", "deployment/web", "--replicas=2"]).await;
    let two = "--for=jsonpath={.status.readyReplicas}=2";
    kubectl.run(&["-n", "shop", "wait", two, "deployment/web", "--timeout=30s"]).await;
    assert_eq!(numbers().await, [2, 4, 5], "it scales, and its template waits");
    rollout(&["resume"]).await;
    settled().await;
    becomes(&[2, 4, 5, 6]).await;
    leads(&dev, "shop.test", "/", "web").await;
    dev.signal("-TERM").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_survive_a_kill_in_their_folder() {
    let data = tempfile::tempdir().unwrap();
    let arguments = ["--data-dir", data.path().to_str().unwrap()];
    let mut dev = Dev::with(&[("shop.yaml", SHOP)], &arguments).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    leads(&dev, "shop.test", "/", "web").await;
    let other = SHOP.replace("shop.test", "other.test").replace("name: shop-ingress", "name: other");
    let ingress = other.split("---").find(|document| document.contains("kind: Ingress")).unwrap();
    kubectl.fed(&["apply", "-f", "-"], ingress).await;
    let uid = ["-n", "shop", "get", "ingress", "other", "-o", "jsonpath={.metadata.uid}"];
    let made = kubectl.run(&uid).await;
    dev.signal("-KILL").await;
    dev.ended().await;

    let dev = Dev::with(&[("shop.yaml", SHOP)], &arguments).await;
    let kubectl = Kubectl::for_config(&dev.kubeconfig).unwrap();
    assert_eq!(kubectl.run(&uid).await, made);
    leads(&dev, "other.test", "/", "web").await;
    kubectl.run(&["-n", "shop", "rollout", "status", "deployment/web", "--timeout=30s"]).await;
    kubectl.run(&["-n", "shop", "delete", "ingress", "other"]).await;
    status(&dev, "other.test", "/", 404).await;
}
