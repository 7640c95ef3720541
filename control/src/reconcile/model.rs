//! The model: the inputs of the compiler and its last output, and what can be read from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::model::BackendKey;
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::Secret;

use super::attachment_diff::AttachmentDiff;
use crate::attachment::{Attachment, Key};
use crate::compile::{Compiled, Inputs};
use crate::explain::{Ignored, Refused, ignored, refused};
use crate::options::Options;
use crate::sources::attach_all;
use crate::topology::Topology;
use crate::tree::{self, Tree, TreeQuery};
use crate::world::World;

/// The inputs of the compiler and its last output. Only the control loop changes them.
#[derive(Debug)]
pub struct Model {
    pub(super) options: Options,
    pub(super) world: World,
    pub(super) topology: Topology,
    /// The Service ports of held routes.
    pub(super) frozen_backends: BTreeSet<BackendKey>,
    pub(super) compiled: Compiled,
    /// How often an object has been attached since the start.
    pub(super) attached: u64,
}

impl Model {
    /// The model of an empty cluster.
    pub(super) fn new(options: Options) -> Self {
        let compiled = Compiled::empty(&options);
        let (world, topology, frozen_backends) = (World::default(), Topology::default(), BTreeSet::new());
        Self { options, world, topology, frozen_backends, compiled, attached: 0 }
    }

    /// The objects whose status may differ because of policies after an object has changed: policies, by the paths on
    /// which they are in effect, and the objects that policies attach to.
    pub(super) fn affected_by_policies(
        &self,
        object: &ObjectRef,
        attachments: [&Attachment; 2],
        diff: &AttachmentDiff,
    ) -> BTreeSet<ObjectRef> {
        let targets = diff.policy_targets.iter().flat_map(|target| self.affected_by(&target.object));
        if !self.topology.has_any_policies() {
            return targets.collect();
        }
        let own = match object.kind {
            kind if kind.has_rules_of_http() => self.policies_of_changed(object, attachments),
            // The policies that an object names are in effect where it has hosts.
            kind if diff.moved && !kind.is_route() => self.policies_of(object).into_iter().collect(),
            _ => BTreeSet::new(),
        };
        let listeners = diff.keys.iter().filter_map(Key::gateway_listeners);
        let below = listeners.flat_map(|gateway| self.policies_below(&gateway));
        own.into_iter().chain(below).chain(targets).collect()
    }

    /// The policies whose paths may change in number with a changed route: those of its own entry, which has its rules,
    /// or those of its Gateways, if it is the first or the last route without policies of its own on a listener.
    fn policies_of_changed(&self, route: &ObjectRef, [before, after]: [&Attachment; 2]) -> BTreeSet<ObjectRef> {
        if let Some(own) = self.compiled.parts.policies.get(route) {
            return own.paths().flat_map(|path| path.policies()).cloned().collect();
        }
        let gone = before.listeners.iter().filter(|listener| !after.listeners.contains(listener));
        let come = after.listeners.iter().filter(|listener| !before.listeners.contains(listener));
        let inherits = |object: &ObjectRef| {
            let is_other = object != route && object.kind.has_rules_of_http();
            is_other && !self.compiled.parts.policies.contains_key(object)
        };
        if gone.chain(come).all(|listener| self.topology.dependents(listener).any(inherits)) {
            return BTreeSet::new();
        }
        let gateways = before.links.iter().chain(&after.links).filter_map(Key::gateway_listeners);
        gateways.flat_map(|gateway| self.policies_of(&gateway)).collect()
    }

    /// The policies of a Gateway, and those of its routes: listeners that begin or cease to serve change their paths.
    fn policies_below(&self, gateway: &ObjectRef) -> BTreeSet<ObjectRef> {
        let routes = self.topology.routes_with_policies(&gateway.name).into_iter().chain([gateway]);
        routes.flat_map(|target| self.policies_of(target)).collect()
    }

    fn policies_of(&self, target: &ObjectRef) -> Vec<ObjectRef> {
        self.topology.policies_of(target).map(|claim| claim.policy.clone()).collect()
    }

    /// The objects whose status names the policies of an object: it, and for a Gateway its ListenerSets and routes.
    fn affected_by(&self, target: &ObjectRef) -> Vec<ObjectRef> {
        let below = Key::GatewayListeners(target.name.clone());
        let below = (target.kind == Kind::Gateway).then(|| self.topology.dependents(&below));
        let below = below.into_iter().flatten().filter(|it| it.kind.is_route() || it.kind == Kind::ListenerSet);
        below.chain([target]).cloned().collect()
    }

    /// The same objects and held Service ports, before anything is attached or compiled.
    pub(super) fn uncompiled(self) -> Self {
        let Self { options, world, frozen_backends, .. } = self;
        Self { world, frozen_backends, ..Self::new(options) }
    }

    /// Attaches and compiles everything. Returns the number of units by [`Unit::label`](crate::compile::Unit::label).
    pub(super) fn compile_all(&mut self) -> BTreeMap<&'static str, usize> {
        self.topology = attach_all(&self.world, &self.options);
        self.world.assigned.clear();
        let gateways = self.topology.attachments().filter(|(object, _)| object.kind == Kind::Gateway);
        for (gateway, attachment) in gateways {
            self.world.assign(&gateway.name, &attachment.other_claims().addresses);
        }
        let (compiled, count) = Compiled::of(self.inputs());
        self.compiled = compiled;
        count
    }

    /// Replaces the attachment of an object. Returns the previous one; `None` if that is equal and stays.
    pub(super) fn replace(&mut self, object: &ObjectRef, attachment: Attachment) -> Option<Attachment> {
        if object.kind == Kind::Gateway {
            self.world.assign(&object.name, &attachment.other_claims().addresses);
        }
        self.attached += 1;
        self.topology.replace(object, attachment)
    }

    /// How often an object has been attached since the start: the work that changes have made.
    #[must_use]
    pub const fn attached(&self) -> u64 {
        self.attached
    }

    /// An object, if it is a Secret.
    pub(super) fn secret(&self, object: &ObjectRef) -> Option<&Arc<Secret>> {
        self.world.secrets.get(&object.name).filter(|_| object.kind == Kind::Secret)
    }

    /// The objects whose rules accept the API key of a Secret before or after a change, if that has changed.
    pub(super) fn accepting(&self, object: &ObjectRef, before: Option<&Arc<Secret>>) -> BTreeSet<ObjectRef> {
        let [before, after] = [before, self.secret(object)].map(|secret| secret.and_then(|it| it.api_key.as_deref()));
        if before == after {
            return BTreeSet::new();
        }
        let labels = before.into_iter().chain(after).map(|key| &key.labels);
        labels.flat_map(|labels| self.topology.selecting(Kind::Secret, &object.name.namespace, labels)).collect()
    }

    /// The inputs of the compiler.
    pub(super) const fn inputs(&self) -> Inputs<'_> {
        let Self { options, world, topology, frozen_backends, .. } = self;
        Inputs { world, options, topology, frozen_backends }
    }

    /// The inputs of the compiler, and its output to be changed.
    pub(super) const fn inputs_and_output(&mut self) -> (Inputs<'_>, &mut Compiled) {
        let Self { options, world, topology, frozen_backends, compiled, attached: _ } = self;
        (Inputs { world, options, topology, frozen_backends }, compiled)
    }

    /// Whether the endpoints of a Service are compiled, because it is used.
    pub(super) fn uses(&self, service: &ObjectName) -> bool {
        self.compiled.uses(service, &self.frozen_backends)
    }

    /// The operator's options.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// The current objects.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// The references between objects.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The Service ports of held routes.
    #[must_use]
    pub const fn frozen_backends(&self) -> &BTreeSet<BackendKey> {
        &self.frozen_backends
    }

    /// The last compilation.
    #[must_use]
    pub const fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// The routes for a host that a Gateway does not accept; limited in number.
    #[must_use]
    pub fn refused(&self, gateway: &ObjectRef, host: &str) -> Vec<Refused> {
        refused(&self.world, &self.topology, gateway, host)
    }

    /// The Ingresses and routes for a host that belong to another controller or to none; limited in number.
    #[must_use]
    pub fn ignored(&self, host: &str) -> Vec<Ignored> {
        ignored(&self.world, &self.options, &self.topology, host)
    }

    /// A page of the tree of attachments.
    #[must_use]
    pub fn tree(&self, query: &TreeQuery) -> Tree {
        let (world, topology, parts) = (&self.world, &self.topology, &self.compiled.parts);
        tree::build(tree::TreeSources { world, topology, parts }, query)
    }
}
