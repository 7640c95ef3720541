//! The keys of dependencies and claims.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use tidegate_config::model::auth::KeySource;
use tidegate_config::model::{BindKey, ScopeId, VirtualHost};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::gateway::{LabelSelector, LabelTerm};

use super::ListenerRef;

/// The key of a dependency or a claim. Every route has a dozen of them, each twice, so a key is two words: any larger
/// part is boxed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// One object, whether it exists or not.
    Object(ObjectRef),
    /// Every object of a kind in a namespace: for selectors, whose objects have no name yet.
    InNamespace(Arc<(Kind, Arc<str>)>),
    /// The objects of a kind in a namespace that a selector selects.
    Selected(Box<Selected>),
    /// Every object of a kind.
    Any(Kind),
    /// A claimed virtual host.
    Host(VirtualHost),
    /// A scope with settings.
    Scope(Box<ScopeId>),
    /// A host whose connections are claimed, to be passed on as bytes.
    Stream(VirtualHost),
    /// A socket with listeners.
    Bind(Box<BindKey>),
    /// The global settings.
    Globals,
    /// The policies of an object.
    Policies(Box<ObjectRef>),
    /// The objects whose annotation names a policy.
    NamingPolicy(Box<ObjectRef>),
    /// The listeners of a Gateway.
    GatewayListeners(ObjectName),
    /// The routes that refer to a Service, and the listeners that they are attached to.
    RoutesTo(ObjectName),
    /// A listener with attached routes.
    Listener(Arc<ListenerRef>),
    /// The same for routes that are not attached there, because an older route of another kind keeps them off, or
    /// because they are not accepted; another route may keep those off.
    Conflict(Arc<ListenerRef>),
    /// The endpoints of a Service, for its EndpointSlices.
    EndpointsOf(ObjectName),
    /// A DNS name.
    Name(Box<DnsName>),
    /// The keys of an issuer of tokens.
    KeySet(Box<KeySource>),
    /// The sockets of the API server.
    ApiServer,
    /// The releases in the CustomResourceDefinitions of the Gateway API.
    Definitions,
}

/// Selected objects in a [`Key`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Selected {
    /// The kind of the objects.
    pub(crate) kind: Kind,
    /// Their namespace.
    pub(crate) namespace: Arc<str>,
    /// A term that is true of all of them.
    pub(crate) term: LabelTerm,
    /// The selector, which the keys of all of its terms share.
    pub(crate) selector: Arc<LabelSelector>,
}

impl Selected {
    /// The least key with a term.
    pub(crate) fn first(kind: Kind, namespace: &Arc<str>, term: LabelTerm) -> Key {
        let (namespace, selector) = (Arc::clone(namespace), Arc::default());
        Key::Selected(Box::new(Self { kind, namespace, term, selector }))
    }
}

/// A DNS name in a [`Key`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DnsName(Arc<str>);

#[allow(clippy::wildcard_enum_match_arm, reason = "each asks whether a key is of one kind")]
impl Key {
    /// Every object of a kind in a namespace.
    pub(crate) fn in_namespace(kind: Kind, namespace: &Arc<str>) -> Self {
        Self::InNamespace(Arc::new((kind, Arc::clone(namespace))))
    }

    /// The objects of a kind in a namespace that a selector selects: several keys, under any of which an object can be.
    pub(crate) fn selected(kind: Kind, namespace: &Arc<str>, selector: &LabelSelector) -> impl Iterator<Item = Self> {
        let shared = Arc::new(selector.clone());
        selector.terms().into_iter().map(move |term| {
            let (namespace, selector) = (Arc::clone(namespace), Arc::clone(&shared));
            Self::Selected(Box::new(Selected { kind, namespace, term, selector }))
        })
    }

    /// A DNS name.
    pub(crate) fn of_name(name: &Arc<str>) -> Self {
        Self::Name(Box::new(DnsName(Arc::clone(name))))
    }

    /// The object, if the key is one of this kind.
    #[must_use]
    pub fn object(&self, kind: Kind) -> Option<&ObjectRef> {
        match self {
            Self::Object(object) => (object.kind == kind).then_some(object),
            _ => None,
        }
    }

    /// The virtual host, if the key is one.
    pub(crate) const fn host(&self) -> Option<&VirtualHost> {
        match self {
            Self::Host(host) => Some(host),
            _ => None,
        }
    }

    /// The scope, if the key is one.
    pub(crate) const fn scope(&self) -> Option<&ScopeId> {
        match self {
            Self::Scope(scope) => Some(scope),
            _ => None,
        }
    }

    /// The host of connections, if the key is one.
    pub(crate) const fn stream(&self) -> Option<&VirtualHost> {
        match self {
            Self::Stream(host) => Some(host),
            _ => None,
        }
    }

    /// The socket, if the key is one.
    pub(crate) const fn bind(&self) -> Option<&BindKey> {
        match self {
            Self::Bind(bind) => Some(bind),
            _ => None,
        }
    }

    /// The object whose policies it is about.
    pub(crate) const fn policy_target(&self) -> Option<&ObjectRef> {
        match self {
            Self::Policies(target) => Some(target),
            _ => None,
        }
    }

    /// The listener, if the key is one.
    #[must_use]
    pub const fn listener(&self) -> Option<&Arc<ListenerRef>> {
        match self {
            Self::Listener(listener) => Some(listener),
            _ => None,
        }
    }

    /// The Service, if the key is that of its endpoints.
    #[must_use]
    pub const fn endpoints_of(&self) -> Option<&ObjectName> {
        match self {
            Self::EndpointsOf(service) => Some(service),
            _ => None,
        }
    }

    /// The Service, if the key is that of the routes to it.
    pub(crate) const fn routes_to(&self) -> Option<&ObjectName> {
        match self {
            Self::RoutesTo(service) => Some(service),
            _ => None,
        }
    }

    /// The DNS name, if the key is one.
    #[must_use]
    pub const fn name(&self) -> Option<&Arc<str>> {
        match self {
            Self::Name(name) => Some(&name.0),
            _ => None,
        }
    }

    /// The source of keys, if the key is one.
    #[must_use]
    pub const fn key_source(&self) -> Option<&KeySource> {
        match self {
            Self::KeySet(source) => Some(source),
            _ => None,
        }
    }

    /// The Gateway whose listeners it is about.
    pub(crate) fn gateway_listeners(&self) -> Option<ObjectRef> {
        match self {
            Self::GatewayListeners(gateway) => Some(ObjectRef::new(Kind::Gateway, gateway.clone())),
            _ => None,
        }
    }

    /// The key of the routes that are not attached to a listener and that older routes keep off it, or might.
    pub(crate) fn conflict(&self) -> Option<Self> {
        self.listener().map(|listener| Self::Conflict(Arc::clone(listener)))
    }

    /// The key of the listener, if this is the one of routes that are not attached to it.
    pub(crate) fn conflict_listener(&self) -> Option<Self> {
        match self {
            Self::Conflict(listener) => Some(Self::Listener(Arc::clone(listener))),
            _ => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(object) => write!(f, "{object}"),
            Self::InNamespace(of) => write!(f, "any {} in {}", of.0, of.1),
            Self::Selected(of) => write!(f, "{} in {} with {}", of.kind, of.namespace, of.selector),
            Self::Any(kind) => write!(f, "any {kind}"),
            Self::Host(host) => write!(f, "host {host}"),
            Self::Scope(scope) => write!(f, "scope {scope}"),
            Self::Stream(host) => write!(f, "connections for {host}"),
            Self::Bind(bind) => write!(f, "socket {}", bind.address),
            Self::Globals => f.write_str("global settings"),
            Self::Policies(target) => write!(f, "policies of {target}"),
            Self::NamingPolicy(policy) => write!(f, "objects that name {policy}"),
            Self::GatewayListeners(gateway) => write!(f, "listeners of {} {gateway}", Kind::Gateway),
            Self::RoutesTo(service) => write!(f, "routes to {service}"),
            Self::Listener(listener) => write!(f, "{listener}"),
            Self::Conflict(listener) => write!(f, "conflicts on {listener}"),
            Self::EndpointsOf(service) => write!(f, "endpoints of {service}"),
            Self::Name(name) => write!(f, "name {}", name.0),
            Self::KeySet(source) => write!(f, "keys of {}", source.url()),
            Self::ApiServer => f.write_str("addresses of the API server"),
            Self::Definitions => f.write_str("definitions"),
        }
    }
}

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_two_words() {
        assert_eq!(size_of::<Key>(), 2 * size_of::<usize>());
    }
}
