//! The differences of two attachments of an object, as data: what to compile, and which other objects are affected.

use std::collections::BTreeSet;

use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use crate::attachment::{Attachment, Key, PolicyTarget};
use crate::compile::Unit;

/// The differences of two attachments of one object.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct AttachmentDiff {
    /// The units to compile.
    pub(super) units: BTreeSet<Unit>,
    /// The Services that the claims for a unit no longer use.
    pub(super) leaving: Vec<(Unit, BTreeSet<ObjectName>)>,
    /// The dependencies that are only in one of them.
    pub(super) links: Vec<Key>,
    /// The keys for which the object gives its readers other values.
    pub(super) keys: Vec<Key>,
    /// The objects whose status counts this one differently: Gateways and ListenerSets by their listeners, and classes.
    pub(super) owners: BTreeSet<ObjectRef>,
    /// The Services whose endpoints the object has, in either of them and whether they differ or not.
    pub(super) endpoints_of: BTreeSet<ObjectName>,
    /// The targets to which it attaches a policy in one of them only.
    pub(super) policy_targets: BTreeSet<PolicyTarget>,
    /// Whether the desired infrastructure, or whether there is any, differs.
    pub(super) infrastructure: bool,
    /// Whether the claimed hosts or the listeners differ, on which conflicts with other routes depend.
    pub(super) moved: bool,
}

impl AttachmentDiff {
    /// An attachment that stays.
    pub(super) fn unchanged(attachment: &Attachment) -> Self {
        let endpoints_of = attachment.links.iter().filter_map(Key::endpoints_of).cloned().collect();
        Self { endpoints_of, ..Self::default() }
    }

    pub(super) fn between(object: &ObjectRef, before: &Attachment, after: &Attachment) -> Self {
        let (was, is) = (before.other_claims(), after.other_claims());
        let units = Unit::differing(object, before, after);
        let leaving = units.iter().map(|unit| {
            let [old, new] = [before, after].map(|of| unit.services_in(of));
            (unit.clone(), old.difference(&new).map(|service| (*service).clone()).collect::<BTreeSet<_>>())
        });
        let leaving = leaving.filter(|(_, services)| !services.is_empty()).collect();
        let links: Vec<Key> = on_one_side(&before.links, &after.links).cloned().collect();
        let merged =
            (was.gateway_listeners != is.gateway_listeners).then(|| Key::GatewayListeners(object.name.clone()));
        let named = renamed_services(object.kind, before, after).into_iter().map(Key::RoutesTo);
        let policies = renamed_policies(object, before, after).into_iter();
        let policies = policies.map(|policy| Key::NamingPolicy(Box::new(policy.clone())));
        let keys = merged.into_iter().chain(named).chain(policies).collect();
        let listeners = on_one_side(&before.listeners, &after.listeners).filter_map(Key::listener);
        let classes =
            links.iter().filter(|_| object.kind == Kind::Gateway).filter_map(|it| it.object(Kind::GatewayClass));
        let owners = listeners.map(|listener| &listener.owner).chain(classes).cloned().collect();
        let endpoints_of = before.links.iter().chain(&after.links).filter_map(Key::endpoints_of).cloned().collect();
        let [old, new] = [was, is].map(|of| of.policies.iter().map(|claim| &claim.target).collect::<BTreeSet<_>>());
        let policy_targets = old.symmetric_difference(&new).copied().cloned().collect();
        let [old, new] = [before, after].map(|of| of.claims.iter().map(|claim| &claim.host));
        Self {
            units,
            leaving,
            links,
            keys,
            owners,
            endpoints_of,
            policy_targets,
            infrastructure: was.infrastructure != is.infrastructure
                || was.gateway_listeners.is_some() != is.gateway_listeners.is_some(),
            moved: !old.eq(new) || before.listeners != after.listeners,
        }
    }
}

/// The Services that a route refers to only before or only after a change, or all if its listeners differ.
fn renamed_services(kind: Kind, before: &Attachment, after: &Attachment) -> BTreeSet<ObjectName> {
    if !kind.is_route() {
        return BTreeSet::new();
    }
    let [old, new] = [before.named_services(), after.named_services()];
    if before.listeners == after.listeners {
        return old.symmetric_difference(&new).map(|service| (*service).clone()).collect();
    }
    old.union(&new).map(|service| (*service).clone()).collect()
}

/// The policies that an object names only before or only after a change.
fn renamed_policies<'a>(object: &ObjectRef, before: &'a Attachment, after: &'a Attachment) -> BTreeSet<&'a ObjectRef> {
    let [old, new] = [before, after].map(|of| -> BTreeSet<&ObjectRef> {
        let policies = of.other_claims().policies.iter().map(|claim| &claim.policy);
        policies.filter(|policy| *policy != object).collect()
    });
    old.symmetric_difference(&new).copied().collect()
}

/// The keys that are only in one of two ascending lists.
fn on_one_side<'k>(one: &'k [Key], other: &'k [Key]) -> impl Iterator<Item = &'k Key> {
    let (one, other): (&[Key], &[Key]) = if one == other { (&[], &[]) } else { (one, other) };
    let gone = one.iter().filter(|key| other.binary_search(key).is_err());
    gone.chain(other.iter().filter(|key| one.binary_search(key).is_err()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_config::model::{
        Action, AppProtocol, BackendKey, BindKey, BindProtocol, HostPattern, Origin, PathMatch, Route, ScopeId, Target,
        WeightedTarget,
    };
    use tidegate_config::object::Age;

    use super::*;
    use crate::attachment::{
        AttachedPolicy, Claim, ClaimTerms, GatewayListeners, ListenerRef, OtherClaims, PolicyClaim, PolicyTarget,
        Report, Verdict,
    };

    fn name(name: &str) -> ObjectName {
        ObjectName::new("shop", name)
    }

    fn route(kind: Kind) -> ObjectRef {
        ObjectRef::new(kind, name("web"))
    }

    /// A claim to a host whose one route leads to a Service.
    fn claim(host: &str, service: &str) -> Claim {
        let age = Age { created_s: 0, name: name("web") };
        let origin = Origin { object: route(Kind::Ingress), age: age.clone(), field: "".into(), position: 0 };
        let backend = BackendKey::tcp(name(service), 80);
        let target = Target { backend, protocol: AppProtocol::Http, tls: None, fixed: None };
        let action = Action::Forward([WeightedTarget::new(Arc::new(target), 1)].into());
        let routes = [Arc::new(Route::new(origin, PathMatch::Exact("/".into()), action))].into();
        let terms = ClaimTerms { routes, ..ClaimTerms::sample(route(Kind::Ingress), age) };
        Claim::new(HostPattern::Exact(host.into()), terms)
    }

    fn claiming(claims: &[Claim]) -> Attachment {
        Attachment { claims: claims.into(), ..Attachment::default() }
    }

    fn linked(links: &[Key]) -> Attachment {
        Attachment { links: links.into(), ..Attachment::default() }
    }

    fn other_claims(other_claims: OtherClaims) -> Attachment {
        Attachment { other_claims: Some(Box::new(other_claims)), ..Attachment::default() }
    }

    fn object(kind: Kind, of: &str) -> Key {
        Key::Object(ObjectRef::new(kind, name(of)))
    }

    fn listener() -> Key {
        let owner = ObjectRef::new(Kind::Gateway, name("edge"));
        Key::Listener(Arc::new(ListenerRef { owner, section: "http".into() }))
    }

    /// Compares the differences in either direction.
    #[track_caller]
    fn check(kind: Kind, before: &Attachment, after: &Attachment, there: &[&str], back: &[&str]) {
        for (before, after, want) in [(before, after, there), (after, before, back)] {
            let diff = AttachmentDiff::between(&route(kind), before, after);
            let mut got: Vec<String> = diff.units.iter().map(|unit| format!("compile {unit}")).collect();
            got.extend(
                diff.leaving.iter().flat_map(|(unit, services)| {
                    services.iter().map(move |service| format!("{unit} leaves {service}"))
                }),
            );
            got.extend(diff.links.iter().map(|key| format!("link {key}")));
            got.extend(diff.keys.iter().map(|key| format!("readers of {key}")));
            got.extend(diff.owners.iter().map(|owner| format!("count of {owner}")));
            got.extend(diff.endpoints_of.iter().map(|service| format!("endpoints of {service}")));
            got.extend(diff.infrastructure.then(|| "infrastructure".to_owned()));
            got.extend(diff.moved.then(|| "moved".to_owned()));
            assert_eq!(got, want);
        }
    }

    #[track_caller]
    fn check_both(kind: Kind, before: &Attachment, after: &Attachment, want: &[&str]) {
        check(kind, before, after, want, want);
    }

    #[test]
    fn a_host_is_compiled_if_its_claim_is_another_one() {
        let (a, b) = (claim("a.example", "x"), claim("b.example", "x"));
        let nothing = Attachment::default();
        check(Kind::Ingress, &nothing, &nothing, &[], &[]);
        let host = "compile host a.example";
        let leaves = [host, "host a.example leaves shop/x", "moved"];
        check(Kind::Ingress, &nothing, &claiming(std::slice::from_ref(&a)), &[host, "moved"], &leaves);
        check_both(Kind::Ingress, &claiming(&[a.clone(), b.clone()]), &claiming(&[a.clone(), b.clone()]), &[]);
        let other = claim("a.example", "y");
        let [there, back] = ["x", "y"].map(|service| format!("host a.example leaves shop/{service}"));
        check(
            Kind::Ingress,
            &claiming(&[a.clone(), b.clone()]),
            &claiming(&[other, b]),
            &[host, &there],
            &[host, &back],
        );
        // Equal terms that are another allocation: the compiled host has to hold the new one.
        check_both(Kind::Ingress, &claiming(&[a]), &claiming(&[claim("a.example", "x")]), &[host]);
    }

    #[test]
    fn other_units_are_compiled_if_they_differ() {
        let nothing = Attachment::default();
        let scopes = [(ScopeId("deis".into()), Arc::default())].into();
        check_both(
            Kind::Deployment,
            &nothing,
            &other_claims(OtherClaims { scopes, ..OtherClaims::default() }),
            &["compile the settings of source deis"],
        );
        let bind = BindKey { address: ([127, 0, 0, 1], 80).into(), protocol: BindProtocol::Http };
        let binds = [(bind, [].into())].into();
        check_both(
            Kind::Gateway,
            &nothing,
            &other_claims(OtherClaims { binds, ..OtherClaims::default() }),
            &["compile the listeners on 127.0.0.1:80"],
        );
        let globals = Some(Arc::default());
        check_both(
            Kind::Deployment,
            &nothing,
            &other_claims(OtherClaims { globals, ..OtherClaims::default() }),
            &["compile the global settings"],
        );
        let report = Report { verdict: Some(Verdict::Others), findings: Vec::new() }.unless_empty();
        check_both(
            Kind::Ingress,
            &nothing,
            &Attachment { report, ..Attachment::default() },
            &["compile Ingress shop/web"],
        );
    }

    #[test]
    fn dependents_of_other_values_are_found() {
        let nothing = Attachment::default();
        let service = object(Kind::Service, "x");
        check_both(Kind::Ingress, &nothing, &linked(std::slice::from_ref(&service)), &["link Service shop/x"]);
        check_both(
            Kind::HttpRoute,
            &nothing,
            &linked(std::slice::from_ref(&service)),
            &["link Service shop/x", "readers of routes to shop/x"],
        );
        let attached = Attachment { listeners: [listener()].into(), ..linked(std::slice::from_ref(&service)) };
        let moved = ["readers of routes to shop/x", "count of Gateway shop/edge", "moved"];
        check_both(Kind::HttpRoute, &linked(&[service]), &attached, &moved);
        let class = ["link GatewayClass shop/c", "count of GatewayClass shop/c"];
        check_both(Kind::Gateway, &nothing, &linked(&[object(Kind::GatewayClass, "c")]), &class);
        let endpoints = linked(&[Key::EndpointsOf(name("x"))]);
        check_both(Kind::EndpointSlice, &endpoints, &endpoints, &["endpoints of shop/x"]);
        let policies = [PolicyClaim {
            target: PolicyTarget { object: route(Kind::Ingress), section: None },
            policy: ObjectRef::new(Kind::RateLimitPolicy, name("calm")),
            age: Age { created_s: 0, name: name("calm") },
            attached: AttachedPolicy::Unusable,
        }];
        let naming = other_claims(OtherClaims { policies: policies.into(), ..OtherClaims::default() });
        let named = "readers of objects that name RateLimitPolicy shop/calm";
        check_both(Kind::Ingress, &nothing, &naming, &["compile the policies of Ingress shop/web", named]);
        let merged = |not_accepted| {
            let gateway_listeners = Some(Arc::new(GatewayListeners { not_accepted, ..GatewayListeners::default() }));
            other_claims(OtherClaims { gateway_listeners, ..OtherClaims::default() })
        };
        let readers = "readers of listeners of Gateway shop/web";
        check_both(Kind::Gateway, &nothing, &merged(true), &[readers, "infrastructure"]);
        check_both(Kind::Gateway, &merged(true), &merged(false), &[readers]);
    }
}
