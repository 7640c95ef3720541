//! The shared stage of the cases: the cluster, Tidegate on it, applications to route to, and the measured times.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Trial};
use serde_json::{Value, json};
use tidegate_tests::cluster::{Cluster, Edge, Steady};
use tidegate_tests::{Answer, eventually, get};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

const APP: &str = include_str!("../manifests/app.yaml");

/// A case and its name.
pub(crate) type Case = (&'static str, fn(&mut Stage) -> LocalBoxFuture<'_, ()>);

/// A list of cases.
macro_rules! cases {
    ($($module:ident::$name:ident),* $(,)?) => {
        [$((concat!(stringify!($module), "::", stringify!($name)),
            (|stage| Box::pin($module::$name(stage))) as fn(&mut stage::Stage) -> futures::future::LocalBoxFuture<'_, ()>)),*]
    };
}
pub(crate) use cases;

/// Runs the cases inside of the namespaces; the second list with `--ignored`.
pub(crate) fn run(arguments: &Arguments, cases: (&[Case], &[Case]), place: (PathBuf, PathBuf)) -> ExitCode {
    let place = Arc::new(place);
    let runtime = Arc::new(Runtime::new().expect("a runtime"));
    // The first case that runs creates it. It ends with the process, and everything in its namespace with it.
    let stage = Arc::new(Mutex::new(Set::NotYet));
    let trial = |(name, case): &Case, on_demand: bool| {
        let (runtime, stage, place, case) = (Arc::clone(&runtime), Arc::clone(&stage), Arc::clone(&place), *case);
        Trial::test(*name, move || {
            runtime.block_on(played(&stage, case, &place));
            Ok(())
        })
        .with_ignored_flag(on_demand)
    };
    let usual = cases.0.iter().map(|case| trial(case, false));
    let trials = usual.chain(cases.1.iter().map(|case| trial(case, true))).collect();
    libtest_mimic::run(arguments, trials).exit_code()
}

/// Reports the cases as skipped if they cannot run.
pub(crate) fn left_out(arguments: &Arguments, cases: &[Case]) -> ExitCode {
    let trial = |(name, _): &Case| Trial::test(*name, || Ok(())).with_ignored_flag(true);
    libtest_mimic::run(arguments, cases.iter().map(trial).collect()).exit_code()
}

/// Returns `true` if the command line selects every case.
pub(crate) fn whole() -> bool {
    let asked = Arguments::from_args();
    asked.filter.is_none() && asked.skip.is_empty() && !asked.ignored
}

async fn played(stage: &Mutex<Set>, case: fn(&mut Stage) -> LocalBoxFuture<'_, ()>, place: &(PathBuf, PathBuf)) {
    let mut stage = stage.lock().await;
    if let Set::NotYet = *stage {
        *stage = Set::Failed;
        *stage = Set::Up(Box::new(Stage::start(&place.0, &place.1).await));
    }
    let Set::Up(stage) = &mut *stage else { panic!("the cluster has not started, see the first case") };
    let over = std::panic::AssertUnwindSafe(case(stage)).catch_unwind().await;
    let bystander = stage.bystander.replace(stage.steady("bystander.test"));
    if let Err(panic) = over {
        println!("Tidegate's last words:\n{}\nthe cluster:\n{}", stage.edge.last_words(), stage.cluster.state().await);
        std::panic::resume_unwind(panic);
    }
    bystander.expect("it is always there").stop().await.all();
}

/// The state of the stage: a cluster that has failed to start once is not started again for every case.
enum Set {
    NotYet,
    Failed,
    Up(Box<Stage>),
}

/// A cluster with Tidegate on it, and a client of a host that no case changes.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) edge: Edge,
    bystander: Option<Steady>,
}

impl Stage {
    async fn start(control_plane: &Path, folder: &Path) -> Self {
        let begun = tidegate_tests::moment();
        let cluster = Cluster::start(control_plane, folder).await;
        measured("the control plane starts", begun);
        let edge = Edge::start(&cluster).await;
        let mut stage = Self { cluster, edge, bystander: None };
        stage.app("bystander").await;
        stage.bystander = Some(stage.steady("bystander.test"));
        stage
    }

    /// Creates a namespace with a Deployment of two pods, a Service and an Ingress for `NAME.test`, which responds with
    /// `one`, and waits until that is routed.
    pub(crate) async fn app(&self, name: &str) {
        let begun = tidegate_tests::moment();
        self.cluster.kubectl.fed(&["apply", "-f", "-"], &APP.replace("NAME", name)).await;
        measured("kubectl applies an application", begun);
        self.until(&format!("{name}.test"), "it answers", |answer| answer.status == 200).await;
        self.settled(name).await;
        measured("  its first answer, and all pods ready", begun);
    }

    /// Waits until the Deployment has exactly its desired pods.
    pub(crate) async fn settled(&self, name: &str) {
        let path = deployment(name);
        let pods = format!("/api/v1/namespaces/{name}/pods");
        eventually("the Deployment is complete", || async {
            let object = self.cluster.api.get(&path).await;
            let status = &object["status"];
            let want = &object["spec"]["replicas"];
            let is = |field: &str| status[field].as_u64().unwrap_or(0) == want.as_u64().unwrap_or(0);
            let seen = status["observedGeneration"] == object["metadata"]["generation"];
            let there = self.cluster.api.get(&pods).await["items"].as_array().map_or(0, Vec::len);
            let done = seen && is("availableReplicas") && is("updatedReplicas") && is("replicas");
            if done && Some(there as u64) == want.as_u64() { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }

    /// Requests the root of a host until the response is the right one, and returns it.
    pub(crate) async fn until(&self, host: &str, what: &str, right: impl Fn(&Answer) -> bool) -> Answer {
        eventually(&format!("{host}: {what}"), || async {
            let answer = get(self.edge.http, host, "/").await?;
            if right(&answer) { Ok(answer) } else { Err(format!("{} {}", answer.status, answer.body)) }
        })
        .await
    }

    /// Changes an object by a merge patch, and measures the time until a host's response is the right one.
    pub(crate) async fn change(
        &self,
        path: &str,
        patch: &Value,
        host: &str,
        what: &str,
        right: impl Fn(&Answer) -> bool,
    ) {
        let begun = tidegate_tests::moment();
        self.cluster.api.merge(path, patch).await;
        let accepted = begun.elapsed().as_millis();
        self.until(host, what, right).await;
        measured(&format!("{what} (accepted after {accepted} ms)"), begun);
    }

    /// Writes the kubeconfig of a service account with the rights of `deploy/`, for an edge that uses another address
    /// of the API server and an authority's file.
    pub(crate) async fn write_kubeconfig(&self, account: &str, address: &str, authority: &Path, to: &Path) {
        let rights = format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {account}, namespace: tidegate}}\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: tidegate-{account}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tidegate}}\n\
             subjects: [{{kind: ServiceAccount, name: {account}, namespace: tidegate}}]\n"
        );
        self.cluster.kubectl.fed(&["apply", "-f", "-"], &rights).await;
        let token = self.cluster.token(account, &Value::Null).await;
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": account,
            "clusters": [{"name": account, "cluster": {"server": format!("https://{address}"), "tls-server-name": "localhost",
                "certificate-authority": authority}}],
            "users": [{"name": account, "user": {"token": token}}],
            "contexts": [{"name": account, "context": {"cluster": account, "user": account}}],
        });
        std::fs::write(to, config.to_string()).expect("a kubeconfig");
    }

    /// Starts a client that requests the root of a host.
    pub(crate) fn steady(&self, host: &str) -> Steady {
        Steady::start(self.edge.http, host, "/")
    }
}

/// Prints a duration: tests never judge it.
pub(crate) fn measured(what: &str, begun: Instant) {
    println!("    {:>6} ms  {what}", begun.elapsed().as_millis());
}

pub(crate) fn deployment(name: &str) -> String {
    format!("/apis/apps/v1/namespaces/{name}/deployments/web")
}

pub(crate) fn service(name: &str) -> String {
    format!("/api/v1/namespaces/{name}/services/web")
}

pub(crate) fn ingress(name: &str) -> String {
    format!("/apis/networking.k8s.io/v1/namespaces/{name}/ingresses/web")
}

/// A rule of an Ingress that sends all of a host to a port of the Service.
pub(crate) fn rule(host: &str, port: u16) -> Value {
    let backend = json!({"service": {"name": "web", "port": {"number": port}}});
    json!({"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}})
}
