//! The columns of `kubectl get` for each kind, between a name and an age.

use serde_json::Value;

use crate::kind::Kind;

/// The maximum number of addresses or hosts in a cell; the rest is counted.
const SHOWN_MAX: usize = 3;

/// One column: its title, its priority (0 is always printed, 1 with `-o wide`), and the contents of a cell.
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) priority: u8,
    pub(super) cell: fn(&Value) -> String,
}

const fn column(title: &'static str, cell: fn(&Value) -> String) -> Column {
    Column { title, priority: 0, cell }
}

const fn wide(title: &'static str, cell: fn(&Value) -> String) -> Column {
    Column { title, priority: 1, cell }
}

/// The columns between a name and an age.
pub(super) fn of(kind: &Kind) -> &'static [Column] {
    let found = COLUMNS.iter().find(|(name, _)| Some(*name) == kind.built_in());
    found.map_or(&[], |(_, columns)| columns)
}

/// The title of the column with the creation time; only `Age` shows an age.
pub(super) fn made(kind: &Kind) -> &'static str {
    if kind.built_in() == Some("CustomResourceDefinition") { "Created At" } else { "Age" }
}

static COLUMNS: &[(&str, &[Column])] =
    &[
        ("Namespace", &[column("Status", |one| text(&one["status"]["phase"]))]),
        (
            "Service",
            &[
                column("Type", |one| text(&one["spec"]["type"])),
                column("Cluster-IP", |one| or_none(&one["spec"]["clusterIP"])),
                column("External-IP", external_address),
                column("Port(s)", service_ports),
                wide("Selector", |one| labels(&one["spec"]["selector"])),
            ],
        ),
        ("Secret", &[column("Type", |one| text(&one["type"])), column("Data", |one| count(&one["data"]))]),
        ("ConfigMap", &[column("Data", |one| count(&one["data"]))]),
        (
            "Event",
            &[
                column("Type", |one| text(&one["type"])),
                column("Reason", |one| text(&one["reason"])),
                column("Object", |one| {
                    let object = &one["involvedObject"];
                    format!("{}/{}", text(&object["kind"]).to_lowercase(), text(&object["name"]))
                }),
                column("Message", |one| text(&one["message"])),
            ],
        ),
        (
            "Deployment",
            &[
                column("Ready", |one| {
                    format!("{}/{}", number(&one["status"]["readyReplicas"]), number(&one["spec"]["replicas"]))
                }),
                column("Up-to-date", |one| number(&one["status"]["updatedReplicas"])),
                column("Available", |one| number(&one["status"]["availableReplicas"])),
                wide("Containers", |one| containers(one, "name")),
                wide("Images", |one| containers(one, "image")),
                wide("Selector", |one| labels(&one["spec"]["selector"]["matchLabels"])),
            ],
        ),
        (
            "ReplicaSet",
            &[
                column("Desired", |one| number(&one["spec"]["replicas"])),
                column("Current", |one| number(&one["status"]["replicas"])),
                column("Ready", |one| number(&one["status"]["readyReplicas"])),
                wide("Containers", |one| containers(one, "name")),
                wide("Images", |one| containers(one, "image")),
                wide("Selector", |one| labels(&one["spec"]["selector"]["matchLabels"])),
            ],
        ),
        (
            "Pod",
            &[
                column("Ready", |one| {
                    let ready = list(&one["status"]["containerStatuses"]).filter(|one| one["ready"] == true).count();
                    format!("{ready}/{}", list(&one["spec"]["containers"]).count())
                }),
                column("Status", pod_status),
                column("Restarts", |one| {
                    let counts = list(&one["status"]["containerStatuses"]).map(|one| one["restartCount"].as_u64());
                    counts.flatten().max().unwrap_or_default().to_string()
                }),
                wide("IP", |one| or_none(&one["status"]["podIP"])),
                wide("Node", |one| or_none(&one["spec"]["nodeName"])),
                wide("Nominated Node", |one| or_none(&one["status"]["nominatedNodeName"])),
                wide("Readiness Gates", |_| "<none>".into()),
            ],
        ),
        (
            "Ingress",
            &[
                column("Class", |one| or_none(&one["spec"]["ingressClassName"])),
                column("Hosts", ingress_hosts),
                column("Address", |one| join(list(&one["status"]["loadBalancer"]["ingress"]).map(address))),
                column("Ports", |one| {
                    if list(&one["spec"]["tls"]).next().is_some() { "80, 443".into() } else { "80".into() }
                }),
            ],
        ),
        (
            "IngressClass",
            &[
                column("Controller", |one| text(&one["spec"]["controller"])),
                column("Parameters", |one| or_none(&one["spec"]["parameters"]["name"])),
            ],
        ),
        (
            "EndpointSlice",
            &[
                column("AddressType", |one| text(&one["addressType"])),
                column("Ports", |one| or_unset(&join(list(&one["ports"]).map(|port| number(&port["port"]))))),
                column("Endpoints", |one| {
                    let addresses = list(&one["endpoints"]).flat_map(|endpoint| list(&endpoint["addresses"]));
                    or_unset(&some(addresses.map(text).collect()))
                }),
            ],
        ),
        ("Lease", &[column("Holder", |one| text(&one["spec"]["holderIdentity"]))]),
    ];

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn or_none(value: &Value) -> String {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or("<none>").to_owned()
}

fn or_unset(text: &str) -> String {
    if text.is_empty() { "<unset>".to_owned() } else { text.to_owned() }
}

fn number(value: &Value) -> String {
    value.as_i64().unwrap_or_default().to_string()
}

fn count(value: &Value) -> String {
    value.as_object().map_or(0, serde_json::Map::len).to_string()
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

fn some(parts: Vec<String>) -> String {
    let more = parts.len().saturating_sub(SHOWN_MAX);
    let shown = parts[..parts.len() - more].join(",");
    if more == 0 { shown } else { format!("{shown} + {more} more...") }
}

fn labels(value: &Value) -> String {
    let labels = value.as_object().into_iter().flatten();
    let text = join(labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())));
    if text.is_empty() { "<none>".into() } else { text }
}

/// A field of each container of a template.
fn containers(workload: &Value, field: &str) -> String {
    join(list(&workload["spec"]["template"]["spec"]["containers"]).map(|container| text(&container[field])))
}

/// The state of a pod in a word: the reason why a container waits, or the phase.
fn pod_status(pod: &Value) -> String {
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return "Terminating".into();
    }
    let waits = |container: &Value| container["state"]["waiting"]["reason"].as_str().map(str::to_owned);
    let waiting = list(&pod["status"]["containerStatuses"]).find_map(waits);
    waiting.unwrap_or_else(|| text(&pod["status"]["phase"]))
}

fn address(ingress: &Value) -> String {
    let hostname = text(&ingress["hostname"]);
    if hostname.is_empty() { text(&ingress["ip"]) } else { hostname }
}

fn external_address(service: &Value) -> String {
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

fn service_ports(service: &Value) -> String {
    let one = |port: &Value| match port["nodePort"].as_i64() {
        Some(node) if node != 0 => format!("{}:{node}/{}", number(&port["port"]), text(&port["protocol"])),
        _ => format!("{}/{}", number(&port["port"]), text(&port["protocol"])),
    };
    let ports = join(list(&service["spec"]["ports"]).map(one));
    if ports.is_empty() { "<none>".into() } else { ports }
}

fn ingress_hosts(ingress: &Value) -> String {
    let mut hosts = Vec::new();
    for host in list(&ingress["spec"]["rules"]).map(|rule| text(&rule["host"])).filter(|host| !host.is_empty()) {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    if hosts.is_empty() { "*".into() } else { some(hosts) }
}
