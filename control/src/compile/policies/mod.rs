//! The policies of paths. Objects claim paths, through a Gateway or a route, and never a host: a changed policy
//! compiles no route. Each object that policies attach to is a unit; that of a route includes the policies of its
//! Gateways.

mod auth;
mod fold;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use fold::{Effective, Source};
use tidegate_config::model::auth::AuthEntry;
use tidegate_config::model::{Limit, ListenerPolicies, PathPolicies, RuleKey, SnapshotParts, TargetPolicies};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use super::unit::{UnitKind, beyond};
use super::{Compiled, Inputs, Pass};
use crate::attachment::{AttachedPolicy, Attachment, Key, PolicyClaim, PolicySection};
use crate::topology::Topology;

/// The objects that policies attach to.
pub(super) struct Policies;

impl UnitKind for Policies {
    type Key = ObjectRef;
    type Output = Option<TargetPolicies>;
    const LABEL: &'static str = "policies";
    const ROUTING: bool = true;

    fn after(last: Option<&ObjectRef>, inputs: Inputs<'_>, compiled: &Compiled) -> Option<ObjectRef> {
        let there = compiled.policies.range::<ObjectRef, _>(beyond(last)).next();
        [inputs.topology.policy_target_after(last), there].into_iter().flatten().min().cloned()
    }

    fn owners_of(inputs: Inputs<'_>, target: &ObjectRef) -> Vec<ObjectRef> {
        inputs.topology.policies_of(target).map(|claim| claim.policy.clone()).collect()
    }

    fn make(inputs: Inputs<'_>, _: &Compiled, target: &ObjectRef) -> Option<TargetPolicies> {
        let own: Vec<&PolicyClaim> = by_age(inputs.topology, target);
        if own.is_empty() {
            return None;
        }
        Some(if target.kind == Kind::Gateway { of_gateway(target, &own) } else { of_route(inputs, target, &own) })
    }

    fn put(compiled: &mut Compiled, target: &ObjectRef, made: Option<TargetPolicies>, pass: &mut Pass<'_>) -> bool {
        if target.kind == Kind::Gateway {
            // A policy that has no effect on the paths without policies of routes may have one on the others.
            let routes = pass.topology.routes_with_policies(&target.name).into_iter().cloned();
            pass.further.extend(routes.map(super::Unit::Policies));
        }
        let parts = &mut compiled.parts.policies;
        let before = parts.get(target);
        if before.map(|before| &**before) == made.as_ref() {
            return false;
        }
        let paths = before.into_iter().flat_map(|before| before.paths()).chain(made.iter().flat_map(|it| it.paths()));
        pass.touched.policies.extend(paths.flat_map(|path| path.policies()).cloned());
        pass.touched.policies.extend(pass.topology.policies_of(target).map(|claim| claim.policy.clone()));
        match made {
            Some(made) => {
                parts.insert_mut(target.clone(), Arc::new(made));
                compiled.policies.insert(target.clone());
            }
            None => {
                parts.remove_mut(target);
                compiled.policies.remove(target);
            }
        }
        true
    }

    fn serves(target: &ObjectRef, compiled: &Compiled, serving: &SnapshotParts) -> bool {
        compiled.parts.policies.get(target) == serving.policies.get(target)
    }

    fn only_in(one: &SnapshotParts, other: &SnapshotParts) -> Vec<ObjectRef> {
        if one.policies.size() <= other.policies.size() {
            return Vec::new();
        }
        one.policies.keys().filter(|target| !other.policies.contains_key(*target)).cloned().collect()
    }

    fn changed_between(one: &SnapshotParts, other: &SnapshotParts) -> Vec<ObjectRef> {
        let changed = one.policies.iter().filter(|(target, policies)| other.policies.get(*target) != Some(*policies));
        changed.map(|(target, _)| target.clone()).collect()
    }

    fn weight(target: &ObjectRef, parts: &SnapshotParts) -> usize {
        parts.policies.get(target).map_or(0, |policies| policies.paths().count())
    }

    fn differing(_: &ObjectRef, before: &Attachment, after: &Attachment) -> Vec<ObjectRef> {
        let [before, after] = [before, after].map(|attachment| &attachment.other_claims().policies);
        if before == after {
            return Vec::new();
        }
        before.iter().chain(after).map(|claim| claim.target.object.clone()).collect()
    }

    fn describe(target: &ObjectRef, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the policies of {target}")
    }
}

/// The policies of an object, the oldest first.
fn by_age<'t>(topology: &'t Topology, target: &ObjectRef) -> Vec<&'t PolicyClaim> {
    let mut claims: Vec<&PolicyClaim> = topology.policies_of(target).collect();
    claims.sort_by(|a, b| (&a.age, &a.policy).cmp(&(&b.age, &b.policy)));
    claims
}

/// The policies of the whole object, then those of one of its sections.
fn on_section<'c>(claims: &[&'c PolicyClaim], section: Option<&PolicySection>) -> Vec<&'c PolicyClaim> {
    let whole = claims.iter().filter(|claim| claim.target.section.is_none());
    let own = claims.iter().filter(|claim| section.is_some() && claim.target.section.as_ref() == section);
    whole.chain(own).copied().collect()
}

/// The listeners of a Gateway that policies attach to, and `None` for all others.
fn listeners(claims: &[&PolicyClaim]) -> BTreeSet<Option<PolicySection>> {
    let sections = claims.iter().map(|claim| claim.target.section.clone());
    sections.filter(|section| !matches!(section, Some(PolicySection::Rule(_)))).chain([None]).collect()
}

/// The policies of the paths through a Gateway to routes without policies.
fn of_gateway(gateway: &ObjectRef, own: &[&PolicyClaim]) -> TargetPolicies {
    let over = |section: Option<PolicySection>| {
        let whole = Arc::new(effective(&on_section(own, section.as_ref())));
        entry(Some(&gateway.name), section, whole, BTreeMap::new())
    };
    TargetPolicies::new(listeners(own).into_iter().map(over).collect())
}

/// The policies of the paths through a route, or through another object with routes, which has no Gateway.
fn of_route(inputs: Inputs<'_>, route: &ObjectRef, own: &[&PolicyClaim]) -> TargetPolicies {
    let rules: BTreeSet<RuleKey> = own.iter().filter_map(|claim| rule_of(claim)).collect();
    let links = inputs.topology.links_of(route).iter();
    let gateways: BTreeSet<ObjectRef> = links.filter_map(Key::gateway_listeners).collect();
    let over = |gateway: Option<&ObjectName>, inherited: &[&PolicyClaim], section: Option<PolicySection>| {
        let inherited = on_section(inherited, section.as_ref());
        let path = |rule: Option<&RuleKey>| {
            let own = on_section(own, rule.cloned().map(PolicySection::Rule).as_ref());
            Arc::new(effective(&inherited.iter().copied().chain(own).collect::<Vec<_>>()))
        };
        entry(gateway, section, path(None), rules.iter().map(|rule| (rule.clone(), path(Some(rule)))).collect())
    };
    if !route.kind.is_route() {
        return TargetPolicies::new(vec![over(None, &[], None)]);
    }
    let over_gateway = |gateway: &ObjectRef| -> Vec<ListenerPolicies> {
        let inherited = by_age(inputs.topology, gateway);
        let sections = listeners(&inherited).into_iter();
        sections.map(|section| over(Some(&gateway.name), &inherited, section)).collect()
    };
    TargetPolicies::new(gateways.iter().flat_map(over_gateway).collect())
}

fn rule_of(claim: &PolicyClaim) -> Option<RuleKey> {
    match &claim.target.section {
        Some(PolicySection::Rule(rule)) => Some(rule.clone()),
        Some(PolicySection::Listener(_)) | None => None,
    }
}

fn entry(
    gateway: Option<&ObjectName>,
    section: Option<PolicySection>,
    whole: Arc<PathPolicies>,
    rules: BTreeMap<RuleKey, Arc<PathPolicies>>,
) -> ListenerPolicies {
    let section = match section {
        Some(PolicySection::Listener(name)) => Some(name),
        Some(PolicySection::Rule(_)) | None => None,
    };
    ListenerPolicies { gateway: gateway.cloned(), section, whole, rules }
}

/// The effective policies of a path, whose policies are given from the least specific to the most specific.
fn effective(path: &[&PolicyClaim]) -> PathPolicies {
    let closed = path.iter().any(|claim| claim.attached == AttachedPolicy::Unusable);
    let (mut limits, mut rules, mut not_served) = (Vec::new(), Vec::new(), Vec::new());
    for PolicyClaim { policy, attached, .. } in path {
        match attached {
            AttachedPolicy::RateLimit(read) => limits.extend(read.limits.iter().map(|block| Source { policy, block })),
            AttachedPolicy::Auth(read) => rules.extend(read.rules.iter().map(|block| Source { policy, block })),
            AttachedPolicy::NotServed => not_served.push(policy.clone()),
            AttachedPolicy::Unusable => {}
        }
    }
    let Effective { entries, shadow, mut overridden } = Effective::<Limit>::of(&limits);
    // One without rates does nothing: its policy says why.
    let limits =
        entries.values().chain(&shadow).map(|entry| Arc::clone(entry.value)).filter(|limit| !limit.rates.is_empty());
    let (by_identity, limits): (Vec<_>, Vec<_>) = limits.partition(|limit| limit.reads_identity());
    let Effective { entries, shadow, overridden: lost } = Effective::<AuthEntry>::of(&rules);
    overridden.extend(lost);
    let auth = auth::sorted(entries.values().chain(&shadow).map(|entry| &**entry.value)).map(Arc::new);
    // Limits that depend on the identity of the client need policies that determine it.
    let (identity_limits, without_identity) = match auth {
        Some(_) => (by_identity, Vec::new()),
        None => (Vec::new(), by_identity),
    };
    PathPolicies {
        closed,
        auth,
        limits: limits.into(),
        identity_limits: identity_limits.into(),
        without_identity: without_identity.into(),
        overridden: overridden.into(),
        not_served: not_served.into(),
        headers: Box::default(),
    }
    .with_headers()
}
