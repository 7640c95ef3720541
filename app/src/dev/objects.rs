//! The objects that a cluster's controllers would write for a Deployment: a ReplicaSet for each of its templates, and a
//! Pod for each replica. Pure: the fleet writes them.

use serde_json::{Map, Value, json};

use super::status::refusal;
use super::workload::{Desired, Phase, Replica};

/// The finalizer that holds a Pod until its process has ended.
pub(super) const FINALIZER: &str = "tidegate.io/process";
/// The label that distinguishes the Pods of one template from those of another (Kubernetes documentation,
/// "Deployments").
const TEMPLATE_HASH: &str = "pod-template-hash";
/// The annotation with the revision number that `kubectl rollout` reads.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// The annotations of a ReplicaSet that say how many replicas its Deployment asks for, and how many its strategy
/// allows.
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// The node name of Pods.
pub(super) const NODE: &str = "dev";

/// One template that a Deployment has had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Template {
    pub(super) hash: u32,
    /// The revision, from 1; a template that comes back gets the next number.
    pub(super) number: u64,
    pub(super) desired: Desired,
    /// The number of replicas that its ReplicaSet asks for.
    pub(super) count: usize,
}

/// Adds the current template, and drops the oldest ones without a replica, beyond the history limit. Returns its
/// number.
pub(super) fn turn(templates: &mut Vec<Template>, desired: &Desired, runs: impl Fn(u32) -> bool) -> u64 {
    let last = templates.iter().map(|template| template.number).max().unwrap_or_default();
    let known = templates.iter().position(|template| template.hash == desired.revision);
    let known = known.map(|at| templates.remove(at));
    // A ReplicaSet keeps the annotations that its Deployment has no longer, as it does in a cluster.
    let mut desired = desired.clone();
    for (name, value) in known.iter().flat_map(|known| &known.desired.annotations) {
        desired.annotations.entry(name.clone()).or_insert_with(|| value.clone());
    }
    let count = known.as_ref().map_or(0, |known| known.count);
    let known = known.map(|known| known.number);
    let number = known.filter(|number| *number == last).unwrap_or(last + 1);
    let idle: Vec<u64> = templates.iter().filter(|one| !runs(one.hash)).map(|one| one.number).collect();
    let forgotten = idle.len().saturating_sub(desired.history);
    templates.retain(|one| !idle.iter().take(forgotten).any(|number| *number == one.number));
    templates.push(Template { hash: desired.revision, number, desired, count });
    number
}

/// The name of the ReplicaSet of a template.
pub(super) fn set_name(deployment: &str, hash: u32) -> String {
    // Names of Pods begin with it and are DNS labels of at most 63 characters.
    let head: String = deployment.chars().take(47).collect();
    format!("{head}-{hash:08x}")
}

/// The ReplicaSet of a template, and its status.
/// `refused` is the number of replicas that have no room.
pub(super) fn replica_set(template: &Template, wanted: usize, replicas: &[&Replica], refused: usize) -> (Value, Value) {
    let Template { hash, number, desired, count: _ } = template;
    let running: Vec<_> = replicas.iter().filter(|one| one.revision == *hash && !one.is_ending()).collect();
    let ready = running.iter().filter(|one| one.is_ready()).count();
    let mut selector = desired.selector.clone();
    selector["matchLabels"][TEMPLATE_HASH] = label(*hash).into();
    let mut annotations = desired.annotations.clone();
    annotations.insert(REVISION.to_owned(), number.to_string());
    annotations.insert(DESIRED_REPLICAS.to_owned(), desired.replicas.to_string());
    annotations.insert(MAX_REPLICAS.to_owned(), desired.strategy.bounds(desired.replicas).most.to_string());
    let object = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": set_name(&desired.name.name, *hash), "namespace": &*desired.name.namespace,
            "labels": labels(desired, *hash),
            "annotations": annotations,
            "ownerReferences": [owner("Deployment", &desired.name.name, &desired.uid)],
        },
        "spec": {"replicas": wanted, "selector": selector, "template": labelled(&desired.template, *hash)},
    });
    let mut status = json!({
        "replicas": running.len(), "fullyLabeledReplicas": running.len(), "readyReplicas": ready, "availableReplicas": ready,
    });
    if refused > 0 {
        let message = refusal(refused);
        status["conditions"] =
            json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}]);
    }
    (object, status)
}

/// The Pod of a replica, and its status. `set` is the uid of its ReplicaSet.
pub(super) fn pod(replica: &Replica, set: &str) -> (Value, Value) {
    let mut template = labelled(&replica.template, replica.revision);
    template["spec"]["nodeName"] = NODE.into();
    let set_name = set_name(&replica.workload.name, replica.revision);
    let owner = owner("ReplicaSet", &set_name, set);
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": &*replica.pod, "generateName": format!("{set_name}-"), "namespace": &*replica.workload.namespace,
            "labels": template["metadata"]["labels"], "annotations": template["metadata"]["annotations"],
            "finalizers": [FINALIZER], "ownerReferences": [owner],
        },
        "spec": template["spec"],
    });
    (object, pod_status(replica))
}

fn pod_status(replica: &Replica) -> Value {
    let (runs, ready) = match replica.phase {
        Phase::Down | Phase::Ending(None) => (false, false),
        Phase::Ready(_) => (true, true),
        Phase::Running(_) | Phase::Ending(Some(_)) => (true, false),
    };
    let (times, fails) = (&replica.times, replica.restarts > 0);
    let waits = if fails { "CrashLoopBackOff" } else { "ContainerCreating" };
    let last = times.ended.as_ref().map(|ended| {
        let reason = if ended.code == 0 { "Completed" } else { "Error" };
        json!({"terminated": {
            "exitCode": ended.code, "reason": reason, "startedAt": ended.started, "finishedAt": ended.finished,
        }})
    });
    let containers = || replica.template["spec"]["containers"].as_array().into_iter().flatten();
    let names: Vec<&str> = containers().filter_map(|container| container["name"].as_str()).collect();
    let statuses = containers().map(|container| {
        let state =
            if runs { json!({"running": {"startedAt": times.running}}) } else { json!({"waiting": {"reason": waits}}) };
        json!({
            "name": container["name"], "image": container["image"], "imageID": "", "ready": ready, "started": runs,
            "restartCount": replica.restarts, "state": state, "lastState": last.clone().unwrap_or_else(|| json!({})),
        })
    });
    let condition = |kind: &str, holds: bool, since: &str| {
        let mut condition = json!({
            "type": kind, "status": if holds { "True" } else { "False" }, "lastProbeTime": null, "lastTransitionTime": since,
        });
        if !holds {
            condition["reason"] = "ContainersNotReady".into();
            condition["message"] = format!("containers with unready status: [{}]", names.join(" ")).into();
        }
        condition
    };
    json!({
        "phase": if runs || fails { "Running" } else { "Pending" }, "startTime": times.created,
        "hostIP": "127.0.0.1", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}],
        "conditions": [
            condition("PodReadyToStartContainers", true, &times.created), condition("Initialized", true, &times.created),
            condition("Ready", ready, &times.readiness), condition("ContainersReady", ready, &times.readiness),
            condition("PodScheduled", true, &times.created),
        ],
        "containerStatuses": statuses.collect::<Vec<_>>(),
    })
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    let group = if kind == "Pod" { "v1" } else { "apps/v1" };
    json!({"apiVersion": group, "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true})
}

fn label(hash: u32) -> String {
    format!("{hash:08x}")
}

fn labels(desired: &Desired, hash: u32) -> Map<String, Value> {
    let mut labels: Map<String, Value> =
        desired.labels.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
    labels.insert(TEMPLATE_HASH.to_owned(), label(hash).into());
    labels
}

/// A template with the label of its hash.
fn labelled(template: &Value, hash: u32) -> Value {
    let mut labelled = template.clone();
    if labelled["metadata"].is_null() {
        labelled["metadata"] = json!({});
    }
    labelled["metadata"]["labels"][TEMPLATE_HASH] = label(hash).into();
    labelled
}

#[cfg(test)]
mod tests {
    use super::super::workload::tests::{desired, replica};
    use super::*;

    #[track_caller]
    fn check(templates: &mut Vec<Template>, hash: u32, number: u64, left: &[(u32, u64)]) {
        let desired = Desired { history: 2, ..desired(1, hash) };
        assert_eq!(turn(templates, &desired, |hash| hash == 9), number);
        assert_eq!(templates.iter().map(|one| (one.hash, one.number)).collect::<Vec<_>>(), left);
    }

    #[test]
    fn templates_are_counted_as_they_come() {
        let mut templates = Vec::new();
        check(&mut templates, 9, 1, &[(9, 1)]);
        check(&mut templates, 9, 1, &[(9, 1)]);
        check(&mut templates, 5, 2, &[(9, 1), (5, 2)]);
        check(&mut templates, 9, 3, &[(5, 2), (9, 3)]);
        check(&mut templates, 6, 4, &[(5, 2), (9, 3), (6, 4)]);
        check(&mut templates, 7, 5, &[(5, 2), (9, 3), (6, 4), (7, 5)]);
        // A template with replicas is kept, whatever its age; of the others, as many as the Deployment's history limit.
        check(&mut templates, 8, 6, &[(9, 3), (6, 4), (7, 5), (8, 6)]);
    }

    #[test]
    fn a_pod_belongs_to_the_set_of_its_template() {
        let one = replica("cart-00000001-aaaaa", 1, Phase::Ready(1));
        let (object, status) = pod(&one, "uid");
        assert_eq!(object["metadata"]["ownerReferences"][0]["name"], "cart-00000001");
        assert_eq!(object["metadata"]["labels"], json!({"app": "cart", TEMPLATE_HASH: "00000001"}));
        assert_eq!((&status["phase"], &status["containerStatuses"][0]["ready"]), (&json!("Running"), &json!(true)));
        let template = Template { hash: 1, number: 4, desired: desired(2, 1), count: 0 };
        let ending = replica("b", 1, Phase::Ending(Some(2)));
        let (set, status) = replica_set(&template, 2, &[&one, &ending], 0);
        assert_eq!(set["spec"]["selector"]["matchLabels"], json!({"app": "cart", TEMPLATE_HASH: "00000001"}));
        assert_eq!(set["metadata"]["annotations"], json!({REVISION: "4", DESIRED_REPLICAS: "2", MAX_REPLICAS: "3"}));
        assert_eq!(status["replicas"], 1);
    }
}
