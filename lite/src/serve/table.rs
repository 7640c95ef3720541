//! Tables for people: the columns that `kubectl get` prints, one list a kind.

use serde_json::{Value, json};

use super::form;
use crate::clock;
use crate::kind::Kind;

/// How many addresses or hosts a cell names before it says how many more there are.
const SHOWN_MAX: usize = 3;

/// One column: its title, its priority (0 is always printed, 1 with `-o wide`), and what a cell shows.
struct Column {
    title: &'static str,
    priority: u8,
    cell: fn(&Value) -> String,
}

const fn column(title: &'static str, cell: fn(&Value) -> String) -> Column {
    Column { title, priority: 0, cell }
}

const fn wide(title: &'static str, cell: fn(&Value) -> String) -> Column {
    Column { title, priority: 1, cell }
}

/// The columns between a name and an age.
fn columns(kind: &Kind) -> &'static [Column] {
    match kind.kind {
        "Namespace" => const { &[column("Status", |one| text(&one["status"]["phase"]))] },
        "Service" => const {
            &[
                column("Type", |one| text(&one["spec"]["type"])),
                column("Cluster-IP", |one| or_none(&one["spec"]["clusterIP"])),
                column("External-IP", external_address),
                column("Port(s)", service_ports),
                wide("Selector", |one| labels(&one["spec"]["selector"])),
            ]
        },
        "Secret" => const { &[column("Type", |one| text(&one["type"])), column("Data", |one| count(&one["data"]))] },
        "ConfigMap" => const { &[column("Data", |one| count(&one["data"]))] },
        "Event" => const {
            &[
                column("Type", |one| text(&one["type"])),
                column("Reason", |one| text(&one["reason"])),
                column("Object", |one| {
                    let object = &one["involvedObject"];
                    format!("{}/{}", text(&object["kind"]).to_lowercase(), text(&object["name"]))
                }),
                column("Message", |one| text(&one["message"])),
            ]
        },
        "Deployment" => const {
            &[
                column("Ready", |one| format!("{}/{}", number(&one["status"]["readyReplicas"]), number(&one["spec"]["replicas"]))),
                column("Up-to-date", |one| number(&one["status"]["updatedReplicas"])),
                column("Available", |one| number(&one["status"]["availableReplicas"])),
                wide("Selector", |one| labels(&one["spec"]["selector"]["matchLabels"])),
            ]
        },
        "Ingress" => const {
            &[
                column("Class", |one| or_none(&one["spec"]["ingressClassName"])),
                column("Hosts", ingress_hosts),
                column("Address", |one| join(list(&one["status"]["loadBalancer"]["ingress"]).map(address))),
                column("Ports", |one| if list(&one["spec"]["tls"]).next().is_some() { "80, 443".into() } else { "80".into() }),
            ]
        },
        "IngressClass" => const {
            &[
                column("Controller", |one| text(&one["spec"]["controller"])),
                column("Parameters", |one| or_none(&one["spec"]["parameters"]["name"])),
            ]
        },
        "EndpointSlice" => const {
            &[
                column("AddressType", |one| text(&one["addressType"])),
                column("Ports", |one| or_unset(&join(list(&one["ports"]).map(|port| number(&port["port"]))))),
                column("Endpoints", |one| {
                    let addresses = list(&one["endpoints"]).flat_map(|endpoint| list(&endpoint["addresses"]));
                    or_unset(&some(addresses.map(text).collect()))
                }),
            ]
        },
        "Lease" => const { &[column("Holder", |one| text(&one["spec"]["holderIdentity"]))] },
        _ => &[],
    }
}

/// A Table of objects. `include` is the request's `includeObject`: None, Metadata or Object.
pub(super) fn of<'a>(
    kind: &Kind,
    objects: impl Iterator<Item = &'a Value>,
    version: &str,
    include: &str,
    unix_seconds: u64,
) -> Value {
    let columns = columns(kind);
    let definition = |title: &str, format: &str, priority: u8| {
        json!({"name": title, "type": "string", "format": format, "description": "", "priority": priority})
    };
    let mut definitions = vec![definition("Name", "name", 0)];
    definitions.extend(columns.iter().filter(|one| one.priority == 0).map(|one| definition(one.title, "", 0)));
    definitions.push(definition("Age", "", 0));
    definitions.extend(columns.iter().filter(|one| one.priority != 0).map(|one| definition(one.title, "", one.priority)));
    let rows = objects.map(|object| {
        let mut cells = vec![object["metadata"]["name"].clone()];
        cells.extend(columns.iter().filter(|one| one.priority == 0).map(|one| (one.cell)(object).into()));
        cells.push(age(object, unix_seconds).into());
        cells.extend(columns.iter().filter(|one| one.priority != 0).map(|one| (one.cell)(object).into()));
        let shown = match include {
            "None" => Value::Null,
            "Object" => object.clone(),
            _ => form::metadata(object),
        };
        json!({"cells": cells, "object": shown})
    });
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": version},
        "rows": rows.collect::<Vec<_>>(), "columnDefinitions": definitions,
    })
}

/// An age in the largest unit that leaves two digits of meaning.
fn age(object: &Value, unix_seconds: u64) -> String {
    let Some(created) = object["metadata"]["creationTimestamp"].as_str().and_then(clock::seconds) else {
        return "<unknown>".into();
    };
    let age = unix_seconds.saturating_sub(created);
    let (minutes, hours, days) = (age / 60, age / 3_600, age / 86_400);
    match age {
        0..120 => format!("{age}s"),
        120..600 if age % 60 != 0 => format!("{minutes}m{}s", age % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if minutes % 60 != 0 => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::KINDS;

    #[test]
    fn ages_are_short() {
        let object = json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}});
        for (seconds, expected) in [(0, "0s"), (119, "119s"), (125, "2m5s"), (660, "11m"), (11_100, "3h5m"), (100_000, "27h"), (900_000, "10d")] {
            assert_eq!(age(&object, seconds), expected);
        }
        assert_eq!(age(&json!({}), 5), "<unknown>");
    }

    #[test]
    fn a_service_is_a_row() {
        let kind = KINDS.iter().find(|kind| kind.kind == "Service").unwrap();
        let service = json!({
            "metadata": {"name": "web", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"type": "NodePort", "clusterIP": "10.96.0.1", "ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}]},
        });
        let table = of(kind, std::iter::once(&service), "7", "None", 60);
        assert_eq!(table["rows"][0]["cells"], json!(["web", "NodePort", "10.96.0.1", "<none>", "80:30000/TCP", "60s", "<none>"]));
        assert_eq!(table["columnDefinitions"].as_array().unwrap().len(), 7);
    }

    #[test]
    fn every_kind_can_be_a_table() {
        for kind in KINDS {
            let empty = json!({"metadata": {"name": "x"}});
            assert_eq!(of(kind, std::iter::once(&empty), "1", "", 0)["rows"][0]["cells"][0], "x", "{}", kind.kind);
        }
    }
}
