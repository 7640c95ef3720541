//! Warnings about the template of Pods, or about a Pod.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::{list, text};
use crate::quantity::{NANOS, Quantity};

/// Labels of nodes that have newer names, and the advice.
const NODE_LABELS: &[(&str, &str)] = &[
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

/// Kinds of volumes that are gone.
const VOLUMES: &[(&str, &str)] = &[
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Annotations that have no effect any more.
const ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];

const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";
const SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
const APP_ARMOR: &str = "deprecated since v1.30; use the \"appArmorProfile\" field instead";

/// The number of warnings from which on no more ports are compared: far more than fit into the headers of an answer.
const WARNINGS_MAX: usize = 1000;

/// The number of ports with the same number that a port is compared with.
const COMPARED_MAX: usize = 100;

/// The facts collected from a template.
struct Template<'a> {
    /// The path to it; empty for a Pod.
    path: &'a str,
    metadata: &'a Value,
    spec: &'a Value,
    warnings: &'a mut Vec<String>,
}

/// Adds the warnings about a template at a path, or about a Pod, whose path is empty.
pub(super) fn check(path: &str, template: &Value, warnings: &mut Vec<String>) {
    let mut template = Template { path, metadata: &template["metadata"], spec: &template["spec"], warnings };
    template.check_nodes();
    template.check_annotations();
    template.check_volumes();
    template.check_twins("hostAliases", "ip");
    template.check_twins("imagePullSecrets", "name");
    template.check_secrets();
    template.check_seccomp();
    let containers = template.containers();
    containers.iter().for_each(|(at, container)| template.check_container(at, container));
    template.check_ports(&containers);
    template.check_port_names(&containers);
    if template.spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        let why = "must be >= 0; negative values are invalid and will be treated as 1";
        template.warn("spec.terminationGracePeriodSeconds", why);
    }
    template.check_affinity("podAffinity");
    template.check_affinity("podAntiAffinity");
}

impl<'a> Template<'a> {
    fn at(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    fn warn(&mut self, field: &str, why: &str) {
        let warning = format!("{}: {why}", self.at(field));
        self.warnings.push(warning);
    }

    /// All containers with their paths.
    fn containers(&self) -> Vec<(String, &'a Value)> {
        let of = |field: &'static str| {
            let path = self.at(&format!("spec.{field}"));
            list(self.spec, field).iter().enumerate().map(move |(nth, one)| (format!("{path}[{nth}]"), one))
        };
        of("initContainers").chain(of("containers")).collect()
    }

    fn check_nodes(&mut self) {
        for key in self.spec["nodeSelector"].as_object().into_iter().flat_map(|labels| labels.keys()) {
            if let Some(why) = advice(key) {
                self.warn(&format!("spec.nodeSelector[{key}]"), why);
            }
        }
        let affinity = &self.spec["affinity"]["nodeAffinity"];
        let required = &affinity["requiredDuringSchedulingIgnoredDuringExecution"];
        for (nth, term) in list(required, "nodeSelectorTerms").iter().enumerate() {
            let at = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
            self.check_term(&format!("{at}[{nth}]"), term);
        }
        for (nth, term) in list(affinity, "preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            let at = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution";
            self.check_term(&format!("{at}[{nth}].preference"), &term["preference"]);
        }
        for (nth, constraint) in list(self.spec, "topologySpreadConstraints").iter().enumerate() {
            let at = format!("spec.topologySpreadConstraints[{nth}]");
            let key = text(constraint, "topologyKey");
            if let Some(why) = advice(key) {
                self.warn(&format!("{at}.topologyKey"), &format!("{key} is {why}"));
            }
            if constraint["labelSelector"].is_null() {
                self.warn(&format!("{at}.labelSelector"), NO_SELECTOR);
            }
        }
    }

    fn check_term(&mut self, at: &str, term: &Value) {
        for (nth, expression) in list(term, "matchExpressions").iter().enumerate() {
            let key = text(expression, "key");
            if let Some(why) = advice(key) {
                self.warn(&format!("{at}.matchExpressions[{nth}].key"), &format!("{key} is {why}"));
            }
        }
    }

    fn is_annotated(&self, key: &str) -> bool {
        self.metadata["annotations"].get(key).is_some()
    }

    fn check_annotations(&mut self) {
        for (key, why) in ANNOTATIONS {
            if self.is_annotated(key) {
                self.warn(&format!("metadata.annotations[{key}]"), why);
            }
        }
    }

    fn check_volumes(&mut self) {
        for (nth, volume) in list(self.spec, "volumes").iter().enumerate() {
            for (source, why) in VOLUMES.iter().filter(|(source, _)| volume[*source].is_object()) {
                self.warn(&format!("spec.volumes[{nth}].{source}"), why);
            }
        }
    }

    /// Warns of elements of a list that have the key of an earlier one.
    fn check_twins(&mut self, field: &str, key: &str) {
        let mut seen = BTreeSet::new();
        for (nth, one) in list(self.spec, field).iter().enumerate() {
            let value = text(one, key);
            if !seen.insert(value) {
                self.warn(&format!("spec.{field}[{nth}].{key}"), &format!("duplicate {key} {value:?}"));
            }
        }
    }

    fn check_secrets(&mut self) {
        for (nth, _) in
            list(self.spec, "imagePullSecrets").iter().enumerate().filter(|(_, one)| text(one, "name").is_empty())
        {
            self.warn(&format!("spec.imagePullSecrets[{nth}].name"), "invalid empty name \"\"");
        }
    }

    fn check_seccomp(&mut self) {
        const KEY: &str = "seccomp.security.alpha.kubernetes.io/pod";
        if self.spec["securityContext"]["seccompProfile"].is_null() && self.is_annotated(KEY) {
            self.warn(&format!("metadata.annotations[{KEY}]"), SECCOMP);
        }
    }

    fn check_container(&mut self, at: &str, container: &Value) {
        let profiles = [("container.seccomp.security.alpha.kubernetes.io", "seccompProfile", SECCOMP)];
        // Those of a Pod are not warned of here.
        let app_armor = ("container.apparmor.security.beta.kubernetes.io", "appArmorProfile", APP_ARMOR);
        let app_armor = Some(app_armor).filter(|_| !self.path.is_empty());
        for (prefix, field, why) in profiles.into_iter().chain(app_armor) {
            let key = format!("{prefix}/{}", text(container, "name"));
            if container["securityContext"][field].is_null() && self.is_annotated(&key) {
                self.warn(&format!("metadata.annotations[{key}]"), why);
            }
        }
        for resource in ["memory", "ephemeral-storage"] {
            for bound in ["limits", "requests"] {
                let amount = &container["resources"][bound][resource];
                if is_fractional(amount) {
                    let why = format!("fractional byte value {amount} is invalid, must be an integer");
                    self.warnings.push(format!("{at}.resources.{bound}[{resource}]: {why}"));
                }
            }
        }
        let mut seen = BTreeSet::new();
        for (nth, variable) in list(container, "env").iter().enumerate() {
            let name = text(variable, "name");
            let reference = format!("$({name})");
            let value = text(variable, "value");
            let extends = variable["valueFrom"].is_null() && value != reference && value.contains(&reference);
            if !seen.insert(name) && !extends {
                let why = format!("hides previous definition of {name:?}, which may be dropped when using apply");
                self.warnings.push(format!("{at}.env[{nth}]: {why}"));
            }
        }
    }

    fn check_ports(&mut self, containers: &[(String, &Value)]) {
        let mut seen: BTreeMap<(i64, &str), Vec<(String, &Value)>> = BTreeMap::new();
        for (at, port) in ports(containers) {
            let key = (port["containerPort"].as_i64().unwrap_or_default(), text(port, "protocol"));
            let others = seen.entry(key).or_default();
            for (other_at, other) in others.iter().take(COMPARED_MAX) {
                if self.warnings.len() >= WARNINGS_MAX {
                    return;
                }
                let (ip, number) = (text(port, "hostIP"), port["hostPort"].as_i64().unwrap_or(0));
                let (other_ip, other_number) = (text(other, "hostIP"), other["hostPort"].as_i64().unwrap_or(0));
                let how = if ip == other_ip && number == other_number {
                    "duplicate"
                } else if number == 0 || other_number == 0 {
                    "overlapping"
                } else if number == other_number && ip.is_empty() != other_ip.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                self.warnings.push(format!("{at}: {how} port definition with {other_at}"));
            }
            others.push((at, port));
        }
    }

    fn check_port_names(&mut self, containers: &[(String, &Value)]) {
        let mut seen: BTreeMap<&str, String> = BTreeMap::new();
        for (at, port) in ports(containers) {
            let name = text(port, "name");
            match seen.get(name) {
                _ if name.is_empty() => {}
                Some(other) => {
                    let users = "services and probes that select ports by name will use";
                    self.warnings.push(format!("{at}: duplicate port name {name:?} with {other}, {users} {other}"));
                }
                None => drop(seen.insert(name, at)),
            }
        }
    }

    fn check_affinity(&mut self, field: &str) {
        let affinity = &self.spec["affinity"][field];
        let at = |part: &str, nth: usize| {
            format!("spec.affinity.{field}.{part}DuringSchedulingIgnoredDuringExecution[{nth}]")
        };
        for (nth, term) in list(affinity, "requiredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            if term["labelSelector"].is_null() {
                self.warn(&format!("{}.labelSelector", at("required", nth)), NO_SELECTOR);
            }
        }
        for (nth, term) in list(affinity, "preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            if term["podAffinityTerm"]["labelSelector"].is_null() {
                self.warn(&format!("{}.podAffinityTerm.labelSelector", at("preferred", nth)), NO_SELECTOR);
            }
        }
    }
}

fn advice(label: &str) -> Option<&'static str> {
    NODE_LABELS.iter().find(|(key, _)| *key == label).map(|(_, why)| *why)
}

/// All ports of containers with their paths.
fn ports<'a>(containers: &[(String, &'a Value)]) -> impl Iterator<Item = (String, &'a Value)> {
    containers.iter().flat_map(|(at, container)| {
        list(container, "ports").iter().enumerate().map(move |(nth, port)| (format!("{at}.ports[{nth}]"), port))
    })
}

/// Whether an amount of bytes is not a whole number.
fn is_fractional(amount: &Value) -> bool {
    let parsed = amount.as_str().and_then(|text| Quantity::parse(text).ok());
    parsed.is_some_and(|quantity| quantity.nanos % NANOS != 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[track_caller]
    fn check(spec: serde_json::Value, expected: &[&str]) {
        let mut warnings = Vec::new();
        super::check("spec.template", &json!({"spec": spec}), &mut warnings);
        let of_spec: Vec<_> = warnings.iter().filter_map(|one| one.strip_prefix("spec.template.spec.")).collect();
        assert_eq!((of_spec.len(), of_spec), (warnings.len(), expected.to_vec()));
    }

    #[test]
    fn labels_of_nodes_have_newer_names() {
        let term = json!({"matchExpressions": [{"key": "node-role.kubernetes.io/master"}]});
        let affinity =
            json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"preference": term}]}});
        check(
            json!({"nodeSelector": {"beta.kubernetes.io/os": "linux", "kubernetes.io/os": "linux"}, "affinity": affinity}),
            &[
                "nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
                "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key: \
                 node-role.kubernetes.io/master is use \"node-role.kubernetes.io/control-plane\" instead",
            ],
        );
    }

    #[test]
    fn duplicates_have_warnings() {
        let first = json!({"name": "a", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "3"}]});
        let ports =
            json!([{"containerPort": 80, "name": "http"}, {"containerPort": 80, "hostPort": 8080, "name": "http"}]);
        check(
            json!({"containers": [first, {"name": "b", "ports": ports}], "imagePullSecrets": [{"name": "x"}, {}, {"name": "x"}]}),
            &[
                "imagePullSecrets[2].name: duplicate name \"x\"",
                "imagePullSecrets[1].name: invalid empty name \"\"",
                "containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply",
                "containers[1].ports[1]: overlapping port definition with spec.template.spec.containers[1].ports[0]",
                "containers[1].ports[1]: duplicate port name \"http\" with spec.template.spec.containers[1].ports[0], services and \
                 probes that select ports by name will use spec.template.spec.containers[1].ports[0]",
            ],
        );
    }

    #[test]
    fn amounts_of_bytes_are_whole() {
        let resources = json!({"requests": {"memory": "100m", "cpu": "100m"}, "limits": {"ephemeral-storage": "1500m", "memory": "1Gi"}});
        check(
            json!({"initContainers": [{"name": "a", "resources": resources}]}),
            &[
                "initContainers[0].resources.requests[memory]: fractional byte value \"100m\" is invalid, must be an integer",
                "initContainers[0].resources.limits[ephemeral-storage]: fractional byte value \"1500m\" is invalid, must be an integer",
            ],
        );
    }

    #[test]
    fn selectors_that_are_absent_match_nothing() {
        let affinity =
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "x"}]}});
        check(
            json!({"affinity": affinity, "topologySpreadConstraints": [{"topologyKey": "x"}]}),
            &[
                "topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
                "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: \
                 a null labelSelector results in matching no pod",
            ],
        );
    }
}
