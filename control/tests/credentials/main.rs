//! Credentials that change while the process runs: each file is read again, and a broken one changes nothing.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

mod certificates;
mod plugins;
mod server;
mod tokens;

use std::path::Path;

use http::Request;
use prometheus::{Encoder as _, Registry, TextEncoder};
use tidegate_control::client::{Access, Deadlines, connect};
use tidegate_control::{ApiServer, Following};

/// A client by a kubeconfig, with the metrics of its files.
struct Asking {
    client: kube::Client,
    registry: Registry,
}

impl Asking {
    fn by(kubeconfig: &Path) -> Self {
        let (following, registry) = (Following::new().unwrap(), Registry::new());
        following.register(&registry).unwrap();
        let access = Access::kubeconfig(&following, kubeconfig, None).unwrap();
        Self { client: connect(&access, Deadlines::WRITE, &ApiServer::default()).unwrap(), registry }
    }

    /// The body of an answer, or a failure.
    async fn ask(&self) -> Result<String, String> {
        let request = Request::get("/version").body(Vec::new()).unwrap();
        self.client.request_text(request).await.map_err(|why| why.to_string())
    }

    /// The value of a series.
    fn metric(&self, series: &str) -> u64 {
        let mut page = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap_or_else(|| panic!("no {series} in {page}")).trim().parse().unwrap()
    }
}

/// Replaces a file as a whole.
fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(&beside, path).unwrap();
}

/// A kubeconfig of one server and one user, in JSON, which is YAML.
fn kubeconfig(cluster: &serde_json::Value, user: &serde_json::Value) -> String {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    })
    .to_string()
}
