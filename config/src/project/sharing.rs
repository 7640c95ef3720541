//! What projections have in common: names of Services, and the parents of routes. Each is read by itself and has texts of its own, until
//! it is kept beside others.

use std::sync::Arc;

use super::gateway::{
    BackendRef, GrpcRoute, HttpBackend, HttpRoute, Layer4Route, ParentRef, TlsRoute, WeightedBackend,
};
use super::{EndpointSlice, Ingress, Object};
use crate::object::ObjectName;

/// What is kept already.
pub trait Kept {
    /// Puts the equal name of a Service that is kept in the place of this one.
    fn service(&mut self, name: &mut ObjectName);
    /// Puts equal parents that are kept in the place of these.
    fn parents(&mut self, parents: &mut Arc<[ParentRef]>);
}

/// What can share with others. It says the same afterwards.
pub trait Sharing {
    /// Shares what is equal.
    fn share(&mut self, kept: &mut impl Kept);
}

impl Sharing for Object {
    /// One that others hold too stays as it is.
    fn share(&mut self, kept: &mut impl Kept) {
        match self {
            Self::Ingress(object) => object.share(kept),
            Self::EndpointSlice(object) => object.share(kept),
            Self::HttpRoute(object) => object.share(kept),
            Self::GrpcRoute(object) => object.share(kept),
            Self::TlsRoute(object) => object.share(kept),
            Self::TcpRoute(object) | Self::UdpRoute(object) => object.share(kept),
            Self::IngressClass(_)
            | Self::Service(_)
            | Self::Secret(_)
            | Self::Deployment(_)
            | Self::ConfigMap(_)
            | Self::Namespace(_)
            | Self::GatewayClass(_)
            | Self::Gateway(_)
            | Self::ListenerSet(_)
            | Self::BackendTlsPolicy(_)
            | Self::ReferenceGrant(_) => {}
        }
    }
}

impl<T: Sharing> Sharing for Arc<T> {
    /// One that others hold too stays as it is.
    fn share(&mut self, kept: &mut impl Kept) {
        if let Some(own) = Self::get_mut(self) {
            own.share(kept);
        }
    }
}

impl Sharing for Ingress {
    fn share(&mut self, kept: &mut impl Kept) {
        let backends = self.rules.paths_mut().filter_map(|path| path.backend.as_mut());
        backends.for_each(|backend| kept.service(&mut backend.service));
    }
}

impl Sharing for EndpointSlice {
    fn share(&mut self, kept: &mut impl Kept) {
        self.service.iter_mut().for_each(|service| kept.service(service));
    }
}

impl Sharing for HttpRoute {
    fn share(&mut self, kept: &mut impl Kept) {
        kept.parents(&mut self.parents);
        self.rules.iter_mut().flat_map(|rule| &mut rule.backends).for_each(|it| it.share(kept));
    }
}

impl Sharing for GrpcRoute {
    fn share(&mut self, kept: &mut impl Kept) {
        kept.parents(&mut self.parents);
        self.rules.iter_mut().flat_map(|rule| &mut rule.backends).for_each(|it| it.share(kept));
    }
}

impl Sharing for TlsRoute {
    fn share(&mut self, kept: &mut impl Kept) {
        kept.parents(&mut self.parents);
        self.rule.iter_mut().flat_map(|rule| &mut rule.backends).for_each(|it| it.share(kept));
    }
}

impl Sharing for Layer4Route {
    fn share(&mut self, kept: &mut impl Kept) {
        kept.parents(&mut self.parents);
        self.rule.iter_mut().flat_map(|rule| &mut rule.backends).for_each(|it| it.share(kept));
    }
}

impl Sharing for HttpBackend {
    fn share(&mut self, kept: &mut impl Kept) {
        self.share.share(kept);
    }
}

impl Sharing for WeightedBackend {
    /// A name of another kind is looked for too: where a Service is called so, it is the same name.
    fn share(&mut self, kept: &mut impl Kept) {
        if let Ok(BackendRef { object, .. }) = &mut self.to {
            kept.service(&mut object.name);
        }
    }
}
