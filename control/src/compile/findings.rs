//! The findings of all units, by unit and by object, and those that follow from no objects.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use tidegate_config::finding::{Finding, Severity};
use tidegate_config::object::ObjectRef;

use super::Unit;

/// The findings of one unit by object: each once, in ascending order.
pub(crate) type ByObject = BTreeMap<ObjectRef, Arc<[Finding]>>;

/// The number of findings by reason and severity. An entry stays when its number drops to 0.
pub(crate) type FindingCounts = BTreeMap<(&'static str, Severity), i64>;

/// The findings of all units.
#[derive(Debug, Default)]
pub struct Findings {
    by_unit: BTreeMap<Unit, ByObject>,
    /// The units with findings about an object.
    about: BTreeMap<ObjectRef, BTreeSet<Unit>>,
    /// Findings that do not follow from the objects, such as about writers of their status: no unit has them, and no
    /// compilation removes them.
    apart: BTreeMap<ObjectRef, Finding>,
    /// The objects whose findings have changed since [`Findings::take_changed`].
    changed: BTreeSet<ObjectRef>,
    /// Each finding counts once, however many units have it.
    counts: FindingCounts,
    /// The number of units that have a finding, by its hash.
    units_with: HashMap<u64, usize>,
    /// Whether the counts have changed since [`Findings::take_counts`].
    recounted: bool,
}

impl Findings {
    /// The findings by unit, of units that have any.
    #[must_use]
    pub const fn by_unit(&self) -> &BTreeMap<Unit, ByObject> {
        &self.by_unit
    }

    /// The findings of a unit, in ascending order.
    pub fn of(&self, unit: &Unit) -> impl Iterator<Item = &Finding> {
        self.by_unit.get(unit).into_iter().flat_map(|by_object| by_object.values()).flat_map(|findings| &**findings)
    }

    /// All findings, each once, ordered by object and field.
    #[must_use]
    pub fn all(&self) -> Vec<Finding> {
        let all = self.by_unit.values().flat_map(|by_object| by_object.values()).flat_map(|findings| &**findings);
        let all = all.chain(self.apart.values());
        all.collect::<BTreeSet<&Finding>>().into_iter().cloned().collect()
    }

    /// The findings about an object, with duplicates. The order is that of the units, and so the same for equal
    /// findings.
    pub fn about(&self, object: &ObjectRef) -> impl Iterator<Item = &Finding> {
        let units = self.about.get(object).into_iter().flatten();
        let of_units = units.filter_map(|unit| self.by_unit.get(unit)?.get(object)).flat_map(|findings| &**findings);
        of_units.chain(self.apart.get(object))
    }

    /// The objects with findings.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectRef> {
        self.about.keys().chain(self.apart.keys().filter(|object| !self.about.contains_key(*object)))
    }

    /// The objects whose findings have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<ObjectRef> {
        std::mem::take(&mut self.changed)
    }

    /// The counts, if they have changed since the last call.
    pub(crate) fn take_counts(&mut self) -> Option<&FindingCounts> {
        std::mem::take(&mut self.recounted).then_some(&self.counts)
    }

    /// One more unit has a finding.
    fn add(&mut self, finding: &Finding) {
        let units = self.units_with.entry(hash(finding)).or_default();
        *units += 1;
        if *units == 1 {
            self.count(finding, 1);
        }
    }

    /// One unit less has a finding.
    fn subtract(&mut self, finding: &Finding) {
        let hash = hash(finding);
        let Some(units) = self.units_with.get_mut(&hash) else { return };
        *units -= 1;
        if *units == 0 {
            self.units_with.remove(&hash);
            self.count(finding, -1);
        }
    }

    fn count(&mut self, Finding { problem, .. }: &Finding, by: i64) {
        *self.counts.entry((problem.reason(), problem.severity())).or_default() += by;
        self.recounted = true;
    }

    /// Replaces all findings that do not follow from the objects, at most one of each object.
    pub(crate) fn put_apart(&mut self, now: BTreeMap<ObjectRef, Finding>) {
        let before = std::mem::take(&mut self.apart);
        for (object, finding) in now.iter().filter(|(object, finding)| before.get(*object) != Some(*finding)) {
            self.changed.insert(object.clone());
            self.add(finding);
        }
        for (object, finding) in before.iter().filter(|(object, finding)| now.get(*object) != Some(*finding)) {
            self.changed.insert(object.clone());
            self.subtract(finding);
        }
        self.apart = now;
    }

    /// Replaces all findings of a unit.
    pub(crate) fn put(&mut self, unit: Unit, findings: Vec<Finding>) {
        let mut now: BTreeMap<ObjectRef, Vec<Finding>> = BTreeMap::new();
        for finding in findings {
            now.entry(finding.object.clone()).or_default().push(finding);
        }
        let before = self.by_unit.get(&unit).into_iter().flat_map(|by_object| by_object.keys());
        let gone: Vec<ObjectRef> = before.filter(|object| !now.contains_key(*object)).cloned().collect();
        for object in gone {
            self.put_about(&unit, &object, Vec::new());
        }
        for (object, findings) in now {
            self.put_about(&unit, &object, findings);
        }
    }

    /// Replaces the findings of a unit about an object. Its findings about other objects stay.
    pub(crate) fn put_about(&mut self, unit: &Unit, object: &ObjectRef, mut findings: Vec<Finding>) {
        findings.sort_unstable();
        findings.dedup();
        let before = self.by_unit.get(unit).and_then(|by_object| by_object.get(object));
        if before.map(|before| &**before).unwrap_or_default() == &*findings {
            return;
        }
        let before = before.cloned();
        findings.iter().for_each(|finding| self.add(finding));
        before.iter().flat_map(|before| &**before).for_each(|finding| self.subtract(finding));
        self.changed.insert(object.clone());
        if !findings.is_empty() {
            self.by_unit.entry(unit.clone()).or_default().insert(object.clone(), findings.into());
            self.about.entry(object.clone()).or_default().insert(unit.clone());
            return;
        }
        take(&mut self.by_unit, unit, |by_object| {
            by_object.remove(object);
            by_object.is_empty()
        });
        take(&mut self.about, object, |units| {
            units.remove(unit);
            units.is_empty()
        });
    }
}

fn hash(finding: &Finding) -> u64 {
    let mut hasher = DefaultHasher::new();
    finding.hash(&mut hasher);
    hasher.finish()
}

/// Applies `from` to a value of a map, and removes the value if `from` returns `true`.
fn take<K: Ord, V>(map: &mut BTreeMap<K, V>, key: &K, from: impl FnOnce(&mut V) -> bool) {
    if map.get_mut(key).is_some_and(from) {
        map.remove(key);
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

    /// Puts the findings of a unit, each with a letter for its object and one for its field. Checks the objects that
    /// have moved, and the findings by object.
    #[track_caller]
    fn check(findings: &mut Findings, unit: &str, found: &[&str], changed: &[&str], about: &[(&str, &str)]) {
        let problem = || Problem::ProcessingFailed { why: String::new() };
        let finding = |text: &&str| Finding::new(object(&text[..1]), &text[1..], problem());
        findings.put(Unit::Service(ObjectName::new("a", unit)), found.iter().map(finding).collect());
        let names = |objects: BTreeSet<ObjectRef>| -> Vec<String> {
            objects.iter().map(|object| object.name.name.to_string()).collect()
        };
        assert_eq!(names(findings.take_changed()), changed, "changed");
        assert_eq!(names(findings.objects().cloned().collect()), about.iter().map(|(of, _)| *of).collect::<Vec<_>>());
        for (of, fields) in about {
            let found: String = findings.about(&object(of)).map(|finding| finding.field.clone()).collect();
            assert_eq!(found, *fields, "about {of}");
        }
        let all = i64::try_from(findings.all().len()).unwrap();
        findings.take_counts();
        assert!(findings.take_counts().is_none());
        let counts: Vec<_> = findings.counts.iter().map(|(kind, count)| (*kind, *count)).collect();
        assert_eq!(counts, [(("ProcessingFailed", Severity::Error), all)]);
    }

    #[test]
    fn findings_are_indexed_by_object() {
        let mut findings = Findings::default();
        check(&mut findings, "1", &["ax", "by"], &["a", "b"], &[("a", "x"), ("b", "y")]);
        check(&mut findings, "1", &["ax", "by"], &[], &[("a", "x"), ("b", "y")]);
        check(&mut findings, "2", &["az", "ax"], &["a"], &[("a", "xxz"), ("b", "y")]);
        check(&mut findings, "1", &["ax", "bw"], &["b"], &[("a", "xxz"), ("b", "w")]);
        check(&mut findings, "1", &[], &["a", "b"], &[("a", "xz")]);
        check(&mut findings, "2", &["cq"], &["a", "c"], &[("c", "q")]);
        check(&mut findings, "2", &[], &["c"], &[]);
        assert!(findings.by_unit().is_empty() && findings.all().is_empty());
    }

    #[test]
    fn findings_of_no_unit_stand_beside_those_of_units() {
        let mut findings = Findings::default();
        let apart = |names: &[&str]| -> BTreeMap<ObjectRef, Finding> {
            let problem = |name: &str| Problem::ProcessingFailed { why: name.to_owned() };
            names
                .iter()
                .map(|name| (object(&name[..1]), Finding::new(object(&name[..1]), "w", problem(name))))
                .collect()
        };
        check(&mut findings, "1", &["ax"], &["a"], &[("a", "x")]);
        findings.put_apart(apart(&["a", "d"]));
        check(&mut findings, "1", &["ax"], &["a", "d"], &[("a", "xw"), ("d", "w")]);
        findings.put_apart(apart(&["a", "d2"]));
        check(&mut findings, "1", &[], &["a", "d"], &[("a", "w"), ("d", "w")]);
        findings.put_apart(apart(&["d2"]));
        check(&mut findings, "1", &[], &["a"], &[("d", "w")]);
        findings.put_apart(BTreeMap::new());
        check(&mut findings, "1", &[], &["d"], &[]);
        assert!(findings.by_unit().is_empty() && findings.all().is_empty());
    }
}
