//! A real control plane: etcd, kube-apiserver and kube-controller-manager as processes, and a stand-in for kubelets
//! that runs each pod as a process with an address of its own. Everything is in namespaces that [`enter`] makes.
//!
//! The binary is built by `tests/cluster/build`; `tests/cluster/README.md` explains how it stands in for nodes.

mod account;
mod api;
mod edge;
mod etcd;
mod namespace;
mod part;
mod steady;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use http::Method;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio::process::Command;

pub use self::api::Api;
pub use self::edge::{Edge, PUBLIC, environment, manifest};
pub use self::namespace::{Entered, Network, enter};
pub use self::part::Memory;
use self::part::Part;
pub use self::steady::{Gap, Steady, Taken};
use crate::{Kubectl, eventually};

const ETCD: &str = "http://127.0.0.1:2379";
/// The advertised address of the API server. Nothing listens there: clients of the tests use its loopback address.
const ADVERTISED: &str = "10.244.0.1";
const API_SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 6443);
/// A name for `--token-auth-file`, not a secret: no other program reaches the server.
const ADMIN: &str = "admin";

/// Every request by a service account is logged when it is answered, and every watch also when it begins.
const AUDIT: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}]}"#;

/// The controllers whose work is visible at the edge.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,endpointslice-controller,\
    endpointslice-mirroring-controller,endpoints-controller,namespace-controller,garbage-collector-controller";

/// A control plane with one node. It ends with its handle.
#[derive(Debug)]
pub struct Cluster {
    binary: PathBuf,
    folder: PathBuf,
    // Dropped, and so killed, in this order.
    controllers: Option<Part>,
    _node: Option<Part>,
    api_server: Option<Part>,
    _etcd: Part,
    /// The administrator's requests.
    pub api: Api,
    /// The administrator's kubectl.
    pub kubectl: Kubectl,
}

impl Cluster {
    /// Starts it from this binary, with its files in this folder, and waits until the API server is ready.
    pub async fn start(binary: &Path, folder: &Path) -> Self {
        Self::start_with(binary, folder, &[]).await
    }

    /// The same with more arguments for the stand-in for nodes.
    pub async fn start_with(binary: &Path, folder: &Path, node_arguments: &[&str]) -> Self {
        credentials(folder);
        let mut etcd = Command::new(binary);
        etcd.args(["etcd", "--unsafe-no-fsync", "--log-level=error", "--listen-peer-urls=http://127.0.0.1:2380"]);
        etcd.args([
            "--initial-advertise-peer-urls=http://127.0.0.1:2380",
            "--initial-cluster=default=http://127.0.0.1:2380",
        ]);
        etcd.arg(format!("--listen-client-urls={ETCD}")).arg(format!("--advertise-client-urls={ETCD}"));
        etcd.arg("--data-dir").arg(folder.join("etcd"));
        let etcd = Part::start(folder, "etcd", &mut etcd);

        let api = Api { address: API_SERVER, token: ADMIN.to_owned() };
        let kubeconfig = kubeconfig(folder, "admin", ADMIN);
        let kubectl = Kubectl::for_config(&kubeconfig).expect("kubectl, which was there before");
        let mut cluster = Self {
            binary: binary.to_owned(),
            folder: folder.to_owned(),
            controllers: None,
            _node: None,
            api_server: None,
            _etcd: etcd,
            api,
            kubectl,
        };
        cluster.start_api_server().await;
        let mut node = Command::new(binary);
        node.arg("node").arg("--kubeconfig").arg(&kubeconfig).args(node_arguments);
        cluster._node = Some(Part::start(folder, "node", &mut node));
        cluster
    }

    /// The folder of the logs and the other files of this cluster.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A kubeconfig of this name with this token.
    #[must_use]
    pub fn kubeconfig(&self, name: &str, token: &str) -> PathBuf {
        kubeconfig(&self.folder, name, token)
    }

    /// A token of a service account of the namespace `tidegate`, valid as long as the object exists that it is bound
    /// to; for an hour if `bound_to` is null.
    pub async fn token(&self, account: &str, bound_to: &Value) -> String {
        let spec = json!({"expirationSeconds": 3600, "boundObjectRef": bound_to});
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let path = format!("/api/v1/namespaces/tidegate/serviceaccounts/{account}/token");
        let answer = self.api.create(&path, &request).await;
        answer["status"]["token"].as_str().expect("a token").to_owned()
    }

    /// Starts the API server on the data of etcd, waits until it is ready, and restarts the controllers: informers that
    /// have seen it down more than once would not retry for up to a minute.
    ///
    /// # Panics
    /// When it is already running.
    pub async fn start_api_server(&mut self) {
        assert!(self.api_server.is_none(), "it runs");
        let file = |name: &str| self.folder.join(name).display().to_string();
        let mut command = Command::new(&self.binary);
        command.args(["kube-apiserver", "--bind-address=127.0.0.1", "--authorization-mode=RBAC"]);
        command.args([&format!("--etcd-servers={ETCD}"), &format!("--secure-port={}", API_SERVER.port())]);
        command.args([&format!("--advertise-address={ADVERTISED}"), "--endpoint-reconciler-type=none"]);
        command.args(["--service-cluster-ip-range=10.96.0.0/12", "--service-account-issuer=https://cluster.test"]);
        // Pods do not use tokens here, so that namespaces need no default account.
        command.arg("--disable-admission-plugins=ServiceAccount");
        for (flag, name) in [
            ("tls-cert-file", "server.crt"),
            ("tls-private-key-file", "server.key"),
            ("service-account-key-file", "accounts.pub"),
            ("service-account-signing-key-file", "accounts.key"),
            ("token-auth-file", "tokens"),
            ("audit-policy-file", "audit-policy"),
            ("audit-log-path", "audit.log"),
            ("cert-dir", "."),
        ] {
            command.arg(format!("--{flag}={}", file(name)));
        }
        let part = self.api_server.insert(Part::start(&self.folder, "kube-apiserver", &mut command));
        let ready = eventually("the API server is ready", || async {
            let (status, answer) = self.api.ask(Method::GET, "/readyz", None).await?;
            if status == 200 { Ok(()) } else { Err(answer.to_string()) }
        });
        tokio::select! {
            () = ready => {}
            code = part.ended() => panic!("it ended with {code:?}: {}", part.last_words()),
        }
        let mut controllers = Command::new(&self.binary);
        controllers.arg("kube-controller-manager").arg("--kubeconfig").arg(self.kubeconfig("admin", ADMIN));
        controllers.args([&format!("--controllers={CONTROLLERS}"), "--leader-elect=false", "--secure-port=0"]);
        controllers.args(["--endpointslice-updates-batch-period=0s", "--kube-api-qps=500", "--kube-api-burst=1000"]);
        self.controllers = Some(Part::start(&self.folder, "kube-controller-manager", &mut controllers));
    }

    /// Kills the API server as a crash would, and the controllers with it.
    ///
    /// # Panics
    /// When it is not running.
    pub async fn crash_api_server(&mut self) {
        self.controllers.take().expect("they run").crash().await;
        self.api_server.take().expect("it runs").crash().await;
    }

    /// The objects of an application and their status, for a test that fails.
    pub async fn state(&self) -> String {
        let kinds = "deployments,replicasets,pods,endpointslices";
        let (_, told, complaint) = self.kubectl.tried(&["get", kinds, "--all-namespaces", "--output=wide"], "").await;
        told + &complaint
    }

    /// The requests of this service account so far, in the order of the responses.
    #[must_use]
    pub fn asked_by(&self, namespace: &str, account: &str) -> Vec<Value> {
        let user = format!("system:serviceaccount:{namespace}:{account}");
        let text = std::fs::read_to_string(self.folder.join("audit.log")).expect("an audit log");
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["user"]["username"] == user).collect()
    }
}

/// The files of the API server: its certificate and the authority that signed it, the key of service accounts, the one
/// user with a fixed token, and the audit policy.
fn credentials(folder: &Path) {
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file");
    let key = || KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = key();
    write("authority.crt", &authority.self_signed(&authority_key).expect("a certificate").pem());
    let server_key = key();
    let names = ["localhost".to_owned(), API_SERVER.ip().to_string()];
    let server = CertificateParams::new(names).expect("names");
    let server = server.signed_by(&server_key, &Issuer::new(authority, authority_key)).expect("a certificate");
    write("server.crt", &server.pem());
    write("server.key", &server_key.serialize_pem());
    let accounts = key();
    write("accounts.key", &accounts.serialize_pem());
    write("accounts.pub", &accounts.public_key_pem());
    write("tokens", &format!("{ADMIN},admin,admin,\"system:masters\"\n"));
    write("audit-policy", AUDIT);
}

fn kubeconfig(folder: &Path, name: &str, token: &str) -> PathBuf {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "tests",
        "clusters": [{"name": "tests", "cluster":
            {"server": format!("https://{API_SERVER}"), "certificate-authority": folder.join("authority.crt")}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": name}}],
    });
    let path = folder.join(format!("{name}.kubeconfig"));
    std::fs::write(&path, config.to_string()).expect("a kubeconfig");
    path
}
