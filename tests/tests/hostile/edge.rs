//! The binary under attack, with the tenants' routes.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;
use tidegate_tests::{Answer, Dev, Launch, eventually, get};
use tokio::time::timeout;

use crate::endpoint::{Endpoint, READY};

/// The value of `--driver`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Driver {
    /// The native driver, and the Pingora driver for the requests that the native one leaves to it.
    Both,
    /// The Pingora driver alone.
    Pingora,
}

impl Driver {
    const fn flag(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Pingora => "pingora",
        }
    }
}

/// A running edge. It ends with its handle.
#[derive(Debug)]
pub(crate) struct Edge {
    dev: Dev,
    files: TempDir,
}

impl Edge {
    /// Starts one with two traffic threads that routes `NAME.test` to each endpoint, and waits until it does.
    pub(crate) async fn start(driver: Driver, tenants: &[(&str, &Endpoint)]) -> Self {
        Self::limited(driver, tenants, None).await
    }

    /// Like [`Edge::start`], with a limit of open files.
    pub(crate) async fn limited(driver: Driver, tenants: &[(&str, &Endpoint)], open_files: Option<u32>) -> Self {
        let tenants: Vec<(&str, SocketAddr)> =
            tenants.iter().map(|(name, endpoint)| (*name, endpoint.address())).collect();
        Self::at(driver, &tenants, open_files).await
    }

    /// The same with endpoints at these addresses.
    pub(crate) async fn at(driver: Driver, tenants: &[(&str, SocketAddr)], open_files: Option<u32>) -> Self {
        raise_open_files();
        let files = tempfile::tempdir().expect("a folder");
        let manifests: Vec<(String, String)> =
            tenants.iter().map(|(name, address)| (format!("{name}.yaml"), manifest(name, address.port()))).collect();
        let manifests: Vec<(&str, &str)> = manifests.iter().map(|(name, text)| (&**name, &**text)).collect();
        let access_log = files.path().join("access.log");
        let access_log = access_log.to_str().expect("UTF-8");
        let arguments = ["--driver", driver.flag(), "--threads", "2", "--access-log", access_log];
        let launch = Launch { open_files, log: Some(files.path().join("process.log")) };
        let edge = Self { dev: Dev::launched(&manifests, &arguments, &launch).await, files };
        for (name, _) in tenants {
            let host = format!("{name}.test");
            eventually(&format!("{host} is routed"), || async {
                let answer = get(edge.http(), &host, READY).await?;
                if answer.status == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
            })
            .await;
        }
        edge
    }

    /// The address of HTTP.
    pub(crate) const fn http(&self) -> SocketAddr {
        self.dev.http
    }

    /// The address of dumps and commands.
    pub(crate) const fn debug(&self) -> SocketAddr {
        self.dev.debug
    }

    /// The access log as it is now.
    pub(crate) fn access_log(&self) -> Vec<u8> {
        std::fs::read(self.path("access.log")).expect("an access log")
    }

    /// The log of the process as it is now.
    pub(crate) fn process_log(&self) -> String {
        std::fs::read_to_string(self.path("process.log")).expect("a log")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// A page of the admin address, within a time.
    pub(crate) async fn admin(&self, path: &str, time: Duration) -> Result<Answer, String> {
        admin(self.dev.admin, path, time).await
    }

    /// The admin address.
    pub(crate) const fn admin_address(&self) -> SocketAddr {
        self.dev.admin
    }

    /// The number of requests that the edge answered itself for a reason.
    pub(crate) async fn answered(&self, reason: &str) -> u64 {
        let page = self.admin("/metrics", Duration::from_secs(20)).await.expect("metrics").body;
        let name = format!("tidegate_requests_by_reason_total{{reason=\"{reason}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().expect("a count"))
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        resident_kib(self.dev.id()).expect("it runs")
    }

    /// Its process id.
    pub(crate) fn process(&self) -> u32 {
        self.dev.id()
    }
}

/// Raises the limit of open files of this process, which plays clients and endpoints.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("a limit of open files");
}

/// A page of an admin address, within a time.
pub(crate) async fn admin(address: SocketAddr, path: &str, time: Duration) -> Result<Answer, String> {
    timeout(time, get(address, "localhost", path)).await.map_err(|_| format!("{path} took longer than {time:?}"))?
}

/// Resident memory of a process in KiB; `None` when it is gone.
pub(crate) fn resident_kib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// A tenant's objects: a namespace, a Service without a selector, its one endpoint, and the Ingress of `NAME.test`.
fn manifest(name: &str, port: u16) -> String {
    let mut text = String::new();
    let _infallible = write!(
        text,
        "apiVersion: v1
kind: Namespace
metadata: {{name: {name}}}
---
apiVersion: v1
kind: Service
metadata: {{namespace: {name}, name: {name}}}
spec: {{ports: [{{port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{namespace: {name}, name: {name}, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{port: {port}}}]
endpoints: [{{addresses: [127.0.0.1]}}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{namespace: {name}, name: {name}}}
spec:
  ingressClassName: tidegate
  rules:
  - host: {name}.test
    http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: {name}, port: {{number: 80}}}}}}}}]}}
"
    );
    text
}
