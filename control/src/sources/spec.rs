//! The list of sources, as data: for the code that reads the cluster, waits for lists, and groups routes by class.

use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use super::{deis, gateway, ingress, kuadrant};
use crate::options::{Options, Publish};

/// The kinds that every source needs, for the endpoints and certificates of its routes.
const SHARED: [Kind; 3] = [Kind::Service, Kind::EndpointSlice, Kind::Secret];

/// Every source.
static SOURCES: [SourceSpec; 4] = [ingress::SPEC, deis::SPEC, gateway::SPEC, kuadrant::SPEC];

/// One source of routes.
pub(super) struct SourceSpec {
    /// Whether the options enable it.
    pub(super) enabled: fn(&Options) -> bool,
    /// The kinds that it reads besides those of every source.
    pub(super) kinds: &'static [Kind],
    /// Those of its kinds without which its routes make no sense.
    pub(super) required: &'static [Kind],
    /// The custom kind whose objects the others of its kinds are read for: without its definition in the cluster, none
    /// of them matters.
    pub(super) beside: Option<Kind>,
    /// Those of its kinds of which it reads only the objects that `anywhere` names.
    pub(super) by_name: &'static [Kind],
    /// The kind of its objects with hosts of their own, and the kind of their classes.
    pub(super) class: Option<(Kind, Kind)>,
    /// The objects of a kind that it reads even outside of the selected namespaces, besides `attached_if_missing`.
    pub(super) anywhere: fn(Kind, &Options) -> Vec<ObjectName>,
    /// The object that is attached even if it does not exist, because its settings have defaults.
    pub(super) attached_if_missing: fn(&Options) -> Option<ObjectRef>,
    /// A selector for the labels of all Services that it reads; `None` if they may have any labels.
    pub(super) service_label: Option<&'static str>,
}

fn enabled(options: &Options) -> impl Iterator<Item = &'static SourceSpec> {
    SOURCES.iter().filter(|source| (source.enabled)(options))
}

/// Whether a kind is read at all.
pub(crate) fn reads_kind(kind: Kind, options: &Options) -> bool {
    SHARED.contains(&kind) || enabled(options).any(|source| source.kinds.contains(&kind))
}

/// The custom kind that a kind is watched beside, while the cluster has its definition: only for objects of that kind
/// is it read. `None` if it is read for others, too.
pub(crate) fn watched_beside(kind: Kind, options: &Options) -> Option<Kind> {
    let mut readers = enabled(options).filter(|source| source.kinds.contains(&kind)).map(|source| source.beside);
    let first = readers.next()?.filter(|_| !SHARED.contains(&kind))?;
    readers.all(|beside| beside == Some(first)).then_some(first)
}

/// Whether only named objects of a kind are read.
pub(crate) fn reads_by_name(kind: Kind) -> bool {
    SOURCES.iter().any(|source| source.by_name.contains(&kind))
}

/// The kinds without which the routes of some source make no sense.
pub(crate) fn required_kinds() -> impl Iterator<Item = Kind> {
    SOURCES.iter().flat_map(|source| source.required).copied()
}

/// The objects of a kind that are read even outside of the selected namespaces: those of the options, such as the
/// Secret of the default certificate, and those of sources.
pub(crate) fn read_anywhere(kind: Kind, options: &Options) -> Vec<ObjectName> {
    let of_sources = enabled(options).flat_map(|source| (source.anywhere)(kind, options));
    let attached = attached_if_missing(options).filter(|object| object.kind == kind).map(|object| object.name);
    let published = match &options.publish {
        Publish::Service(service) => Some(service).filter(|_| kind == Kind::Service),
        Publish::Nothing | Publish::Addresses(_) => None,
    };
    attached.chain(published.cloned()).chain(of_sources).collect()
}

/// The objects that are attached whether they exist or not: those of sources, and the Secret of the default
/// certificate.
pub(super) fn attached_if_missing(options: &Options) -> impl Iterator<Item = ObjectRef> {
    let certificate = options.default_certificate.iter();
    let certificate = certificate.map(|secret| ObjectRef::new(Kind::Secret, secret.clone()));
    certificate.chain(enabled(options).filter_map(|source| (source.attached_if_missing)(options)))
}

/// The label selector of Services: if the sources read no others, those cost nothing.
pub(crate) fn service_label(options: &Options) -> Option<&'static str> {
    let mut labels = enabled(options).map(|source| source.service_label);
    let first = labels.next()??;
    labels.all(|label| label == Some(first)).then_some(first)
}

/// The kind of the classes of objects of a kind.
pub(crate) fn class_kind(kind: Kind) -> Option<Kind> {
    SOURCES.iter().filter_map(|source| source.class).find(|(of, _)| *of == kind).map(|(_, class)| class)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::options::{GatewayApi, GatewayServices, Sources};

    #[test]
    fn some_source_reads_every_kind() {
        let read = |kind: &Kind| SHARED.contains(kind) || SOURCES.iter().any(|source| source.kinds.contains(kind));
        let unread: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !read(kind)).collect();
        assert!(unread.is_empty(), "{unread:?}");
    }

    #[test]
    fn kinds_that_one_source_reads_are_watched_beside_its_own() {
        let gateway = GatewayApi {
            controller: "tidegate.io/gateway".into(),
            addresses: Arc::default(),
            services: GatewayServices::default(),
            optional: true,
        };
        let options =
            Options { sources: Sources { gateway: Some(gateway), ..Sources::default() }, ..Options::default() };
        for kind in Kind::ALL.into_iter().filter(|kind| !kind.is_custom()) {
            let want = matches!(kind, Kind::Namespace | Kind::ConfigMap).then_some(Kind::GatewayClass);
            assert_eq!(watched_beside(kind, &options), want, "{kind}");
        }
    }
}
