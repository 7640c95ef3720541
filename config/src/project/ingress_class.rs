//! IngressClass (`networking.k8s.io/v1`): which Ingresses are ours.

use std::sync::Arc;

use crate::object::ObjectName;

/// What routing reads of an IngressClass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IngressClass {
    /// Its name; the namespace is empty.
    pub name: ObjectName,
    /// `spec.controller`.
    pub controller: Arc<str>,
    /// The annotation `ingressclass.kubernetes.io/is-default-class`.
    pub is_default: bool,
}
