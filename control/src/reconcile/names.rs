//! The DNS names to look up: those of ExternalName Services that routes use, and of servers in URLs of policies. Other
//! names are not looked up, so that an unused Service causes no DNS queries.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_config::object::{Kind, ObjectRef};

use super::model::Model;
use crate::attachment::Key;
use crate::interest::Names;
use crate::topology::Topology;

/// The names that are looked up.
#[derive(Debug, Default)]
pub(super) struct ResolvedNames {
    names: Arc<Names>,
    /// Names whose Services may have changed, or their use.
    candidates: BTreeSet<Arc<str>>,
    /// Whether any name may have changed.
    all: bool,
}

impl ResolvedNames {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// These dependencies were added or removed.
    pub(super) fn note(&mut self, keys: &[Key], topology: &Topology) {
        self.candidates.extend(keys.iter().filter_map(Key::name).cloned());
        let services = keys.iter().filter_map(|key| key.object(Kind::Service));
        services.for_each(|service| self.note_use(service, topology));
    }

    /// Routes have begun or stopped using this Service.
    pub(super) fn note_use(&mut self, service: &ObjectRef, topology: &Topology) {
        self.candidates.extend(topology.links_of(service).iter().filter_map(Key::name).cloned());
    }

    /// Any name may have changed.
    pub(super) const fn note_all(&mut self) {
        self.all = true;
    }

    pub(super) fn stale(&self) -> bool {
        self.all || !self.candidates.is_empty()
    }

    /// Updates the names to look up, and removes the addresses of others. Returns the names if they have changed.
    pub(super) fn refresh(&mut self, model: &mut Model) -> Option<Arc<Names>> {
        let (mut candidates, all) = (std::mem::take(&mut self.candidates), std::mem::take(&mut self.all));
        if all {
            candidates.extend(model.topology.names().chain(self.names.keys()).cloned());
        }
        let mut changed = false;
        for name in candidates {
            let namespaces = namespaces(&name, model);
            if self.names.get(&name).map_or(namespaces.is_empty(), |known| *known == namespaces) {
                continue;
            }
            changed = true;
            let names = Arc::make_mut(&mut self.names);
            if namespaces.is_empty() {
                names.remove(&name);
                model.world.names.remove(&name);
            } else {
                names.insert(name, namespaces);
            }
        }
        if all {
            model.world.names.retain(|name, _| self.names.contains_key(name));
        }
        changed.then(|| Arc::clone(&self.names))
    }
}

/// The namespaces of the policies with a server of this name, and of the Services with this external name that routes
/// use.
fn namespaces(name: &Arc<str>, model: &Model) -> BTreeSet<Arc<str>> {
    let wanted = |object: &&ObjectRef| {
        object.kind != Kind::Service
            || model.topology.has_dependents(&Key::Object((*object).clone()))
            || model.uses(&object.name)
    };
    let objects = model.topology.dependents(&Key::of_name(name)).filter(wanted);
    objects.map(|object| Arc::clone(&object.name.namespace)).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::BackendKey;
    use tidegate_config::object::ObjectName;

    use super::super::attachment_diff::AttachmentDiff;
    use super::*;
    use crate::attachment::Attachment;
    use crate::options::Options;

    /// An object by its kind, namespace and name, such as `Service shop/db`.
    fn object(text: &str) -> Option<ObjectRef> {
        let (kind, name) = text.split_once(' ')?;
        let (namespace, name) = name.split_once('/')?;
        let kind = [Kind::Ingress, Kind::Service, Kind::AuthPolicy].into_iter().find(|it| it.as_str() == kind)?;
        Some(ObjectRef::new(kind, ObjectName::new(namespace, name)))
    }

    struct Bench {
        names: ResolvedNames,
        model: Model,
    }

    impl Bench {
        fn new() -> Self {
            Self { names: ResolvedNames::default(), model: Model::new(Options::default()) }
        }

        /// Replaces the dependencies of an object: other objects and DNS names.
        fn attach(&mut self, of: &str, links: &[&str]) {
            let of = object(of).expect("an object");
            let key = |link: &&str| object(link).map_or_else(|| Key::of_name(&(*link).into()), Key::Object);
            let mut links: Vec<Key> = links.iter().map(key).collect();
            links.sort_unstable();
            let after = Attachment { links: links.into(), ..Attachment::default() };
            let before = self.model.topology.replace(&of, after.clone()).expect("another attachment");
            self.names.note(&AttachmentDiff::between(&of, &before, &after).links, &self.model.topology);
        }

        /// Sets the Service of held routes, if there are any.
        fn hold(&mut self, service: Option<&str>) {
            let service = service.and_then(object).map(|it| BackendKey::tcp(it.name, 80));
            let before = std::mem::replace(&mut self.model.frozen_backends, service.into_iter().collect());
            for backend in before.union(&self.model.frozen_backends) {
                let service = ObjectRef::new(Kind::Service, backend.service.clone());
                self.names.note_use(&service, &self.model.topology);
            }
        }

        /// Checks the names, each with the namespaces of its Services; that they are returned only if they have
        /// changed; and that only names in use keep their addresses. Then every name is looked up.
        #[track_caller]
        fn check(&mut self, want: &[&str]) {
            let before = Arc::clone(&self.names.names);
            assert!(self.names.stale());
            let returned = self.names.refresh(&mut self.model);
            assert!(!self.names.stale());
            let after = Arc::clone(&self.names.names);
            let text = |(name, namespaces): (&Arc<str>, &BTreeSet<Arc<str>>)| {
                format!("{name}: {}", Vec::from_iter(namespaces.iter().map(AsRef::as_ref)).join(" "))
            };
            assert_eq!(after.iter().map(text).collect::<Vec<_>>(), want);
            assert_eq!(returned, (before != after).then(|| Arc::clone(&after)));
            let kept: Vec<&Arc<str>> = before.keys().filter(|name| self.names.contains(name)).collect();
            assert_eq!(self.model.world.names.keys().collect::<Vec<_>>(), kept, "names with addresses");
            for name in after.keys() {
                self.model.world.resolve(Arc::clone(name), Ok(Box::default()));
            }
        }
    }

    #[test]
    fn a_name_is_looked_up_from_the_first_use_of_its_service_to_the_last() {
        let mut bench = Bench::new();
        let steps: [(&str, &[&str], &[&str]); 7] = [
            ("Service shop/db", &["db.example"], &[]),
            ("Ingress shop/a", &["Service shop/db"], &["db.example: shop"]),
            ("Ingress shop/b", &["Service shop/db"], &["db.example: shop"]),
            ("Ingress shop/a", &["Service shop/web"], &["db.example: shop"]),
            ("Service shop/web", &["web.example"], &["db.example: shop", "web.example: shop"]),
            ("Ingress shop/b", &[], &["web.example: shop"]),
            ("Service shop/web", &[], &[]),
        ];
        for (of, links, want) in steps {
            bench.attach(of, links);
            bench.check(want);
        }
    }

    #[test]
    fn a_name_has_the_namespaces_of_its_used_services() {
        let mut bench = Bench::new();
        let steps: [(&str, &[&str], &[&str]); 6] = [
            ("Service shop/db", &["db.example"], &[]),
            ("Service test/db", &["db.example"], &[]),
            ("Ingress shop/a", &["Service shop/db"], &["db.example: shop"]),
            ("Ingress test/a", &["Service test/db"], &["db.example: shop test"]),
            ("Service shop/db", &["new.example"], &["db.example: test", "new.example: shop"]),
            ("Ingress test/a", &[], &["new.example: shop"]),
        ];
        for (of, links, want) in steps {
            bench.attach(of, links);
            bench.check(want);
        }
    }

    #[test]
    fn the_server_of_a_policy_is_looked_up_while_the_policy_names_it() {
        let mut bench = Bench::new();
        bench.attach("AuthPolicy shop/a", &["idp.example"]);
        bench.check(&["idp.example: shop"]);
        bench.attach("Service test/db", &["idp.example"]);
        bench.check(&["idp.example: shop"]);
        bench.attach("AuthPolicy test/b", &["idp.example"]);
        bench.check(&["idp.example: shop test"]);
        bench.attach("AuthPolicy shop/a", &[]);
        bench.attach("AuthPolicy test/b", &[]);
        bench.check(&[]);
    }

    #[test]
    fn held_routes_use_a_service() {
        let mut bench = Bench::new();
        bench.attach("Service shop/db", &["db.example"]);
        bench.check(&[]);
        bench.hold(Some("Service shop/db"));
        bench.check(&["db.example: shop"]);
        bench.hold(None);
        bench.check(&[]);
    }

    #[test]
    fn a_check_of_all_names_finds_unnoticed_changes_and_removes_restored_addresses() {
        let mut bench = Bench::new();
        bench.attach("Service shop/db", &["db.example"]);
        bench.attach("Ingress shop/a", &["Service shop/db"]);
        bench.names = ResolvedNames::default();
        bench.model.world.resolve("unused.example".into(), Ok(Box::default()));
        bench.names.note_all();
        bench.check(&["db.example: shop"]);
        bench.model.topology.replace(&object("Ingress shop/a").expect("an object"), Attachment::default());
        bench.names.note_all();
        bench.check(&[]);
    }
}
