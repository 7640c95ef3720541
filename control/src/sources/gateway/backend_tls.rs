//! BackendTLSPolicy: the Services that are reached over TLS, and the verification of their certificates.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_config::model::{
    self, AppProtocol, BackendKey, HostPattern, SubjectName, Target, UpstreamTls, UpstreamVerification,
};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::gateway::{
    BackendTlsPolicy, BackendValidation, CaBundle, GroupKind, ObjectReference, OwnStatus, ParentStatus, PolicyTarget,
    SubjectAltName, Unreadable, WrittenRef,
};

use super::reader::ExpectedKind;
use crate::attachment::{Attachment, ConditionReason, Conditions, Key, Report};
use crate::sources::reader::Reader;
use crate::topology::Topology;

impl<'w> Reader<'w> {
    /// Applies the policy for the Service port of a target; without one the target is unchanged.
    ///
    /// # Errors
    /// Returns the reason if the policy is invalid, or if it is not known whether there is one. The target gets no
    /// requests then, neither in plain text nor unverified.
    pub(super) fn secured(&mut self, target: Target) -> Result<Target, String> {
        let namespace = &target.backend.service.namespace;
        if !self.world().knows_in(Kind::BackendTlsPolicy, namespace) {
            self.note(Key::in_namespace(Kind::BackendTlsPolicy, namespace));
            return Err(format!("may need TLS, and the BackendTLSPolicies of {namespace} have not been listed yet"));
        }
        let Some(policy) = self.policy_of(&target.backend) else { return Ok(target) };
        let verified = verification(self, policy).map_err(|fault| {
            format!("is to be reached over TLS, and its BackendTLSPolicy cannot be applied ({})", fault.message)
        })?;
        let protocol = if target.protocol.is_http2() { AppProtocol::H2 } else { AppProtocol::Https };
        let tls = UpstreamTls {
            server_name: Some(verified.server_name),
            verification: Some(verified.verification),
            client: None,
        };
        Ok(Target { protocol, tls: Some(tls), ..target })
    }

    /// The policy for a Service port: one for the named port takes precedence over one for all ports, then the older
    /// one.
    fn policy_of(&mut self, backend: &BackendKey) -> Option<&'w Arc<BackendTlsPolicy>> {
        // No dependency is recorded for every route, which nearly always has no policy: a changed policy finds the
        // routes, by [`routes_of`].
        let (service, world) = (&backend.service, self.world());
        let port = world
            .services
            .get(service)?
            .ports
            .iter()
            .find(|port| (port.number, port.transport) == (backend.port, backend.transport));
        let port = port.map(|port| &port.name);
        let policies = world.names_of(Kind::BackendTlsPolicy, Some(&service.namespace));
        let policies = policies.filter_map(|policy| world.backend_tls_policies.get(&policy.name));
        let ranked = policies.filter_map(|policy| Some((rank(policy, service, port)?, policy)));
        ranked.min_by(|(a, one), (b, other)| a.cmp(b).then_with(|| one.age.cmp(&other.age))).map(|(_, policy)| policy)
    }
}

/// The routes to the Services of a policy, which are attached again when the policy has changed. `attachments` are
/// those of the policy before and after the change.
pub(in crate::sources) fn routes_of(topology: &Topology, attachments: [&Attachment; 2]) -> BTreeSet<ObjectRef> {
    let links = attachments.into_iter().flat_map(|attachment| &attachment.links);
    let services = links.filter_map(Key::routes_to).map(|service| ObjectRef::new(Kind::Service, service.clone()));
    let dependents = services.flat_map(|service| topology.dependents(&Key::Object(service)));
    dependents.filter(|object| object.kind.is_route()).cloned().collect()
}

pub(in crate::sources) fn attach(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let world = reader.world();
    let reporting = Attachment::reporting(object, world);
    let Some(policy) = world.backend_tls_policies.get(&object.name) else { return reporting };
    if reader.options.sources.gateway.is_none() {
        return reporting;
    }
    let services = policy.targets.iter().filter(|target| target.object.kind == GroupKind::Known(Kind::Service));
    let services: BTreeSet<&ObjectName> = services.map(|target| &target.object.name).collect();
    let gateways: BTreeSet<ObjectRef> = services.iter().flat_map(|it| reader.gateways_naming(it)).collect();
    let (resolved, valid) = match verification(reader, policy) {
        Ok(verified) => (verified.unusable, None),
        Err(fault) if fault.reason == "Invalid" => (None, Some(fault)),
        Err(fault) => {
            let message = fault.message.clone();
            (Some(fault), Some(ConditionReason::new("NoValidCACertificate", message)))
        }
    };
    let (out_of_force, in_force): (Vec<_>, Vec<_>) =
        policy.targets.iter().map(|target| out_of_force(reader, policy, target)).partition(Option::is_some);
    let reasons: Vec<ConditionReason> = out_of_force.into_iter().flatten().collect();
    let message = reasons.iter().map(|fault| &*fault.message).collect::<Vec<_>>().join("; ");
    let nowhere = reasons
        .first()
        .filter(|_| in_force.is_empty())
        .map(|fault| ConditionReason::new(fault.reason, message.clone()));
    let valid = valid.or(nowhere);
    let generation = reader.generation(object);
    let ancestor = |gateway: &ObjectRef| {
        let mut conditions = Conditions::about(generation);
        match &valid {
            None => conditions.put("Accepted", "True", "Accepted", message.clone()),
            Some(fault) => conditions.judge("Accepted", "Accepted", Some(fault)),
        }
        conditions.judge("ResolvedRefs", "ResolvedRefs", resolved.as_ref());
        let parent = WrittenRef {
            group: gateway.kind.group().into(),
            kind: gateway.kind.as_str().into(),
            namespace: Some(Arc::clone(&gateway.name.namespace)),
            name: Arc::clone(&gateway.name.name),
            section_name: None,
            port: None,
        };
        ParentStatus { parent, conditions: conditions.into_list() }
    };
    let status = OwnStatus { parents: gateways.iter().map(ancestor).collect(), ..OwnStatus::default() };
    Attachment { report: Report::of_status(world.findings_of(object), status), ..Attachment::default() }
}

/// The reason why a policy is not in force for one of its targets: it does not exist, or an older policy is for it.
fn out_of_force(reader: &mut Reader<'_>, policy: &BackendTlsPolicy, target: &PolicyTarget) -> Option<ConditionReason> {
    let (name, world) = (&policy.age.name, reader.world());
    let absent = |why: String| Some(ConditionReason::new("TargetNotFound", why));
    if target.object.kind != GroupKind::Known(Kind::Service) {
        return absent(format!("{} is not a Service", target.object));
    }
    let Some(service) = reader.service(&target.object.name) else {
        return absent(format!("{} does not exist", target.object));
    };
    if let Some(section) =
        target.section.as_ref().filter(|section| service.ports.iter().all(|port| port.name != **section))
    {
        return absent(format!("{} has no port with the name {section}", target.object));
    }
    reader.note(Key::in_namespace(Kind::BackendTlsPolicy, &name.namespace));
    let others = world.names_of(Kind::BackendTlsPolicy, Some(&name.namespace));
    let mut older = others.filter_map(|other| world.backend_tls_policies.get(&other.name));
    let rival = older.find(|other| other.age < policy.age && other.targets.contains(target))?;
    let why = format!("older BackendTLSPolicy {} already targets {}", rival.age.name, target.object);
    Some(ConditionReason::new("Conflicted", why))
}

/// The specificity of a policy for a Service port, the lower the more specific; `None` if it does not apply.
fn rank(policy: &BackendTlsPolicy, service: &ObjectName, port: Option<&Arc<str>>) -> Option<u8> {
    let is_it = |object: &ObjectReference| object.kind == GroupKind::Known(Kind::Service) && object.name == *service;
    let targets = policy.targets.iter().filter(|target| is_it(&target.object));
    let ranks = targets.filter_map(|target| match &target.section {
        None => Some(1),
        Some(section) => (Some(section) == port).then_some(0),
    });
    ranks.min()
}

/// The reason for an invalid reference to a CA bundle.
const INVALID_REFERENCE: &str = "InvalidCACertificateRef";

/// The effect of a policy.
struct Verified {
    server_name: Arc<str>,
    verification: Arc<UpstreamVerification>,
    /// The fault of the first unusable reference to authorities, if others are usable.
    unusable: Option<ConditionReason>,
}

/// The server name for TLS, and the verification of the endpoint.
fn verification(reader: &mut Reader<'_>, policy: &BackendTlsPolicy) -> Result<Verified, ConditionReason> {
    let invalid = || ConditionReason::new("Invalid", "spec.validation cannot be read");
    let BackendValidation { authorities, hostname, names } = policy.validation.as_ref().map_err(|_| invalid())?;
    let (authorities, unusable) = match authorities {
        CaBundle::System => (None, None),
        CaBundle::These(references) => {
            let owner = ObjectRef::new(Kind::BackendTlsPolicy, policy.age.name.clone());
            // An unreadable name makes the policy invalid: without it, endpoints that the policy allows would be
            // rejected.
            let (authorities, unusable) = reader.granted_authorities(&owner, references)?;
            (Some(authorities), unusable)
        }
    };
    let name = |name: &SubjectAltName| match name {
        SubjectAltName::Hostname(HostPattern::Wildcard(suffix, _)) => SubjectName::Dns(format!("*.{suffix}").into()),
        SubjectAltName::Hostname(host) => SubjectName::Dns(host.to_string().into()),
        SubjectAltName::Uri(uri) => SubjectName::Uri((**uri).into()),
    };
    let verification = UpstreamVerification { authorities, names: names.iter().map(name).collect() };
    Ok(Verified { server_name: Arc::clone(hostname), verification: Arc::new(verification), unusable })
}

impl Reader<'_> {
    /// The certificates of the referenced CA bundles, which are ConfigMaps, and the fault of the first unusable one, if
    /// others are usable.
    ///
    /// # Errors
    /// Returns the first fault if none is usable.
    pub(super) fn granted_authorities(
        &mut self,
        owner: &ObjectRef,
        references: &[Result<ObjectReference, Unreadable>],
    ) -> Result<(model::CaBundle, Option<ConditionReason>), ConditionReason> {
        let (mut bundles, mut fault) = (Vec::new(), None);
        for reference in references {
            match self.bundle(owner, reference) {
                Ok(bundle) => bundles.push(bundle),
                Err(why) => fault = fault.or(Some(why)),
            }
        }
        let bundles: Vec<&model::CaBundle> = bundles.iter().collect();
        match model::CaBundle::joined(&bundles) {
            Ok(authorities) => Ok((authorities, fault)),
            Err(none) => Err(fault.unwrap_or_else(|| ConditionReason::new(INVALID_REFERENCE, none.to_string()))),
        }
    }

    fn bundle(
        &mut self,
        owner: &ObjectRef,
        reference: &Result<ObjectReference, Unreadable>,
    ) -> Result<model::CaBundle, ConditionReason> {
        let wrong_kind = if owner.kind == Kind::Gateway { "InvalidCACertificateKind" } else { "InvalidKind" };
        let (written, invalid) = ("a reference to authorities", INVALID_REFERENCE);
        let expected = ExpectedKind { kind: Kind::ConfigMap, written, invalid, wrong_kind };
        let reference = self.permitted(owner, reference, &expected)?;
        let invalid = |why: String| ConditionReason::new(INVALID_REFERENCE, why);
        self.note(Key::Object(ObjectRef::new(Kind::ConfigMap, reference.name.clone())));
        let map = self.world().config_maps.get(&reference.name);
        match map.map(|map| &map.authorities) {
            None => Err(invalid(format!("{reference} does not exist"))),
            Some(None) => Err(invalid(format!("{reference} has no ca.crt"))),
            Some(Some(Err(fault))) => Err(invalid(format!("{reference}: {fault}"))),
            Some(Some(Ok(bundle))) => Ok(bundle.clone()),
        }
    }
}
