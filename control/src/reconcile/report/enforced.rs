//! Whether a policy is in effect: the condition `Enforced`, from the paths that requests can take.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_config::model::{ListenerOrigin, ListenerPolicies, PathPolicies};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::gateway::OwnStatus;
use tidegate_config::project::kuadrant::TokenRateLimitPolicy;

use crate::attachment::{AttachedPolicy, Conditions, Key, ListenerRef, MergedListener, PolicyClaim, PolicySection};
use crate::reconcile::model::Model;
use crate::world::InheritedPolicy;

/// The effect of a policy on the paths through its target.
#[derive(Debug, Default)]
struct Effect {
    /// Whether there is such a path at all.
    has_paths: bool,
    /// Whether any entry is in effect on any path.
    in_effect: bool,
    /// Why rules of it that are in effect on some path cannot be used, so that they refuse every request there.
    refusing: BTreeSet<String>,
    /// The limits that depend on the identity of the client where no policy determines it.
    without_identity: BTreeSet<Arc<str>>,
    /// The policies that override entries of it on some path.
    winners: BTreeSet<ObjectRef>,
    /// Whether its kind is not served.
    is_not_served: bool,
}

impl Effect {
    fn add(&mut self, policy: &ObjectRef, path: &PathPolicies) {
        self.has_paths = true;
        let mut limits = path.limits.iter().chain(&path.identity_limits);
        self.in_effect |= limits.any(|limit| limit.id.policy() == policy);
        if let Some(auth) = &path.auth {
            self.in_effect |= auth.ids().any(|rule| rule.policy == policy);
            let refusing = auth.unusable.iter().filter(|rule| rule.policy == *policy);
            self.refusing.extend(refusing.map(|rule| rule.rule.why.clone()));
        }
        let without = path.without_identity.iter().filter(|limit| limit.id.policy() == policy);
        self.without_identity.extend(without.map(|limit| Arc::clone(limit.id.name())));
        self.is_not_served |= path.not_served.contains(policy);
        let lost = path.overridden.iter().filter(|overridden| overridden.policy == *policy);
        self.winners.extend(lost.map(|overridden| overridden.winner.clone()));
    }
}

/// The status of a policy, with the condition `Enforced` if the policy is accepted.
pub(super) fn with_effect(model: &Model, policy: &ObjectRef, status: &OwnStatus) -> OwnStatus {
    let mut status = status.clone();
    let own = model.topology.get(policy).map_or(&[][..], |it| &it.other_claims().policies);
    let claims = own.iter().chain(model.topology.claims_naming(policy));
    let claims: Vec<&PolicyClaim> = claims.filter(|claim| claim.attached != AttachedPolicy::Unusable).collect();
    if claims.is_empty() {
        return status;
    }
    let mut effect = Effect::default();
    for claim in claims {
        let add = |path: &PathPolicies| effect.add(policy, path);
        let kind = claim.target.object.kind;
        if kind == Kind::Gateway {
            each_path_of_gateway(model, claim, add);
        } else if kind.is_route() {
            each_path_of_route(model, claim, add);
        } else {
            each_path_of_hosts(model, claim, add);
        }
    }
    let unusable = model.world.inherited_policy(policy).map_or(&[][..], InheritedPolicy::unusable);
    let generation = model.world.generation_of(policy).unwrap_or_default();
    status.conditions.extend(condition(generation, &effect, unusable).into_list());
    status.conditions.sort_unstable();
    status
}

fn condition(generation: i64, effect: &Effect, left_out: &[String]) -> Conditions {
    let mut conditions = Conditions::about(generation);
    let names = || effect.winners.iter().map(|winner| winner.name.to_string()).collect::<Vec<_>>().join(", ");
    let unknown = |name: &Arc<str>| format!("limit {name} depends on auth, and no AuthPolicy is in effect");
    let unusable: Vec<String> = left_out.iter().cloned().chain(effect.without_identity.iter().map(unknown)).collect();
    let mut partly = unusable.clone();
    if !effect.winners.is_empty() {
        partly.push(format!("overridden on some paths by [{}]", names()));
    }
    let partly = || format!("partially enforced: {}", partly.join("; "));
    let mut put = |status, reason, message: String| conditions.put("Enforced", status, reason, message);
    match effect {
        Effect { has_paths: false, .. } => {
            put("False", "Unknown", "not in the path of any accepted route".to_owned());
        }
        Effect { is_not_served: true, .. } => {
            put("False", "NotServed", TokenRateLimitPolicy::NOT_SERVED.to_owned());
        }
        Effect { refusing, .. } if !refusing.is_empty() => {
            let why: Vec<&str> = refusing.iter().map(String::as_str).collect();
            put("False", "InvalidCelExpression", format!("requests are refused: {}", why.join("; ")));
        }
        Effect { in_effect: true, winners, .. } if winners.is_empty() && unusable.is_empty() => {
            put("True", "Enforced", String::new());
        }
        Effect { in_effect: true, .. } => put("True", "Enforced", partly()),
        Effect { winners, .. } if !winners.is_empty() => {
            put("False", "Overridden", format!("overridden by [{}]", names()));
        }
        Effect { .. } if !unusable.is_empty() => put("False", "InvalidCelExpression", unusable.join("; ")),
        Effect { .. } => put("False", "Unknown", "it has neither a limit with a rate nor a rule".to_owned()),
    }
    conditions
}

/// The paths through a Gateway, or through one of its listeners: those to routes without policies, which have the
/// policies of the Gateway, and those to routes with policies.
fn each_path_of_gateway(model: &Model, claim: &PolicyClaim, mut add: impl FnMut(&PathPolicies)) {
    let (topology, policies) = (&model.topology, &model.compiled.parts.policies);
    let gateway = &claim.target.object;
    let Some(merged) = topology.gateway_listeners(gateway) else { return };
    // One listener of many takes a part of the work for all: each of them may have a policy.
    let leads = |listener: &&MergedListener| match &claim.target.section {
        Some(PolicySection::Listener(name)) => is_own(listener, gateway) && listener.listener.section == *name,
        Some(PolicySection::Rule(_)) | None => true,
    };
    let programmed = merged.listeners.iter().filter(|listener| listener.not_programmed().is_none());
    let serving: Vec<&MergedListener> = programmed.filter(leads).collect();
    if let Some(own) = policies.get(gateway) {
        for entry in own.listeners().iter().filter(|entry| includes(&claim.target.section, entry)) {
            let over = |listener: &&&MergedListener| {
                own.over(Some(&origin(gateway, listener))).is_some_and(|it| std::ptr::eq(it, entry))
            };
            let mut listeners = serving.iter().filter(over);
            let inherits = |object: &ObjectRef| object.kind.has_rules_of_http() && !policies.contains_key(object);
            if listeners.any(|listener| topology.dependents(&listener.key()).any(inherits)) {
                entry.paths().for_each(|path| add(path));
            }
        }
    }
    let routes = topology.dependents(&Key::GatewayListeners(gateway.name.clone()));
    for route in routes.filter(|object| object.kind.has_rules_of_http()) {
        let Some(target) = policies.get(route) else { continue };
        let over = |listener: &MergedListener| target.over(Some(&origin(gateway, listener)));
        each_attached(model, route, &serving, over, |entry| {
            if includes(&claim.target.section, entry) {
                paths_to(model, route, entry).for_each(|path| add(path));
            }
        });
    }
}

/// The paths to a route, or to one of its rules.
fn each_path_of_route(model: &Model, claim: &PolicyClaim, mut add: impl FnMut(&PathPolicies)) {
    let route = &claim.target.object;
    let Some(target) = model.compiled.parts.policies.get(route) else { return };
    let mut add_entry = |entry: &ListenerPolicies| match &claim.target.section {
        Some(PolicySection::Rule(rule)) => entry.rules.get(rule).into_iter().for_each(|path| add(path)),
        Some(PolicySection::Listener(_)) | None => paths_to(model, route, entry).for_each(|path| add(path)),
    };
    let gateways = model.topology.links_of(route).iter().filter_map(Key::gateway_listeners);
    for gateway in gateways {
        let Some(merged) = model.topology.gateway_listeners(&gateway) else { continue };
        let serving: Vec<&MergedListener> =
            merged.listeners.iter().filter(|listener| listener.not_programmed().is_none()).collect();
        let over = |listener: &MergedListener| target.over(Some(&origin(&gateway, listener)));
        each_attached(model, route, &serving, over, &mut add_entry);
    }
}

/// The paths to an Ingress or an application, if it has any host.
fn each_path_of_hosts(model: &Model, claim: &PolicyClaim, mut add: impl FnMut(&PathPolicies)) {
    let object = &claim.target.object;
    if model.topology.get(object).is_some_and(|attachment| !attachment.claims.is_empty()) {
        model
            .compiled
            .parts
            .policies
            .get(object)
            .into_iter()
            .flat_map(|target| target.paths())
            .for_each(|path| add(path));
    }
}

/// The paths to the rules of a route: those that policies attach to, and all others together, if there are any.
fn paths_to<'e>(
    model: &Model,
    route: &ObjectRef,
    entry: &'e ListenerPolicies,
) -> impl Iterator<Item = &'e Arc<PathPolicies>> {
    let world = &model.world;
    let http = world.http_routes.get(&route.name).filter(|_| route.kind == Kind::HttpRoute);
    let grpc = world.grpc_routes.get(&route.name).filter(|_| route.kind == Kind::GrpcRoute);
    let rules = http.map(|route| route.rules.len()).or_else(|| grpc.map(|route| route.rules.len()));
    // Other objects have no rules that policies attach to.
    let has_others = rules.is_none_or(|rules| entry.rules.len() < rules);
    has_others.then_some(&entry.whole).into_iter().chain(entry.rules.values())
}

/// Calls `each` with the entry of every listener that a route is attached to, once for each entry.
fn each_attached<'e>(
    model: &Model,
    route: &ObjectRef,
    listeners: &[&MergedListener],
    over: impl Fn(&MergedListener) -> Option<&'e ListenerPolicies>,
    mut each: impl FnMut(&ListenerPolicies),
) {
    let Some(attachment) = model.topology.get(route) else { return };
    let attached = listeners.iter().filter(|listener| attachment.listeners.binary_search(&listener.key()).is_ok());
    let mut seen: Vec<&ListenerPolicies> = Vec::new();
    for entry in attached.filter_map(|listener| over(listener)) {
        if !seen.iter().any(|same| std::ptr::eq(*same, entry)) {
            seen.push(entry);
            each(entry);
        }
    }
}

/// Whether a policy for a section of a Gateway, or for all of it, takes part in an entry.
fn includes(section: &Option<PolicySection>, entry: &ListenerPolicies) -> bool {
    match section {
        Some(PolicySection::Listener(name)) => entry.section.as_ref() == Some(name),
        Some(PolicySection::Rule(_)) | None => true,
    }
}

/// Whether a listener is the Gateway's own, and not one of a ListenerSet.
fn is_own(listener: &MergedListener, gateway: &ObjectRef) -> bool {
    listener.listener.owner == *gateway
}

/// A listener as the model names it.
fn origin(gateway: &ObjectRef, listener: &MergedListener) -> ListenerOrigin {
    let ListenerRef { owner, section } = &*listener.listener;
    let set = (owner.kind == Kind::ListenerSet).then(|| owner.clone());
    ListenerOrigin { gateway: gateway.clone(), set, name: Arc::clone(section) }
}
