//! The infrastructure of Gateways in the cluster: the Gateways whose infrastructure may be incomplete, its desired
//! state, and the stale objects. Only the owners of existing objects are known here; the writer reads the objects
//! themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::object::{Kind, ObjectName, ObjectRef, Uid};
use tidegate_config::project::{Object, Projected};

use super::model::Model;
use super::report::{DesiredReports, PendingReports};
use crate::attachment::GatewayInfrastructure;
use crate::options::{GatewayServices, Options};
use crate::world::World;

/// The desired infrastructure of one Gateway.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DesiredInfrastructure {
    /// `controllerName`, which marks the objects that we created.
    pub controller: Arc<str>,
    /// The desired objects, with the uid of the Gateway that owns them.
    pub desired: Option<(Uid, Arc<GatewayInfrastructure>)>,
    /// Stale Services of ours for it, with the uid of their owner.
    pub stale: Vec<(ObjectName, Uid)>,
}

/// The known Services of Gateways.
#[derive(Debug, Default)]
pub(super) struct KnownServices {
    /// The controller that creates them; `None` if the Gateway API is not a source.
    controller: Option<Arc<str>>,
    /// The Service with the endpoints of the edge.
    edge: Option<ObjectName>,
    /// Our Services, by name, with their Gateways. A Gateway has several if its class has changed.
    services: BTreeMap<ObjectName, (ObjectRef, Uid)>,
    /// Gateways whose infrastructure may be incomplete.
    named: BTreeSet<ObjectRef>,
    /// Whether all Gateways were queued since every kind was listed, and since the last change of the edge's endpoints.
    queued_all: bool,
}

impl KnownServices {
    pub(super) fn new(options: &Options) -> Self {
        let gateway = options.sources.gateway.as_ref();
        let controller = gateway.map(|gateway| Arc::clone(&gateway.controller));
        let edge = gateway.and_then(|gateway| gateway.services.to_pods()).map(|to_pods| to_pods.edge.clone());
        Self { controller, edge, ..Self::default() }
    }

    /// Records an object.
    pub(super) fn observe(&mut self, projected: &Projected) {
        if self.controller.is_none() {
            return;
        }
        if let Some(Object::EndpointSlice(slice)) = &projected.object {
            self.endpoints(slice.service.as_ref());
        } else if let Some(Object::Service(service)) = &projected.object {
            let owned = service.gateway.as_ref().filter(|it| it.controller == self.controller);
            let owner = owned.map(|it| {
                let gateway = service.name.beside(Arc::clone(&it.gateway));
                (ObjectRef::new(Kind::Gateway, gateway), it.uid)
            });
            self.service(&service.name, owner);
        }
    }

    /// Records the deletion of an object, which `world` still has.
    pub(super) fn gone(&mut self, object: &ObjectRef, world: &World) {
        if object.kind == Kind::Service {
            self.service(&object.name, None);
        } else if object.kind == Kind::EndpointSlice {
            let slice = world.slices.get(&object.name);
            self.endpoints(slice.and_then(|slice| slice.service.as_ref()));
        }
    }

    fn service(&mut self, name: &ObjectName, owner: Option<(ObjectRef, Uid)>) {
        let before = match &owner {
            Some(owner) => self.services.insert(name.clone(), owner.clone()),
            None => self.services.remove(name),
        };
        self.named.extend(before.into_iter().chain(owner).map(|(gateway, _)| gateway));
    }

    fn endpoints(&mut self, service: Option<&ObjectName>) {
        let Some(service) = service else { return };
        if self.edge.as_ref() == Some(service) {
            self.queued_all = false;
        }
        if let Some((gateway, _)) = self.services.get(service) {
            self.named.insert(gateway.clone());
        }
    }

    /// The desired infrastructure of a Gateway may have changed.
    pub(super) fn differs(&mut self, gateway: &ObjectRef) {
        self.named.insert(gateway.clone());
    }

    /// Queues all Gateways again.
    pub(super) const fn look_again(&mut self) {
        self.queued_all = false;
    }

    /// Drops the queued Gateways: this process does not write.
    pub(super) fn forget(&mut self) {
        self.named.clear();
    }
}

impl PendingReports<'_> {
    /// The Gateways whose infrastructure may be incomplete since the last call.
    pub fn infrastructure(&mut self) -> Vec<ObjectRef> {
        let named = std::mem::take(&mut self.gateway_services.named);
        let queued_all = std::mem::replace(&mut self.gateway_services.queued_all, true);
        if !self.listing.may_report() {
            self.gateway_services.queued_all = false;
            return Vec::new();
        }
        if queued_all {
            return named.into_iter().collect();
        }
        let made = self
            .model
            .topology
            .attachments()
            .filter(|(_, attachment)| attachment.other_claims().infrastructure.is_some());
        let gateways: BTreeSet<&ObjectRef> = made
            .map(|(object, _)| object)
            .chain(self.gateway_services.services.values().map(|(gateway, _)| gateway))
            .collect();
        gateways.into_iter().cloned().collect()
    }
}

impl DesiredReports<'_> {
    /// The desired infrastructure of a Gateway. `None` while some kind has not been listed in its namespace.
    #[must_use]
    pub fn infrastructure(self, gateway: &ObjectRef) -> Option<DesiredInfrastructure> {
        let controller = Arc::clone(self.gateway_services.controller.as_ref()?);
        if !self.listing.may_report_in(&gateway.name.namespace) {
            return None;
        }
        let attachment = self.model.topology.get(gateway);
        let uid = self.model.world.uid_of(gateway);
        let desired = attachment
            .and_then(|attachment| Some((uid?, Arc::clone(attachment.other_claims().infrastructure.as_ref()?))));
        let keeps = desired.is_none() && keeps(gateway, self.model);
        let is_stale = |name: &ObjectName| {
            !keeps && desired.as_ref().is_none_or(|(_, infrastructure)| infrastructure.service != *name)
        };
        let own = self.gateway_services.services.iter().filter(|(name, (owner, _))| owner == gateway && is_stale(name));
        let stale = own.map(|(name, (_, uid))| (name.clone(), *uid)).collect();
        Some(DesiredInfrastructure { controller, desired, stale })
    }
}

/// Whether a Gateway without desired infrastructure keeps the existing one: a load balancer must not lose its
/// addresses because of a mistake in the Gateway, or because the class is created again.
fn keeps(gateway: &ObjectRef, Model { options, world, topology, .. }: &Model) -> bool {
    let Some(object) = world.gateways.get(&gateway.name) else { return world.holds(gateway) };
    let options = options.sources.gateway.as_ref();
    let makes = options.is_some_and(|options| options.services != GatewayServices::Off);
    let has_listeners = topology.gateway_listeners(gateway).is_some();
    makes && (has_listeners || !world.gateway_classes.contains_key(&object.class))
}
