//! The built-in kinds, as a static table: one row a kind. Names and schema are those of Kubernetes (k8s-openapi). What
//! is particular to a kind beyond a row is in `rules`.

use std::time::Duration;

use k8s_openapi::Resource;
use k8s_openapi::api::{
    apps, authentication, authorization, autoscaling, batch, coordination, core, discovery, events, networking, policy,
    rbac,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{Scope, Subresource};

/// Adds the published schema of a kind, and of every type that it names.
pub(crate) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// One row of the table.
pub(super) struct Row {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) plural: &'static str,
    pub(super) kind: &'static str,
    pub(super) schema: Describe,
    pub(super) short: &'static [&'static str],
    pub(super) categories: &'static [&'static str],
    pub(super) scope: Scope,
    pub(super) subresources: &'static [Subresource],
    pub(super) generation: bool,
    pub(super) fields: &'static [&'static str],
    pub(super) kept: Option<Duration>,
    pub(super) question: bool,
    /// The warning of each answer, for a deprecated kind.
    pub(super) deprecation: Option<&'static str>,
}

const fn row<K: Resource + JsonSchema>() -> Row {
    Row {
        group: K::GROUP,
        version: K::VERSION,
        plural: K::URL_PATH_SEGMENT,
        kind: K::KIND,
        schema: SchemaGenerator::subschema_for::<K>,
        short: &[],
        categories: &[],
        scope: Scope::Namespaced,
        subresources: &[],
        generation: false,
        fields: &[],
        kept: None,
        question: false,
        deprecation: None,
    }
}

/// Requests that are answered and not stored.
const fn question<K: Resource + JsonSchema>() -> Row {
    Row { scope: Scope::Cluster, question: true, ..row::<K>() }
}

/// Kept for as long as by the real server (`--event-ttl`).
const fn event<K: Resource + JsonSchema>() -> Row {
    Row {
        short: &["ev"],
        fields: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        kept: Some(Duration::from_secs(3600)),
        ..row::<K>()
    }
}

/// Kinds that run Pods and are in the category `all`.
const fn workload<K: Resource + JsonSchema>() -> Row {
    Row { categories: &["all"], subresources: &[Subresource::Status], generation: true, ..row::<K>() }
}

/// The schema of a built-in kind.
pub(crate) fn describe(group: &str, kind: &str) -> Option<Describe> {
    ROWS.iter().find(|row| row.group == group && row.kind == kind).map(|row| row.schema)
}

const STATUS_AND_SCALE: &[Subresource] = &[Subresource::Status, Subresource::Scale];

/// Every built-in kind. The order is that of the real server's discovery, and so that of `kubectl get all`: groups by
/// their precedence, and kinds by their plural.
pub(super) static ROWS: &[Row] = &[
    Row { short: &["cm"], ..row::<core::v1::ConfigMap>() },
    Row {
        short: &["ep"],
        deprecation: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        ..row::<core::v1::Endpoints>()
    },
    event::<core::v1::Event>(),
    Row {
        short: &["ns"],
        scope: Scope::Cluster,
        subresources: &[Subresource::Finalize, Subresource::Status],
        fields: &["status.phase"],
        ..row::<core::v1::Namespace>()
    },
    Row {
        short: &["no"],
        scope: Scope::Cluster,
        subresources: &[Subresource::Status],
        fields: &["spec.unschedulable"],
        ..row::<core::v1::Node>()
    },
    Row { short: &["pvc"], subresources: &[Subresource::Status], ..row::<core::v1::PersistentVolumeClaim>() },
    Row {
        short: &["pv"],
        scope: Scope::Cluster,
        subresources: &[Subresource::Status],
        ..row::<core::v1::PersistentVolume>()
    },
    Row {
        short: &["po"],
        subresources: &[Subresource::Log, Subresource::Status],
        fields: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
        ],
        ..workload::<core::v1::Pod>()
    },
    Row {
        short: &["rc"],
        subresources: STATUS_AND_SCALE,
        fields: &["status.replicas"],
        ..workload::<core::v1::ReplicationController>()
    },
    Row { fields: &["type"], ..row::<core::v1::Secret>() },
    Row { short: &["sa"], ..row::<core::v1::ServiceAccount>() },
    Row {
        short: &["svc"],
        categories: &["all"],
        subresources: &[Subresource::Status],
        fields: &["spec.clusterIP", "spec.type"],
        ..row::<core::v1::Service>()
    },
    Row { short: &["ds"], ..workload::<apps::v1::DaemonSet>() },
    Row { short: &["deploy"], subresources: STATUS_AND_SCALE, ..workload::<apps::v1::Deployment>() },
    Row { short: &["rs"], subresources: STATUS_AND_SCALE, ..workload::<apps::v1::ReplicaSet>() },
    Row { short: &["sts"], subresources: STATUS_AND_SCALE, ..workload::<apps::v1::StatefulSet>() },
    // Another name for the Events above (`serve/events.rs`): nothing is ever kept under this one.
    event::<events::v1::Event>(),
    question::<authentication::v1::SelfSubjectReview>(),
    question::<authorization::v1::SelfSubjectAccessReview>(),
    question::<authorization::v1::SelfSubjectRulesReview>(),
    Row { short: &["hpa"], generation: false, ..workload::<autoscaling::v2::HorizontalPodAutoscaler>() },
    Row { short: &["cj"], ..workload::<batch::v1::CronJob>() },
    Row { fields: &["status.successful"], ..workload::<batch::v1::Job>() },
    Row { scope: Scope::Cluster, generation: true, ..row::<networking::v1::IngressClass>() },
    Row { short: &["ing"], subresources: &[Subresource::Status], generation: true, ..row::<networking::v1::Ingress>() },
    Row { short: &["netpol"], generation: true, ..row::<networking::v1::NetworkPolicy>() },
    Row {
        short: &["pdb"],
        subresources: &[Subresource::Status],
        generation: true,
        ..row::<policy::v1::PodDisruptionBudget>()
    },
    Row { scope: Scope::Cluster, ..row::<rbac::v1::ClusterRoleBinding>() },
    Row { scope: Scope::Cluster, ..row::<rbac::v1::ClusterRole>() },
    row::<rbac::v1::RoleBinding>(),
    row::<rbac::v1::Role>(),
    Row {
        short: &["crd", "crds"],
        categories: &["api-extensions"],
        scope: Scope::Cluster,
        subresources: &[Subresource::Status],
        generation: true,
        ..row::<apiextensions::v1::CustomResourceDefinition>()
    },
    row::<coordination::v1::Lease>(),
    Row { generation: true, ..row::<discovery::v1::EndpointSlice>() },
];
