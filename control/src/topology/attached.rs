//! Attachments to listeners, and the listeners of Gateways.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use tidegate_config::model::BindKey;
use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use super::Topology;
use crate::attachment::{Attachment, GatewayListeners, Key};
use crate::event::BindFailures;

impl Topology {
    /// The non-empty attachments of the objects after one, in the order of objects.
    pub(crate) fn attachments_after(
        &self,
        object: Option<&ObjectRef>,
    ) -> impl Iterator<Item = (&ObjectRef, &Attachment)> {
        let beyond = (object.map_or(Unbounded, Excluded), Unbounded);
        self.attachments.range::<ObjectRef, _>(beyond).map(|(object, attachment)| (object, &**attachment))
    }

    /// The listeners of a Gateway that routes attach to, if it is ours.
    pub(crate) fn gateway_listeners(&self, object: &ObjectRef) -> Option<&Arc<GatewayListeners>> {
        self.attachments.get(object)?.other_claims().gateway_listeners.as_ref()
    }

    /// The Gateways and ListenerSets with an attached route that may refer to a Service and does, whether the Service
    /// exists or not. Routes whose bytes are passed on as they are do not count: no BackendTLSPolicy concerns them.
    pub(crate) fn parents_naming(&self, service: &ObjectName) -> BTreeSet<ObjectRef> {
        let routes = self.dependents(&Key::Object(ObjectRef::new(Kind::Service, service.clone())));
        let is_it = |kind: Kind| kind.is_route() && !matches!(kind, Kind::TcpRoute | Kind::UdpRoute);
        let routes = routes.filter(|object| is_it(object.kind)).filter_map(|route| self.attachments.get(route));
        routes
            .flat_map(|route| route.listeners.iter().filter_map(Key::listener))
            .map(|listener| listener.owner.clone())
            .collect()
    }

    /// The objects with listeners on sockets that cannot be opened only before or only after, or for another reason.
    pub(crate) fn with_changed_sockets(&self, before: &BindFailures, after: &BindFailures) -> BTreeSet<ObjectRef> {
        let all: BTreeSet<&BindKey> = before.keys().chain(after.keys()).collect();
        let changed = all.into_iter().filter(|key| before.get(key) != after.get(key));
        changed.flat_map(|key| self.dependents(&Key::Bind(Box::new(*key)))).cloned().collect()
    }

    /// The routes of a kind under a key of a listener, in ascending order.
    pub(crate) fn attached_to<'t>(
        &'t self,
        listener: &Key,
        kind: Kind,
    ) -> impl Iterator<Item = &'t ObjectRef> + use<'t> {
        let (key, first) = (listener.clone(), ObjectRef::new(kind, ObjectName::default()));
        let found = self.by_key.range((key.clone(), first)..);
        found.take_while(move |(of, object)| *of == key && object.kind == kind).map(|(_, object)| object)
    }
}
