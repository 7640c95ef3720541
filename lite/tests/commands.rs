//! kubectl against the network server. Without kubectl on the machine these tests are skipped.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../../tests/src/skip.rs"]
mod skip;

use std::process::{Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tidegate_lite::{Lite, Server};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

const MANIFEST: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: "echo:1", ports: [{containerPort: 8080}], env: [{name: A, value: "1"}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  ingressClassName: tidegate
  rules:
  - host: web.example.com
    http:
      paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]
"#;

/// A server and a home folder of its own for kubectl: no file outside the folder is read or written.
struct Cluster {
    home: TempDir,
}

async fn cluster() -> Option<Cluster> {
    if Command::new("kubectl").arg("version").arg("--client").output().await.is_err() {
        skip::skipped("kubectl", "there is no kubectl");
        return None;
    }
    let server = Server::bind(Lite::new(), ([127, 0, 0, 1], 0).into()).await.unwrap();
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("kubeconfig"), server.kubeconfig()).unwrap();
    tokio::spawn(server.serve(std::future::pending()));
    Some(Cluster { home })
}

impl Cluster {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.args(words).env("HOME", self.home.path()).env("KUBECONFIG", self.home.path().join("kubeconfig"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    async fn output(&self, words: &[&str], input: &str) -> Output {
        let mut child = self.command(words).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        tokio::time::timeout(Duration::from_secs(30), child.wait_with_output()).await.expect("kubectl hangs").unwrap()
    }

    /// Runs kubectl with a manifest and returns its output; a failure fails the test.
    async fn with(&self, line: &str, input: &str) -> String {
        let output = self.output(&line.split(' ').collect::<Vec<_>>(), input).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "kubectl {line}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text.trim().to_owned()
    }

    async fn run(&self, line: &str) -> String {
        self.with(line, "").await
    }

    /// Runs kubectl and returns its errors; a success fails the test.
    async fn refused(&self, line: &str, input: &str) -> String {
        let output = self.output(&line.split(' ').collect::<Vec<_>>(), input).await;
        assert!(!output.status.success(), "kubectl {line} should fail");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

#[tokio::test]
async fn apply_creates_updates_and_skips_unchanged_objects() {
    let Some(cluster) = cluster().await else { return };
    assert!(cluster.with("apply -f -", MANIFEST).await.contains("ingress.networking.k8s.io/web created"));
    assert_eq!(cluster.with("apply -f -", MANIFEST).await.matches("unchanged").count(), 3);
    let changed = MANIFEST.replace("echo:1", "echo:2").replace("port: 80,", "port: 81,");
    assert_eq!(cluster.with("apply -f -", &changed).await.matches("configured").count(), 2);
    assert_eq!(cluster.run("get svc web -o jsonpath={.spec.ports[*].port}").await, "81");
    let template = "get deploy web -o jsonpath={.spec.template.spec.containers[0].image},{.metadata.generation}";
    assert_eq!(cluster.run(template).await, "echo:2,2");
    let misspelt = cluster.refused("apply -f -", &MANIFEST.replace("ingressClassName", "ingressClas")).await;
    assert!(misspelt.contains("strict decoding error: unknown field \"spec.ingressClas\""), "{misspelt}");
    let wrong = cluster.refused("apply -f -", &MANIFEST.replace("path: /,", "path: x,")).await;
    assert!(
        wrong.contains("spec.rules[0].http.paths[0].path: Invalid value: \"x\": must be an absolute path"),
        "{wrong}"
    );
    // The objects of a manifest are independent: the valid ones of the two refused manifests were reset to the first.
    assert_eq!(cluster.with("diff -f -", MANIFEST).await, "");
    assert!(cluster.with("replace --force -f -", MANIFEST).await.contains("service/web replaced"));
    assert!(cluster.with("delete -f -", MANIFEST).await.contains("service \"web\" deleted"));
    assert_eq!(cluster.run("get deploy,svc,ing -o name").await, "");
}

#[tokio::test]
async fn prune_works_without_an_allow_list() {
    let Some(cluster) = cluster().await else { return };
    let two = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept, labels: {app: x}}\n---\n\
        apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: old, labels: {app: x}}\n\
        spec: {schedule: '@daily', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: echo}]}}}}}";
    assert!(cluster.with("apply --prune -l app=x -f -", two).await.contains("cronjob.batch/old created"));
    let one = two.split("---").next().unwrap_or_default();
    let pruned = cluster.with("apply --prune -l app=x -f -", one).await;
    assert_eq!(pruned, "configmap/kept unchanged\ncronjob.batch/old pruned");
}

#[tokio::test]
async fn server_side_apply_takes_over_from_client_side() {
    let Some(cluster) = cluster().await else { return };
    cluster.with("apply -f -", MANIFEST).await;
    let changed = MANIFEST.replace("echo:1", "echo:2").replace(", env: [{name: A, value: \"1\"}]", "");
    let applied = cluster.with("apply --server-side -f -", &changed).await;
    assert_eq!(applied.matches("serverside-applied").count(), 3, "{applied}");
    let container =
        "get deploy web -o jsonpath={.spec.template.spec.containers[0].image}{.spec.template.spec.containers[0].env}";
    assert_eq!(cluster.run(container).await, "echo:2", "what kubectl applied before and does not any more is gone");
    let managers = "get deploy web --show-managed-fields -o jsonpath={.metadata.managedFields[*].manager}";
    let managers = cluster.run(managers).await;
    let managers: std::collections::BTreeSet<&str> = managers.split(' ').collect();
    // The second one is kubectl's own: it keeps the annotation of client-side apply.
    assert_eq!(managers.into_iter().collect::<Vec<_>>(), ["kubectl", "kubectl-last-applied"]);

    cluster.run("scale deploy web --replicas=3").await;
    let other = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80, targetPort: 9}]}";
    let refused = cluster.refused("apply --server-side --field-manager=other -f -", other).await;
    let why =
        r#"Apply failed with 1 conflict: conflict with "kubectl": .spec.ports[port=80,protocol="TCP"].targetPort"#;
    assert!(refused.contains(why), "{refused}");
    cluster.with("apply --server-side --field-manager=other --force-conflicts -f -", other).await;
    assert_eq!(cluster.run("get svc web -o jsonpath={.spec.ports[0].targetPort}{.spec.ports[0].name}").await, "9http");
    let refused = cluster.refused("apply --server-side -f -", &changed).await;
    assert!(refused.contains(r#"conflict with "other": .spec.ports"#), "{refused}");
    let diff = cluster.output(&["diff", "--server-side", "--force-conflicts", "-f", "-"], &changed).await;
    assert_eq!(diff.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&diff.stdout).contains("+    targetPort: 8080"), "{diff:?}");
    cluster.with("apply --server-side --force-conflicts -f -", &changed).await;
    assert_eq!(cluster.with("diff --server-side -f -", &changed).await, "");
    assert_eq!(
        cluster.run("get deploy web -o jsonpath={.spec.replicas}").await,
        "3",
        "what a manifest leaves out stays"
    );
}

#[tokio::test]
async fn objects_are_patched_scaled_and_shown() {
    let Some(cluster) = cluster().await else { return };
    cluster.with("create -f -", MANIFEST).await;
    cluster.run("scale deploy web --replicas=4").await;
    cluster.run("wait --for=jsonpath={.spec.replicas}=4 deploy/web --timeout=5s").await;
    cluster.run("patch svc web -p {\"spec\":{\"ports\":[{\"port\":82,\"name\":\"b\"}]}}").await;
    cluster
        .run("patch svc web --type=json -p [{\"op\":\"replace\",\"path\":\"/spec/selector/app\",\"value\":\"x\"}]")
        .await;
    cluster.run("patch svc web --type=merge -p {\"spec\":{\"sessionAffinity\":\"ClientIP\"}}").await;
    let shown =
        cluster.run("get svc web -o jsonpath={.spec.ports[*].port},{.spec.selector.app},{.spec.sessionAffinity}").await;
    assert_eq!(shown, "80 82,x,ClientIP");
    cluster.run("label svc web tier=front").await;
    cluster.run("annotate ing web tidegate.io/x=y").await;
    assert_eq!(cluster.run("get svc -l tier=front -o name").await, "service/web");
    cluster.run("set image deploy/web web=echo:9").await;
    let status = "patch deploy web --subresource=status --type=merge -p {\"status\":{\"readyReplicas\":4,\"conditions\":[{\"type\":\"Available\",\"status\":\"True\"}]}}";
    cluster.run(status).await;
    cluster.run("wait --for=condition=Available deploy/web --timeout=5s").await;
    let table = cluster.run("get deploy,ing").await;
    assert!(table.contains("READY") && table.contains("4/4") && table.contains("web.example.com"), "{table}");
    assert!(cluster.run("describe ing web").await.contains("web.example.com"));
    assert!(cluster.run("describe deploy web").await.contains("echo:9"));
    assert!(cluster.run("api-resources").await.contains("networking.k8s.io/v1"));
    assert!(cluster.run("explain ingress.spec").await.contains("ingressClassName"));
    let stale = cluster.run("get svc web -o json").await;
    cluster.run("label svc web tier-").await;
    assert!(cluster.refused("replace -f -", &stale).await.contains("the object has been modified"));
}

#[tokio::test]
async fn kubectl_create_and_expose_work() {
    let Some(cluster) = cluster().await else { return };
    cluster.run("create namespace team").await;
    cluster.run("create deployment web --image=echo --port=8080 --replicas=0 -n team").await;
    assert_eq!(cluster.run("get deploy web -n team -o jsonpath={.spec.replicas}").await, "0");
    cluster.run("expose deployment web --port=80 --target-port=8080 -n team").await;
    cluster.run("create service clusterip s --tcp=80:8080 -n team").await;
    cluster.run("create configmap c --from-literal=a=b -n team").await;
    cluster.run("create ingress i --class=tidegate --rule=a.b/*=web:80,tls=t -n team").await;
    assert_eq!(cluster.run("get ing i -n team -o jsonpath={.spec.rules[0].http.paths[0].pathType}").await, "Prefix");
    cluster.run("create secret generic g --from-literal=a=b -n team").await;
    assert_eq!(cluster.run("get secret g -n team -o jsonpath={.data.a}").await, "Yg==");
    cluster.run("delete namespace team --timeout=10s").await;
    assert_eq!(cluster.run("get all,secrets,ing -n team -o name").await, "");
}

#[tokio::test]
async fn events_are_described_with_their_object() {
    let Some(cluster) = cluster().await else { return };
    cluster.with("create -f -", MANIFEST).await;
    let uid = cluster.run("get ing web -o jsonpath={.metadata.uid}").await;
    let event = serde_json::json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "web.1", "namespace": "default"},
        "eventTime": "2026-11-21T03:12:04.733123Z", "type": "Warning", "action": "Route", "reason": "RuleLost",
        "note": "another one serves", "reportingController": "tidegate.io/ingress", "reportingInstance": "edge-0",
        "regarding": {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "namespace": "default", "name": "web", "uid": uid},
    });
    cluster.with("create -f -", &event.to_string()).await;
    let shown = cluster.run("describe ing web").await;
    let line = shown.lines().find(|line| line.contains("RuleLost")).unwrap_or_else(|| panic!("{shown}"));
    assert!(
        line.contains("Warning") && line.contains("tidegate.io/ingress") && line.ends_with("another one serves"),
        "{line}"
    );
    assert!(cluster.run("get events").await.contains("ingress/web"));
    assert!(cluster.run("get events.events.k8s.io web.1 -o jsonpath={.note}").await.contains("another one serves"));
    assert!(cluster.run("explain events.regarding --api-version=events.k8s.io/v1").await.contains("uid"));
    assert!(cluster.run("describe svc web").await.contains("Events:"));
    assert!(!cluster.run("describe svc web").await.contains("RuleLost"));
}

#[tokio::test]
async fn a_watch_shows_changes_as_they_come() {
    let Some(cluster) = cluster().await else { return };
    let mut child = cluster.command(&["get", "cm", "-w", "--output-watch-events"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The watch begins some time after the command; only later changes are checked.
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.run("create configmap a --from-literal=a=b").await;
    cluster.run("label configmap a x=y").await;
    cluster.run("delete configmap a").await;
    for expected in ["EVENT NAME", "ADDED a", "MODIFIED a", "DELETED a"] {
        let line = tokio::time::timeout(Duration::from_secs(10), lines.next_line()).await.unwrap().unwrap().unwrap();
        assert_eq!(line.split_whitespace().take(2).collect::<Vec<_>>().join(" "), expected);
    }
    child.kill().await.unwrap();
}

const WIDGETS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        description: A widget is a thing.
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, description: How large it is.}
"#;

const WIDGET: &str = r#"
apiVersion: example.com/v1
kind: Widget
metadata: {name: a}
spec: {size: 3}
"#;

#[tokio::test]
async fn kubectl_handles_custom_kinds() {
    let Some(cluster) = cluster().await else { return };
    cluster.with("apply -f -", WIDGETS).await;
    cluster.run("wait --for=condition=Established crd/widgets.example.com --timeout=10s").await;
    assert!(cluster.run("get crd").await.contains("widgets.example.com"));
    assert!(cluster.run("describe crd widgets.example.com").await.contains("no conflicts found"));
    assert!(cluster.run("api-resources --api-group=example.com").await.contains("wd"));
    assert!(cluster.run("explain widget").await.contains("A widget is a thing."));
    assert!(cluster.run("explain widget.spec.size").await.contains("How large it is."));
    cluster.with("apply -f -", WIDGET).await;
    assert!(cluster.with("apply -f -", WIDGET).await.contains("unchanged"));
    cluster.with("apply -f -", &WIDGET.replace("size: 3", "size: 4")).await;
    assert_eq!(cluster.run("get wd a -o jsonpath={.spec.size},{.metadata.generation}").await, "4,2");
    assert!(cluster.run("get all").await.contains("widget.example.com/a"));
    assert!(cluster.run("describe wd a").await.contains("Size:"));
    cluster.run("label wd a tier=front").await;
    cluster.run("delete wd -l tier=front --timeout=10s").await;
    cluster.with("create -f -", WIDGET).await;
    cluster.run("delete crd widgets.example.com --timeout=10s").await;
    // kubectl's discovery cache may outlive the kind.
    let why = cluster.refused("get widgets", "").await;
    assert!(
        why.contains("doesn't have a resource type") || why.contains("could not find the requested resource"),
        "{why}"
    );
}

#[tokio::test]
async fn every_client_is_a_cluster_admin() {
    let Some(cluster) = cluster().await else { return };
    assert_eq!(cluster.run("auth can-i create ingresses").await, "yes");
    assert_eq!(cluster.run("auth can-i get /healthz").await, "yes");
    assert!(cluster.run("auth can-i --list").await.contains("*.*"));
    assert!(cluster.run("auth whoami").await.contains("system:masters"));
    let question = "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\nspec: {}";
    let why = cluster.refused("create -f -", question).await;
    assert!(why.contains("exactly one of nonResourceAttributes or resourceAttributes"), "{why}");
}

#[tokio::test]
async fn a_node_port_belongs_to_one_service() {
    let Some(cluster) = cluster().await else { return };
    cluster.run("create service nodeport first --tcp=80 --node-port=30000").await;
    let why = cluster.refused("create service nodeport second --tcp=80 --node-port=30000", "").await;
    assert!(why.contains("spec.ports[0].nodePort: Invalid value: 30000: provided port is already allocated"), "{why}");
    cluster.run("create service nodeport second --tcp=80 --node-port=30001").await;
    let taken = r#"{"spec": {"ports": [{"port": 80, "nodePort": 30000}]}}"#;
    let patch = ["patch", "service", "second", "-p", taken];
    assert!(!cluster.output(&patch, "").await.status.success());
    // A Service that keeps its own port does not conflict with itself.
    cluster.run("label service first seen=yes").await;
    cluster.run("delete service first").await;
    assert!(cluster.output(&patch, "").await.status.success());
}

#[tokio::test]
async fn an_unknown_kind_is_named_in_the_error() {
    let Some(cluster) = cluster().await else { return };
    let why = cluster.refused("apply -f -", "apiVersion: example.com/v1\nkind: Nothing\nmetadata: {name: a}").await;
    assert!(why.contains("no matches for kind \"Nothing\" in version \"example.com/v1\""), "{why}");
}
