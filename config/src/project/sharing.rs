//! Sharing of equal parts between projections: names of Services, the parents of routes, and compiled expressions. A
//! newly read object has parts of its own until it is stored.

use std::sync::Arc;

use super::gateway::{
    BackendRef, GrpcMatch, GrpcRoute, HttpBackend, HttpMatch, HttpRoute, Layer4Route, ParentRef, TlsRoute,
    WeightedBackend,
};
use super::{EndpointSlice, Ingress, Service};
use crate::model::{Expression, PathMatch};
use crate::object::ObjectName;

/// The store of shared values.
pub trait Kept {
    /// Replaces the name of a Service by the equal stored one.
    fn service(&mut self, name: &mut ObjectName);
    /// Replaces parents by the equal stored ones.
    fn parents(&mut self, parents: &mut Arc<[ParentRef]>);
    /// Replaces an expression by the equal stored one.
    fn expression(&mut self, expression: &mut Expression);
}

/// A value whose parts may be shared. Sharing does not change its meaning.
pub trait Sharing {
    /// Replaces parts by equal stored ones, if it has any that other values are likely to have too.
    fn share(&mut self, _kept: &mut impl Kept) {}
}

impl<T: Sharing> Sharing for Arc<T> {
    /// An object with other holders stays unchanged.
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

impl Sharing for Service {
    /// The expression for hosts is not shared: it belongs to its object's age.
    fn share(&mut self, kept: &mut impl Kept) {
        let locations = self.deis.as_mut().and_then(Arc::get_mut).and_then(|app| app.locations.as_mut());
        let paths = locations.into_iter().flat_map(|locations| &mut locations.paths);
        paths.filter_map(PathMatch::expression_mut).for_each(|it| kept.expression(it));
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
        for rule in &mut self.rules {
            rule.backends.iter_mut().for_each(|it| it.share(kept));
            rule.matches.iter_mut().flat_map(HttpMatch::expressions_mut).for_each(|it| kept.expression(it));
        }
    }
}

impl Sharing for GrpcRoute {
    fn share(&mut self, kept: &mut impl Kept) {
        kept.parents(&mut self.parents);
        for rule in &mut self.rules {
            rule.backends.iter_mut().for_each(|it| it.share(kept));
            rule.matches.iter_mut().flat_map(GrpcMatch::expressions_mut).for_each(|it| kept.expression(it));
        }
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
    /// A name of another kind is looked up too: if a Service has it, it is the same text.
    fn share(&mut self, kept: &mut impl Kept) {
        if let Ok(BackendRef { object, .. }) = &mut self.to {
            kept.service(&mut object.name);
        }
    }
}
