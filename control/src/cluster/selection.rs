//! The collections to watch, with their selectors: objects that cannot matter for routes are not read.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_config::object::{Kind, ObjectName};

use crate::event::Collection;
use crate::options::{Options, Secrets};
use crate::sources::{read_anywhere, reads_by_name, reads_kind, service_label};

/// A selector of Secrets, without types that cannot hold a certificate and may be large or many.
const SECRETS: &str = "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token,\
                       type!=kubernetes.io/dockerconfigjson,type!=kubernetes.io/dockercfg,type!=bootstrap.kubernetes.io/token";

/// The label selector of a collection of Services, if the others are not read.
fn by_label(kind: Kind, options: &Options) -> Option<&'static str> {
    service_label(options).filter(|_| kind == Kind::Service)
}

/// The label selector of a collection. Objects that are read in any namespace may have any labels.
pub(crate) fn label_selector(collection: &Collection, namespaces: &[Arc<str>], options: &Options) -> Option<String> {
    let alone = alone(collection, options);
    if let Some(label) = by_label(collection.kind, options).filter(|_| alone.is_empty()) {
        return Some(label.to_owned());
    }
    match &*alone {
        [service] if collection.kind == Kind::EndpointSlice && outside(collection, namespaces) => {
            Some(format!("kubernetes.io/service-name={}", service.name))
        }
        _ => None,
    }
}

/// The objects of a collection's own namespace that are read in any namespace.
fn alone(collection: &Collection, options: &Options) -> Vec<ObjectName> {
    let mut names = read_anywhere(collection.kind, options);
    names.retain(|name| collection.namespace.as_ref() == Some(&name.namespace));
    names
}

/// Whether the namespace of a collection is not among the selected ones.
fn outside(collection: &Collection, namespaces: &[Arc<str>]) -> bool {
    !namespaces.is_empty() && collection.namespace.as_ref().is_some_and(|namespace| !namespaces.contains(namespace))
}

/// The field selector of a collection: outside of the selected namespaces, one object, so that a Role need not allow
/// more; for a collection of all namespaces, no namespaces that have a collection of their own.
pub(crate) fn field_selector(collection: &Collection, namespaces: &[Arc<str>], options: &Options) -> Option<String> {
    let types = (collection.kind == Kind::Secret).then(|| SECRETS.to_owned());
    let one =
        reads_by_name(collection.kind) || outside(collection, namespaces) && collection.kind != Kind::EndpointSlice;
    let name = match &*alone(collection, options) {
        [name] if one => Some(format!("metadata.name={}", name.name)),
        _ => None,
    };
    let apart = collection.namespace.is_none() && by_label(collection.kind, options).is_some();
    let apart: BTreeSet<Arc<str>> = read_anywhere(collection.kind, options)
        .into_iter()
        .filter(|_| apart)
        .map(|name| Arc::clone(&name.namespace))
        .collect();
    let apart = apart.into_iter().map(|namespace| format!("metadata.namespace!={namespace}"));
    let selectors: Vec<String> = types.into_iter().chain(name).chain(apart).collect();
    (!selectors.is_empty()).then(|| selectors.join(","))
}

/// The collections to watch: each kind in all namespaces or in the selected ones, and the objects that are read in any
/// namespace. Secrets that are read by name are one collection.
pub(crate) fn collections(namespaces: &[Arc<str>], options: &Options) -> Vec<Collection> {
    let mut collections = BTreeSet::new();
    for kind in Kind::ALL.into_iter().filter(|kind| reads_kind(*kind, options)) {
        let by_name = kind == Kind::Secret && options.secrets != Secrets::Watched;
        let everywhere = !reads_by_name(kind) && (!kind.namespaced() || namespaces.is_empty() || by_name);
        if everywhere {
            collections.insert(Collection { kind, namespace: None });
        }
        let alone = read_anywhere(kind, options).into_iter().map(|name| Arc::clone(&name.namespace));
        let alone = alone.filter(|_| !everywhere || by_label(kind, options).is_some());
        let named = namespaces.iter().filter(|_| !everywhere && !reads_by_name(kind)).cloned();
        collections.extend(alone.chain(named).map(|namespace| Collection { kind, namespace: Some(namespace) }));
    }
    collections.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::options::{Deis, Ingresses, Publish, Sources};

    #[track_caller]
    fn check(namespaces: &[&str], certificate: Option<&str>, want: &[&str]) {
        check_with(namespaces, certificate, Publish::Nothing, &["IngressClass", "Secret"], want);
    }

    #[track_caller]
    fn check_with(namespaces: &[&str], certificate: Option<&str>, publish: Publish, kinds: &[&str], want: &[&str]) {
        let namespaces: Vec<Arc<str>> = namespaces.iter().map(|name| (*name).into()).collect();
        let default_certificate = certificate.map(|namespace| ObjectName::new(namespace, "default"));
        let options = Options { default_certificate, publish, ..Options::default() };
        let of = |collection: Collection| {
            collection.namespace.map_or(collection.kind.to_string(), |n| format!("{}/{n}", collection.kind))
        };
        let mut got: Vec<String> = collections(&namespaces, &options).into_iter().map(of).collect();
        got.retain(|collection| kinds.contains(&collection.split('/').next().unwrap()));
        assert_eq!(got, want);
    }

    #[test]
    fn collections_cover_the_cluster_or_the_named_namespaces() {
        check(&[], None, &["IngressClass", "Secret"]);
        check(&[], Some("edge"), &["IngressClass", "Secret"]);
        check(&["a", "b", "a"], None, &["IngressClass", "Secret/a", "Secret/b"]);
        check(&["b"], Some("edge"), &["IngressClass", "Secret/b", "Secret/edge"]);
        check(&["b"], Some("b"), &["IngressClass", "Secret/b"]);
        let publish = || Publish::Service(ObjectName::new("edge", "lb"));
        check_with(&[], None, publish(), &["Service", "Secret"], &["Service", "Secret"]);
        let want = ["Ingress/b", "Service/b", "Service/edge"];
        check_with(&["b"], None, publish(), &["Service", "Ingress"], &want);
    }

    #[test]
    fn outside_the_namespaces_only_a_named_object_is_read() {
        let options = Options {
            default_certificate: Some(ObjectName::new("edge", "default")),
            publish: Publish::Service(ObjectName::new("edge", "lb")),
            ..Options::default()
        };
        let check = |(kind, of): (Kind, Option<&str>), namespaces: &[&str], want: &str| {
            let namespaces: Vec<Arc<str>> = namespaces.iter().map(|name| (*name).into()).collect();
            let collection = Collection { kind, namespace: of.map(Into::into) };
            let got = field_selector(&collection, &namespaces, &options).unwrap_or_default();
            assert_eq!(got, want, "{collection} beside {namespaces:?}");
        };
        check((Kind::Service, None), &[], "");
        check((Kind::Service, Some("b")), &["b"], "");
        check((Kind::Service, Some("edge")), &["b"], "metadata.name=lb");
        check((Kind::Service, Some("edge")), &["b", "edge"], "");
        check((Kind::Secret, None), &[], SECRETS);
        check((Kind::Secret, Some("edge")), &["b", "edge"], SECRETS);
        check((Kind::Secret, Some("edge")), &["b"], &format!("{SECRETS},metadata.name=default"));
    }

    #[test]
    fn secrets_by_name_are_one_collection() {
        let secrets = Secrets::Referenced { refresh: Duration::from_secs(1) };
        let options = Options { secrets, ..Options::default() };
        let collections = collections(&["a".into(), "b".into()], &options);
        let secrets: Vec<_> = collections.into_iter().filter(|collection| collection.kind == Kind::Secret).collect();
        assert_eq!(secrets, [Collection { kind: Kind::Secret, namespace: None }]);
    }

    /// Compares every collection, with its selectors, of a Deis router and its builder in `deis`.
    #[track_caller]
    fn check_deis(ingress: bool, namespaces: &[&str], want: &[&str]) {
        let builder = Some((ObjectName::new("deis", "deis-builder"), ([127, 0, 0, 1], 2222).into()));
        let deis = Deis { router: ObjectName::new("deis", "deis-router"), builder };
        let ingress = ingress.then(Ingresses::default);
        let options = Options {
            sources: Sources { ingress, deis: Some(deis), gateway: None, kuadrant: None },
            ..Options::default()
        };
        let namespaces: Vec<Arc<str>> = namespaces.iter().map(|name| (*name).into()).collect();
        let text = |collection: Collection| {
            let selectors = [
                label_selector(&collection, &namespaces, &options),
                field_selector(&collection, &namespaces, &options).map(|fields| fields.replace(SECRETS, "TYPES")),
            ];
            let of = collection.namespace.map_or(collection.kind.to_string(), |n| format!("{}/{n}", collection.kind));
            [Some(of)].into_iter().chain(selectors).flatten().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(collections(&namespaces, &options).into_iter().map(text).collect::<Vec<_>>(), want);
    }

    #[test]
    fn applications_are_selected_by_label_if_nothing_else_makes_routes() {
        let router = "Deployment/deis metadata.name=deis-router";
        check_deis(true, &[], &["Ingress", "IngressClass", "Service", "EndpointSlice", "Secret TYPES", router]);
        let labelled = "Service router.deis.io/routable=true metadata.namespace!=deis";
        check_deis(false, &[], &[labelled, "Service/deis", "EndpointSlice", "Secret TYPES", router]);
        let labelled = "Service/blog router.deis.io/routable=true";
        let slices = "EndpointSlice/deis kubernetes.io/service-name=deis-builder";
        check_deis(
            false,
            &["blog"],
            &[
                labelled,
                "Service/deis metadata.name=deis-builder",
                "EndpointSlice/blog",
                slices,
                "Secret/blog TYPES",
                "Secret/deis TYPES,metadata.name=deis-router-platform-cert",
                router,
            ],
        );
        check_deis(false, &["deis"], &["Service/deis", "EndpointSlice/deis", "Secret/deis TYPES", router]);
    }
}
