//! The columns of `kubectl get` for each kind.

use serde_json::{Value, json};

use super::cells::{
    access_modes, address, ago, amount, bound, containers, endpoints, event_count, event_first, event_last,
    event_source, external_address, ingress_class_name, ingress_class_parameters, ingress_hosts, job_completions,
    job_duration, job_status, join, labels, list, metrics, node_address, node_kernel, node_roles, node_status, number,
    or_none, or_unknown, or_unset, phase, pod_restarts, pod_status, quantity, selector, service_ports, size, some,
    subjects, text,
};
use crate::kind::Kind;

/// One column: its title, its priority (0 is always printed, 1 with `-o wide`), and the contents of a cell.
#[derive(Clone, Copy)]
pub(super) struct Column {
    title: &'static str,
    priority: u8,
    cell: Cell,
}

/// The contents of a cell, from an object.
#[derive(Clone, Copy)]
enum Cell {
    Plain(fn(&Value) -> String),
    /// From the object and the seconds since 1970 too.
    Timed(fn(&Value, u64) -> String),
}

impl Column {
    /// Its definition in a Table.
    pub(super) fn definition(&self) -> Value {
        let (title, priority) = (self.title, self.priority);
        let format = if title == "Name" { "name" } else { "" };
        json!({"name": title, "type": "string", "format": format, "description": "", "priority": priority})
    }

    /// The cell of an object in this column.
    pub(super) fn cell(&self, object: &Value, unix_seconds: u64) -> String {
        match self.cell {
            Cell::Plain(cell) => cell(object),
            Cell::Timed(cell) => cell(object, unix_seconds),
        }
    }
}

const fn column(title: &'static str, cell: fn(&Value) -> String) -> Column {
    Column { title, priority: 0, cell: Cell::Plain(cell) }
}

const fn wide(title: &'static str, cell: fn(&Value) -> String) -> Column {
    Column { title, priority: 1, cell: Cell::Plain(cell) }
}

const fn timed(title: &'static str, cell: fn(&Value, u64) -> String) -> Column {
    Column { title, priority: 0, cell: Cell::Timed(cell) }
}

const NAME: Column = column("Name", |one| text(&one["metadata"]["name"]));
const AGE: Column =
    timed("Age", |one, now| ago(&one["metadata"]["creationTimestamp"], now).unwrap_or_else(|| "<unknown>".into()));

/// The columns of a Scale, the subresource of kinds with replicas.
const SCALE: &[Column] = &[
    NAME,
    column("Desired", |one| number(&one["spec"]["replicas"])),
    column("Available", |one| number(&one["status"]["replicas"])),
    AGE,
];

/// The columns of an Event begin with its last time, and end with its name.
const EVENT: &[Column] = &[
    timed("Last Seen", event_last),
    column("Type", |one| text(&one["type"])),
    column("Reason", |one| text(&one["reason"])),
    column("Object", |one| {
        let (kind, name) = (text(&one["involvedObject"]["kind"]).to_lowercase(), text(&one["involvedObject"]["name"]));
        if name.is_empty() { kind } else { format!("{kind}/{name}") }
    }),
    wide("Subobject", |one| text(&one["involvedObject"]["fieldPath"])),
    wide("Source", event_source),
    column("Message", |one| text(&one["message"]).trim().to_owned()),
    Column { priority: 1, ..timed("First Seen", event_first) },
    wide("Count", event_count),
    Column { priority: 1, ..NAME },
];

/// The columns of both kinds of bindings.
const BINDING: &[Column] = &[
    column("Role", |one| format!("{}/{}", text(&one["roleRef"]["kind"]), text(&one["roleRef"]["name"]))),
    wide("Users", |one| subjects(one, "User")),
    wide("Groups", |one| subjects(one, "Group")),
    wide("ServiceAccounts", |one| subjects(one, "ServiceAccount")),
];

/// The kinds that show when an object was created, where the others show its age.
const CREATED_AT: &[&str] = &["ClusterRole", "CustomResourceDefinition", "Role"];

/// All columns of a kind, in their order.
pub(super) fn of(kind: &Kind) -> Vec<Column> {
    let name = match kind.built_in() {
        Some("Event") => return EVENT.to_vec(),
        Some("IngressClass") => column("Name", ingress_class_name),
        _ => NAME,
    };
    let made = if kind.built_in().is_some_and(|kind| CREATED_AT.contains(&kind)) {
        column("Created At", |one| text(&one["metadata"]["creationTimestamp"]))
    } else {
        AGE
    };
    let found = COLUMNS.iter().find(|(name, _)| Some(*name) == kind.built_in());
    let columns: &[Column] = found.map_or(&[], |(_, columns)| columns);
    let usual = columns.iter().filter(|one| one.priority == 0).copied();
    let wide = columns.iter().filter(|one| one.priority != 0).copied();
    let mut all: Vec<Column> = [name].into_iter().chain(usual).chain([made]).chain(wide).collect();
    if kind.built_in() == Some("Node")
        && let Some(version) = all.iter().position(|one| one.title == "Version")
    {
        // Its age stands before its version.
        all.swap(version, version + 1);
    }
    all
}

/// The columns of a Scale.
pub(super) fn of_scale() -> &'static [Column] {
    SCALE
}

/// The columns between a name and an age.
static COLUMNS: &[(&str, &[Column])] = &[
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
    ("Secret", &[column("Type", |one| text(&one["type"])), column("Data", |one| size(&one["data"]).to_string())]),
    ("ConfigMap", &[column("Data", |one| (size(&one["data"]) + size(&one["binaryData"])).to_string())]),
    ("Endpoints", &[column("Endpoints", endpoints)]),
    (
        "Node",
        &[
            column("Status", node_status),
            column("Roles", node_roles),
            column("Version", |one| text(&one["status"]["nodeInfo"]["kubeletVersion"])),
            wide("Internal-IP", |one| node_address(one, "InternalIP")),
            wide("External-IP", |one| node_address(one, "ExternalIP")),
            wide("OS-Image", |one| or_unknown(&one["status"]["nodeInfo"]["osImage"])),
            wide("Kernel-Version", node_kernel),
            wide("Container-Runtime", |one| or_unknown(&one["status"]["nodeInfo"]["containerRuntimeVersion"])),
        ],
    ),
    (
        "PersistentVolume",
        &[
            column("Capacity", |one| quantity(&one["spec"]["capacity"]["storage"])),
            column("Access Modes", |one| access_modes(&one["spec"]["accessModes"])),
            column("Reclaim Policy", |one| text(&one["spec"]["persistentVolumeReclaimPolicy"])),
            column("Status", phase),
            column("Claim", |one| {
                let claim = &one["spec"]["claimRef"];
                if claim.is_null() {
                    String::new()
                } else {
                    format!("{}/{}", text(&claim["namespace"]), text(&claim["name"]))
                }
            }),
            column("StorageClass", |one| text(&one["spec"]["storageClassName"])),
            column("VolumeAttributesClass", |one| or_unset(&text(&one["spec"]["volumeAttributesClassName"]))),
            column("Reason", |one| text(&one["status"]["reason"])),
            wide("VolumeMode", |one| or_unset(&text(&one["spec"]["volumeMode"]))),
        ],
    ),
    (
        "PersistentVolumeClaim",
        &[
            column("Status", phase),
            column("Volume", |one| text(&one["spec"]["volumeName"])),
            column("Capacity", |one| bound(one, |one| quantity(&one["status"]["capacity"]["storage"]))),
            column("Access Modes", |one| bound(one, |one| access_modes(&one["status"]["accessModes"]))),
            column("StorageClass", |one| text(&one["spec"]["storageClassName"])),
            column("VolumeAttributesClass", |one| or_unset(&text(&one["spec"]["volumeAttributesClassName"]))),
            wide("VolumeMode", |one| or_unset(&text(&one["spec"]["volumeMode"]))),
        ],
    ),
    (
        "ReplicationController",
        &[
            column("Desired", |one| number(&one["spec"]["replicas"])),
            column("Current", |one| number(&one["status"]["replicas"])),
            column("Ready", |one| number(&one["status"]["readyReplicas"])),
            wide("Containers", |one| containers(one, "name")),
            wide("Images", |one| containers(one, "image")),
            wide("Selector", |one| labels(&one["spec"]["selector"])),
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
        "StatefulSet",
        &[
            column("Ready", |one| {
                format!("{}/{}", number(&one["status"]["readyReplicas"]), number(&one["spec"]["replicas"]))
            }),
            wide("Containers", |one| containers(one, "name")),
            wide("Images", |one| containers(one, "image")),
        ],
    ),
    (
        "DaemonSet",
        &[
            column("Desired", |one| number(&one["status"]["desiredNumberScheduled"])),
            column("Current", |one| number(&one["status"]["currentNumberScheduled"])),
            column("Ready", |one| number(&one["status"]["numberReady"])),
            column("Up-to-date", |one| number(&one["status"]["updatedNumberScheduled"])),
            column("Available", |one| number(&one["status"]["numberAvailable"])),
            column("Node Selector", |one| labels(&one["spec"]["template"]["spec"]["nodeSelector"])),
            wide("Containers", |one| containers(one, "name")),
            wide("Images", |one| containers(one, "image")),
            wide("Selector", |one| labels(&one["spec"]["selector"]["matchLabels"])),
        ],
    ),
    (
        "Job",
        &[
            column("Status", job_status),
            column("Completions", job_completions),
            timed("Duration", job_duration),
            wide("Containers", |one| containers(one, "name")),
            wide("Images", |one| containers(one, "image")),
            wide("Selector", |one| labels(&one["spec"]["selector"]["matchLabels"])),
        ],
    ),
    (
        "CronJob",
        &[
            column("Schedule", |one| text(&one["spec"]["schedule"])),
            column("Timezone", |one| or_none(&one["spec"]["timeZone"])),
            column("Suspend", |one| if one["spec"]["suspend"] == true { "True".into() } else { "False".into() }),
            column("Active", |one| list(&one["status"]["active"]).count().to_string()),
            timed("Last Schedule", |one, now| {
                ago(&one["status"]["lastScheduleTime"], now).unwrap_or_else(|| "<none>".into())
            }),
            wide("Containers", |one| containers(&one["spec"]["jobTemplate"], "name")),
            wide("Images", |one| containers(&one["spec"]["jobTemplate"], "image")),
            wide("Selector", |one| labels(&one["spec"]["jobTemplate"]["spec"]["selector"]["matchLabels"])),
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
            timed("Restarts", pod_restarts),
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
            column(
                "Ports",
                |one| {
                    if list(&one["spec"]["tls"]).next().is_some() { "80, 443".into() } else { "80".into() }
                },
            ),
        ],
    ),
    (
        "IngressClass",
        &[column("Controller", |one| text(&one["spec"]["controller"])), column("Parameters", ingress_class_parameters)],
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
    ("RoleBinding", BINDING),
    ("ClusterRoleBinding", BINDING),
    ("NetworkPolicy", &[column("Pod-Selector", |one| selector(&one["spec"]["podSelector"]))]),
    (
        "PodDisruptionBudget",
        &[
            column("Min Available", |one| amount(&one["spec"]["minAvailable"])),
            column("Max Unavailable", |one| amount(&one["spec"]["maxUnavailable"])),
            column("Allowed Disruptions", |one| number(&one["status"]["disruptionsAllowed"])),
        ],
    ),
    (
        "HorizontalPodAutoscaler",
        &[
            column("Reference", |one| {
                let target = &one["spec"]["scaleTargetRef"];
                format!("{}/{}", text(&target["kind"]), text(&target["name"]))
            }),
            column("Targets", metrics),
            column("MinPods", |one| number(&one["spec"]["minReplicas"])),
            column("MaxPods", |one| number(&one["spec"]["maxReplicas"])),
            column("Replicas", |one| number(&one["status"]["currentReplicas"])),
        ],
    ),
    ("Lease", &[column("Holder", |one| text(&one["spec"]["holderIdentity"]))]),
];
