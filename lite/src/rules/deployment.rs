//! Deployments: replicas, selector and template. Nothing runs them here; whoever embeds this server may.

use serde_json::{Value, json};

use super::{check_immutable, check_port, child, default, elements, list, text};
use crate::failure::Causes;
use crate::rules::metadata::{check_label, check_labels};
use crate::selector::Labels;

pub(super) fn defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    let spec = child(new, "spec");
    default(spec, "replicas", 1);
    default(spec, "revisionHistoryLimit", 10);
    default(spec, "progressDeadlineSeconds", 600);
    let strategy = child(spec, "strategy");
    default(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        default(rolling, "maxSurge", "25%");
        default(rolling, "maxUnavailable", "25%");
    }
    let pod = child(child(spec, "template"), "spec");
    default(pod, "restartPolicy", "Always");
    default(pod, "terminationGracePeriodSeconds", 30);
    default(pod, "dnsPolicy", "ClusterFirst");
    default(pod, "schedulerName", "default-scheduler");
    default(pod, "securityContext", json!({}));
    for containers in ["initContainers", "containers"] {
        for container in elements(pod, containers) {
            let latest = !text(container, "image").rsplit('/').next().unwrap_or_default().contains([':', '@'])
                || text(container, "image").ends_with(":latest");
            default(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
            default(container, "resources", json!({}));
            default(container, "terminationMessagePath", "/dev/termination-log");
            default(container, "terminationMessagePolicy", "File");
            for port in elements(container, "ports") {
                default(port, "protocol", "TCP");
            }
        }
    }
    child(new, "status");
}

pub(super) fn validate(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    let spec = &new["spec"];
    if spec["replicas"].as_i64().is_none_or(|replicas| replicas < 0) {
        causes.invalid("spec.replicas", &spec["replicas"], "must be greater than or equal to 0");
    }
    check_selector(spec, causes);
    if !["Recreate", "RollingUpdate"].contains(&text(&spec["strategy"], "type")) {
        causes.unsupported("spec.strategy.type", &spec["strategy"]["type"], &["Recreate", "RollingUpdate"]);
    } else if spec["strategy"]["type"] == "Recreate" && spec["strategy"]["rollingUpdate"].is_object() {
        causes.forbidden("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'");
    }
    check_labels("spec.template.labels", &spec["template"]["metadata"]["labels"], causes);
    let pod = &spec["template"]["spec"];
    if list(pod, "containers").is_empty() {
        causes.required("spec.template.spec.containers", "");
    }
    if pod["restartPolicy"] != "Always" {
        causes.unsupported("spec.template.spec.restartPolicy", &pod["restartPolicy"], &["Always"]);
    }
    for containers in ["initContainers", "containers"] {
        check_containers(containers, list(pod, containers), causes);
    }
    if let Some(old) = old {
        check_immutable("spec.selector", &spec["selector"], &old["spec"]["selector"], causes);
    }
}

fn check_selector(spec: &Value, causes: &mut Causes) {
    let selector = &spec["selector"];
    let labels = &spec["template"]["metadata"]["labels"];
    if !selector.is_object() {
        causes.required("spec.selector", "");
        return;
    }
    match Labels::from_object(selector) {
        Err(why) => causes.invalid("spec.selector", selector, &why),
        Ok(parsed) if parsed.is_empty() => {
            causes.invalid("spec.selector", selector, "empty selector is invalid for deployment");
        }
        Ok(parsed) if !parsed.matches(labels) => {
            causes.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`");
        }
        Ok(_) => {}
    }
}

fn check_containers(field: &str, containers: &[Value], causes: &mut Causes) {
    for (nth, container) in containers.iter().enumerate() {
        let field = |name: &str| format!("spec.template.spec.{field}[{nth}].{name}");
        let name = text(container, "name");
        if name.is_empty() {
            causes.required(field("name"), "");
        } else {
            check_label(&field("name"), name, causes);
        }
        if containers[..nth].iter().any(|other| other["name"] == container["name"]) {
            causes.duplicate(field("name"), &container["name"]);
        }
        if text(container, "image").is_empty() {
            causes.required(field("image"), "");
        }
        for (at, port) in list(container, "ports").iter().enumerate() {
            check_port(&field(&format!("ports[{at}].containerPort")), &port["containerPort"], causes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::{check_refused, outcome};

    fn deployment(app: &str) -> Value {
        json!({"spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "echo", "ports": [{"containerPort": 80}]}]}},
        }})
    }

    #[test]
    fn a_deployment_has_one_replica_unless_it_says() {
        let filled = outcome("Deployment", deployment("a"), None).unwrap();
        assert_eq!(filled["spec"]["replicas"], 1);
        assert_eq!(filled["spec"]["template"]["spec"]["containers"][0]["ports"][0]["protocol"], "TCP");
        let mut none = deployment("a");
        none["spec"]["replicas"] = 0.into();
        assert_eq!(outcome("Deployment", none, None).unwrap()["spec"]["replicas"], 0);
    }

    #[test]
    fn bad_deployments_are_refused() {
        check_refused(
            "Deployment",
            deployment("b"),
            None,
            "spec.template.metadata.labels: Invalid value: {\"app\":\"b\"}: `selector` does not match template `labels`",
        );
        let mut bare = deployment("a");
        bare["spec"]["template"]["spec"]["containers"] = json!([{"name": "c"}]);
        check_refused("Deployment", bare, None, "spec.template.spec.containers[0].image: Required value");
        check_refused(
            "Deployment",
            json!({}),
            None,
            "[spec.selector: Required value, spec.template.spec.containers: Required value]",
        );
        let old = outcome("Deployment", deployment("a"), None).unwrap();
        let mut moved = deployment("b");
        moved["spec"]["selector"]["matchLabels"]["app"] = "b".into();
        check_refused(
            "Deployment",
            moved,
            Some(&old),
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"b\"}}: field is immutable",
        );
    }
}
