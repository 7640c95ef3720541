//! The cluster that the suite runs on, and Tidegate on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use serde_json::json;
use tidegate_tests::cluster::{Cluster, Edge, Network};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::suite::{Suite, Tally};

/// The cases: the pods of the suite without an edge, and all of the suite, which runs on demand.
pub(crate) const CASES: [&str; 2] = ["the_pods_of_the_suite_answer", "the_suite_passes"];

/// The image of all pods of the suite.
const IMAGE: &str = "registry.k8s.io/gateway-api/conformance/echo-basic";

/// The addresses of Gateways: all of them in [`Network::Bridged`].
const GATEWAY_ADDRESSES: &str = "10.245.0.1-10.245.0.250";

/// One of those, and an unused address, for the test of requested Gateway addresses.
const ADDRESSES: [&str; 2] = ["-usable-address=10.245.0.200", "-unusable-address=192.0.2.1"];

/// The prepared environment.
pub(crate) struct Place {
    pub(crate) control_plane: PathBuf,
    pub(crate) folder: PathBuf,
    /// The output of `tests/conformance/build`.
    pub(crate) built: PathBuf,
}

/// Runs the cases inside of the namespaces.
pub(crate) fn run(arguments: &Arguments, place: Place) -> ExitCode {
    let runtime = Arc::new(Runtime::new().expect("a runtime"));
    let stage = Arc::new(Stage { place, cluster: OnceCell::new() });
    let [pods, suite] = CASES;
    let trial = |name: &str, whole: bool| {
        let (runtime, stage) = (Arc::clone(&runtime), Arc::clone(&stage));
        let case = move || {
            let tally = runtime.block_on(async { if whole { stage.suite().await } else { stage.pods().await } });
            if tally.is_clean() { Ok(()) } else { Err(tally.to_string().into()) }
        };
        Trial::test(name, case).with_ignored_flag(whole)
    };
    libtest_mimic::run(arguments, vec![trial(pods, false), trial(suite, true)]).exit_code()
}

struct Stage {
    place: Place,
    cluster: OnceCell<Cluster>,
}

impl Stage {
    /// The pods of the suite, requested by the suite's clients directly.
    async fn pods(&self) -> Tally {
        let cluster = self.cluster().await;
        self.of(cluster).run("TestPods", &[]).await
    }

    /// The suite, with the arguments of `tests/conformance/run`.
    async fn suite(&self) -> Tally {
        let cluster = self.cluster().await;
        let class = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": "gateway-conformance"}, "spec": {"controllerName": "tidegate.io/gateway"},
        });
        cluster.kubectl.fed(&["apply", "-f", "-"], &class.to_string()).await;
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("deploy");
        for component in ["gateway", "gateway-services"] {
            let rights = deploy.join(component).join("rbac.yaml");
            cluster.kubectl.run(&["apply", "-f", rights.to_str().expect("UTF-8")]).await;
        }
        let flags = ["--source=gateway", "--gateway-addresses", GATEWAY_ADDRESSES, "--gateway-services=headless"];
        let edge = Edge::start_with(cluster, &flags).await;
        let mut arguments: Vec<String> = ADDRESSES.map(str::to_owned).to_vec();
        arguments.extend(asked());
        let tally = self.of(cluster).run("TestConformance", &arguments).await;
        println!("Tidegate's memory: {}", edge.memory());
        keep_logs(cluster.folder());
        if !tally.is_clean() {
            println!("Tidegate's last words:\n{}", edge.last_words());
        }
        tally
    }

    /// A cluster with the kinds of the Gateway API, whose node runs the suite's image.
    async fn cluster(&self) -> &Cluster {
        let started = async {
            let Place { control_plane, folder, built } = &self.place;
            let image = format!("{IMAGE}={}", built.join("echo-basic").display());
            let pods = folder.join("pods");
            fs::create_dir(&pods).expect("a folder");
            let pods = pods.to_str().expect("UTF-8");
            let node = ["--bridge", Network::BRIDGE, "--image", &image, "--folder", pods];
            let cluster = Cluster::start_with(control_plane, folder, &node).await;
            let definitions = built.join("definitions");
            let definitions = definitions.to_str().expect("UTF-8");
            cluster.kubectl.run(&["apply", "--server-side", "-f", definitions]).await;
            cluster.kubectl.run(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await;
            cluster
        };
        self.cluster.get_or_init(|| started).await
    }

    fn of(&self, cluster: &Cluster) -> Suite {
        let kubeconfig = self.place.folder.join("admin.kubeconfig");
        Suite { program: self.place.built.join("suite"), kubeconfig, folder: cluster.folder().to_owned() }
    }
}

/// Copies the logs of all parts to the requested folder, if there is one.
fn keep_logs(folder: &Path) {
    let Some(wanted) = variable("CONFORMANCE_LOGS") else { return };
    fs::create_dir_all(&wanted).expect("a folder");
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "log") {
            fs::copy(&path, Path::new(&wanted).join(path.file_name().expect("a name"))).expect("a copy");
        }
    }
}

/// Arguments for the suite, one per line.
fn asked() -> Vec<String> {
    let text = variable("CONFORMANCE_ARGUMENTS").unwrap_or_default();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[allow(clippy::disallowed_methods, reason = "the flags of cargo test are taken, so the environment carries these")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
