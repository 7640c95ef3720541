//! Kuadrant's policies, which attach to the paths through a Gateway, a listener, a route or a rule: RateLimitPolicy
//! with limits, AuthPolicy with authentication and authorisation; and TokenRateLimitPolicy, which has no effect.
//!
//! The compiler combines the policies of a path, and so decides which are in effect; here only a policy's own target
//! and form are judged.

mod filled;
mod keys;
mod secrets;
mod servers;

use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::RuleKey;
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::gateway::OwnStatus;
use tidegate_config::project::kuadrant::PolicyTargetRef;

use super::gateway::is_ours;
use super::reader::Reader;
use super::spec::SourceSpec;
use crate::attachment::{
    AttachedPolicy, Attachment, ConditionReason, Conditions, Key, PolicyClaim, PolicySection, PolicyTarget, Report,
};
use crate::world::InheritedPolicy;

/// Policies for the paths of the Gateway API. A cluster may lack their definitions.
pub(super) const SPEC: SourceSpec = SourceSpec {
    enabled: |options| options.sources.kuadrant.is_some(),
    kinds: &[Kind::RateLimitPolicy, Kind::TokenRateLimitPolicy, Kind::AuthPolicy],
    required: &[],
    beside: Some(Kind::RateLimitPolicy),
    by_name: &[],
    class: None,
    anywhere: |_, _| Vec::new(),
    attached_if_missing: |_| None,
    service_label: None,
};

/// The target of a policy.
enum Resolved {
    /// It exists.
    Here(PolicyTarget),
    /// It does not exist, or not yet.
    Missing(ConditionReason),
    /// A route that exists, without the rule that the policy is for.
    WithoutRule(PolicyTarget, ConditionReason),
    /// It is another controller's.
    Others,
}

pub(super) fn attach(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let reporting = Attachment::reporting(object, reader.world());
    let Some(policy) = reader.world().inherited_policy(object) else { return reporting };
    if reader.options.sources.kuadrant.is_none() || policy.is_being_deleted() {
        return reporting;
    }
    let (is_named, has_gateways) = (reader.is_named(object), reader.options.sources.gateway.is_some());
    if !is_named && !has_gateways {
        // Its target is another controller's.
        return reporting;
    }
    let resolved = policy.target().map(|target| resolve(reader, target));
    let invalid = policy.invalid().map(|why| ConditionReason::new("Invalid", why.to_owned()));
    let (target, missing) = match resolved {
        Some(Resolved::Others) if !is_named => return orphan(reader, object),
        Some(Resolved::Others) | None => (None, None),
        Some(Resolved::Here(target)) => (Some(target), None),
        Some(Resolved::Missing(fault)) => (None, Some(fault)),
        Some(Resolved::WithoutRule(target, fault)) => (Some(target), Some(fault)),
    };
    let lacks_rule = target.is_some() && missing.is_some();
    // Where other objects name it, it is in effect whether its target exists or not.
    let (missing, note) = match missing {
        missing if lacks_rule => (missing, String::new()),
        Some(fault) if is_named && has_gateways => (None, fault.message),
        Some(_) if is_named => (None, String::new()),
        missing => (missing, String::new()),
    };
    let fault = invalid.or(missing);
    let generation = reader.generation(object);
    let mut conditions = Conditions::about(generation);
    match &fault {
        None => conditions.put("Accepted", "True", "Accepted", note),
        Some(fault) => conditions.judge("Accepted", "Accepted", Some(fault)),
    }
    let observed_generation = Some(generation);
    let status = OwnStatus { conditions: conditions.into_list(), observed_generation, ..OwnStatus::default() };
    let mut attachment =
        Attachment { report: Report::of_status(reader.world().findings_of(object), status), ..Attachment::default() };
    let attached = match &fault {
        _ if lacks_rule => closing_for(policy, object),
        None => Some(attached(reader, policy)),
        Some(_) => closing(policy).map(|attached| (attached, Vec::new())),
    };
    let (attached, findings) = attached.unzip();
    attachment.add_findings(findings.into_iter().flatten());
    if let Some((target, attached)) = target.zip(attached) {
        attachment.other_claims_mut().policies =
            [PolicyClaim { target, policy: object.clone(), age: policy.age().clone(), attached }].into();
    }
    attachment
}

/// The attachment of a policy whose target is another controller's, or was ours: conditions of ours from before are out
/// of date.
fn orphan(reader: &Reader<'_>, object: &ObjectRef) -> Attachment {
    let generation = reader.generation(object);
    let mut conditions = Conditions::about(generation);
    conditions.put("Accepted", "True", "Accepted", "");
    conditions.put("Enforced", "False", "Unknown", "not in the path of any accepted route");
    let observed_generation = Some(generation);
    let status = OwnStatus { conditions: conditions.into_list(), observed_generation, ..OwnStatus::default() };
    Attachment { report: Report::of_orphan(reader.world().findings_of(object), status), ..Attachment::default() }
}

/// The contents of a valid policy with what its rules need at present, and findings about what they lack.
pub(super) fn attached(reader: &mut Reader<'_>, policy: InheritedPolicy<'_>) -> (AttachedPolicy, Vec<Finding>) {
    match policy {
        InheritedPolicy::RateLimit(policy) => (AttachedPolicy::RateLimit(Arc::clone(policy)), Vec::new()),
        InheritedPolicy::TokenRateLimit(_) => (AttachedPolicy::NotServed, Vec::new()),
        InheritedPolicy::Auth(policy) => {
            let (policy, findings) = filled::filled(reader, policy);
            (AttachedPolicy::Auth(policy), findings)
        }
    }
}

/// What an invalid policy does to its target, if the target exists: without the rules of an AuthPolicy it is not known
/// which requests may pass.
fn closing(policy: InheritedPolicy<'_>) -> Option<AttachedPolicy> {
    match policy {
        InheritedPolicy::RateLimit(_) | InheritedPolicy::TokenRateLimit(_) => None,
        InheritedPolicy::Auth(_) => Some(AttachedPolicy::Unusable),
    }
}

/// What a policy for a rule that does not exist does to the route: the policy may be meant for any of its rules, which
/// may have another name now. In shadow mode it refuses nothing.
fn closing_for(policy: InheritedPolicy<'_>, own: &ObjectRef) -> Option<(AttachedPolicy, Vec<Finding>)> {
    let InheritedPolicy::Auth(auth) = policy else { return None };
    if auth.rules.as_ref().is_ok_and(|block| block.entries.values().all(|entry| entry.id().shadow)) {
        return None;
    }
    let PolicyTargetRef { object, section } = policy.target()?;
    let (value, why) = (section.as_deref().unwrap_or_default().to_owned(), format!("is no rule of {object}"));
    let finding = Finding::new(own.clone(), "spec.targetRef.sectionName", Problem::AccessClosed { value, why });
    Some((AttachedPolicy::Unusable, vec![finding]))
}

/// Finds the target, and the section in it.
fn resolve(reader: &mut Reader<'_>, target: &PolicyTargetRef) -> Resolved {
    let PolicyTargetRef { object, section } = target;
    if !reader.exists(object) {
        return Resolved::Missing(ConditionReason::new("TargetNotFound", format!("{object} does not exist")));
    }
    let found = match (object.kind, section) {
        (Kind::Gateway, section) => {
            let Some(merged) = reader.gateway_listeners(object) else { return Resolved::Others };
            section.as_ref().map(|section| {
                let mut own = merged.of(object);
                own.any(|it| it.listener.section == *section).then(|| PolicySection::Listener(Arc::clone(section)))
            })
        }
        _ if !reader.has_parent_of_ours(object) => return Resolved::Others,
        (_, None) => None,
        (_, Some(section)) => Some(reader.rule_named(object, section).map(PolicySection::Rule)),
    };
    match (found, section) {
        (Some(None), Some(section)) => {
            let missing = |what: &str| {
                let message = format!("{object} has no {what} with the name {section}");
                ConditionReason::new("TargetNotFound", message)
            };
            if object.kind == Kind::Gateway {
                return Resolved::Missing(missing("listener"));
            }
            Resolved::WithoutRule(PolicyTarget { object: object.clone(), section: None }, missing("rule"))
        }
        (found, _) => Resolved::Here(PolicyTarget { object: object.clone(), section: found.flatten() }),
    }
}

impl Reader<'_> {
    /// Whether an Ingress or an application names a policy.
    fn is_named(&mut self, policy: &ObjectRef) -> bool {
        self.note(Key::NamingPolicy(Box::new(policy.clone())));
        self.topology().claims_naming(policy).next().is_some()
    }

    /// The rules of a route, in their order.
    fn rules_of(&self, route: &ObjectRef) -> Vec<RuleKey> {
        let (world, name) = (self.world(), &route.name);
        let key = |index: usize, name: Option<&Arc<str>>| RuleKey::new(name, u32::try_from(index).unwrap_or(u32::MAX));
        let http = world.http_routes.get(name).filter(|_| route.kind == Kind::HttpRoute);
        let grpc = world.grpc_routes.get(name).filter(|_| route.kind == Kind::GrpcRoute);
        let http = http.into_iter().flat_map(|route| &route.rules).map(|rule| key(rule.index, rule.name.as_ref()));
        let grpc = grpc.into_iter().flat_map(|route| &route.rules).map(|rule| key(rule.index, rule.name.as_ref()));
        http.chain(grpc).collect()
    }

    /// A rule of a route by the name of its section: its own name, or `rule-1` for a first rule without one.
    fn rule_named(&self, route: &ObjectRef, section: &str) -> Option<RuleKey> {
        let number = section.strip_prefix("rule-").and_then(|number| number.parse::<u32>().ok());
        let rules = self.rules_of(route);
        let named = rules.iter().find(|rule| matches!(rule, RuleKey::Name(name) if **name == *section));
        let numbered = || rules.iter().find(|rule| matches!(rule, RuleKey::Index(index) if Some(*index + 1) == number));
        named.or_else(numbered).cloned()
    }

    /// Whether one of a route's parents is ours.
    fn has_parent_of_ours(&mut self, route: &ObjectRef) -> bool {
        let (world, name) = (self.world(), &route.name);
        let parents = match route.kind == Kind::HttpRoute {
            true => world.http_routes.get(name).map(|route| &route.parents),
            false => world.grpc_routes.get(name).map(|route| &route.parents),
        };
        // All are read, so that the policy is attached again when any of them becomes ours.
        let ours = parents.into_iter().flat_map(|parents| &**parents).filter(|parent| is_ours(self, parent)).count();
        ours > 0
    }
}
