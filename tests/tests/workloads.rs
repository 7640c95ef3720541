//! kubectl against the processes that `tidegate dev` runs for Deployments.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeSet;
use std::process::Stdio;

use serde_json::Value;
use tidegate_tests::{Dev, Kubectl, eventually, get, skipped};
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

    /// The error of a command that is refused.
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

/// An application run by a command: a web server in Python that logs its actions.
const SERVER: &str = r#"
import http.server, os, signal, sys
def end(number, frame):
    print("ending", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
ready = True
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global ready
        if self.path == "/crash":
            os._exit(3)
        if self.path in ("/break", "/mend"):
            ready = self.path == "/mend"
        self.send_response(503 if self.path == "/ready" and not ready else 200)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, form, *words):
        print("asked for", self.path, flush=True)
print("colour", os.environ["COLOUR"], flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"#;

/// The shop, whose Deployment `web` is that server.
fn served(server: &std::path::Path, probe: &str) -> String {
    let command = format!("{}", serde_json::json!(["python3", server]));
    let deployment = serde_json::json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"tidegate.io/command": command}},
                "spec": {"containers": [{
                    "name": "web", "image": "python", "env": [{"name": "COLOUR", "value": "blue"}],
                    "readinessProbe": serde_json::from_str::<Value>(probe).expect("a probe"),
                }]},
            },
        },
    });
    let others = SHOP.split("---").filter(|one| !(one.contains("kind: Deployment") && one.contains("name: web,")));
    format!("{}\n---\n{deployment}\n", others.collect::<Vec<_>>().join("---"))
}

/// A file with the server; `None` without Python.
fn server() -> Option<tempfile::NamedTempFile> {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        skipped("python3", "there is no Python");
        return None;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), SERVER).unwrap();
    Some(file)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_run_restarted_and_stopped() {
    let Some(server) = server() else { return };
    let Some(shop) = Shop::with(&served(server.path(), "null"), &["--run-commands"]).await else { return };
    let pod = shop.pod("web").await;
    shop.ask("/hello").await;
    let logged = async |words: &str, wanted: &str| {
        eventually(&format!("{wanted} is logged"), || async {
            let log = shop.run(words).await;
            if log.contains(wanted) { Ok(log) } else { Err(log) }
        })
        .await
    };
    assert!(logged(&format!("logs {pod}"), "asked for /hello").await.starts_with("colour blue"));

    // A crash is counted, and the previous log is kept.
    drop(get(shop.dev.http, "shop.test", "/crash").await);
    let restarts = format!("get pod {pod} -o jsonpath={{.status.containerStatuses[0].restartCount}}");
    eventually("the restart is counted", || async {
        let count = shop.run(&restarts).await;
        if count.parse::<u32>().is_ok_and(|count| count > 0) { Ok(()) } else { Err(count) }
    })
    .await;
    shop.ask("/again").await;
    logged(&format!("logs {pod} --previous"), "asked for /hello").await;
    let log = logged(&format!("logs {pod}"), "asked for /again").await;
    assert!(!log.contains("/hello"), "{log}");

    let mut follow = shop.kubectl.command();
    follow.args(["-n", "shop", "logs", "-f", &pod]).stdout(Stdio::piped());
    let mut child = follow.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("colour blue"));
    shop.run(&format!("delete pod {pod} --timeout=60s")).await;
    let mut ended = false;
    while let Some(line) = lines.next_line().await.unwrap() {
        ended |= line == "ending";
    }
    assert!(ended, "it had time to end");
    child.wait().await.unwrap();
    assert_ne!(shop.pod("web").await, pod);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_need_a_flag() {
    let Some(server) = server() else { return };
    let Some(shop) = Shop::with(&served(server.path(), "null"), &[]).await else { return };
    let pod = shop.pod("web").await;
    let log = shop.run(&format!("logs {pod}")).await;
    assert!(log.contains("tidegate.io/command is ignored") && log.contains("--run-commands"), "{log}");
    shop.ask("/hello").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_follows_a_probe() {
    let Some(server) = server() else { return };
    let probe = r#"{"httpGet": {"path": "/ready", "port": 80}, "periodSeconds": 1, "failureThreshold": 1}"#;
    let Some(shop) = Shop::with(&served(server.path(), probe), &["--run-commands"]).await else { return };
    let pod = shop.pod("web").await;
    let (ready, unready) = (
        format!("wait --for=condition=Ready pod/{pod} --timeout=60s"),
        format!("wait --for=condition=Ready=False pod/{pod} --timeout=60s"),
    );
    let endpoints =
        "get endpointslices -l kubernetes.io/service-name=web -o jsonpath={.items[*].endpoints[*].conditions.ready}";
    let becomes = async |words: &str, want: &str| {
        eventually(&format!("{words} says {want}"), || async {
            let said = shop.run(words).await;
            if said == want { Ok(()) } else { Err(said) }
        })
        .await;
    };
    shop.ask("/break").await;
    shop.run(&unready).await;
    becomes(endpoints, "false").await;
    becomes("get deployment web -o jsonpath={.status.unavailableReplicas}", "1").await;
    eventually("no endpoint is left", || async {
        let answer = get(shop.dev.http, "shop.test", "/").await?;
        if answer.status == 503 { Ok(()) } else { Err(answer.status.to_string()) }
    })
    .await;

    // From here on only the process itself can be queried.
    let port =
        shop.run("get endpointslices -l kubernetes.io/service-name=web -o jsonpath={.items[0].ports[0].port}").await;
    let address = format!("127.0.0.1:{port}").parse().unwrap();
    assert_eq!(get(address, "x", "/mend").await.unwrap().status, 200);
    shop.run(&ready).await;
    becomes(endpoints, "true").await;
    shop.ask("/").await;
}

/// A Pod in the middle of a rollout.
struct Seen {
    template: String,
    ending: bool,
    ready: bool,
}

/// Sets a strategy for three replicas, changes their template, and inspects the Pods until all have it.
async fn roll_out(shop: &Shop, template: &str, strategy: &str, right: impl Fn(&[Seen]) -> bool) {
    let patch = format!(r#"{{"spec":{{"replicas":3,"strategy":{strategy}}}}}"#);
    shop.run(&format!("patch deployment web --type=merge -p {patch}")).await;
    shop.run("rollout status deployment web --timeout=60s").await;
    let seen = async || {
        let list: Value = serde_json::from_str(&shop.run("get pods -l app=web -o json").await).unwrap();
        let pods = list["items"].as_array().unwrap().iter().map(|pod| Seen {
            template: pod["metadata"]["labels"]["pod-template-hash"].to_string(),
            ending: pod["metadata"]["deletionTimestamp"].is_string(),
            ready: pod["status"]["containerStatuses"][0]["ready"] == true,
        });
        (pods.collect::<Vec<_>>(), list)
    };
    eventually("nothing is left of a rollout before", || async {
        let (pods, list) = seen().await;
        if pods.iter().any(|pod| pod.ending) { Err(list.to_string()) } else { Ok(()) }
    })
    .await;
    let annotated =
        format!(r#"{{"spec":{{"template":{{"metadata":{{"annotations":{{"template":"{template}"}}}}}}}}}}"#);
    shop.run(&format!("patch deployment web --type=merge -p {annotated}")).await;
    let look = async || {
        let (pods, list) = seen().await;
        assert!(right(&pods), "{list:#}");
    };
    let looks = async {
        loop {
            look().await;
        }
    };
    tokio::select! {
        _ = shop.run("rollout status deployment web --timeout=60s") => {}
        () = looks => {}
    }
    look().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_respects_its_strategy() {
    let Some(shop) = Shop::with(SHOP, &[]).await else { return };
    let running = |pods: &[Seen]| pods.iter().filter(|pod| !pod.ending).count();
    let ready = |pods: &[Seen]| pods.iter().filter(|pod| pod.ready && !pod.ending).count();
    let templates = |pods: &[Seen]| pods.iter().map(|pod| pod.template.clone()).collect::<BTreeSet<_>>().len();
    let rolling = |surge: &str, unavailable: &str| {
        format!(r#"{{"rollingUpdate":{{"maxSurge":{surge},"maxUnavailable":{unavailable}}}}}"#)
    };
    roll_out(&shop, "b", &rolling("0", "1"), |pods| running(pods) <= 3 && ready(pods) >= 2).await;
    roll_out(&shop, "c", &rolling("\"34%\"", "0"), |pods| running(pods) <= 5 && ready(pods) >= 3).await;
    roll_out(&shop, "d", r#"{"type":"Recreate","rollingUpdate":null}"#, |pods| templates(pods) <= 1).await;
    let nothing = r#"{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":0}}"#;
    let patch = format!(r#"patch deployment web --type=merge -p {{"spec":{{"strategy":{nothing}}}}}"#);
    let why = shop.refused(&patch).await;
    assert!(why.contains("spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn orphaned_replicasets_stay_and_are_adopted() {
    let Some(shop) = Shop::with(SHOP, &[]).await else { return };
    let pod = shop.pod("web").await;
    let owner = "get replicasets -l app=web -o jsonpath={.items[*].metadata.ownerReferences[*].kind}";
    assert_eq!(shop.run(owner).await, "Deployment");
    let names = "get deployments,replicasets,pods -l app=web -o name";
    let sets = "get replicasets -l app=web -o name";
    let set = shop.run(sets).await;
    let manifest = shop.run("get deployment web -o json").await;
    shop.run("delete deployment web --cascade=orphan").await;
    assert_eq!(shop.run(owner).await, "");
    shop.ask("/").await;
    assert_eq!(shop.run(names).await, format!("{set}\npod/{pod}"));
    // It continues to work as a ReplicaSet does.
    shop.run(&format!("scale {set} --replicas=2")).await;
    shop.run(&format!("wait --for=jsonpath={{.status.readyReplicas}}=2 {set} --timeout=30s")).await;
    shop.run(&format!("scale {set} --replicas=1")).await;
    shop.run(&format!("wait --for=jsonpath={{.status.replicas}}=1 {set} --timeout=30s")).await;

    let mut manifest: Value = serde_json::from_str(&manifest).unwrap();
    manifest["metadata"] = serde_json::json!({"name": "web", "namespace": "shop", "labels": {"app": "web"}});
    shop.kubectl.fed(&["create", "-f", "-"], &manifest.to_string()).await;
    shop.run("rollout status deployment/web --timeout=30s").await;
    assert_eq!(shop.run(owner).await, "Deployment");
    assert_eq!(shop.run(sets).await, set);
    // Without a Deployment, it is deleted with its Pods.
    shop.run("delete deployment web --cascade=orphan").await;
    shop.run(&format!("delete {set}")).await;
    shop.run("wait --for=delete pods -l app=web --timeout=30s").await;
    assert_eq!(shop.run(names).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn describe_shows_events() {
    let Some(shop) = Shop::with(SHOP, &[]).await else { return };
    let pod = shop.pod("web").await;
    shop.run("rollout status deployment/web --timeout=30s").await;
    let set = shop.run("get replicasets -l app=web -o jsonpath={.items[0].metadata.name}").await;
    let tells = async |what: &str, parts: &[&str]| {
        eventually(&format!("describe {what} tells all"), || async {
            let told = shop.run(&format!("describe {what}")).await;
            let lines: Vec<String> =
                told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
            let lacks = parts.iter().find(|part| !lines.iter().any(|line| line.contains(**part)));
            lacks.map_or(Ok(()), |part| Err(format!("{part} is not in {told}")))
        })
        .await;
    };
    let up = format!("deployment-controller Scaled up replica set {set} from 0 to 1");
    tells(
        "deployment web",
        &[
            "Available True MinimumReplicasAvailable",
            "Progressing True NewReplicaSetAvailable",
            "Normal ScalingReplicaSet",
            &up,
        ],
    )
    .await;
    tells(
        &format!("replicaset {set}"),
        &["Normal SuccessfulCreate", &format!("replicaset-controller Created pod: {pod}")],
    )
    .await;
    assert!(shop.run(&format!("get pod {pod} -o jsonpath={{.status.startTime}}")).await.ends_with('Z'));
    tells(
        &format!("pod {pod}"),
        &[
            "State: Running",
            "Started: ",
            "PodReadyToStartContainers True",
            "kubelet Container started",
            "Normal Scheduled",
        ],
    )
    .await;
    let times = "jsonpath={range .status.conditions[*]}{.lastTransitionTime}{\" \"}{end}{.status.containerStatuses[0].state.running.startedAt}";
    let times = shop.kubectl.run(&["-n", "shop", "get", "pod", &pod, "-o", times]).await;
    assert_eq!(times.split_whitespace().filter(|time| time.ends_with('Z')).count(), 6, "{times}");
    shop.run("scale deployment web --replicas=0").await;
    tells("deployment web", &[&format!("Scaled down replica set {set} from 1 to 0")]).await;
    tells(&format!("replicaset {set}"), &[&format!("Deleted pod: {pod}")]).await;
    let events = shop.run(&format!("events --for=pod/{pod}")).await;
    assert!(events.contains("Killing") && events.contains("Stopping container web"), "{events}");
}
