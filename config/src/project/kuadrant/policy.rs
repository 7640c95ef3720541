//! The common parts of the policies that are inherited along a path: the target, and the block with the entries.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::object::ObjectRef;

/// `spec.targetRef`: an object of the policy's namespace, or a section of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PolicyTargetRef {
    /// A Gateway, an HTTPRoute or a GRPCRoute.
    pub object: ObjectRef,
    /// `sectionName`: a listener of the Gateway, or a rule of the route; `None` for all of them.
    pub section: Option<Arc<str>>,
}

/// Whether the entries of a policy give way to those of more specific policies, or replace them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyScope {
    /// `spec.defaults`, or entries directly in `spec`: more specific policies win.
    Defaults,
    /// `spec.overrides`: the policy wins over more specific ones.
    Overrides,
}

/// `strategy`: how the entries of two policies are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MergeStrategy {
    /// All entries of one policy are taken.
    Atomic,
    /// The entries of both policies are taken, by name.
    Merge,
}

/// The entries of a policy by name, and how they are combined with those of others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyBlock<V> {
    /// Whether they win over those of more specific policies.
    pub scope: PolicyScope,
    /// How they are combined with those of others.
    pub strategy: MergeStrategy,
    /// The entries.
    pub entries: BTreeMap<Arc<str>, Arc<V>>,
}

impl fmt::Display for PolicyTargetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.section {
            None => fmt::Display::fmt(&self.object, f),
            Some(section) => write!(f, "{section} of {}", self.object),
        }
    }
}
