//! What users should be told: kept by the unit that found it, and found again by the object that it is about.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::finding::Finding;
use tidegate_config::object::ObjectRef;

use super::Unit;

/// What all units found.
#[derive(Debug, Default)]
pub struct Findings {
    by_unit: BTreeMap<Unit, Arc<[Finding]>>,
    /// The units that found something about an object.
    about: BTreeMap<ObjectRef, BTreeSet<Unit>>,
    /// Objects about which something else is found than when these were last taken.
    moved: BTreeSet<ObjectRef>,
}

impl Findings {
    /// What each unit found, where it found anything.
    #[must_use]
    pub const fn by_unit(&self) -> &BTreeMap<Unit, Arc<[Finding]>> {
        &self.by_unit
    }

    /// Everything, each thing once, ordered by object and field.
    #[must_use]
    pub fn all(&self) -> Vec<Finding> {
        let all: BTreeSet<&Finding> = self.by_unit.values().flat_map(|findings| &**findings).collect();
        all.into_iter().cloned().collect()
    }

    /// What is found about an object, some of it several times. The order is that of the units, and so the same for equal
    /// findings.
    pub fn about(&self, object: &ObjectRef) -> impl Iterator<Item = &Finding> {
        let units = self.about.get(object).into_iter().flatten();
        let findings = units.filter_map(|unit| self.by_unit.get(unit)).flat_map(|findings| &**findings);
        findings.filter(move |finding| finding.object == *object)
    }

    /// The objects about which anything is found.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectRef> {
        self.about.keys()
    }

    /// The objects about which something else is found than when this was last called.
    pub(crate) fn take_moved(&mut self) -> BTreeSet<ObjectRef> {
        std::mem::take(&mut self.moved)
    }

    /// This is what a unit finds now.
    pub(crate) fn put(&mut self, unit: Unit, findings: Vec<Finding>) {
        let before = self.by_unit.get(&unit).cloned().unwrap_or_default();
        if *before == *findings {
            return;
        }
        let [old, new]: [BTreeSet<&Finding>; 2] = [before.iter().collect(), findings.iter().collect()];
        self.moved.extend(old.symmetric_difference(&new).map(|finding| finding.object.clone()));
        let [old, new] = [old, new].map(|set| set.into_iter().map(|finding| &finding.object).collect::<BTreeSet<_>>());
        for gone in old.difference(&new) {
            if let Some(units) = self.about.get_mut(*gone) {
                units.remove(&unit);
                if units.is_empty() {
                    self.about.remove(*gone);
                }
            }
        }
        for come in new.difference(&old) {
            self.about.entry((*come).clone()).or_default().insert(unit.clone());
        }
        if findings.is_empty() {
            self.by_unit.remove(&unit);
        } else {
            self.by_unit.insert(unit, findings.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::finding::Problem;
    use tidegate_config::object::{Kind, ObjectName};

    use super::*;

    fn object(name: &str) -> ObjectRef {
        ObjectRef::new(Kind::Ingress, ObjectName::new("a", name))
    }

    /// Puts what a unit finds, each a letter for its object and one for its field; what has moved then, and by object what
    /// is found.
    #[track_caller]
    fn check(findings: &mut Findings, unit: &str, found: &[&str], moved: &[&str], about: &[(&str, &str)]) {
        let problem = || Problem::SetAside { why: String::new() };
        let finding = |text: &&str| Finding::new(object(&text[..1]), &text[1..], problem());
        findings.put(Unit::Service(ObjectName::new("a", unit)), found.iter().map(finding).collect());
        let names = |objects: BTreeSet<ObjectRef>| -> Vec<String> {
            objects.iter().map(|object| object.name.name.to_string()).collect()
        };
        assert_eq!(names(findings.take_moved()), moved, "moved");
        assert_eq!(names(findings.objects().cloned().collect()), about.iter().map(|(of, _)| *of).collect::<Vec<_>>());
        for (of, fields) in about {
            let found: String = findings.about(&object(of)).map(|finding| finding.field.clone()).collect();
            assert_eq!(found, *fields, "about {of}");
        }
    }

    #[test]
    fn what_is_found_is_found_again_by_its_object() {
        let mut findings = Findings::default();
        check(&mut findings, "1", &["ax", "by"], &["a", "b"], &[("a", "x"), ("b", "y")]);
        check(&mut findings, "1", &["ax", "by"], &[], &[("a", "x"), ("b", "y")]);
        check(&mut findings, "2", &["az", "ax"], &["a"], &[("a", "xzx"), ("b", "y")]);
        check(&mut findings, "1", &["ax", "bw"], &["b"], &[("a", "xzx"), ("b", "w")]);
        check(&mut findings, "1", &[], &["a", "b"], &[("a", "zx")]);
        check(&mut findings, "2", &["cq"], &["a", "c"], &[("c", "q")]);
        check(&mut findings, "2", &[], &["c"], &[]);
        assert!(findings.by_unit().is_empty() && findings.all().is_empty());
    }
}
