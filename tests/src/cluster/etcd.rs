//! Changes of etcd that bypass the API server.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, BufWriter};
use tokio::process::Command;

use super::{Cluster, ETCD};

impl Cluster {
    /// Compacts the history of etcd.
    pub async fn compact(&self) {
        let compact = Command::new(&self.binary).args(["compact", "--etcd", ETCD]).output().await.expect("it runs");
        assert!(compact.status.success(), "{}", String::from_utf8_lossy(&compact.stderr));
    }

    /// Puts objects into etcd in the form of the API server, to which they seem created by another API server. It is
    /// many times as fast as creating them, but without validation and defaults.
    pub async fn put(&self, objects: impl Iterator<Item = Value>) {
        let mut command = Command::new(&self.binary);
        command.args(["put", "--etcd", ETCD]).stdin(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut put = command.spawn().expect("it starts");
        let mut lines = BufWriter::new(put.stdin.take().expect("it is piped"));
        let fed = async {
            for (number, object) in objects.enumerate() {
                lines.write_all(line(number, object).as_bytes()).await?;
            }
            lines.shutdown().await
        };
        let fed = fed.await;
        drop(lines);
        let ended = put.wait_with_output().await.expect("a status");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        fed.expect("it reads all");
    }
}

/// The key of an object, and the object with the fields that an API server adds at creation.
fn line(number: usize, mut object: Value) -> String {
    let place = match object["kind"].as_str() {
        Some("Ingress") => "ingress",
        Some("Service") => "services/specs",
        Some("EndpointSlice") => "endpointslices",
        other => panic!("nobody has said under which key the API server keeps this kind: {other:?}"),
    };
    let metadata = &mut object["metadata"];
    metadata["uid"] = json!(format!("00000000-0000-4000-8000-{number:012x}"));
    metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    metadata["generation"] = json!(1);
    let text = |field: &str| object["metadata"][field].as_str().expect("text");
    format!("/registry/{place}/{}/{}\t{object}\n", text("namespace"), text("name"))
}
