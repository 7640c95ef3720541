//! Pods, alone and as templates: containers and fields for a node. Nothing runs them here; the embedding program may.

mod change;
mod container;
mod defaults;
mod probe;
mod resources;
mod source;
mod volume;

use serde_json::{Value, json};

use self::container::Siblings;
pub(super) use self::defaults::fill_in;
use super::metadata::{check_label, check_subdomain};
use super::{check_value, child, default, list, repeated, text};
use crate::causes::Causes;
use crate::names;
use crate::names::check_labels;

const RESTARTS: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
/// The maximum of fields that are seconds or users.
const INT32_MAX: i64 = 2_147_483_647;

pub(super) fn defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    let spec = child(new, "spec");
    fill_in(spec);
    defaults::fill_in_requests(spec);
    defaults::fill_in_host_ports(spec);
    default(spec, "enableServiceLinks", true);
    let status = child(new, "status");
    default(status, "phase", "Pending");
    default(status, "qosClass", "BestEffort");
}

pub(super) fn validate(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    check("spec", &new["spec"], RESTARTS, causes);
    for (nth, container) in list(&new["spec"], "containers").iter().enumerate().filter(|_| is_on_host(&new["spec"])) {
        container::check_host_ports(&format!("spec.containers[{nth}]"), container, causes);
    }
    if let Some(old) = old {
        change::check(&new["spec"], &old["spec"], causes);
    }
}

fn is_on_host(spec: &Value) -> bool {
    spec["hostNetwork"] == true
}

/// Reports the errors of a template that a controller keeps running.
pub(super) fn check_template(path: &str, template: &Value, causes: &mut Causes) {
    let metadata = &template["metadata"];
    check_labels(&format!("{path}.labels"), &metadata["labels"], causes);
    super::metadata::check_annotations(&format!("{path}.annotations"), &metadata["annotations"], causes);
    let (spec, path) = (&template["spec"], format!("{path}.spec"));
    check(&path, spec, RESTARTS, causes);
    if !list(spec, "ephemeralContainers").is_empty() {
        causes.forbidden(format!("{path}.ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
    if text(spec, "restartPolicy") != "Always" {
        causes.unsupported(format!("{path}.restartPolicy"), &spec["restartPolicy"], &["Always"]);
    }
    if !spec["activeDeadlineSeconds"].is_null() {
        let why = "activeDeadlineSeconds in ReplicaSet is not Supported";
        causes.forbidden(format!("{path}.activeDeadlineSeconds"), why);
    }
}

/// Reports the errors of the spec of a pod, which is at `path` and may have these restart policies.
pub(super) fn check(path: &str, pod: &Value, restarts: &[&str], causes: &mut Causes) {
    let field = |name: &str| format!("{path}.{name}");
    let volumes = volume::check_all(&field("volumes"), list(pod, "volumes"), causes);
    let siblings = Siblings { volumes: &volumes, grace_seconds: pod["terminationGracePeriodSeconds"].as_i64() };
    let containers = list(pod, "containers");
    if containers.is_empty() {
        causes.required(field("containers"), "");
    }
    container::check_all(&field("containers"), containers, &siblings, causes);
    container::check_init(&field("initContainers"), list(pod, "initContainers"), containers, &siblings, causes);
    if !restarts.contains(&text(pod, "restartPolicy")) {
        causes.unsupported(field("restartPolicy"), &pod["restartPolicy"], restarts);
    }
    if !DNS_POLICIES.contains(&text(pod, "dnsPolicy")) {
        causes.unsupported(field("dnsPolicy"), &pod["dnsPolicy"], DNS_POLICIES);
    }
    check_labels(&field("nodeSelector"), &pod["nodeSelector"], causes);
    container::check_users(&field("securityContext"), &pod["securityContext"], causes);
    if pod["dnsPolicy"] == "None" && !pod["dnsConfig"].is_object() {
        causes.required(field("dnsConfig"), "must provide `dnsConfig` when `dnsPolicy` is None");
    }
    check_names(path, pod, causes);
    check_spread(&field("topologySpreadConstraints"), list(pod, "topologySpreadConstraints"), causes);
    check_tolerations(&field("tolerations"), list(pod, "tolerations"), causes);
    for (nth, alias) in list(pod, "hostAliases").iter().enumerate() {
        let field = |name: &str| format!("{path}.hostAliases[{nth}].{name}");
        causes.all(&field("ip"), &json!(text(alias, "ip")), names::address(text(alias, "ip")));
        for (at, name) in list(alias, "hostnames").iter().enumerate() {
            check_subdomain(&field(&format!("hostnames[{at}]")), name.as_str().unwrap_or_default(), causes);
        }
    }
}

fn check_names(path: &str, pod: &Value, causes: &mut Causes) {
    let field = |name: &str| format!("{path}.{name}");
    for (nth, gate) in list(pod, "readinessGates").iter().enumerate() {
        let of = field(&format!("readinessGates[{nth}].conditionType"));
        causes.all(&of, &gate["conditionType"], names::qualified(text(gate, "conditionType")));
    }
    let gates = list(pod, "schedulingGates");
    let repeated = repeated(gates, |gate| &gate["name"]);
    for (nth, gate) in gates.iter().enumerate() {
        let of = field(&format!("schedulingGates[{nth}]"));
        causes.all(&of, &gate["name"], names::qualified(text(gate, "name")));
        if repeated[nth] {
            causes.duplicate(of, &gate["name"]);
        }
    }
    for name in ["serviceAccountName", "nodeName"].into_iter().filter(|name| !text(pod, name).is_empty()) {
        check_subdomain(&field(name), text(pod, name), causes);
    }
    let deadline = &pod["activeDeadlineSeconds"];
    if !deadline.is_null() && !deadline.as_i64().is_some_and(|seconds| (1..=INT32_MAX).contains(&seconds)) {
        causes.invalid(field("activeDeadlineSeconds"), deadline, "must be between 1 and 2147483647, inclusive");
    }
    for name in ["hostname", "subdomain"].into_iter().filter(|name| !text(pod, name).is_empty()) {
        check_label(&field(name), text(pod, name), causes);
    }
}

fn check_spread(path: &str, constraints: &[Value], causes: &mut Causes) {
    for (nth, constraint) in constraints.iter().enumerate() {
        let field = |name: &str| format!("{path}[{nth}].{name}");
        if constraint["maxSkew"].as_i64().is_none_or(|skew| skew <= 0) {
            let skew = constraint["maxSkew"].as_i64().unwrap_or_default();
            causes.invalid(field("maxSkew"), &skew.into(), "must be greater than zero");
        }
        if text(constraint, "topologyKey").is_empty() {
            causes.required(field("topologyKey"), "can not be empty");
        }
        let answer = &constraint["whenUnsatisfiable"];
        check_value("TopologySpreadConstraint", "whenUnsatisfiable", field("whenUnsatisfiable"), answer, causes);
    }
}

fn check_tolerations(path: &str, tolerations: &[Value], causes: &mut Causes) {
    const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
    for (nth, toleration) in tolerations.iter().enumerate() {
        let field = |name: &str| format!("{path}[{nth}].{name}");
        let (key, operator, value) = (text(toleration, "key"), text(toleration, "operator"), text(toleration, "value"));
        let effect = text(toleration, "effect");
        if !key.is_empty() {
            causes.all(&field("key"), &key.into(), names::qualified(key));
        } else if operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            causes.invalid(field("operator"), &operator.into(), why);
        }
        if !toleration["tolerationSeconds"].is_null() && effect != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            causes.invalid(field("effect"), &effect.into(), why);
        }
        match operator {
            "Equal" | "" => {
                let complaints = names::label_value(value);
                if !complaints.is_empty() {
                    causes.invalid(field("operator"), &value.into(), &complaints.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                causes.invalid(field("operator"), &value.into(), "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            "Lt" | "Gt" => causes.unsupported(field("operator"), &operator.into(), &["Equal", "Exists", "Lt", "Gt"]),
            _ => causes.unsupported(field("operator"), &operator.into(), &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            causes.unsupported(field("effect"), &effect.into(), EFFECTS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::{check_refused, outcome};

    #[test]
    fn a_new_pod_is_pending() {
        let pod = json!({"spec": {"containers": [{"name": "c", "image": "echo"}]}});
        let filled = outcome("Pod", pod, None).unwrap();
        assert_eq!(filled["status"]["phase"], "Pending");
        assert_eq!(filled["spec"]["containers"][0]["imagePullPolicy"], "Always");
    }

    #[test]
    fn a_limit_is_a_request_too() {
        let container = json!({"name": "c", "image": "echo", "resources": {"limits": {"cpu": "0.0005"}}});
        let filled = outcome("Pod", json!({"spec": {"containers": [container]}}), None).unwrap();
        let resources = &filled["spec"]["containers"][0]["resources"];
        assert_eq!(*resources, json!({"limits": {"cpu": "1m"}, "requests": {"cpu": "1m"}}));
    }

    /// Asserts that a Pod of one container with these fields, beside other fields, is refused.
    #[track_caller]
    fn check_pod(container: Value, rest: Value, expected: &str) {
        let mut spec = rest;
        let mut of = json!({"name": "c", "image": "echo"});
        for (key, value) in container.as_object().unwrap() {
            of[key] = value.clone();
        }
        spec["containers"] = json!([of]);
        check_refused("Pod", json!({"spec": spec}), None, expected);
    }

    #[test]
    fn bad_pods_are_refused() {
        check_refused(
            "Pod",
            json!({"spec": {"restartPolicy": "Often", "containers": [{"name": "c"}]}}),
            None,
            "[spec.containers[0].image: Required value, spec.restartPolicy: Unsupported value: \"Often\": supported values: \"Always\", \"OnFailure\", \"Never\"]",
        );
        let at = "spec.containers[0]";
        let mount = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
        check_pod(mount, json!({}), &format!("{at}.volumeMounts[0].name: Not found: \"v\""));
        let policy = "Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"";
        check_pod(json!({"imagePullPolicy": "Sometimes"}), json!({}), &format!("{at}.imagePullPolicy: {policy}"));
        let ports = json!({"ports": [{"name": "a", "containerPort": 80}, {"name": "a", "containerPort": 81}]});
        check_pod(ports, json!({}), &format!("{at}.ports[1].name: Duplicate value: \"a\""));
        let resources = json!({"resources": {"limits": {"cpu": "500m"}, "requests": {"cpu": "1"}}});
        let why = "Invalid value: \"1\": must be less than or equal to cpu limit of 500m";
        check_pod(resources, json!({}), &format!("{at}.resources.requests: {why}"));
        let probe = json!({"readinessProbe": {"httpGet": {"port": 80}, "tcpSocket": {"port": 80}}});
        let why = "Forbidden: may not specify more than 1 handler type";
        check_pod(probe, json!({}), &format!("{at}.readinessProbe.tcpSocket: {why}"));
        let volumes = json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]});
        check_pod(json!({}), volumes, "spec.volumes[1].name: Duplicate value: \"v\"");
    }

    #[test]
    fn a_pod_changes_in_few_fields() {
        let pod = json!({"spec": {"containers": [{"name": "c", "image": "echo"}], "activeDeadlineSeconds": 5}});
        let old = outcome("Pod", pod, None).unwrap();
        let change = |edit: fn(&mut Value)| {
            let mut new = old.clone();
            edit(&mut new["spec"]);
            outcome("Pod", new, Some(&old)).map(drop)
        };
        assert_eq!(change(|spec| spec["containers"][0]["image"] = "other".into()), Ok(()));
        assert_eq!(change(|spec| spec["activeDeadlineSeconds"] = 4.into()), Ok(()));
        assert!(change(|spec| spec["activeDeadlineSeconds"] = 6.into()).unwrap_err().contains("previous value"));
        assert!(change(|spec| spec["hostname"] = "x".into()).unwrap_err().contains("may not change fields other than"));
        assert!(
            change(|spec| spec["containers"] = json!([])).unwrap_err().contains("may not add or remove containers")
        );
    }
}
