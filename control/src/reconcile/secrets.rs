//! The Secrets to watch by name: those that objects depend on.

use std::collections::BTreeSet;

use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use crate::attachment::Key;
use crate::interest::SecretInterest;
use crate::options::{Options, Secrets};
use crate::topology::Topology;

/// The Secrets that are watched by name.
#[derive(Debug, Default)]
pub(super) struct PolledSecrets {
    /// The Secrets as last reported to the informers; `None` before the first report.
    announced: Option<BTreeSet<ObjectName>>,
    /// Secrets that have gained or lost a dependent.
    candidates: BTreeSet<ObjectName>,
}

impl PolledSecrets {
    /// These dependencies were added or removed.
    pub(super) fn note(&mut self, keys: &[Key]) {
        self.candidates.extend(keys.iter().filter_map(|key| key.object(Kind::Secret)).map(|it| it.name.clone()));
    }

    /// Whether the set of Secrets may have changed.
    pub(super) fn stale(&self) -> bool {
        !self.candidates.is_empty()
    }

    /// Whether nothing was reported yet.
    pub(super) const fn unreported(&self) -> bool {
        self.announced.is_none()
    }

    /// Compares all dependencies with the last report and returns the changes; `None` if there are none, except the
    /// first time.
    pub(super) fn all(&mut self, topology: &Topology, options: &Options) -> Option<Vec<SecretInterest>> {
        self.candidates.clear();
        if !by_name(options) {
            return None;
        }
        let wanted: BTreeSet<ObjectName> = topology.wanted(Kind::Secret).map(|secret| secret.name.clone()).collect();
        let first = self.announced.is_none();
        let before = self.announced.take().unwrap_or_default();
        let begin = wanted.difference(&before).cloned().map(SecretInterest::Add);
        let changes: Vec<SecretInterest> =
            begin.chain(before.difference(&wanted).cloned().map(SecretInterest::Remove)).collect();
        self.announced = Some(wanted);
        Some(changes).filter(|changes| first || !changes.is_empty())
    }

    /// The changes among the candidates since the last call; `None` if there are none.
    pub(super) fn changes(&mut self, topology: &Topology, options: &Options) -> Option<Vec<SecretInterest>> {
        let candidates = std::mem::take(&mut self.candidates);
        if !by_name(options) {
            return None;
        }
        let announced = self.announced.get_or_insert_default();
        let mut changes = Vec::new();
        for name in candidates {
            let secret = ObjectRef::new(Kind::Secret, name.clone());
            let wanted = topology.has_dependents(&Key::Object(secret));
            if wanted && announced.insert(name.clone()) {
                changes.push(SecretInterest::Add(name));
            } else if !wanted && announced.remove(&name) {
                changes.push(SecretInterest::Remove(name));
            }
        }
        Some(changes).filter(|changes| !changes.is_empty())
    }
}

pub(super) const fn by_name(options: &Options) -> bool {
    matches!(options.secrets, Secrets::Referenced { .. })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::attachment_diff::AttachmentDiff;
    use super::*;
    use crate::attachment::Attachment;

    #[derive(Clone, Copy)]
    enum Read {
        All,
        Changes,
    }

    struct Bench {
        secrets: PolledSecrets,
        topology: Topology,
        options: Options,
    }

    impl Bench {
        fn new(secrets: Secrets) -> Self {
            let options = Options { secrets, ..Options::default() };
            Self { secrets: PolledSecrets::default(), topology: Topology::default(), options }
        }

        fn by_name() -> Self {
            Self::new(Secrets::Referenced { refresh: Duration::from_secs(60) })
        }

        /// Replaces the Secrets of an Ingress. Each has one letter. They are in ascending order.
        fn attach(&mut self, ingress: &str, secrets: &str) {
            let ingress = ObjectRef::new(Kind::Ingress, ObjectName::new("shop", ingress));
            let secret = |name: char| ObjectRef::new(Kind::Secret, ObjectName::new("shop", name.to_string()));
            let links = secrets.chars().map(secret).map(Key::Object).collect();
            let after = Attachment { links, ..Attachment::default() };
            let before = self.topology.replace(&ingress, after.clone()).expect("another attachment");
            self.secrets.note(&AttachmentDiff::between(&ingress, &before, &after).links);
        }

        /// Replaces the Secrets of Ingresses. Checks the report that follows: `None`, or `+` before each Secret to poll
        /// from now on and `-` before each to poll no longer.
        #[track_caller]
        fn check(&mut self, attached: &[(&str, &str)], read: Read, want: Option<&str>) {
            attached.iter().for_each(|(ingress, secrets)| self.attach(ingress, secrets));
            assert_eq!(self.secrets.stale(), !attached.is_empty());
            let changes = match read {
                Read::All => self.secrets.all(&self.topology, &self.options),
                Read::Changes => self.secrets.changes(&self.topology, &self.options),
            };
            let text = |change: &SecretInterest| match change {
                SecretInterest::Add(secret) => format!("+{}", secret.name),
                SecretInterest::Remove(secret) => format!("-{}", secret.name),
            };
            let got = changes.map(|changes| changes.iter().map(text).collect::<Vec<_>>().join(" "));
            assert_eq!(got.as_deref(), want);
            assert!(!self.secrets.stale());
            assert_eq!(self.secrets.unreported(), !by_name(&self.options));
        }
    }

    #[test]
    fn a_secret_is_polled_from_the_first_dependent_to_the_last() {
        let mut bench = Bench::by_name();
        bench.check(&[("a", "xy")], Read::Changes, Some("+x +y"));
        bench.check(&[("b", "y")], Read::Changes, None);
        bench.check(&[("a", "z")], Read::Changes, Some("-x +z"));
        bench.check(&[("b", "")], Read::Changes, Some("-y"));
        bench.check(&[("a", ""), ("b", "z")], Read::Changes, None);
        bench.check(&[("a", "x"), ("a", "")], Read::Changes, None);
        bench.check(&[("b", "")], Read::Changes, Some("-z"));
    }

    #[test]
    fn the_first_report_is_made_even_if_empty() {
        let mut bench = Bench::by_name();
        assert!(bench.secrets.unreported());
        bench.check(&[], Read::All, Some(""));
        bench.check(&[], Read::All, None);
    }

    #[test]
    fn a_report_of_all_secrets_has_the_changes_since_the_last_report() {
        let mut bench = Bench::by_name();
        bench.check(&[("a", "xy")], Read::All, Some("+x +y"));
        bench.check(&[], Read::Changes, None);
        bench.check(&[("a", "yz")], Read::All, Some("+z -x"));
        bench.check(&[("a", "z")], Read::Changes, Some("-y"));
        bench.check(&[], Read::All, None);
    }

    #[test]
    fn watched_secrets_are_not_polled() {
        let mut bench = Bench::new(Secrets::Watched);
        bench.check(&[("a", "x")], Read::All, None);
        bench.check(&[("a", "y")], Read::Changes, None);
    }
}
