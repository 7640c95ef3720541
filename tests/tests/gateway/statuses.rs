//! Statuses of many routes on many listeners: all are written, and a change writes only the statuses that it changes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use super::*;

const LISTENERS: u16 = 5;
const ROUTES: usize = 150;
const API: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/shop";

fn manifests() -> String {
    let mut out = String::from(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: front}\nspec: {ports: [{port: 80}]}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: tidegate}\n\
         spec: {controllerName: tidegate.io/gateway}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {namespace: shop, name: edge}\n\
         spec:\n  gatewayClassName: tidegate\n  listeners:\n",
    );
    for number in 0..LISTENERS {
        writeln!(out, "  - {{name: l{number}, port: {}, protocol: HTTP}}", 9000 + number).unwrap();
    }
    for number in 0..ROUTES {
        write!(
            out,
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{namespace: shop, name: r{number}}}\n\
             spec: {{parentRefs: [{{name: edge}}], hostnames: [r{number}.test], rules: [{{backendRefs: [{{name: front, port: 80}}]}}]}}\n"
        )
        .unwrap();
    }
    out
}

/// The objects of one kind as a watch reports them, and the number of writes of each status.
struct Followed {
    _kubectl: Child,
    lines: Lines<BufReader<ChildStdout>>,
    objects: BTreeMap<String, Value>,
    writes: BTreeMap<String, usize>,
}

impl Followed {
    async fn start(kubectl: &Kubectl, plural: &str) -> Self {
        let list: Value =
            serde_json::from_str(&kubectl.run(&["get", "--raw", &format!("{API}/{plural}")]).await).unwrap();
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let path = format!("{API}/{plural}?watch=true&resourceVersion={version}");
        let mut watch = kubectl.command();
        let mut watch = watch.args(["get", "--raw", &path]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        let objects = list["items"].as_array().unwrap().iter().map(|object| (name(object), object.clone())).collect();
        Self { _kubectl: watch, lines, objects, writes: BTreeMap::new() }
    }

    /// Reads events until a condition holds for all objects.
    async fn until(&mut self, what: &str, holds: impl Fn(&BTreeMap<String, Value>) -> bool) {
        let holding = async {
            while !holds(&self.objects) {
                let line = self.lines.next_line().await.unwrap().expect("the watch goes on");
                let mut event: Value = serde_json::from_str(&line).unwrap();
                let object = event["object"].take();
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                if event["type"] == "DELETED" {
                    self.objects.remove(&name);
                    continue;
                }
                let before = self.objects.insert(name.clone(), object.clone());
                if before.is_none_or(|before| before["status"] != object["status"]) {
                    *self.writes.entry(name).or_default() += 1;
                }
            }
        };
        let held = tokio::time::timeout(std::time::Duration::from_secs(300), holding).await;
        assert!(held.is_ok(), "{what} never came true");
    }

    /// The objects whose status was written since the last call, with the number of writes.
    fn take_writes(&mut self) -> Vec<(String, usize)> {
        std::mem::take(&mut self.writes).into_iter().collect()
    }
}

/// Whether every condition for the only parent is true and about the current generation of the route.
fn settled(route: &Value) -> bool {
    let generation = &route["metadata"]["generation"];
    let parents = route["status"]["parents"].as_array().map(Vec::as_slice).unwrap_or_default();
    let about = |condition: &Value| condition["observedGeneration"] == *generation && condition["status"] == "True";
    matches!(parents, [one] if one["conditions"].as_array().is_some_and(|all| all.len() == 2 && all.iter().all(about)))
}

fn counts(gateways: &BTreeMap<String, Value>) -> Vec<u64> {
    let listeners = gateways["edge"]["status"]["listeners"].as_array().into_iter().flatten();
    listeners.filter_map(|listener| listener["attachedRoutes"].as_u64()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_changed_route_writes_one_status_among_many() {
    let id = std::process::id().to_le_bytes();
    let address = Ipv4Addr::new(127, 64 + id[1] % 64, id[0], 15 * 8 + 1);
    let manifests = manifests();
    let dev = Dev::with(&[("all.yaml", &manifests)], &["--gateway-addresses", &address.to_string()]).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let mut routes = Followed::start(&kubectl, "httproutes").await;
    let mut gateways = Followed::start(&kubectl, "gateways").await;
    let all = vec![u64::try_from(ROUTES).unwrap(); usize::from(LISTENERS)];
    routes.until("every route has a status", |all| all.len() == ROUTES && all.values().all(settled)).await;
    gateways.until("all routes are counted", |gateways| counts(gateways) == all).await;
    routes.take_writes();
    gateways.take_writes();

    // Each change is observed before the next one is made.
    for name in ["r7", "r8"] {
        let patch = format!(r#"{{"spec":{{"hostnames":["new-{name}.test"]}}}}"#);
        kubectl.run(&["patch", "-n", "shop", "httproute", name, "--type=merge", "-p", &patch]).await;
        routes
            .until("the changed route has its status", |all| {
                all[name]["metadata"]["generation"] == 2 && settled(&all[name])
            })
            .await;
        assert_eq!(routes.take_writes(), [(name.to_owned(), 1)]);
    }
    kubectl.run(&["delete", "-n", "shop", "httproute", "r9"]).await;
    let fewer: Vec<u64> = all.iter().map(|count| count - 1).collect();
    gateways.until("one route less is counted", |gateways| counts(gateways) == fewer).await;
    assert_eq!(gateways.take_writes(), [("edge".to_owned(), 1)]);
    routes.until("the route is gone", |all| all.len() == ROUTES - 1).await;
    assert_eq!(routes.take_writes(), []);
}
