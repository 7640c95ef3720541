//! The keys of issuers to fetch: those that policies name.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_config::model::auth::KeySource;

use super::model::Model;
use crate::attachment::Key;
use crate::interest::KeySources;

/// The sources of keys that are fetched.
#[derive(Debug, Default)]
pub(super) struct NamedKeySources {
    sources: Arc<KeySources>,
    /// Sources whose policies may have changed.
    candidates: BTreeSet<KeySource>,
    /// Whether any source may have changed.
    all: bool,
}

impl NamedKeySources {
    pub(super) fn contains(&self, source: &KeySource) -> bool {
        self.sources.contains_key(source)
    }

    /// These dependencies were added or removed.
    pub(super) fn note(&mut self, keys: &[Key]) {
        self.candidates.extend(keys.iter().filter_map(Key::key_source).cloned());
    }

    /// Any source may have changed.
    pub(super) const fn note_all(&mut self) {
        self.all = true;
    }

    pub(super) fn stale(&self) -> bool {
        self.all || !self.candidates.is_empty()
    }

    /// Updates the sources to fetch, and removes the keys of others. Returns the sources if they have changed.
    pub(super) fn refresh(&mut self, model: &mut Model) -> Option<Arc<KeySources>> {
        let (mut candidates, all) = (std::mem::take(&mut self.candidates), std::mem::take(&mut self.all));
        if all {
            let restored = model.world.key_sets.keys().cloned();
            candidates.extend(model.topology.key_sources().chain(self.sources.keys()).cloned().chain(restored));
        }
        let mut changed = false;
        for source in candidates {
            let policies = model.topology.dependents(&Key::KeySet(Box::new(source.clone())));
            let namespaces: BTreeSet<_> = policies.map(|policy| Arc::clone(&policy.name.namespace)).collect();
            if namespaces.is_empty() {
                model.world.key_sets.remove(&source);
            }
            if self.sources.get(&source).map_or(namespaces.is_empty(), |known| *known == namespaces) {
                continue;
            }
            changed = true;
            let sources = Arc::make_mut(&mut self.sources);
            match namespaces.is_empty() {
                true => drop(sources.remove(&source)),
                false => drop(sources.insert(source, namespaces)),
            }
        }
        changed.then(|| Arc::clone(&self.sources))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::auth::KeySet;
    use tidegate_config::object::{Kind, ObjectName, ObjectRef};

    use super::*;
    use crate::attachment::Attachment;
    use crate::options::Options;

    fn source(url: &str) -> KeySource {
        KeySource::Jwks(url.into())
    }

    /// Attaches a policy, such as `shop/a`, with these URLs of key sets.
    fn attach(sources: &mut NamedKeySources, model: &mut Model, policy: &str, urls: &[&str]) {
        let (namespace, name) = policy.split_once('/').unwrap();
        let policy = ObjectRef::new(Kind::RateLimitPolicy, ObjectName::new(namespace, name));
        let links: Box<[Key]> = urls.iter().map(|url| Key::KeySet(Box::new(source(url)))).collect();
        let attachment = Attachment { links: links.clone(), ..Attachment::default() };
        let before = model.topology.replace(&policy, attachment).map(|before| before.links).unwrap_or_default();
        sources.note(&[before, links].concat());
    }

    /// Compares the sources with their namespaces; `None` if they have not changed.
    #[track_caller]
    fn check(sources: &mut NamedKeySources, model: &mut Model, want: Option<&[&str]>) {
        assert_eq!(sources.stale(), want.is_some() || sources.stale());
        let got = sources.refresh(model).map(|sources| {
            let text = |(source, namespaces): (&KeySource, &BTreeSet<Arc<str>>)| {
                let namespaces: Vec<&str> = namespaces.iter().map(|namespace| &**namespace).collect();
                format!("{}: {}", source.url(), namespaces.join(" "))
            };
            sources.iter().map(text).collect::<Vec<_>>()
        });
        assert_eq!(got, want.map(|want| want.iter().map(|one| (*one).to_owned()).collect()));
        assert!(!sources.stale());
    }

    #[test]
    fn sources_are_fetched_for_as_long_as_a_policy_names_them() {
        let (mut sources, mut model) = (NamedKeySources::default(), Model::new(Options::default()));
        attach(&mut sources, &mut model, "shop/a", &["http://a/", "http://b/"]);
        check(&mut sources, &mut model, Some(&["http://a/: shop", "http://b/: shop"]));
        attach(&mut sources, &mut model, "team/b", &["http://a/"]);
        check(&mut sources, &mut model, Some(&["http://a/: shop team", "http://b/: shop"]));
        attach(&mut sources, &mut model, "shop/c", &["http://a/"]);
        check(&mut sources, &mut model, None);
        model.world.fetch(source("http://b/"), Ok(Arc::default()));
        attach(&mut sources, &mut model, "shop/a", &[]);
        check(&mut sources, &mut model, Some(&["http://a/: shop team"]));
        assert!(model.world.key_sets.is_empty(), "keys that nobody wants are not kept");
    }

    #[test]
    fn restored_keys_that_no_policy_names_are_removed() {
        let (mut sources, mut model) = (NamedKeySources::default(), Model::new(Options::default()));
        attach(&mut sources, &mut model, "shop/a", &["http://a/"]);
        for url in ["http://a/", "http://gone/"] {
            model.world.fetch(source(url), Ok(Arc::default()));
        }
        sources = NamedKeySources::default();
        sources.note_all();
        check(&mut sources, &mut model, Some(&["http://a/: shop"]));
        assert_eq!(model.world.key_sets.keys().collect::<Vec<_>>(), [&source("http://a/")]);
    }

    #[test]
    fn keys_stay_while_they_cannot_be_fetched() {
        let mut world = crate::world::World::default();
        let keys = || Arc::new(KeySet::default());
        let (first, at) = (keys(), source("http://a/"));
        assert!(world.fetch(at.clone(), Err("away".into())));
        assert_eq!(world.key_sets[&at].keys, None);
        assert!(world.fetch(at.clone(), Ok(Arc::clone(&first))));
        assert!(!world.fetch(at.clone(), Ok(keys())), "equal keys are no change");
        assert!(world.fetch(at.clone(), Err("away".into())));
        assert!(!world.fetch(at.clone(), Err("away".into())));
        assert!(world.key_sets[&at].keys.as_ref().is_some_and(|keys| Arc::ptr_eq(keys, &first)));
        assert!(world.fetch(at.clone(), Ok(keys())));
        assert!(world.key_sets[&at].fault.is_none());
    }
}
