//! The cells of the columns of `kubectl get`.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use crate::clock;
use crate::selector::LabelSelector;

/// The maximum number of addresses or hosts in a cell; the rest is counted.
const SHOWN_MAX: usize = 3;

pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn or_none(value: &Value) -> String {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or("<none>").to_owned()
}

pub(super) fn or_unset(text: &str) -> String {
    if text.is_empty() { "<unset>".to_owned() } else { text.to_owned() }
}

pub(super) fn number(value: &Value) -> String {
    value.as_i64().unwrap_or_default().to_string()
}

pub(super) fn size(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}

pub(super) fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

pub(super) fn some(parts: Vec<String>) -> String {
    let more = parts.len().saturating_sub(SHOWN_MAX);
    let shown = parts[..parts.len() - more].join(",");
    if more == 0 { shown } else { format!("{shown} + {more} more...") }
}

pub(super) fn labels(value: &Value) -> String {
    let labels = value.as_object().into_iter().flatten();
    let text = join(labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())));
    if text.is_empty() { "<none>".into() } else { text }
}

/// A field of each container of a template.
pub(super) fn containers(workload: &Value, field: &str) -> String {
    join(list(&workload["spec"]["template"]["spec"]["containers"]).map(|container| text(&container[field])))
}

/// The number of restarts of a pod's containers, and the time since the last one.
pub(super) fn pod_restarts(pod: &Value, unix_seconds: u64) -> String {
    let containers = || list(&pod["status"]["containerStatuses"]);
    let restarts: u64 = containers().filter_map(|one| one["restartCount"].as_u64()).sum();
    let ends = containers().filter_map(|one| one["lastState"]["terminated"]["finishedAt"].as_str());
    match ends.max().and_then(|last| ago(&last.into(), unix_seconds)).filter(|_| restarts > 0) {
        Some(ago) => format!("{restarts} ({ago} ago)"),
        None => restarts.to_string(),
    }
}

/// The time since a timestamp; `None` if there is none.
pub(super) fn ago(timestamp: &Value, unix_seconds: u64) -> Option<String> {
    let then = timestamp.as_str().and_then(clock::seconds)?;
    Some(clock::age(unix_seconds.saturating_sub(then)))
}

/// The state of a pod in a word: the reason why a container waits, or the phase.
pub(super) fn pod_status(pod: &Value) -> String {
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return "Terminating".into();
    }
    let waits = |container: &Value| container["state"]["waiting"]["reason"].as_str().map(str::to_owned);
    let waiting = list(&pod["status"]["containerStatuses"]).find_map(waits);
    waiting.unwrap_or_else(|| text(&pod["status"]["phase"]))
}

pub(super) fn address(ingress: &Value) -> String {
    let hostname = text(&ingress["hostname"]);
    if hostname.is_empty() { text(&ingress["ip"]) } else { hostname }
}

pub(super) fn external_address(service: &Value) -> String {
    let spec = &service["spec"];
    let mut addresses: Vec<String> = list(&service["status"]["loadBalancer"]["ingress"]).map(address).collect();
    addresses.extend(list(&spec["externalIPs"]).map(text));
    match (spec["type"].as_str(), addresses.is_empty()) {
        (Some("ExternalName"), _) => text(&spec["externalName"]),
        (Some("LoadBalancer"), true) => "<pending>".into(),
        (_, true) => "<none>".into(),
        (_, false) => addresses.join(","),
    }
}

pub(super) fn service_ports(service: &Value) -> String {
    let one = |port: &Value| match port["nodePort"].as_i64() {
        Some(node) if node != 0 => format!("{}:{node}/{}", number(&port["port"]), text(&port["protocol"])),
        _ => format!("{}/{}", number(&port["port"]), text(&port["protocol"])),
    };
    let ports = join(list(&service["spec"]["ports"]).map(one));
    if ports.is_empty() { "<none>".into() } else { ports }
}

pub(super) fn ingress_hosts(ingress: &Value) -> String {
    let mut seen = HashSet::new();
    let hosts = list(&ingress["spec"]["rules"]).map(|rule| text(&rule["host"])).filter(|host| !host.is_empty());
    let hosts: Vec<String> = hosts.filter(|host| seen.insert(host.clone())).collect();
    if hosts.is_empty() { "*".into() } else { some(hosts) }
}

/// The phase of a volume or a claim.
pub(super) fn phase(one: &Value) -> String {
    if one["metadata"]["deletionTimestamp"].is_string() { "Terminating".into() } else { text(&one["status"]["phase"]) }
}

/// A cell of a claim that has a volume; empty for one that waits.
pub(super) fn bound(claim: &Value, cell: fn(&Value) -> String) -> String {
    if text(&claim["spec"]["volumeName"]).is_empty() { String::new() } else { cell(claim) }
}

/// An amount, which may be a number.
pub(super) fn quantity(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => "0".to_owned(),
    }
}

pub(super) fn access_modes(modes: &Value) -> String {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let given = |mode: &str| list(modes).any(|one| one == mode);
    join(SHORT.iter().filter(|(mode, _)| given(mode)).map(|(_, short)| (*short).to_owned()))
}

/// The addresses of Endpoints with their ports.
pub(super) fn endpoints(one: &Value) -> String {
    if list(&one["subsets"]).next().is_none() {
        return "<none>".into();
    }
    let mut all = Vec::new();
    for subset in list(&one["subsets"]) {
        let addresses = || list(&subset["addresses"]).map(|address| text(&address["ip"]));
        if list(&subset["ports"]).next().is_none() {
            all.extend(addresses());
        }
        for port in list(&subset["ports"]).map(|port| number(&port["port"])) {
            all.extend(
                addresses().map(|ip| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }),
            );
        }
    }
    some(all)
}

pub(super) fn job_status(job: &Value) -> String {
    let holds =
        |kind: &str| list(&job["status"]["conditions"]).any(|one| one["type"] == kind && one["status"] == "True");
    let finished = ["Complete", "Failed"].into_iter().find(|kind| holds(kind));
    let going = || job["metadata"]["deletionTimestamp"].is_string().then_some("Terminating");
    let later = || ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(|kind| holds(kind));
    finished.or_else(going).or_else(later).unwrap_or("Running").to_owned()
}

pub(super) fn job_completions(job: &Value) -> String {
    let (spec, succeeded) = (&job["spec"], number(&job["status"]["succeeded"]));
    match (spec["completions"].as_i64(), spec["parallelism"].as_i64()) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, Some(parallel)) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

pub(super) fn job_duration(job: &Value, unix_seconds: u64) -> String {
    let end = job["status"]["completionTime"].as_str().and_then(clock::seconds).unwrap_or(unix_seconds);
    ago(&job["status"]["startTime"], end).unwrap_or_default()
}

const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";

/// The name of an IngressClass, which says whether it is the default.
pub(super) fn ingress_class_name(class: &Value) -> String {
    let name = text(&class["metadata"]["name"]);
    if class["metadata"]["annotations"][DEFAULT_CLASS] == "true" { format!("{name} (default)") } else { name }
}

/// The object with the parameters of an IngressClass: its kind, its group and its name.
pub(super) fn ingress_class_parameters(class: &Value) -> String {
    let Some(parameters) = class["spec"].get("parameters").filter(|one| !one.is_null()) else {
        return "<none>".to_owned();
    };
    let (kind, name) = (text(&parameters["kind"]), text(&parameters["name"]));
    match parameters["apiGroup"].as_str() {
        Some(group) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

/// The time since an Event happened for the first time.
pub(super) fn event_first(event: &Value, unix_seconds: u64) -> String {
    let first = ago(&event["firstTimestamp"], unix_seconds).or_else(|| ago(&event["eventTime"], unix_seconds));
    first.unwrap_or_else(|| "<unknown>".to_owned())
}

/// The time since an Event happened for the last time.
pub(super) fn event_last(event: &Value, unix_seconds: u64) -> String {
    let series = &event["series"];
    if series.is_object() {
        return ago(&series["lastObservedTime"], unix_seconds).unwrap_or_else(|| "<unknown>".to_owned());
    }
    ago(&event["lastTimestamp"], unix_seconds).unwrap_or_else(|| event_first(event, unix_seconds))
}

/// How often an Event happened.
pub(super) fn event_count(event: &Value) -> String {
    let series = &event["series"];
    let count = if series.is_object() {
        series["count"].as_i64().unwrap_or_default()
    } else {
        event["count"].as_i64().unwrap_or(0).max(1)
    };
    count.to_string()
}

/// The component that reported an Event, and its host.
pub(super) fn event_source(event: &Value) -> String {
    let or = |field: &Value, other: &Value| {
        Some(text(field)).filter(|given| !given.is_empty()).unwrap_or_else(|| text(other))
    };
    let component = or(&event["source"]["component"], &event["reportingComponent"]);
    let host = or(&event["source"]["host"], &event["reportingInstance"]);
    if host.is_empty() { component } else { format!("{component}, {host}") }
}

/// A number or a percentage, which may be absent.
pub(super) fn amount(value: &Value) -> String {
    value.as_str().map(str::to_owned).or_else(|| Some(value.as_i64()?.to_string())).unwrap_or_else(|| "N/A".to_owned())
}

/// A label selector in its text form.
pub(super) fn selector(value: &Value) -> String {
    let text = LabelSelector::from_object(value).map(|labels| labels.to_string()).unwrap_or_default();
    if text.is_empty() { "<none>".to_owned() } else { text }
}

/// The names of a binding's subjects of one kind.
pub(super) fn subjects(binding: &Value, kind: &str) -> String {
    let of_kind = list(&binding["subjects"]).filter(|subject| subject["kind"] == kind);
    let shown = |subject: &Value| match kind {
        "ServiceAccount" => format!("{}/{}", text(&subject["namespace"]), text(&subject["name"])),
        _ => text(&subject["name"]),
    };
    of_kind.map(shown).collect::<Vec<_>>().join(", ")
}

/// The targets of an autoscaler, of which nothing is measured.
pub(super) fn metrics(autoscaler: &Value) -> String {
    const SHOWN_METRICS_MAX: usize = 2;
    let one = |metric: &Value| {
        let source = ["containerResource", "external", "object", "pods", "resource"].iter().map(|name| &metric[*name]);
        let source = source.into_iter().find(|source| source.is_object()).unwrap_or(&Value::Null);
        let target = &source["target"];
        let name = if source["name"].is_string() { format!("{}: ", text(&source["name"])) } else { String::new() };
        let shared = if matches!(metric["type"].as_str(), Some("External" | "Object")) { " (avg)" } else { "" };
        if !target["averageValue"].is_null() {
            format!("{name}<unknown>/{}{shared}", quantity(&target["averageValue"]))
        } else if !name.is_empty() {
            let percent = target["averageUtilization"].as_i64().map(|share| format!("{share}%"));
            format!("{name}<unknown>/{}", percent.unwrap_or_else(|| "<auto>".to_owned()))
        } else {
            format!("<unknown>/{}", quantity(&target["value"]))
        }
    };
    let all: Vec<String> = list(&autoscaler["spec"]["metrics"]).map(one).collect();
    let more = all.len().saturating_sub(SHOWN_METRICS_MAX);
    match all.get(..SHOWN_METRICS_MAX.min(all.len())).unwrap_or_default().join(", ") {
        shown if shown.is_empty() => "<none>".to_owned(),
        shown if more == 0 => shown,
        shown => format!("{shown} + {more} more..."),
    }
}

pub(super) fn or_unknown(value: &Value) -> String {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or("<unknown>").to_owned()
}

/// Whether a Node is ready, and whether it takes Pods.
pub(super) fn node_status(node: &Value) -> String {
    let ready = list(&node["status"]["conditions"]).find(|one| one["type"] == "Ready");
    let ready = ready.map_or("Unknown", |ready| if ready["status"] == "True" { "Ready" } else { "NotReady" });
    if node["spec"]["unschedulable"] == true { format!("{ready},SchedulingDisabled") } else { ready.to_owned() }
}

/// The roles of a Node, from its labels.
pub(super) fn node_roles(node: &Value) -> String {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let roles = labels.filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role).filter(|role| !role.is_empty()),
        None if key == "kubernetes.io/role" => value.as_str().filter(|role| !role.is_empty()),
        None => None,
    });
    let roles: BTreeSet<&str> = roles.collect();
    if roles.is_empty() { "<none>".to_owned() } else { join(roles.into_iter().map(str::to_owned)) }
}

/// The first address of a Node of a type.
pub(super) fn node_address(node: &Value, of: &str) -> String {
    let found = list(&node["status"]["addresses"]).find(|one| one["type"] == of);
    found.map_or_else(|| "<none>".to_owned(), |one| text(&one["address"]))
}

/// The kernel of a Node, and its architecture.
pub(super) fn node_kernel(node: &Value) -> String {
    let (info, architecture) = (&node["status"]["nodeInfo"], text(&node["status"]["nodeInfo"]["architecture"]));
    let kernel = or_unknown(&info["kernelVersion"]);
    if architecture.is_empty() { kernel } else { format!("{kernel} ({architecture})") }
}
