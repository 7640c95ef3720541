//! The facts about a place in an object that a merge needs: whether it is one value, how its list is joined, and what
//! is below.
//!
//! [`Node`] is the only interface from here to a schema: that of a custom kind, or the table of fields. It adds to the
//! table the facts for server-side apply alone: values that are owned as a whole, and lists with more than one key. The
//! facts are those of the real server's OpenAPI (`x-kubernetes-list-type`, `x-kubernetes-list-map-keys`,
//! `x-kubernetes-map-type`).

use serde_json::Value;

use super::step::{Scalar, Step};
use crate::custom::{List, Schema, Type};
use crate::fields::format::Format;
use crate::fields::schema::{self, Join, Retain, Shape};

/// Types that are owned as a whole.
const WHOLE_TYPES: &[&str] = &[
    "ConfigMapKeySelector",
    "EndpointAddress",
    "EndpointPort",
    "FileKeySelector",
    "LabelSelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ObjectReference",
    "OwnerReference",
    "ResourceFieldSelector",
    "RoleRef",
    "SecretKeySelector",
    "SecretReference",
    "ServiceBackendPort",
    "Subject",
    "TypedLocalObjectReference",
];

/// Maps that are owned as a whole, by type and field.
const WHOLE_MAPS: &[(&str, &str)] =
    &[("PodSpec", "nodeSelector"), ("ReplicationControllerSpec", "selector"), ("ServiceSpec", "selector")];

/// A key of a list of objects, and the value of an element without it.
type ListKey = (&'static str, Option<&'static str>);

/// Lists whose keys differ from those of a strategic merge, with the values of absent keys.
const KEYED: &[(&str, &str, &[ListKey])] = &[
    ("ServiceSpec", "ports", &[("port", None), ("protocol", Some("TCP"))]),
    ("Container", "ports", &[("containerPort", None), ("protocol", Some("TCP"))]),
    ("CustomResourceDefinitionStatus", "conditions", &[("type", None)]),
    ("EphemeralContainer", "ports", &[("containerPort", None), ("protocol", Some("TCP"))]),
    ("ResourceRequirements", "claims", &[("name", None)]),
    ("ResourceStatus", "resources", &[("resourceID", None)]),
    ("PodSpec", "topologySpreadConstraints", &[("topologyKey", None), ("whenUnsatisfiable", None)]),
];

/// Lists of primitives that are sets here, though a strategic merge replaces them.
const SETS: &[(&str, &str)] = &[
    ("ContainerRestartRuleOnExitCodes", "values"),
    ("Endpoint", "addresses"),
    ("NodeAllocatableResourceClaimStatus", "containers"),
    ("PodFailurePolicyOnExitCodesRequirement", "values"),
    ("UncountedTerminatedPods", "failed"),
    ("UncountedTerminatedPods", "succeeded"),
];

/// Lists that a strategic merge joins and that are one value here.
const REPLACED: &[(&str, &str)] = &[("JobStatus", "conditions"), ("PodStatus", "hostIPs")];

/// Objects that always exist, if only as empty ones: their existence has no owner.
const ALWAYS: &[(&str, &str)] = &[
    ("ClusterRoleBinding", "roleRef"),
    ("Container", "resources"),
    ("ContainerResourceMetricSource", "target"),
    ("ContainerResourceMetricStatus", "current"),
    ("ContainerStatus", "lastState"),
    ("ContainerStatus", "state"),
    ("CronJob", "spec"),
    ("CronJob", "status"),
    ("CronJobSpec", "jobTemplate"),
    ("DaemonSet", "spec"),
    ("DaemonSet", "status"),
    ("DaemonSetSpec", "template"),
    ("DaemonSetSpec", "updateStrategy"),
    ("Deployment", "spec"),
    ("Deployment", "status"),
    ("DeploymentSpec", "strategy"),
    ("DeploymentSpec", "template"),
    ("Endpoint", "conditions"),
    ("EphemeralContainer", "resources"),
    ("Event", "involvedObject"),
    ("Event", "source"),
    ("ExternalMetricSource", "metric"),
    ("ExternalMetricSource", "target"),
    ("ExternalMetricStatus", "current"),
    ("ExternalMetricStatus", "metric"),
    ("HTTPIngressPath", "backend"),
    ("HorizontalPodAutoscaler", "spec"),
    ("HorizontalPodAutoscaler", "status"),
    ("HorizontalPodAutoscalerSpec", "scaleTargetRef"),
    ("Ingress", "spec"),
    ("Ingress", "status"),
    ("IngressClass", "spec"),
    ("IngressServiceBackend", "port"),
    ("IngressStatus", "loadBalancer"),
    ("Job", "spec"),
    ("Job", "status"),
    ("JobSpec", "template"),
    ("JobTemplateSpec", "spec"),
    ("Lease", "spec"),
    ("Namespace", "spec"),
    ("Namespace", "status"),
    ("NetworkPolicy", "spec"),
    ("NetworkPolicySpec", "podSelector"),
    ("Node", "spec"),
    ("Node", "status"),
    ("NodeDaemonEndpoints", "kubeletEndpoint"),
    ("NodeStatus", "daemonEndpoints"),
    ("NodeStatus", "nodeInfo"),
    ("ObjectMetricSource", "describedObject"),
    ("ObjectMetricSource", "metric"),
    ("ObjectMetricSource", "target"),
    ("ObjectMetricStatus", "current"),
    ("ObjectMetricStatus", "describedObject"),
    ("ObjectMetricStatus", "metric"),
    ("PersistentVolume", "spec"),
    ("PersistentVolume", "status"),
    ("PersistentVolumeClaim", "spec"),
    ("PersistentVolumeClaim", "status"),
    ("PersistentVolumeClaimSpec", "resources"),
    ("PersistentVolumeClaimTemplate", "spec"),
    ("Pod", "spec"),
    ("Pod", "status"),
    ("PodDisruptionBudget", "spec"),
    ("PodDisruptionBudget", "status"),
    ("PodTemplateSpec", "metadata"),
    ("PodTemplateSpec", "spec"),
    ("PodsMetricSource", "metric"),
    ("PodsMetricSource", "target"),
    ("PodsMetricStatus", "current"),
    ("PodsMetricStatus", "metric"),
    ("PreferredSchedulingTerm", "preference"),
    ("ReplicaSet", "spec"),
    ("ReplicaSet", "status"),
    ("ReplicaSetSpec", "template"),
    ("ReplicationController", "spec"),
    ("ReplicationController", "status"),
    ("ResourceMetricSource", "target"),
    ("ResourceMetricStatus", "current"),
    ("RoleBinding", "roleRef"),
    ("Service", "spec"),
    ("Service", "status"),
    ("ServiceStatus", "loadBalancer"),
    ("StatefulSet", "spec"),
    ("StatefulSet", "status"),
    ("StatefulSetSpec", "template"),
    ("StatefulSetSpec", "updateStrategy"),
    ("WeightedPodAffinityTerm", "podAffinityTerm"),
];

/// The metadata of custom objects is that of all kinds.
static METADATA: Shape = Shape::Named("ObjectMeta", Retain::All);

/// A place in objects of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a>(Of<'a>);

/// The description of a place.
#[derive(Clone, Copy, Debug)]
enum Of<'a> {
    /// The table of built-in kinds, and the type and the field of the parent, for those with facts beside the table.
    Table(&'a Shape, (&'static str, &'static str)),
    /// The schema of a custom kind.
    Custom(&'a Schema),
    /// The same at the root of an object, which also has metadata.
    Root(&'a Schema),
    /// No description: maps are owned field by field, and lists as a whole.
    Nothing,
}

/// The ownership and merge of the value at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// By one manager, as a whole.
    Whole,
    /// Field by field.
    Object,
    /// Element by element.
    List,
}

impl<'a> Node<'a> {
    /// The root of objects of a kind whose type is in the table.
    pub(crate) fn root(shape: &'a Shape) -> Self {
        Self(Of::Table(shape, ("", "")))
    }

    /// The root of objects of a custom kind.
    pub(crate) fn custom(schema: &'a Schema) -> Self {
        Self(Of::Root(schema))
    }

    /// The shape of the objects of a type of the table.
    pub(crate) fn shape_of(of: &'static str) -> Shape {
        Shape::Named(of, Retain::All)
    }

    /// The ownership of this value. A schema and a value that disagree make a whole.
    pub(crate) fn form(self, value: &Value) -> Form {
        match value {
            Value::Object(_) if self.is_whole_object() => Form::Whole,
            Value::Object(_) => Form::Object,
            Value::Array(_) if self.is_joined() => Form::List,
            Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Form::Whole,
        }
    }

    fn is_whole_object(self) -> bool {
        match self.0 {
            Of::Table(Shape::Named(name, _), _) => WHOLE_TYPES.contains(name),
            Of::Table(Shape::Map(_), at) => WHOLE_MAPS.contains(&at),
            Of::Root(_) | Of::Nothing => false,
            Of::Table(shape, _) => shape.is_scalar() || matches!(shape, Shape::List(..)),
            Of::Custom(schema) => schema.atomic,
        }
    }

    fn is_joined(self) -> bool {
        match self.0 {
            Of::Table(shape, at) => {
                let is_keyed = || KEYED.iter().any(|(of, field, _)| (*of, *field) == at);
                !REPLACED.contains(&at) && (shape.join() != Join::Replace || SETS.contains(&at) || is_keyed())
            }
            Of::Custom(schema) | Of::Root(schema) => schema.list != List::Atomic,
            Of::Nothing => false,
        }
    }

    /// The place of a field, and `true` if the schema names it: then it has no owner of its own in addition to those of
    /// its contents.
    pub(crate) fn field(self, name: &str) -> (Self, bool) {
        let shape = match self.0 {
            Of::Table(shape, _) => shape,
            Of::Root(_) if name == "metadata" => return (Self(Of::Table(&METADATA, ("", "metadata"))), true),
            Of::Custom(schema) | Of::Root(schema) => {
                let below = schema.field(name).map_or(Of::Nothing, Of::Custom);
                return (Self(below), schema.properties.contains_key(name));
            }
            Of::Nothing => return (self, false),
        };
        let known = if let Shape::Named(of, _) = shape {
            schema::types().get(of).and_then(|fields| fields.get_key_value(name)).map(|(name, _)| (*of, *name))
        } else {
            None
        };
        (Self(Of::Table(shape.below(name), known.unwrap_or_default())), known.is_some())
    }

    /// The place below a step, as in [`Node::field`].
    pub(crate) fn at_step(self, step: &Step) -> (Self, bool) {
        if let Step::Field(name) = step { self.field(name) } else { (self.element(), false) }
    }

    /// Returns `true` if this place holds an object wherever the one above it exists.
    pub(crate) fn is_always_there(self) -> bool {
        matches!(self.0, Of::Table(_, at) if ALWAYS.contains(&at) || at.1 == "metadata")
    }

    /// The type that a value here must have, in the words of the real server; `None` if any value fits, or this one
    /// does.
    pub(crate) fn expected(self, value: &Value) -> Option<&'static str> {
        let (name, fits) = match self.0 {
            Of::Table(Shape::Formatted(Format::Quantity), _) => return None,
            Of::Table(Shape::String | Shape::OneOf(_) | Shape::Formatted(_), _) => ("string", value.is_string()),
            Of::Table(Shape::Int(_), _) => ("numeric (int or float)", value.is_number()),
            Of::Table(Shape::Bool, _) => ("boolean", value.is_boolean()),
            Of::Table(Shape::List(..), _) => ("list", value.is_array()),
            Of::Table(Shape::Map(_) | Shape::Named(..), _) => ("map", value.is_object()),
            Of::Table(Shape::IntOrString | Shape::Any, _) | Of::Nothing => return None,
            Of::Custom(schema) | Of::Root(schema) => match schema.kind? {
                Type::String => ("string", value.is_string()),
                Type::Integer | Type::Number => ("numeric (int or float)", value.is_number()),
                Type::Boolean => ("boolean", value.is_boolean()),
                Type::Array => ("list", value.is_array()),
                Type::Object => ("map", value.is_object()),
            },
        };
        (!fits && !value.is_null()).then_some(name)
    }

    /// Returns `true` if the fields here are those of a type and no others.
    pub(crate) fn is_closed(self) -> bool {
        match self.0 {
            Of::Table(shape, _) => matches!(shape, Shape::Named(..)),
            Of::Custom(schema) => {
                let is_open = schema.preserve || schema.embedded || schema.additional.is_some();
                schema.kind == Some(Type::Object) && !is_open
            }
            Of::Root(_) | Of::Nothing => false,
        }
    }

    /// The place of the elements of a list.
    pub(crate) fn element(self) -> Self {
        match self.0 {
            Of::Table(shape, _) => Self(Of::Table(shape.element(), ("", ""))),
            Of::Custom(schema) | Of::Root(schema) => Self(schema.items.as_deref().map_or(Of::Nothing, Of::Custom)),
            Of::Nothing => self,
        }
    }

    /// The keys of a list of objects, and the value of each for elements without it.
    fn keys(self) -> Vec<(&'a str, Option<Scalar>)> {
        match self.0 {
            Of::Table(shape, at) => {
                let keyed = KEYED.iter().find(|(kind, name, _)| (*kind, *name) == at);
                match (keyed, shape.join()) {
                    (Some((.., keys)), _) => keys
                        .iter()
                        .map(|(key, default)| (*key, default.map(|it| Scalar::Text(it.to_owned()))))
                        .collect(),
                    (None, Join::ByKey(key)) => vec![(key, None)],
                    (None, Join::Set | Join::Replace) => Vec::new(),
                }
            }
            Of::Custom(schema) | Of::Root(schema) => match &schema.list {
                List::Map(keys) => {
                    let of_items = |key: &String| schema.items.as_ref()?.field(key)?.default.as_ref().map(Scalar::of);
                    keys.iter().map(|key| (key.as_str(), of_items(key))).collect()
                }
                List::Set | List::Atomic => Vec::new(),
            },
            Of::Nothing => Vec::new(),
        }
    }

    /// The step that identifies an element of a list. The error says why there is none.
    pub(crate) fn step_of(self, element: &Value) -> Result<Step, String> {
        let keys = self.keys();
        if keys.is_empty() {
            return match element {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(Step::Value(Scalar::of(element))),
            };
        }
        if element.is_null() {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        let Some(object) = element.as_object() else {
            return Err("associative list with keys may not have non-map elements".to_owned());
        };
        let value = |(name, default): &(&str, Option<Scalar>)| {
            let value = object.get(*name).map(Scalar::of).or_else(|| default.clone());
            value.map(|value| ((*name).to_owned(), value))
        };
        let mut found: Vec<_> = keys.iter().filter_map(value).collect();
        if found.is_empty() {
            let names: Vec<String> = keys.iter().map(|(name, _)| format!("{name:?}")).collect();
            let names = names.join(" ");
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{names}] (and doesn't have default values for any key fields)"
            ));
        }
        found.sort();
        Ok(Step::Key(found))
    }
}
