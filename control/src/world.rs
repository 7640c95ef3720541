//! World: the current projection of every object. An update that changes no projection has no effect beyond it.

mod expression_limits;
mod inherited_policy;
mod key_source_limits;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use tidegate_config::finding::Finding;
use tidegate_config::model::Expression;
use tidegate_config::model::auth::{KeySet, KeySource};
use tidegate_config::object::{Kind, ObjectName, ObjectRef, Uid};
use tidegate_config::project::gateway::{
    BackendTlsPolicy, Gateway, GatewayClass, GrpcRoute, HttpRoute, Layer4Route, ListenerSet, Namespace, ParentRef,
    ReferenceGrant, TlsRoute,
};
use tidegate_config::project::kuadrant::{AuthPolicy, RateLimitPolicy, TokenRateLimitPolicy};
use tidegate_config::project::{
    ConfigMap, Deployment, EndpointSlice, Ingress, IngressClass, Kept, Meta, Object, Projected, Secret, Service,
    Sharing,
};

use crate::event::{BindFailures, Collection};
use crate::recent::Recent;
use expression_limits::{ExpressionLimits, WithoutExpressions};
pub(crate) use inherited_policy::InheritedPolicy;
pub(crate) use key_source_limits::KEY_SOURCES_MAX;
use key_source_limits::KeySourceLimits;

type Objects<T> = BTreeMap<ObjectName, Arc<T>>;

/// The addresses of a DNS name, or the reason for none.
pub type Resolution = Result<Box<[IpAddr]>, String>;

/// The keys of an issuer of tokens.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FetchedKeys {
    /// The last keys that were fetched; `None` if they never were.
    pub keys: Option<Arc<KeySet>>,
    /// Why the last fetch failed.
    pub fault: Option<Arc<str>>,
}

/// Defines World with a map for each kind, and the functions that select a map by kind.
macro_rules! world {
    ($($map:ident: $kind:ident($projection:ty),)*) => {
        /// The current state of every object that routing may need.
        #[derive(Debug, Default)]
        pub struct World {
            $(
                /// Objects by name.
                pub $map: Objects<$projection>,
            )*
            /// The release in the CustomResourceDefinition of each kind of the Gateway API; empty if it states none.
            pub releases: BTreeMap<Kind, Arc<str>>,
            /// The DNS names of ExternalName Services that were looked up.
            pub names: BTreeMap<Arc<str>, Resolution>,
            /// The keys of the issuers of tokens that were fetched.
            pub key_sets: BTreeMap<KeySource, FetchedKeys>,
            /// The findings of projections, for objects with any.
            pub findings: BTreeMap<ObjectRef, Arc<[Finding]>>,
            /// The collections whose objects are not known, because they have been neither listed nor restored. As all
            /// of World it outlives a restart of the loop.
            pub unlisted: BTreeSet<Collection>,
            /// The addresses of the API server as seen by the edge.
            pub api_server: Arc<BTreeSet<SocketAddr>>,
            /// The sockets that the data plane cannot open.
            pub unopened: BindFailures,
            /// The addresses from the pool that this process has assigned to Gateways. They reach the status later.
            pub assigned: BTreeMap<ObjectName, Box<[IpAddr]>>,
            /// Every existing object, whether it can be read or not, with metadata for reports.
            present: BTreeMap<ObjectRef, UnreadMeta>,
            /// The parents of recent routes: most routes of a namespace have the same.
            recent_parents: Recent<[ParentRef]>,
            expressions: ExpressionLimits,
            key_sources: KeySourceLimits,
        }

        impl World {
            /// The object with this key.
            #[must_use]
            pub fn get(&self, key: &ObjectRef) -> Option<Object> {
                match key.kind {
                    $(Kind::$kind => self.$map.get(&key.name).cloned().map(Object::$kind),)*
                }
            }

            /// Packs the maps after lists have filled them.
            pub fn compact(&mut self) {
                self.share();
                $(pack(&mut self.$map);)*
                pack(&mut self.present);
            }

            fn put(&mut self, name: &ObjectName, object: Object) -> bool {
                match object {
                    $(Object::$kind(object) => put(&mut self.$map, name, object),)*
                }
            }

            fn forget(&mut self, key: &ObjectRef) -> bool {
                match key.kind {
                    $(Kind::$kind => self.$map.remove(&key.name).is_some(),)*
                }
            }
        }
    };
}

world! {
    ingresses: Ingress(Ingress),
    classes: IngressClass(IngressClass),
    services: Service(Service),
    slices: EndpointSlice(EndpointSlice),
    secrets: Secret(Secret),
    deployments: Deployment(Deployment),
    namespaces: Namespace(Namespace),
    config_maps: ConfigMap(ConfigMap),
    gateway_classes: GatewayClass(GatewayClass),
    gateways: Gateway(Gateway),
    listener_sets: ListenerSet(ListenerSet),
    http_routes: HttpRoute(HttpRoute),
    grpc_routes: GrpcRoute(GrpcRoute),
    tls_routes: TlsRoute(TlsRoute),
    tcp_routes: TcpRoute(Layer4Route),
    udp_routes: UdpRoute(Layer4Route),
    grants: ReferenceGrant(ReferenceGrant),
    backend_tls_policies: BackendTlsPolicy(BackendTlsPolicy),
    rate_limit_policies: RateLimitPolicy(RateLimitPolicy),
    token_rate_limit_policies: TokenRateLimitPolicy(TokenRateLimitPolicy),
    auth_policies: AuthPolicy(AuthPolicy),
}

/// Metadata of an object that routing does not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct UnreadMeta {
    uid: Option<Uid>,
    generation: Option<i64>,
}

impl World {
    /// Adds or replaces an object.
    pub fn apply(&mut self, projected: Projected) -> Applied {
        let Projected { meta: Meta { object: key, uid, generation, .. }, object, mut findings, .. } = projected;
        let mut displaced = Vec::new();
        let changed = match object {
            None => {
                self.expressions.remove(&key);
                self.forget(&key)
            }
            Some(mut object) => {
                let Self { services, recent_parents, expressions, .. } = self;
                object.share(&mut Shared { services, recent_parents, expressions });
                for WithoutExpressions { object: loser, why } in self.expressions.put(&key, object.expressions()) {
                    if loser == key {
                        findings.extend(object.leave_out_expressions(&key, &why));
                    } else {
                        self.leave_out_expressions(&loser, &why);
                        displaced.push(loser);
                    }
                }
                self.put(&key.name, object)
            }
        };
        displaced.extend(self.share_out_key_sources(&key));
        let reported = self.put_findings(&key, findings);
        let has_conditions = key.kind.has_conditions();
        let before = self.present.insert(key, UnreadMeta { uid, generation });
        // Conditions contain the generation that they were computed for.
        let renewed = before.is_none_or(|before| before.generation != generation);
        Applied { changed: reported || changed || renewed && has_conditions, displaced }
    }

    /// Leaves out the expressions of an object, because those of older objects leave no room.
    fn leave_out_expressions(&mut self, key: &ObjectRef, why: &str) {
        let Some(mut object) = self.get(key) else { return };
        let left_out = object.leave_out_expressions(key, why);
        let findings = [self.findings_of(key), &left_out].concat();
        self.put_findings(key, findings);
        self.put(&key.name, object);
    }

    /// Removes an object.
    pub fn delete(&mut self, key: &ObjectRef) -> Applied {
        self.expressions.remove(key);
        let known = self.present.remove(key).is_some();
        let reported = self.put_findings(key, Vec::new());
        let changed = self.forget(key) || reported || known;
        Applied { changed, displaced: self.share_out_key_sources(key) }
    }

    /// Decides which policies of a namespace have the keys that they name, after a change of one of them. Returns the
    /// others for which this has changed.
    fn share_out_key_sources(&mut self, key: &ObjectRef) -> Vec<ObjectRef> {
        if key.kind != Kind::AuthPolicy {
            return Vec::new();
        }
        let policy = self.auth_policies.get(&key.name).map(|policy| &**policy);
        let others = self.key_sources.put(&key.name, policy);
        others.into_iter().map(|name| ObjectRef::new(key.kind, name)).collect()
    }

    /// Whether the keys of a source are used in a namespace, which names at most [`KEY_SOURCES_MAX`] of them.
    pub(crate) fn admits_key_source(&self, namespace: &str, source: &KeySource) -> bool {
        self.key_sources.admits(namespace, source)
    }

    /// Whether all objects of a kind are known.
    #[must_use]
    pub fn knows(&self, kind: Kind) -> bool {
        !self.unlisted.iter().any(|collection| collection.kind == kind)
    }

    /// Whether all objects of a kind in a namespace are known.
    pub(crate) fn knows_in(&self, kind: Kind, namespace: &Arc<str>) -> bool {
        let is_unlisted = |namespace| self.unlisted.contains(&Collection { kind, namespace });
        self.unlisted.is_empty() || !is_unlisted(None) && !is_unlisted(Some(Arc::clone(namespace)))
    }

    /// Sets the addresses of a DNS name. Returns `true` if they have changed.
    pub fn resolve(&mut self, name: Arc<str>, addresses: Resolution) -> bool {
        if self.names.get(&name) == Some(&addresses) {
            return false;
        }
        self.names.insert(name, addresses);
        true
    }

    /// Sets the keys of an issuer. If they could not be fetched, the last ones stay. Returns `true` if they have
    /// changed, or the reason why they cannot be fetched.
    pub fn fetch(&mut self, source: KeySource, fetched: Result<Arc<KeySet>, Arc<str>>) -> bool {
        let known = self.key_sets.entry(source).or_default();
        let before = known.clone();
        match fetched {
            // Equal keys stay the same value, so that nothing is published.
            Ok(keys) if known.keys.as_ref() == Some(&keys) => known.fault = None,
            Ok(keys) => *known = FetchedKeys { keys: Some(keys), fault: None },
            Err(why) => known.fault = Some(why),
        }
        *known != before
    }

    /// Sets the release in the CustomResourceDefinition of a kind; `None` without a definition. Returns `true` if it
    /// has changed.
    pub fn define(&mut self, kind: Kind, release: Option<Arc<str>>) -> bool {
        let before = match &release {
            Some(release) => self.releases.insert(kind, Arc::clone(release)),
            None => self.releases.remove(&kind),
        };
        before != release
    }

    /// Records the addresses from the pool that a Gateway was assigned.
    pub(crate) fn assign(&mut self, gateway: &ObjectName, addresses: &[IpAddr]) {
        if addresses.is_empty() {
            self.assigned.remove(gateway);
        } else if self.assigned.get(gateway).is_none_or(|before| **before != *addresses) {
            self.assigned.insert(gateway.clone(), addresses.into());
        }
    }

    /// The names of the objects of a kind, in one namespace or in all, whether they can be read or not.
    pub fn names_of<'a>(&'a self, kind: Kind, namespace: Option<&'a str>) -> impl Iterator<Item = &'a ObjectRef> {
        let first = ObjectRef::new(kind, ObjectName::new(namespace.unwrap_or_default(), ""));
        self.present.range(first..).map(|(key, _)| key).take_while(move |key| {
            key.kind == kind && namespace.is_none_or(|namespace| *key.name.namespace == *namespace)
        })
    }

    /// The first object after another one, or of all, whether it can be read or not.
    pub(crate) fn after(&self, last: Option<&ObjectRef>) -> Option<&ObjectRef> {
        let beyond = (last.map_or(Unbounded, Excluded), Unbounded);
        self.present.range::<ObjectRef, _>(beyond).next().map(|(object, _)| object)
    }

    /// The number of objects, whether they can be read or not.
    pub(crate) fn count(&self) -> usize {
        self.present.len()
    }

    /// Whether an object exists, whether it can be read or not.
    #[must_use]
    pub fn holds(&self, key: &ObjectRef) -> bool {
        self.present.contains_key(key)
    }

    /// The uid of an object, if it has one.
    #[must_use]
    pub fn uid_of(&self, key: &ObjectRef) -> Option<Uid> {
        self.present.get(key)?.uid
    }

    /// The generation of an object, if it has one.
    #[must_use]
    pub fn generation_of(&self, key: &ObjectRef) -> Option<i64> {
        self.present.get(key)?.generation
    }

    /// Whether an object exists with an equal projection, or with one that equals it without the expressions that the
    /// object must do without.
    #[must_use]
    pub fn holds_as(&self, projected: &Projected) -> bool {
        let key = &projected.meta.object;
        if !self.expressions.lacks(key) {
            let equal = || self.get(key) == projected.object && *self.findings_of(key) == *projected.findings;
            return self.holds(key) && equal();
        }
        let left = projected.object.clone().map(|mut object| {
            // The findings about them name the limit, and are not compared.
            drop(object.leave_out_expressions(key, ""));
            object
        });
        self.get(key) == left
    }

    /// The findings of the projection of an object.
    #[must_use]
    pub fn findings_of(&self, key: &ObjectRef) -> &[Finding] {
        self.findings.get(key).map_or(&[], |findings| findings)
    }

    /// Shares equal values between all objects. Lists arrive in any order, so names may precede the objects that they
    /// refer to.
    fn share(&mut self) {
        let Self { ingresses, slices, http_routes, grpc_routes, tls_routes, tcp_routes, udp_routes, .. } = self;
        let (services, expressions) = (&self.services, &self.expressions);
        let shared = &mut Shared { services, recent_parents: &mut self.recent_parents, expressions };
        ingresses.values_mut().for_each(|it| it.share(shared));
        slices.values_mut().for_each(|it| it.share(shared));
        http_routes.values_mut().for_each(|it| it.share(shared));
        grpc_routes.values_mut().for_each(|it| it.share(shared));
        tls_routes.values_mut().for_each(|it| it.share(shared));
        tcp_routes.values_mut().chain(udp_routes.values_mut()).for_each(|it| it.share(shared));
    }

    fn put_findings(&mut self, key: &ObjectRef, findings: Vec<Finding>) -> bool {
        if self.findings_of(key) == findings {
            return false;
        }
        if findings.is_empty() {
            self.findings.remove(key);
        } else {
            self.findings.insert(key.clone(), findings.into());
        }
        true
    }
}

/// What an update of an object has changed.
#[derive(Debug)]
pub struct Applied {
    /// Whether anything of the object that routing reads has changed.
    pub changed: bool,
    /// Other objects that have lost something to it, or gained: younger ones their expressions, and policies the keys
    /// of issuers.
    pub displaced: Vec<ObjectRef>,
}

/// The values that objects share with existing ones.
struct Shared<'w> {
    services: &'w Objects<Service>,
    recent_parents: &'w mut Recent<[ParentRef]>,
    expressions: &'w ExpressionLimits,
}

impl Kept for Shared<'_> {
    fn service(&mut self, name: &mut ObjectName) {
        if let Some((kept, _)) = self.services.get_key_value(name) {
            kept.clone_into(name);
        }
    }

    fn parents(&mut self, parents: &mut Arc<[ParentRef]>) {
        self.recent_parents.share(parents);
    }

    fn expression(&mut self, expression: &mut Expression) {
        self.expressions.share(expression);
    }
}

/// Packs a tree. One that is filled in ascending order leaves half of its space unused.
pub(crate) fn pack<T: Default + IntoIterator<Item = I> + FromIterator<I>, I>(tree: &mut T) {
    *tree = std::mem::take(tree).into_iter().collect();
}

fn put<T: PartialEq>(objects: &mut Objects<T>, name: &ObjectName, object: Arc<T>) -> bool {
    if objects.get(name) == Some(&object) {
        return false;
    }
    objects.insert(name.clone(), object);
    true
}
