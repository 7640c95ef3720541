//! Whose an Ingress is, and what its owner should be told of the object by itself.

use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::{ClassRef, Ingress};

use super::Verdict;
use crate::options::Options;
use crate::world::World;

/// Whose an Ingress is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Membership {
    /// Ours, under this class.
    Ours(Arc<str>),
    /// Another controller's, or nobody's.
    Others,
    /// It names a class that does not exist.
    UnknownClass(Arc<str>),
}

/// Whose an Ingress is: by the controller of its class; by name where the old annotation names it; the
/// default class where it names none. While IngressClasses cannot be read, a class of our name is ours.
#[must_use]
pub fn membership(world: &World, options: &Options, ingress: &Ingress) -> Membership {
    match &ingress.class {
        ClassRef::Annotation(name) if *name == options.class => Membership::Ours(name.clone()),
        ClassRef::Annotation(_) => Membership::Others,
        ClassRef::Field(name) => match world.classes.get(name) {
            Some(class) if class.controller == options.controller => Membership::Ours(name.name.clone()),
            Some(_) => Membership::Others,
            None if !world.classes_known && name.name == options.class => Membership::Ours(name.name.clone()),
            None if !world.classes_known => Membership::Others,
            None => Membership::UnknownClass(name.name.clone()),
        },
        ClassRef::Default => {
            let ours = |class: &&Arc<_>| -> bool {
                let class: &tidegate_config::project::IngressClass = class;
                class.is_default && class.controller == options.controller
            };
            let class = world.classes.values().find(ours);
            class.map_or(Membership::Others, |class| Membership::Ours(class.name.name.clone()))
        }
    }
}

/// Whether an Ingress is ours.
pub(super) fn is_ours(world: &World, options: &Options, ingress: &Ingress) -> bool {
    matches!(membership(world, options, ingress), Membership::Ours(_))
}

/// What is compiled of an object by itself.
pub(super) struct ObjectUnit {
    pub(super) verdict: Option<Verdict>,
    pub(super) findings: Vec<Finding>,
}

pub(super) fn compile(world: &World, options: &Options, object: &ObjectRef) -> ObjectUnit {
    let told = || world.findings_of(object).to_vec();
    let ingress = (object.kind == Kind::Ingress).then(|| world.ingresses.get(&object.name)).flatten();
    let Some(ingress) = ingress else { return ObjectUnit { verdict: None, findings: told() } };
    match membership(world, options, ingress) {
        Membership::Ours(class) => ObjectUnit { verdict: Some(Verdict { class: Some(class) }), findings: told() },
        Membership::Others => ObjectUnit { verdict: Some(Verdict { class: None }), findings: Vec::new() },
        Membership::UnknownClass(class) => {
            let problem = Problem::ClassUnknown { class: class.to_string() };
            let finding = Finding::new(object.clone(), "spec.ingressClassName", problem);
            ObjectUnit { verdict: Some(Verdict { class: None }), findings: vec![finding] }
        }
    }
}
