//! Reads for the Gateway API: Gateways, ListenerSets, the listeners of both, and references across namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::model::{Certificate, HostPattern};
use tidegate_config::object::{Age, Kind, ObjectName, ObjectRef};
use tidegate_config::project::gateway::{
    AllowedNamespaces, Gateway, GatewayClass, GroupKind, ListenerSet, ObjectReference, Unreadable,
};

use super::{parent_of, winner};
use crate::attachment::{ConditionReason, Key, MergedListener};
use crate::sources::reader::Reader;

/// The expected kind of a reference of the Gateway API, and the reasons of conditions for other references.
pub(super) struct ExpectedKind {
    pub(super) kind: Kind,
    /// The name of the field in messages.
    pub(super) written: &'static str,
    /// The reason for an unreadable reference.
    pub(super) invalid: &'static str,
    /// The reason for a reference to another kind.
    pub(super) wrong_kind: &'static str,
}

/// Reads for the Gateway API.
impl<'w> Reader<'w> {
    /// The release in each CustomResourceDefinition; empty if none has been read.
    pub(super) fn releases(&mut self) -> &'w BTreeMap<Kind, Arc<str>> {
        self.note(Key::Definitions);
        &self.world().releases
    }

    /// A GatewayClass of ours.
    pub(super) fn gateway_class(&mut self, name: &ObjectName) -> Option<&'w Arc<GatewayClass>> {
        let options = self.options.sources.gateway.as_ref()?;
        self.note(Key::Object(ObjectRef::new(Kind::GatewayClass, name.clone())));
        self.world().gateway_classes.get(name).filter(|class| class.controller == options.controller)
    }

    /// Every Gateway of our classes.
    pub(super) fn gateways(&mut self) -> impl Iterator<Item = &'w Arc<Gateway>> {
        self.note(Key::Any(Kind::Gateway));
        let all = self.world().gateways.values();
        all.filter(|gateway| self.gateway_class(&gateway.class).is_some())
    }

    /// Every ListenerSet.
    pub(super) fn listener_sets(&mut self) -> impl Iterator<Item = &'w Arc<ListenerSet>> + use<'w> {
        self.note(Key::Any(Kind::ListenerSet));
        self.world().listener_sets.values()
    }

    pub(super) fn listener_set(&mut self, name: &ObjectName) -> Option<&'w Arc<ListenerSet>> {
        self.note(Key::Object(ObjectRef::new(Kind::ListenerSet, name.clone())));
        self.world().listener_sets.get(name)
    }

    /// The route of another kind that takes precedence over this one for `hosts` on a listener.
    pub(super) fn winner(
        &mut self,
        route: (&ObjectRef, &Age),
        listener: &MergedListener,
        hosts: &[HostPattern],
    ) -> Option<ObjectRef> {
        let winner = winner((self.world(), self.topology()), route, listener, hosts)?;
        self.note(Key::Conflict(Arc::clone(&listener.listener)));
        Some(winner)
    }

    /// The Gateways with an attached route that refers to a Service and heeds BackendTLSPolicies.
    pub(super) fn gateways_naming(&mut self, service: &ObjectName) -> BTreeSet<ObjectRef> {
        self.note(Key::RoutesTo(service.clone()));
        let parents = self.topology().parents_naming(service).into_iter();
        let gateway = |parent: ObjectRef| match parent.kind == Kind::ListenerSet {
            true => self.listener_set(&parent.name).and_then(|set| parent_of(set)),
            false => Some(parent),
        };
        parents.filter_map(gateway).collect()
    }

    /// Whether objects of a namespace may attach to an object in another one.
    pub(super) fn allows(&mut self, allowed: &AllowedNamespaces, own: &str, namespace: &str) -> bool {
        match allowed {
            AllowedNamespaces::None => false,
            AllowedNamespaces::Same => own == namespace,
            AllowedNamespaces::All => true,
            AllowedNamespaces::Selected(selector) => {
                let name = ObjectName::new("", namespace);
                self.note(Key::Object(ObjectRef::new(Kind::Namespace, name.clone())));
                self.world().namespaces.get(&name).is_some_and(|namespace| selector.selects(&namespace.labels))
            }
        }
    }

    /// Whether an object may refer to another one: in the same namespace, or by a ReferenceGrant in the other one.
    pub(super) fn granted(&mut self, from: &ObjectRef, to: &ObjectReference) -> bool {
        let (own, other) = (&from.name.namespace, &to.name.namespace);
        if own == other {
            return true;
        }
        self.note(Key::in_namespace(Kind::ReferenceGrant, other));
        let mut grants = self.world().names_of(Kind::ReferenceGrant, Some(other));
        let kind = GroupKind::Known(from.kind);
        grants.any(|grant| self.world().grants.get(&grant.name).is_some_and(|grant| grant.permits(&kind, own, to)))
    }

    /// The referenced object, if it is of the expected kind and the reference is permitted.
    ///
    /// # Errors
    /// Returns the reason and the message for a condition. About another namespace it says nothing else than that the
    /// reference is not permitted.
    pub(super) fn permitted<'r>(
        &mut self,
        owner: &ObjectRef,
        reference: &'r Result<ObjectReference, Unreadable>,
        expected: &ExpectedKind,
    ) -> Result<&'r ObjectReference, ConditionReason> {
        let ExpectedKind { kind, written, invalid, wrong_kind } = expected;
        let reference =
            reference.as_ref().map_err(|_| ConditionReason::new(invalid, format!("{written} cannot be read")))?;
        if reference.kind != GroupKind::Known(*kind) {
            return Err(ConditionReason::new(wrong_kind, format!("{reference} is not a {kind}")));
        }
        if !self.granted(owner, reference) {
            let message = format!("no ReferenceGrant permits {owner} to refer to {reference}");
            return Err(ConditionReason::new("RefNotPermitted", message));
        }
        Ok(reference)
    }

    /// The certificate that a Gateway or a listener refers to. About another namespace the error says nothing else than
    /// that the reference is not permitted.
    pub(super) fn granted_certificate(
        &mut self,
        owner: &ObjectRef,
        reference: &Result<ObjectReference, Unreadable>,
        expected: &ExpectedKind,
    ) -> Result<&'w Arc<Certificate>, ConditionReason> {
        let reference = self.permitted(owner, reference, expected)?;
        let invalid = |why: String| ConditionReason::new(expected.invalid, why);
        match self.secret(&reference.name) {
            None => Err(invalid(format!("{reference} does not exist"))),
            Some(Err(fault)) => Err(invalid(format!("{reference} holds no usable certificate: {fault}"))),
            Some(Ok(certificate)) => Ok(certificate),
        }
    }
}
