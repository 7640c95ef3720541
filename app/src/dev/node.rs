//! The one Node, on which all Pods are: this machine.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::objects::NODE;
use super::workload::REPLICAS_MAX;
use crate::resources::memory_max_kib;

/// Writes the Node and its status.
pub(super) async fn write(client: &kube::Client, now: &str) -> kube::Result<()> {
    let (nodes, manager) = (Api::<Node>::all(client.clone()), PatchParams::apply("tidegate-dev").force());
    nodes.patch(NODE, &manager, &Patch::Apply(node())).await?;
    nodes.patch_status(NODE, &manager, &Patch::Apply(status(now))).await?;
    Ok(())
}

fn node() -> Value {
    let (os, architecture) = platform();
    let labels = json!({
        "kubernetes.io/hostname": NODE, "kubernetes.io/os": os, "kubernetes.io/arch": architecture,
    });
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}})
}

fn status(now: &str) -> Value {
    let (os, architecture) = platform();
    let version = concat!("tidegate-", env!("CARGO_PKG_VERSION"));
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "ProcessesRun", "message": "Pods are processes of `tidegate dev`",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut room = json!({"pods": REPLICAS_MAX.to_string(), "cpu": cpus.to_string()});
    if let Some(memory) = memory_max_kib() {
        room["memory"] = format!("{memory}Ki").into();
    }
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": NODE}],
            "capacity": room, "allocatable": room, "conditions": [ready],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {
                "architecture": architecture, "bootID": "", "containerRuntimeVersion": version, "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": version, "machineID": "", "operatingSystem": os, "osImage": "",
                "systemUUID": "",
            },
        },
    })
}

/// The operating system and the architecture, in Kubernetes' words.
fn platform() -> (&'static str, &'static str) {
    let os = if std::env::consts::OS == "macos" { "darwin" } else { std::env::consts::OS };
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    (os, architecture)
}
