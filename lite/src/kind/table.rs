//! The built-in kinds, as a static table: one row a kind. What is particular to a kind beyond a row is in `rules`.

use std::time::Duration;

use super::{Scope, Subresource};

/// One row of the table.
pub(super) struct Row {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) plural: &'static str,
    pub(super) singular: &'static str,
    pub(super) kind: &'static str,
    pub(super) short: &'static [&'static str],
    pub(super) categories: &'static [&'static str],
    pub(super) scope: Scope,
    pub(super) subresources: &'static [Subresource],
    pub(super) generation: bool,
    pub(super) fields: &'static [&'static str],
    pub(super) kept: Option<Duration>,
    pub(super) question: bool,
}

const BASE: Row = Row {
    group: "",
    version: "v1",
    plural: "",
    singular: "",
    kind: "",
    short: &[],
    categories: &[],
    scope: Scope::Namespaced,
    subresources: &[],
    generation: false,
    fields: &[],
    kept: None,
    question: false,
};

/// What is asked of the server and not kept.
const QUESTION: Row = Row { scope: Scope::Cluster, question: true, ..BASE };

/// Kept for as long as by the real server (`--event-ttl`).
const EVENT: Row = Row {
    plural: "events",
    singular: "event",
    kind: "Event",
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
    ..BASE
};

/// Every built-in kind. The order is that of discovery; groups stay together.
pub(super) static ROWS: &[Row] = &[
    Row {
        plural: "namespaces",
        singular: "namespace",
        kind: "Namespace",
        short: &["ns"],
        scope: Scope::Cluster,
        subresources: &[Subresource::Status],
        fields: &["status.phase"],
        ..BASE
    },
    Row {
        plural: "services",
        singular: "service",
        kind: "Service",
        short: &["svc"],
        categories: &["all"],
        subresources: &[Subresource::Status],
        fields: &["spec.clusterIP", "spec.type"],
        ..BASE
    },
    Row { plural: "secrets", singular: "secret", kind: "Secret", fields: &["type"], ..BASE },
    Row { plural: "configmaps", singular: "configmap", kind: "ConfigMap", short: &["cm"], ..BASE },
    EVENT,
    Row {
        plural: "pods",
        singular: "pod",
        kind: "Pod",
        short: &["po"],
        categories: &["all"],
        subresources: &[Subresource::Log, Subresource::Status],
        generation: true,
        fields: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
        ],
        ..BASE
    },
    Row {
        group: "apps",
        plural: "deployments",
        singular: "deployment",
        kind: "Deployment",
        short: &["deploy"],
        categories: &["all"],
        subresources: &[Subresource::Status, Subresource::Scale],
        generation: true,
        ..BASE
    },
    Row {
        group: "apps",
        plural: "replicasets",
        singular: "replicaset",
        kind: "ReplicaSet",
        short: &["rs"],
        categories: &["all"],
        subresources: &[Subresource::Status, Subresource::Scale],
        generation: true,
        ..BASE
    },
    Row {
        group: "networking.k8s.io",
        plural: "ingresses",
        singular: "ingress",
        kind: "Ingress",
        short: &["ing"],
        subresources: &[Subresource::Status],
        generation: true,
        ..BASE
    },
    Row {
        group: "networking.k8s.io",
        plural: "ingressclasses",
        singular: "ingressclass",
        kind: "IngressClass",
        scope: Scope::Cluster,
        generation: true,
        ..BASE
    },
    Row {
        group: "discovery.k8s.io",
        plural: "endpointslices",
        singular: "endpointslice",
        kind: "EndpointSlice",
        generation: true,
        ..BASE
    },
    Row { group: "coordination.k8s.io", plural: "leases", singular: "lease", kind: "Lease", ..BASE },
    Row {
        group: "apiextensions.k8s.io",
        plural: "customresourcedefinitions",
        singular: "customresourcedefinition",
        kind: "CustomResourceDefinition",
        short: &["crd", "crds"],
        categories: &["api-extensions"],
        scope: Scope::Cluster,
        subresources: &[Subresource::Status],
        generation: true,
        ..BASE
    },
    Row {
        group: "authentication.k8s.io",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        kind: "SelfSubjectReview",
        ..QUESTION
    },
    Row {
        group: "authorization.k8s.io",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        kind: "SelfSubjectAccessReview",
        ..QUESTION
    },
    Row {
        group: "authorization.k8s.io",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        kind: "SelfSubjectRulesReview",
        ..QUESTION
    },
    // Another name for the Events above (`serve/events.rs`): nothing is ever kept under this one.
    Row { group: "events.k8s.io", ..EVENT },
];
