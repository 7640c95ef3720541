//! Writes of this process to the cluster: the task for them, and the identity under which it takes part in the
//! election.

use prometheus::Registry;
use tidegate_config::object::ObjectName;
use tidegate_control::{Reporter, View};

use crate::clock;
use crate::settings::LeaseName;

/// The reporter of this process.
pub(crate) fn reporter(
    lease: LeaseName,
    client: kube::Client,
    view: View,
    registry: &Registry,
) -> prometheus::Result<Reporter> {
    let namespace = lease.namespace.unwrap_or_else(|| client.default_namespace().into());
    Reporter::new(view, client, ObjectName::new(namespace, lease.name), identity(), registry)
}

/// The identity of the candidate: the name of the host, which is the pod's, for people; and random bits, because the
/// next process of a pod is another candidate.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{:032x}", host.trim(), clock::draw_bits())
}
