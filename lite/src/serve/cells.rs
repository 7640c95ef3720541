//! The cells of the columns of `kubectl get`.

use serde_json::Value;

use crate::clock;

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

pub(super) fn count(value: &Value) -> String {
    value.as_object().map_or(0, serde_json::Map::len).to_string()
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
    let mut hosts = Vec::new();
    for host in list(&ingress["spec"]["rules"]).map(|rule| text(&rule["host"])).filter(|host| !host.is_empty()) {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
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
    let told = ["Complete", "Failed"].into_iter().find(|kind| holds(kind));
    let going = || job["metadata"]["deletionTimestamp"].is_string().then_some("Terminating");
    let later = || ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(|kind| holds(kind));
    told.or_else(going).or_else(later).unwrap_or("Running").to_owned()
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
