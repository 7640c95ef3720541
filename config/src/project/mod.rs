//! Projections: the checked, small, internal form of one cluster object, read from the bytes of its JSON.
//!
//! Invalid input is normal here, so a projection has findings instead of an error: a match that cannot be read drops
//! its rule, a setting that cannot be read takes its default, access restrictions fail closed for their own routes, and
//! an object that cannot be read at all has no routes. Only this module knows the schemas of cluster objects.
//!
//! Unknown fields are ignored, and null equals absent, as in the API. Two projections are equal if no field that
//! routing reads differs, whatever else of the object changed.
//!
//! The limits per object: 4096 rules, 16,384 paths a rule, 4096 bytes a path, 4096 TLS entries and hosts an entry,
//! 16,384 hosts of all entries, 16 Secrets a host, 4096 allowed networks, 1024 ports of a Service or slice, 10,000
//! endpoints of a slice, and 100 limits of a policy, each with 10 rates, conditions and counters. Entries beyond a
//! limit are left out (networks: all are refused; limits of a policy: none is enforced), with a finding, and an object
//! has at most 256 findings.

mod annotation_value;
mod api_key_secret;
pub mod annotations;
mod config_map;
mod cookie;
mod deployment;
mod endpoint_slice;
mod expressions;
mod field;
pub mod gateway;
mod ingress;
mod ingress_class;
mod ingress_rules;
mod ingress_tls;
pub mod kuadrant;
mod public_address;
mod secret;
mod secret_texts;
mod service;
mod sharing;
mod raw_object;

use std::sync::Arc;

pub use annotations::deis::{DeisApp, DeisBuilder, DeisDomain, DeisExpression, DeisLocations, DeisRouter, Whitelist};
pub use api_key_secret::ApiKeySecret;
pub use config_map::ConfigMap;
pub use deployment::Deployment;
pub use endpoint_slice::{EndpointSlice, SliceEndpoint, SlicePort};
pub use expressions::{EXPRESSION_BYTES_MAX, ExpressionPool, HeldExpressions, NAMESPACE_EXPRESSION_BYTES_MAX};
pub use ingress::{BackendRef, ClassRef, DefaultBackend, Ingress, PortRef};
pub use ingress_class::IngressClass;
pub use ingress_rules::{Rule, RulePath, Rules};
pub use ingress_tls::{Tls, TlsSecret};
pub use public_address::PublicAddress;
pub use raw_object::Unidentified;
pub use secret::Secret;
pub use secret_texts::SecretTexts;
pub use service::{Service, ServiceKind, ServicePort};
pub use sharing::{Kept, Sharing};

use crate::caught::{caught, for_owner};
use crate::finding::{Finding, Problem};
use crate::object::{Kind, ObjectRef, Uid, kinds};
use field::{FindingList, InvalidValue};
use gateway::status::read_status;
use gateway::{
    BackendTlsPolicy, Gateway, GatewayClass, GrpcRoute, HttpRoute, Layer4Route, ListenerSet, Namespace, ReferenceGrant,
    StatusReading, TlsRoute,
};
use kuadrant::{AuthPolicy, RateLimitPolicy, TokenRateLimitPolicy};
use raw_object::RawObject;

/// The checked form of the objects of one kind.
trait Projection: Sharing + Clone {
    /// Texts of which an object with regular expressions has at least one.
    const EXPRESSION_MARKS: &'static [&'static str] = &[];

    /// Reads an object. Invalid fields are findings.
    ///
    /// # Errors
    /// If the object cannot be read at all.
    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue>;

    /// The public addresses of an object, in any order and maybe repeated. An unreadable object has none.
    fn addresses(_source: &RawObject<'_>) -> Vec<PublicAddress> {
        Vec::new()
    }

    /// The regular expressions of the object; `None` if it has none.
    fn expressions(&self) -> Option<HeldExpressions<'_>> {
        None
    }

    /// Leaves out what needs an expression, as if none could be used; `why` is a predicate.
    fn leave_out_expressions(&mut self, _why: &str, _findings: &mut FindingList) {}
}

/// Defines what depends on the projections of the kinds, from their rows.
macro_rules! define {
    ($($kind:ident = $module:ident::$projection:ident { $($field:ident: $value:tt,)* },)*) => {
        /// Projects one object from the bytes of its JSON, an element of a list's `items` or a watch event's `object`.
        ///
        /// # Errors
        /// If the bytes do not identify an object. Every other fault is a finding of the projection.
        pub fn project(kind: Kind, bytes: &[u8]) -> Result<Projected, Unidentified> {
            RawObject::identify(kind, bytes).map(|source| project_identified(&source))
        }

        fn project_identified(source: &RawObject<'_>) -> Projected {
            match source.meta.object.kind {
                $(Kind::$kind => projected(source, Object::$kind),)*
            }
        }

        /// How often the bytes of an object mention regular expressions; 0 if it has none. Parses nothing.
        #[must_use]
        pub fn expressions_in(kind: Kind, bytes: &[u8]) -> usize {
            let marks = match kind {
                $(Kind::$kind => $projection::EXPRESSION_MARKS,)*
            };
            let text = if marks.is_empty() { "" } else { str::from_utf8(bytes).unwrap_or_default() };
            marks.iter().map(|mark| text.matches(mark).count()).sum()
        }

        /// A projection of any kind.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Object {
            $(
                #[doc = concat!("Of [`Kind::", stringify!($kind), "`].")]
                $kind(Arc<$projection>),
            )*
        }

        impl Object {
            /// The regular expressions of the object; `None` if it has none.
            #[must_use]
            pub fn expressions(&self) -> Option<HeldExpressions<'_>> {
                match self {
                    $(Self::$kind(object) => object.expressions(),)*
                }
            }

            /// Leaves out what needs an expression, as if none could be used: the rules with one in a match, and the
            /// paths and the alternative hosts of an application. `own` is the object, and `why` a predicate. Returns
            /// the findings about it.
            #[must_use]
            pub fn leave_out_expressions(&mut self, own: &ObjectRef, why: &str) -> Vec<Finding> {
                let mut findings = FindingList::new(own.clone());
                match self {
                    $(Self::$kind(object) => Arc::make_mut(object).leave_out_expressions(why, &mut findings),)*
                }
                findings.into_findings()
            }
        }

        impl Sharing for Object {
            /// An object with other holders stays unchanged.
            fn share(&mut self, kept: &mut impl Kept) {
                match self {
                    $(Self::$kind(object) => object.share(kept),)*
                }
            }
        }
    };
}
kinds!(define);

/// Projects one object of a list like [`project`], with the expressions of those before it.
///
/// # Errors
/// If the bytes do not identify an object.
pub fn project_listed(kind: Kind, bytes: &[u8], pool: &mut ExpressionPool) -> Result<Projected, Unidentified> {
    let mut source = RawObject::identify(kind, bytes)?;
    let namespace = &Arc::clone(&source.name().namespace);
    source.compiling = pool.compiling(namespace);
    let projected = project_identified(&source);
    if let Some(held) = projected.object.as_ref().and_then(Object::expressions) {
        pool.add(namespace, &held);
    }
    Ok(projected)
}

/// Reads the identity of an object, as [`project`] does.
///
/// # Errors
/// If the bytes do not identify an object.
pub fn identify(kind: Kind, bytes: &[u8]) -> Result<Meta, Unidentified> {
    RawObject::identify(kind, bytes).map(|source| source.meta)
}

/// Reads an identified object. If the reader panics, the object is skipped like one that cannot be read: the other
/// objects of its kind must not be affected.
fn projected<T: Projection>(source: &RawObject<'_>, of: fn(Arc<T>) -> Object) -> Projected {
    let meta = source.meta.clone();
    let reading = caught(|| {
        let mut findings = FindingList::new(meta.object.clone());
        let object = T::project(source, &mut findings).map_err(|invalid| findings.unreadable(&invalid)).ok();
        (object.map(|object| of(Arc::new(object))), findings.into_findings())
    });
    let (object, findings) = reading.unwrap_or_else(|panic| {
        let why = for_owner(meta.object.kind, &panic);
        let problem = Problem::Unreadable { why: format!("internal error: {why}") };
        (None, vec![Finding::new(meta.object.clone(), "", problem)])
    });
    let status = read_status(meta.object.kind, source);
    let addresses = public_address::unique(T::addresses(source));
    Projected { meta, object, findings, addresses, status }
}

/// The metadata that every object has, whether the rest can be read or not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meta {
    /// Kind, namespace and name.
    pub object: ObjectRef,
    /// `metadata.uid`, if it is a valid UUID. Routing does not read it.
    pub uid: Option<Uid>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
    /// `metadata.generation`, for kinds that have one.
    pub generation: Option<i64>,
}

/// A projected object.
#[derive(Clone, Debug)]
pub struct Projected {
    /// Its identity and versions.
    pub meta: Meta,
    /// The parts that routing reads; `None` if it cannot be read.
    pub object: Option<Object>,
    /// The findings about it.
    pub findings: Vec<Finding>,
    /// Its addresses according to its status, each once and in order. Routing does not read them.
    pub addresses: Vec<PublicAddress>,
    /// Its status, for kinds of the Gateway API and of policies. Routing does not read it.
    pub status: StatusReading,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its reader panics.
    #[derive(Clone, Debug)]
    struct Tripping;

    impl Sharing for Tripping {}

    impl Projection for Tripping {
        fn project(_source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
            findings.ignored("spec", "x", "was read before");
            panic!("at {:?}", "key")
        }
    }

    /// Checks the finding about an object whose reader panics.
    #[track_caller]
    fn check(kind: Kind, why: &str) {
        let bytes = br#"{"metadata":{"name":"a","namespace":"shop","resourceVersion":"7"}}"#;
        let source = RawObject::identify(kind, bytes).unwrap();
        let projected = projected(&source, |never: Arc<Tripping>| panic!("{never:?}"));
        assert_eq!((projected.meta, projected.object), (source.meta.clone(), None));
        let problem = Problem::Unreadable { why: format!("internal error: {why}") };
        assert_eq!(projected.findings, [Finding::new(source.meta.object, "", problem)]);
    }

    #[test]
    fn a_panicking_projection_affects_only_its_object() {
        check(Kind::Ingress, "at \"key\"");
        check(Kind::Secret, "its reader panicked");
    }
}
